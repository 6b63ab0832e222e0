# SPDX-License-Identifier: Apache-2.0
"""Graphs of an engine: captured ones that keep their nodes for the seal, and loaded ones."""
import contextlib
import dataclasses
import enum
import hashlib
import re

import torch

from .. import _lib
from .._lib import Error
from ..generators import recognise

NAME_MAX = 255  # characters of a name in an image


def _text(key):
    if dataclasses.is_dataclass(key):
        return ",".join(f"{f.name}={_text(getattr(key, f.name))}" for f in dataclasses.fields(key))
    if isinstance(key, str):
        return key
    if isinstance(key, (set, frozenset)):  # in the same order in each process
        return "{" + ",".join(sorted(map(_text, key))) + "}"
    return key.name if isinstance(key, enum.Enum) else repr(key)


def name_of(key):
    """Return the name of a graph in an image, the same for equal keys in every process.

    key: a dataclass, an enum, a set, or anything whose repr() has no addresses, and no sets inside.
    A name has few characters, so a key with others gets a name that ends with a hash of its text.
    Raises Error if there is an address.
    """
    text = _text(key)
    if re.search(r" at 0x[0-9a-f]", text):
        raise Error(_lib.REFUSED, f"the key {text} of a graph has an address, so a later start "
                    "would not find the graph")
    name = re.sub(r"[^A-Za-z0-9_.@+/=:,-]", "_", text)
    if name == text and len(name) <= NAME_MAX:
        return name
    return f"{name[:NAME_MAX - 17]}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@contextlib.contextmanager
def kept(area, capture, ordinal):
    """Inside the with block, torch.cuda.CUDAGraph keeps its nodes, and leaves the area's pool while
    it captures.
    """
    original = torch.cuda.CUDAGraph

    class CUDAGraph(original):
        def __new__(cls, *_args, **_kwargs):
            return super().__new__(cls, True)

        def __init__(self, *_args, **_kwargs):
            super().__init__(True)

        def capture_begin(self, *args, **kwargs):
            self.watched = capture._names.of(torch, ordinal)
            area.pool.leave()
            try:
                super().capture_begin(*args, **kwargs)
            except BaseException:
                area.pool.enter()
                raise

        def capture_end(self):
            try:
                super().capture_end()
            finally:
                area.pool.enter()
            self.instantiate()

    torch.cuda.CUDAGraph = torch.cuda.graphs.CUDAGraph = CUDAGraph
    try:
        yield
    finally:
        torch.cuda.CUDAGraph = torch.cuda.graphs.CUDAGraph = original


def add(capture, graphs):
    """Add {key: graph}, captured inside kept(), to a capture, with the numbers that they draw.

    Returns {key: number}.
    """
    numbers = {key: number for number, key in enumerate(graphs, 1)}
    for key, graph in graphs.items():
        number = numbers[key]
        capture.add_graph(number, graph, name_of(key))
        recognise(capture._handle, number, graph, graph.watched)
    return numbers


class Loaded:
    """A graph of an image, in the place of a torch.cuda.CUDAGraph."""

    def __init__(self, image, key, ordinal):
        self._image, self.key, self._ordinal = image, key, ordinal

    def replay(self):
        self._image.launch(self.key, torch.cuda.current_stream(self._ordinal).cuda_stream)

    def reset(self):
        self._image = None


def table(image, keys, ordinal):
    """Return {key: Loaded} for all of `keys`. Raises Error if the image lacks one."""
    found = {name: number for number, name in image.graphs().items()}
    names = {key: name_of(key) for key in keys}
    missing = [name for name in names.values() if name not in found]
    if missing:
        raise Error(_lib.NOKEY, f"the image has no graph {missing[0]}")
    return {key: Loaded(image, found[name], ordinal) for key, name in names.items()}
