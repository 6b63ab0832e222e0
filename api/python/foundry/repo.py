# SPDX-License-Identifier: Apache-2.0
"""Repositories of container registries: their tags, and the removal of images."""
import ctypes

from . import _lib
from ._lib import lib

_DRY_RUN, _PLAIN_HTTP = 1, 4
_REMOVED = 1


class Tag(_lib.Record):
    """A tag of a repository, or a document without one: the fields of fdry_repo_item.

    tag: None for a document without a tag. kept: False if it was, or would be, removed.
    """

    def __init__(self, raw):
        self.tag = raw.tag.decode() if raw.tag else None
        self.id = raw.id.decode()
        self.why = raw.why.decode() if raw.why else None
        self.objects, self.bytes = raw.objects, raw.bytes
        self.kept = raw.fate != _REMOVED
        self.is_image, self.is_signed = bool(raw.is_image), bool(raw.is_signed)
        self.is_signature = bool(raw.is_signature)


class Pruned(_lib.Record):
    """What was removed from a repository: the fields of fdry_repo_report. items: [Tag]."""

    def __init__(self, raw, items):
        for name, _ in _lib.RepoReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.items = items


def _call(function, name, flags, requests, keep=()):
    items = []
    found = _lib.Callback(_lib.REPO_FN, lambda _, item: items.append(Tag(item.contents)))
    patterns = (ctypes.c_char_p * len(keep))(*[_lib.text(one) for one in keep])
    opts = _lib.RepoOpts(sz=ctypes.sizeof(_lib.RepoOpts), flags=flags, requests=requests,
                         keep=patterns, count_keep=len(keep), item=found.fn)
    report = _lib.RepoReport(sz=ctypes.sizeof(_lib.RepoReport))
    with found:
        function(_lib.text(name), ctypes.byref(opts), ctypes.byref(report))
    return report, items


def tags(repository, plain_http=False, requests=0):
    """List the tags of "oci://HOST[:PORT]/REPOSITORY", by name, as a list of Tag. Tags at which
    signatures lie are left out. plain_http, requests: as for Store.push().
    """
    _, items = _call(lib.fdry_repo_tags, repository, _PLAIN_HTTP if plain_http else 0, requests)
    return [item for item in items if not item.is_signature]


def unpush(name, dry_run=False, plain_http=False, requests=0):
    """Remove an image, named by tag or digest, from its registry, with its signatures. Returns a
    Pruned. dry_run: remove nothing.
    """
    flags = (_DRY_RUN if dry_run else 0) | (_PLAIN_HTTP if plain_http else 0)
    return Pruned(*_call(lib.fdry_repo_unpush, name, flags, requests))


def prune(repository, keep, dry_run=True, plain_http=False, requests=0):
    """Remove all images from a repository but those whose tags match a pattern of `keep`, and what
    belongs to them. Returns a Pruned, whose `items` is the plan. dry_run: remove nothing; this is
    the default.
    """
    keep = [keep] if isinstance(keep, str) else list(keep)
    flags = (_DRY_RUN if dry_run else 0) | (_PLAIN_HTTP if plain_http else 0)
    return Pruned(*_call(lib.fdry_repo_prune, repository, flags, requests, keep))
