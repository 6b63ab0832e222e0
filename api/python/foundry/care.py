# SPDX-License-Identifier: Apache-2.0
"""Find damage in a store (verify), and repair it from other sources (repair)."""
import collections
import ctypes
import os

from . import _lib
from ._lib import lib
from .store import bytes_callback

_REPAIR_DRY_RUN = _VERIFY_FAST = 1
_FAULTS = ("damaged", "quarantined", "missing", "image", "loose", "pages")
_REPAIRED = ("back", "quarantined", "lost", "image")

Fault = collections.namedtuple("Fault", "kind id other text")
Repaired = collections.namedtuple("Repaired", "what id ref text")


def _text(word):
    return word.decode(errors="replace") if word else None


def _path(store):
    return _lib.file_name(store) if store is not None else None


class Verification(_lib.Record):
    """The report of verify(): the fields of fdry_verify_report.

    faults: a list of Fault: kind ("damaged", "quarantined", "missing", "image", "loose" or
    "pages"), the ids of the objects or None, and a message. The Verification is true if there are
    no faults.
    """

    def __init__(self, raw, faults):
        for name, _ in _lib.VerifyReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.faults = faults

    def __bool__(self):
        """Whether the store has no fault."""
        return not self.faults


class Repair(_lib.Record):
    """The report of repair(): the fields of fdry_repair_report.

    reported: a list of Repaired: what ("back", "quarantined", "lost", or "image" for one that
    cannot be loaded), its id, an image's ref or None, and a message.
    """

    def __init__(self, raw, reported):
        for name, _ in _lib.RepairReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.reported = reported


def verify(store=None, threads=0, progress=None, fast=False):
    """Hash everything in a store again, and check every link and ref. Returns a Verification.

    store: its path (None: the default one). Faults raise no error: the Verification lists them, and
    is true if there are none. progress: True: a bar on standard error; tqdm's class, or an object
    of it: that bar; or a function that is called with (bytes done, bytes in all), where the total
    is 0 as long as it is unknown. fast: compare content with the fingerprints that
    manifests record instead of hashing it, at the speed of reading it.
    """
    faults = []
    found = _lib.Callback(_lib.FAULT_FN, lambda _, kind, *words: faults.append(
        Fault(_FAULTS[kind], *map(_text, words))))
    callback = bytes_callback(progress, "verifying")
    opts = _lib.VerifyOpts(sz=ctypes.sizeof(_lib.VerifyOpts), flags=_VERIFY_FAST if fast else 0,
                           threads=threads, fault=found.fn, progress=callback.fn)
    report = _lib.VerifyReport(sz=ctypes.sizeof(_lib.VerifyReport))
    with callback, found:
        lib.fdry_store_verify(_path(store), ctypes.byref(opts), ctypes.byref(report))
    return Verification(report, faults)


def repair(sources=(), store=None, dry_run=False, threads=0, progress=None):
    """Verify a store, and restore what is damaged or missing. Returns a Repair.

    store: its path (None: the default one). sources: paths of other stores, or of packs; the packs
    in the store's folder "packs", those of FOUNDRY_REPAIR, and the registry of FOUNDRY_REGISTRY are
    asked after them. A damaged object that no source has is put into quarantine, and is never
    loaded. dry_run: read the sources, write nothing.
    """
    done, callback = [], bytes_callback(progress, "repairing")
    found = _lib.Callback(_lib.REPAIR_FN, lambda _, what, *words: done.append(
        Repaired(_REPAIRED[what], *map(_text, words))))
    opts = _lib.RepairOpts(sz=ctypes.sizeof(_lib.RepairOpts),
                           flags=_REPAIR_DRY_RUN if dry_run else 0, threads=threads,
                           repaired=found.fn, progress=callback.fn)
    report = _lib.RepairReport(sz=ctypes.sizeof(_lib.RepairReport))
    paths = [_lib.file_name(path) for path in ([sources]
                                               if isinstance(sources, (str, bytes, os.PathLike))
                                               else sources)]
    with callback, found:
        lib.fdry_store_repair(_path(store), (ctypes.c_char_p * len(paths))(*paths), len(paths),
                              ctypes.byref(opts), ctypes.byref(report))
    return Repair(report, done)
