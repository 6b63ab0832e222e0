# SPDX-License-Identifier: Apache-2.0
"""Whether an image is complete on this host, with one answer for all ranks of a group."""
import ctypes
import os

from . import _lib
from ._lib import lib
from .store import as_store

_WAIT_MAX = (1 << 32) - 1


class Pinned(_lib.Record):
    """Whether an image is here: the fields of fdry_pin_report, id and why as text. True in a
    condition if it is complete, on every rank.
    """

    def __init__(self, raw):
        for name, _ in _lib.PinReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.id, self.why = raw.id.decode(), raw.why.decode(errors="replace")

    def __bool__(self):
        return self.code == 0


def gather(process_group=None):
    """An exchange for pin() among the ranks of a process group of torch.distributed (None: the
    default group), which may be on several hosts.
    """
    def exchange(record):
        import torch.distributed
        records = [None] * torch.distributed.get_world_size(process_group)
        torch.distributed.all_gather_object(records, record, group=process_group)
        return records
    return exchange


def pin(name, store=None, facts=None, group=None, rank=0, ranks=1, exchange=None, wait=600):
    """Pin the image `name` on this host completely, or report what is missing. Returns a Pinned.

        if foundry.pin("model", group=f"job{id}", rank=rank, ranks=4):
            image = foundry.load("model")      # on all four ranks, or on none

    Nothing is loaded, and CUDA is not started. What the store lacks is fetched from the repository
    of FOUNDRY_REGISTRY. Store.unpin() ends the protection from eviction.

    store: a Store or a path (None: the default store). facts: {key: value} that the image must
    have. rank, ranks: this process among those that start together. All of them get the same
    answer, so all of them must call; each may name an image of its own. group: a name for the ranks
    of one start on this host; a later start needs another name. exchange: for ranks on several
    hosts, a function that gets the bytes of this rank and returns those of all ranks, by rank, such
    as gather(). wait: seconds until other ranks of this host count as missing. Ctrl-C ends the wait
    for them, and without `exchange` that for the registry, too.
    """
    def call(_, mine, every, length):
        records = exchange(ctypes.string_at(mine, length))
        if len(records) != ranks or any(len(record) != length for record in records):
            raise ValueError(f"exchange must return {ranks} records of {length} bytes")
        ctypes.memmove(every, b"".join(records), ranks * length)
        return 0

    stated = [_lib.Fact(_lib.text(key), _lib.text(str(value))) for key, value in _lib.pairs(facts)]
    callback = _lib.Callback(_lib.EXCHANGE_FN, exchange and call, failed=1)
    raised = []  # by handlers of signals, while a thread of its own fetches
    stop = _lib.stop(raised=raised)
    opts = _lib.PinOpts(sz=ctypes.sizeof(_lib.PinOpts), facts=(_lib.Fact * len(stated))(*stated),
                        wait_ms=max(1, int(min(wait * 1000, _WAIT_MAX))), nfacts=len(stated),
                        group=_lib.text(group) if group is not None else None, rank=rank,
                        ranks=ranks, exchange=callback.fn, stop=stop.fn)
    report = _lib.PinReport(sz=ctypes.sizeof(_lib.PinReport))
    store = as_store(store)

    def ask():
        with callback, stop:
            lib.fdry_image_pin(store._handle, _lib.text(name), ctypes.byref(opts),
                               ctypes.byref(report))
    if os.environ.get("FOUNDRY_REGISTRY") and not exchange:
        _lib.unbroken(ask, raised)
    else:
        ask()
    return Pinned(report)
