# SPDX-License-Identifier: Apache-2.0
"""The parts of a loaded image as mappings: graphs by key, tensors and facts by name."""
import ctypes
from collections.abc import Mapping

from . import _lib
from ._lib import lib
from .tensor import Tensor


def unknown(what, key, known):
    """The Error, a KeyError as well, for a key that a mapping lacks; it names similar keys."""
    import difflib
    names = [str(each) for each in known]
    near = difflib.get_close_matches(str(key), names, n=3, cutoff=0.5)
    shown = ", ".join(map(_lib.shown, near or names[:5]))
    more = (f"did you mean {shown}?" if near
            else f"it has {shown}{', ...' if len(names) > 5 else ''}" if names else "it has none")
    return _lib.Error(_lib.NOKEY, f"the image has no {what} {key!r}; {more}")


class View(Mapping):
    """A read-only mapping onto a loaded image, which it keeps loaded until close()."""

    what = ""

    def __init__(self, image):
        self._image = image

    def _all(self):
        raise NotImplementedError

    def __iter__(self):
        return iter(self._all())

    def __len__(self):
        return len(self._all())

    def __repr__(self):
        if not self._image._handle:
            return f"<{type(self).__name__} of a closed image>"
        return f"<{type(self).__name__} of {self._image.id[:12]}: {_lib.brief(dict(self))}>"

    def _repr_html_(self):
        from . import _show
        return _show.mapping(repr(self).partition(":")[0].strip("<>"),
                             self if self._image._handle else {})

    def _ipython_key_completions_(self):
        return list(self)


class Facts(View):
    """{key: value} of the facts that an image states, both str, by ascending key."""

    def _all(self):
        key, value, found = ctypes.c_char_p(), ctypes.c_char_p(), {}
        while True:
            try:
                lib.fdry_image_fact_at(self._image._handle, len(found), key, value)
            except _lib.Error as e:
                if e.name != "FDRY_E_NOKEY":
                    raise
                return found
            found[_lib.foreign(key.value)] = _lib.foreign(value.value)

    def __getitem__(self, key):
        found = self._all()
        if key not in found:
            raise unknown("fact", key, found)
        return found[key]


class Graph:
    """A graph of a loaded image: image.graphs[key].

    key: an int, by which it is launched. name: for people, "" if it has none. nodes: their number.
    """

    def __init__(self, image, key, name, nodes):
        self._image, self.key, self.name, self.nodes = image, key, name, nodes

    def _repr_html_(self):
        from . import _show
        return _show.plain(self)

    def launch(self, stream=None):
        """Do what Image.launch(key, stream) does."""
        self._image.launch(self.key, stream)

    def build(self):
        """Do what Image.build(key) does."""
        self._image.build(self.key)

    def __repr__(self):
        name = f" '{_lib.shown(self.name)}'" if self.name else ""
        return f"<Graph {self.key}{name}: {self.nodes} node{'s' * (self.nodes != 1)}>"


class Graphs(View):
    """{key: Graph} of an image, in the order in which they were sealed.

    A call, image.graphs(), returns a dict {key: name}.
    """

    def _all(self):
        key, name, nodes = ctypes.c_uint64(), ctypes.c_char_p(), ctypes.c_uint32()
        found = {}
        for i in range(lib.fdry_image_graph_count(self._image._handle)):
            lib.fdry_image_graph(self._image._handle, i, key, name, nodes)
            found[key.value] = Graph(self._image, key.value, _lib.foreign(name.value), nodes.value)
        return found

    def __getitem__(self, key):
        found = self._all()
        if key not in found:
            raise unknown("graph", key, found)
        return found[key]

    def __call__(self):
        return {key: graph.name for key, graph in self._all().items()}


class Tensors(View):
    """{name: Tensor} of an image, in the order of their names.

    A call, image.tensors(), returns a list of Tensor.
    """

    def _all(self):
        found = {}
        for i in range(lib.fdry_image_tensor_count(self._image._handle)):
            raw = _lib.Tensor()
            lib.fdry_image_tensor(self._image._handle, i, ctypes.byref(raw))
            found[_lib.foreign(raw.name)] = raw
        return found

    def __getitem__(self, name):
        raw = _lib.Tensor()
        try:
            lib.fdry_image_tensor_find(self._image._handle, _lib.named(name), ctypes.byref(raw))
        except _lib.Error as e:
            if e.name != "FDRY_E_NOKEY":
                raise
            raise unknown("tensor named", name, self._all()) from None
        return Tensor(self._image, raw)

    def __contains__(self, name):
        return name in self._all()

    def __call__(self):
        return [Tensor(self._image, raw) for raw in self._all().values()]
