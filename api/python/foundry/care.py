# SPDX-License-Identifier: Apache-2.0
"""Damage: verifying a store, and repairing it from other places."""
import collections
import ctypes
import os

from . import _lib
from ._lib import lib
from .store import bytes_told

_REPAIR_DRY_RUN = 1
_FAULTS = ("damaged", "quarantined", "missing", "image", "loose", "pages")
_REPAIRED = ("back", "quarantined", "lost", "image")

Fault = collections.namedtuple("Fault", "kind id other text")
Repaired = collections.namedtuple("Repaired", "what id ref text")


def _text(word):
    return word.decode(errors="replace") if word else None


def _path(store):
    return _lib.file_name(store) if store is not None else None


class Verification(_lib.Record):
    """What was found: the fields of fdry_verify_report, but `faults`, which are a list of Fault:
    kind ("damaged", "quarantined", "missing", "image", "loose" or "pages"), the ids of the objects
    meant or None, and a sentence.
    """

    def __init__(self, raw, faults):
        for name, _ in _lib.VerifyReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.faults = faults

    def __bool__(self):
        """Whether the store is sound."""
        return not self.faults


class Repair(_lib.Record):
    """What was repaired: the fields of fdry_repair_report; `reported`, a list of Repaired: what
    ("back", "quarantined", "lost", or "image" for one that cannot be loaded), its id, an image's
    ref or None, and the same in words.
    """

    def __init__(self, raw, reported):
        for name, _ in _lib.RepairReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.reported = reported


def verify(store=None, threads=0, progress=None):
    """Hash everything in the store at the path `store` (None: the default one) again; check every
    link and ref.

    Faults are no error: they are in the Verification that is returned, which is true where there is
    none. progress(done, total) hears of bytes; a total of 0: not known yet.
    """
    faults = []
    found = _lib.FAULT_FN(lambda _, kind,
                          *words: faults.append(Fault(_FAULTS[kind], *map(_text, words))))
    told = bytes_told(progress)
    opts = _lib.VerifyOpts(sz=ctypes.sizeof(_lib.VerifyOpts), threads=threads, fault=found,
                           progress=told.fn)
    report = _lib.VerifyReport(sz=ctypes.sizeof(_lib.VerifyReport))
    with told:
        lib.fdry_store_verify(_path(store), ctypes.byref(opts), ctypes.byref(report))
    return Verification(report, faults)


def repair(sources=(), store=None, dry_run=False, threads=0, progress=None):
    """Verify the store at the path `store` (None: the default one) and bring back what is damaged
    or missing.

    sources: paths of other stores, or of packs. What none has is put into quarantine where it is
    damaged, and never served. dry_run: ask the sources, write nothing. Returns a Repair.
    """
    done, told = [], bytes_told(progress)
    fn = _lib.REPAIR_FN(lambda _, what,
                        *words: done.append(Repaired(_REPAIRED[what], *map(_text, words))))
    opts = _lib.RepairOpts(sz=ctypes.sizeof(_lib.RepairOpts),
                           flags=_REPAIR_DRY_RUN if dry_run else 0, threads=threads, repaired=fn,
                           progress=told.fn)
    report = _lib.RepairReport(sz=ctypes.sizeof(_lib.RepairReport))
    paths = [_lib.file_name(path) for path in ([sources]
                                               if isinstance(sources, (str, bytes, os.PathLike))
                                               else sources)]
    with told:
        lib.fdry_store_repair(_path(store), (ctypes.c_char_p * len(paths))(*paths), len(paths),
                              ctypes.byref(opts), ctypes.byref(report))
    return Repair(report, done)
