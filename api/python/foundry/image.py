# SPDX-License-Identifier: Apache-2.0
"""The loading side."""
import ctypes

from . import _lib
from ._lib import lib
from .store import as_store
from .tensor import Tensor

_VERIFY, _POISON, _BUILD = 1, 2, 4


def _stream(stream):
    """A CUstream as an integer: torch's and CuPy's stream objects, integers, None for the legacy default stream."""
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return getattr(stream, attribute) or None
    return stream


class Report:
    """Where the time of a load went: the fields of fdry_load_report."""

    def __init__(self, raw):
        for name, _ in _lib.LoadReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))


class Image:
    """A loaded image; made by foundry.load(). Use it as a context manager, or close() it."""

    def __init__(self, handle, device):
        self._handle = handle
        self._exports = 0  # DLPack views that are alive
        self.device = device

    @property
    def id(self):
        """The image's hash, 64 digits."""
        text = ctypes.create_string_buffer(_lib.ID_SIZE)
        lib.fdry_image_id(self._handle, text)
        return text.value.decode()

    def graphs(self):
        """{key: name} of the graphs."""
        key, name, nodes = ctypes.c_uint64(), ctypes.c_char_p(), ctypes.c_uint32()
        found = {}
        for i in range(lib.fdry_image_graph_count(self._handle)):
            lib.fdry_image_graph(self._handle, i, key, name, nodes)
            found[key.value] = name.value.decode()
        return found

    def tensors(self):
        """The named tensors, by name."""
        found = []
        for i in range(lib.fdry_image_tensor_count(self._handle)):
            raw = _lib.Tensor()
            lib.fdry_image_tensor(self._handle, i, ctypes.byref(raw))
            found.append(Tensor(self, raw))
        return found

    def __getitem__(self, name):
        """The tensor of that name; Error where there is none."""
        raw = _lib.Tensor()
        lib.fdry_image_tensor_find(self._handle, name.encode(), ctypes.byref(raw))
        return Tensor(self, raw)

    def fact(self, key):
        """The value of a fact; Error where the image does not state it."""
        value = ctypes.c_char_p()
        lib.fdry_image_fact(self._handle, key.encode(), ctypes.byref(value))
        return value.value.decode()

    def write(self, name, data, stream=None, wait=True):
        """Copy host bytes (anything with the buffer protocol, exactly the tensor's size) into a tensor; complete on return,
        or with wait=False when `stream` gets there: later launches on it see them, and `data` may be used again at once.
        """
        view = memoryview(data).cast("B")
        if view.readonly:
            array = ctypes.c_char_p(bytes(view))
            size = view.nbytes
        else:
            array = (ctypes.c_char * view.nbytes).from_buffer(view)
            size = view.nbytes
        write = lib.fdry_image_write if wait else lib.fdry_image_write_async
        write(self._handle, name.encode(), ctypes.cast(array, ctypes.c_void_p), size, _stream(stream))

    def copy(self, name, src, nbytes, stream=None):
        """Copy `nbytes` of device memory at address `src` into a tensor, in the stream's order."""
        lib.fdry_image_copy(self._handle, name.encode(), src, nbytes, _stream(stream))

    def read(self, name, stream=None):
        """A tensor's bytes on the host, as a bytearray; ordered after what `stream` was given."""
        data = bytearray(self[name].nbytes)
        array = (ctypes.c_char * len(data)).from_buffer(data)
        lib.fdry_image_read(self._handle, name.encode(), ctypes.cast(array, ctypes.c_void_p), len(data), _stream(stream))
        return data

    def filled(self, name=None):
        """Declare an external tensor filled by other means; all of them without a name."""
        lib.fdry_image_filled(self._handle, name.encode() if name is not None else None)

    def build(self, key):
        """Build and upload graph `key` now, not at its first launch."""
        lib.fdry_image_build(self._handle, key)

    def launch(self, key, stream=None):
        """Launch graph `key` on `stream`: torch's or CuPy's, an integer, or None for the legacy default stream."""
        lib.fdry_image_launch(self._handle, key, _stream(stream))

    def restore(self, stream=None):
        """Put every byte of content back as it was sealed."""
        lib.fdry_image_restore(self._handle, _stream(stream))

    def synchronize(self, stream=None):
        """Wait until `stream` is idle."""
        lib.fdry_image_synchronize(self._handle, _stream(stream))

    def report(self):
        """Where the time of the load went, so far."""
        raw = _lib.LoadReport(sz=ctypes.sizeof(_lib.LoadReport))
        lib.fdry_image_report(self._handle, ctypes.byref(raw))
        return Report(raw)

    def close(self):
        """Release everything. Refused while DLPack views of the image's memory live."""
        if self._exports:
            raise RuntimeError(f"{self._exports} tensor(s) still look at the image's memory; delete them before closing it")
        handle, self._handle = self._handle, _lib.IMAGE()
        lib.fdry_image_unload(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def load_options(facts=None, device=0, verify=False, poison=False, build=False, driver=None, order=(), threads=0):
    """The options of load() as the library takes them."""
    pairs = [_lib.Fact(key.encode(), str(value).encode()) for key, value in (facts or {}).items()]
    flags = (_VERIFY if verify else 0) | (_POISON if poison else 0) | (_BUILD if build else 0)
    return _lib.LoadOpts(sz=ctypes.sizeof(_lib.LoadOpts), device=device, flags=flags, nfacts=len(pairs),
                         facts=(_lib.Fact * len(pairs))(*pairs), driver=driver.encode() if driver else None,
                         order=(ctypes.c_uint64 * len(order))(*order), norder=len(order), threads=threads)


def load(name, store=None, facts=None, device=0, verify=False, poison=False, build=False, driver=None,
         order=(), threads=0):
    """Load an image by ref, id or an unambiguous prefix of an id; gives an Image.

    store: a Store or a path (None: the default store). facts: {key: value} that the image must
    have. verify: hash content even where this boot has done so. poison: fill scratch and
    external memory with 0xA5. build: build every graph now. driver: path of a libcuda. order: keys
    of graphs, the one that will be launched first at the front. threads: how many may work on the
    load; 0: as many as pay.
    """
    opts = load_options(facts, device, verify, poison, build, driver, order, threads)
    handle, store = _lib.IMAGE(), as_store(store)
    lib.fdry_image_load(store._handle, name.encode(), ctypes.byref(opts), ctypes.byref(handle))
    return Image(handle, device)
