# SPDX-License-Identifier: Apache-2.0
"""Outputs of loaded graphs: torch's views of an image's memory, made when they are first used.

A view as torch's tensor takes longer than the load of another graph of the image, and a server may
replay one graph of many.
"""
import threading

from . import _file, _torch

_MISSING = object()


class Outputs:
    """The outputs of one graph. Until they are made, this object is one of the users of the placed
    image; afterwards their tensors keep it.
    """

    def __init__(self, placed, file):
        tensors = []
        _file.walk(file.outputs, lambda raw: tensors.append(placed.check(file, raw)))
        self._placed, self._raw = placed, file.outputs
        self._inference = _torch.is_inference()
        self._made = _MISSING
        # re-entrant, since the garbage collector may run a finalizer that reads them
        self._lock = threading.RLock()
        if tensors:
            placed.users.add(self)

    def get(self):
        """The outputs. Each call returns the same objects, in every thread."""
        if self._made is _MISSING:
            with self._lock:
                if self._made is _MISSING:
                    self._make()
        return self._made

    def _make(self):
        with _torch.inference(self._inference):
            made = _file.walk(self._raw, self._placed.tensor)
        if self._made is _MISSING:
            self._made = made
            self._placed.users.discard(self)
            self._placed = self._raw = None


class Loaded(tuple):
    """(graph, outputs) of a load. The outputs are made when they are first used: by `outputs`, an
    index, a comparison, or when the pair is unpacked.
    """

    # The tuple that C code sees without these methods is empty, and has no half of the pair.
    def __new__(cls, graph, outputs):
        made = super().__new__(cls)
        made.graph, made._lazy = graph, outputs
        return made

    @property
    def outputs(self):
        return self._lazy.get()

    def _whole(self):
        return self.graph, self.outputs

    def _part(self, i):
        return self.outputs if i else self.graph

    def __len__(self):
        return 2

    def __iter__(self):
        return map(self._part, range(2))

    def __reversed__(self):
        return map(self._part, (1, 0))

    def __getitem__(self, i):
        try:
            found = range(2)[i]
        except IndexError:
            raise IndexError("tuple index out of range") from None
        return tuple(map(self._part, found)) if isinstance(found, range) else self._part(found)

    def __reduce__(self):
        return tuple, (self._whole(),)

    def __radd__(self, other):
        # Python asks this before a list that is to be extended (+=).
        return other + self._whole() if isinstance(other, tuple) else NotImplemented


def _as_tuple(name):
    method = getattr(tuple, name)

    def call(self, *args):
        args = [each._whole() if isinstance(each, Loaded) else each for each in args]
        return method(self._whole(), *args)
    call.__name__ = name
    return call


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__add__",
              "__mul__", "__rmul__", "__contains__", "__repr__", "count", "index"):
    setattr(Loaded, _name, _as_tuple(_name))
