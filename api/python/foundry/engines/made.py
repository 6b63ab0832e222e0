# SPDX-License-Identifier: Apache-2.0
"""The tensors that loading a model has made.

Their memory belongs to the process in every start. If a phase that later starts omit fills one of
them, a later start reads what loading has left there.
"""
import ctypes

import torch

from .. import _lib, _torch
from .._lib import lib
from . import attach


class Made:
    """The tensors of a model that was just loaded on device `ordinal`.

    model: returns it. plain: attach.plain() of it; later phases may give its modules further
    tensors. changed: None, or which tensor a phase has changed.
    """

    def __init__(self, model, ordinal):
        self.model, self._ordinal = model, ordinal
        self._known = set(attach.tensors(model()))
        self.plain = attach.plain(model())
        self._phase, self._before, self.changed = None, {}, None

    def _contents(self):
        """Return {name: fingerprint} of those tensors that the model still has."""
        found = {place[0]: _span(each) for place, each in attach.tensors(self.model()).items()
                 if place in self._known}
        ranges = sorted(set(found.values()))
        if not ranges:
            return {}
        torch.cuda.synchronize()
        words = (ctypes.c_uint64 * (2 * len(ranges)))()
        lib.fdry_memory_fingerprint(self._ordinal, _torch.stream(self._ordinal) or None,
                                    (_lib.Memory * len(ranges))(*ranges), len(ranges), words)
        of_range = {each: tuple(words[2 * i:2 * i + 2]) for i, each in enumerate(ranges)}
        return {name: of_range[each] for name, each in found.items()}

    def begin(self, phase):
        """Note the contents before a phase that later starts omit."""
        self._phase, self._before = phase, self._contents()

    def end(self):
        """Note in `changed` whether the phase has changed a tensor."""
        if self._phase is None or self.changed:
            return
        try:
            now = self._contents()
            name = next((name for name in now if now[name] != self._before.get(name)), None)
            if name is not None:
                self.changed = (f"{self._phase} has changed the model's tensor {name}, and a later "
                                "start omits that")
        except Exception as e:  # the phase has ended, and the engine goes on
            self.changed = str(e) or repr(e)
        self._phase = None


def _span(tensor):
    """Return (address, bytes) from a tensor's first to its last byte."""
    elements = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    return attach.address(tensor), elements * tensor.dtype.itemsize
