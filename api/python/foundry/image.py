# SPDX-License-Identifier: Apache-2.0
"""The loading side."""
import array as array_of
import atexit
import contextlib
import ctypes
import itertools
import weakref

from . import _lib, _torch, array
from ._lib import lib
from .generators import Source
from .store import as_store
from .tensor import Tensor

_BACKGROUND = 1 << 3
_ASYNC = 1 << 0  # FDRY_ARRAY_ASYNC
_PHASES = ("manifest", "driver", "memory", "content", "kernels", "objects", "graphs")


def _stream(stream):
    """A CUstream as an integer: torch's and CuPy's stream objects, integers, None for the legacy
    default stream.
    """
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return getattr(stream, attribute) or None
    if stream is not None and not isinstance(stream, (int, ctypes.c_void_p)):
        raise TypeError(
            f"{stream!r} is no stream: give torch's or CuPy's, a CUstream as an int, or None")
    return stream


class Report(_lib.Record):
    """Where the time of a load went: the fields of fdry_load_report."""

    def __init__(self, raw):
        for name, _ in _lib.LoadReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))


class Image(_lib.Closing):
    """A loaded image; made by foundry.load(). Use it as a context manager, or close() it; else it
    goes with the last that refers to it: this object, a Tensor, a slot, a DLPack view. One that
    tells progress of graphs built in the background stays until it is closed, or wait() or
    build_stop() was called.
    """

    def __init__(self, pointer, device, opts):
        # whose progress function may be called as long
        self._handle = _lib.Handle(pointer, keeps=[opts])
        opts.calls.handle, opts.handles = weakref.ref(self._handle), ()
        if opts.calls.fn and opts.flags & _BACKGROUND:
            _telling.add(self)
        self._random = Source(self._handle, device)
        self.device = device
        self._keys, self._unread = set(), lib.fdry_image_graph_count(self._handle)
        self._shown = f" {self.id[:12]}: {self._unread} graph(s), on device {device}"

    @property
    def _source(self):
        self._handle.check()
        return self._random

    @property
    def _exports(self):
        """How many DLPack views are alive."""
        return self._handle.held("tensor")

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
            found[key.value] = _lib.foreign(name.value)
        return found

    def _has(self, key):
        """Whether there is a graph `key`. Asks for the last ones first: images of graphs that were
        saved in turn are loaded for their last graph."""
        found = ctypes.c_uint64()
        while self._unread and key not in self._keys:
            self._unread -= 1
            lib.fdry_image_graph(self._handle, self._unread, found, None, None)
            self._keys.add(found.value)
        return key in self._keys

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
        lib.fdry_image_tensor_find(self._handle, _lib.named(name), ctypes.byref(raw))
        return Tensor(self, raw)

    def fact(self, key):
        """The value of a fact; Error where the image does not state it."""
        value = ctypes.c_char_p()
        lib.fdry_image_fact(self._handle, _lib.text(key), ctypes.byref(value))
        return _lib.foreign(value.value)

    def write(self, name, data, stream=None, wait=True):
        """Copy `data` into a tensor; complete on return, or with wait=False when `stream` gets
        there: later launches on it see the new elements, and host memory may be used again at once.

        data: an array of the tensor's shape and type, on the host or on this GPU, with whatever
        strides: element [i, j] goes to element [i, j]. Anything with DLPack (torch's tensors,
        CuPy's) or the buffer protocol (numpy's). Or plain bytes, exactly as many as the tensor has:
        its elements row by row, as numpy's tobytes() gives them, however the tensor's own strides
        place them in memory.

        An array on the GPU is read in the order of `stream`, after what its framework has enqueued
        for it; with wait=False nothing may overwrite it until then. Bytes between a tensor's
        elements are not touched. A tensor whose elements share memory, as an expanded one has them,
        can only be read.
        """
        stream, tensor = _stream(stream), self[name]
        with array.opened(self, tensor, data, stream) as source:
            if source.flat:
                write = lib.fdry_image_write if wait else lib.fdry_image_write_async
                write(self._handle, _lib.named(name), source.raw.addr, source.nbytes, stream)
                return
            lib.fdry_image_write_array(self._handle, _lib.named(name), ctypes.byref(source.raw),
                                       0 if wait else _ASYNC, stream)
            if not wait and not source.host:
                _torch.used_on(data, array.number(stream), self.device)

    def copy(self, name, src, nbytes, stream=None):
        """Copy `nbytes` of device memory at address `src` into a tensor, in the stream's order: its
        elements row by row.
        """
        lib.fdry_image_copy(self._handle, _lib.named(name), src, nbytes, _stream(stream))

    def read(self, name, stream=None, out=None):
        """A tensor's elements on the host, row by row, as a bytearray; ordered after what `stream`
        was given.

        out: an array of the tensor's shape and type to copy into instead, element by element, as
        write() takes them; it is returned. Memory between its elements is not touched.
        """
        stream, tensor = _stream(stream), self[name]
        data = bytearray(tensor.nbytes) if out is None else out
        with array.opened(self, tensor, data, stream, writable=True) as into:
            if into.flat:
                lib.fdry_image_read(self._handle, _lib.named(name), into.raw.addr, into.nbytes,
                                    stream)
            else:
                lib.fdry_image_read_array(self._handle, _lib.named(name), ctypes.byref(into.raw),
                                          stream)
        return data

    def filled(self, name=None):
        """Declare an external tensor filled by other means; all of them without a name."""
        lib.fdry_image_filled(self._handle, _lib.named(name) if name is not None else None)

    def build(self, key):
        """Build and upload graph `key` now, not at its first launch."""
        lib.fdry_image_build(self._handle, key)

    def wait(self):
        """Wait until all graphs are built, and build what the background left out."""
        lib.fdry_image_wait(self._handle)
        _telling.discard(self)

    def build_stop(self):
        """Build nothing more in the background; what is not built is built at its first launch."""
        lib.fdry_image_build_stop(self._handle)
        _telling.discard(self)

    def launch(self, key, stream=None):
        """Launch graph `key` on `stream`: torch's or CuPy's, an integer, or None for the legacy
        default stream.

        Random numbers come from torch's default generator where torch uses CUDA in this process,
        which moves on as torch's own replay would move it, else from the image's own state; see
        generator().
        """
        self._source.launch(key, _stream(stream))

    def generators(self):
        """Names of the random number generators that the graphs draw from; torch's default one is
        "default".
        """
        return list(self._source.names)

    def generator(self, name, generator):
        """Take the state of `name` from `generator`, a torch.Generator of this device; None: from
        the image's own state.
        """
        self._source.bind(name, generator)

    def rng_state(self, name="default"):
        """(seed, offset) that the next launch draws from: that of torch's generator where that one
        counts.
        """
        return self._source.get(name)

    def set_rng_state(self, seed, offset=0, name="default"):
        """Seed a generator, as torch.cuda.manual_seed() does, or put it back where rng_state() was.
        """
        self._source.set(name, seed, offset)

    def restore(self, stream=None):
        """Put every byte of content back as it was sealed. If the image was removed from the store
        meanwhile, nothing changes (Error NOENT).
        """
        lib.fdry_image_restore(self._handle, _stream(stream))

    def synchronize(self, stream=None):
        """Wait until `stream` is idle."""
        lib.fdry_image_synchronize(self._handle, _stream(stream))

    def refresh(self):
        """Make replays fast again in a process that has used many streams; when all graphs are
        built. Takes 150 ms.
        """
        lib.fdry_image_refresh(self._handle)

    def report(self):
        """Where the time of the load went, so far."""
        raw = _lib.LoadReport(sz=ctypes.sizeof(_lib.LoadReport))
        lib.fdry_image_report(self._handle, ctypes.byref(raw))
        return Report(raw)

    def close(self):
        """Release everything. Refused while DLPack views of the image's memory live, and while a
        slot has a graph of it.
        """
        if self._handle.held("slot"):
            raise RuntimeError(
                "a slot still has a graph of the image; invalidate the slot before closing the "
                "image")
        if self._exports:
            raise RuntimeError(
                f"{self._exports} tensor(s) still look at the image's memory; delete them before "
                "closing it")
        super().close()
        _telling.discard(self)

    def __exit__(self, kind, *_):
        try:
            self.close()
        except RuntimeError:
            if kind is None:
                raise  # else what the block raised says more, and the image goes with the last view


# Images that may call into Python from a thread of the library: it must have ended before Python
# does, and is not the one that lets go of the image, since that waits for it.
_telling = set()


@atexit.register
def _quieten():
    for image in list(_telling):
        # in a child of a fork, where nothing runs; closed meanwhile
        with contextlib.suppress(_lib.Error, ValueError):
            image.build_stop()


def _memory(ranges):
    """[(addr, size)] as an array of the library's, one longer, since an empty one would be NULL."""
    ranges = [(addr, size) for addr, size in ranges]
    try:
        words = array_of.array("Q", itertools.chain(*ranges, (0, 0)))
    except (TypeError, OverflowError):
        words = [_lib.fit(ctypes.c_uint64, word) for each in ranges for word in each]
        words = array_of.array("Q", (*words, 0, 0))
    return (_lib.Memory * (len(ranges) + 1)).from_buffer(words)


def load_options(facts=None, device=0, verify=False, poison=False, build=False, driver=None,
                 order=(), threads=0, progress=None, background=False, own_context=False,
                 check_overlap=False, externals=None, into=None, keep=None, ordered=False):
    """The options of load() as the library takes them; the image keeps them."""
    stated = [_lib.Fact(_lib.text(key), _lib.text(str(value))) for key, value in _lib.pairs(facts)]
    sizes = [_lib.External(_lib.text(key), size) for key, size in _lib.pairs(externals)]
    ranges = _memory(keep or ())
    calls = _lib.Callback(_lib.PROGRESS_FN, progress and (
        lambda _, phase, done, total, ms: progress(_PHASES[phase], done, total, ms)))
    asked = (verify, poison, build, background, own_context, check_overlap, ordered)
    opts = _lib.LoadOpts(sz=ctypes.sizeof(_lib.LoadOpts), device=device, nfacts=len(stated),
                         flags=sum(1 << bit for bit, yes in enumerate(asked) if yes),
                         facts=(_lib.Fact * len(stated))(*stated),
                         driver=_lib.file_name(driver) if driver else None,
                         order=_lib.array(ctypes.c_uint64, order), norder=len(order),
                         threads=threads, progress=calls.fn,
                         externals=(_lib.External * len(sizes))(*sizes), nexternals=len(sizes),
                         into=into._handle if into else None, nkeep=len(ranges) - 1)
    if keep is not None:
        opts.keep = ranges
    opts.calls = calls
    return opts


def load(name, store=None, facts=None, device=0, verify=False, poison=False, build=False,
         driver=None, order=(), threads=0, progress=None, background=False, own_context=False,
         check_overlap=False, externals=None, into=None, keep=None, ordered=False):
    """Load an image by ref, id or an unambiguous prefix of an id; gives an Image.

    store: a Store or a path (None: the default store). facts: {key: value} that the image must
    have. verify: hash content even where this boot has done so. poison: fill scratch and external
    memory with 0xA5. build: build every graph now. driver: path of a libcuda. order: keys of
    graphs, the one that will be launched first at the front. threads: how many may work on the
    load; 0: as many as pay. progress: called with (phase, done, total, milliseconds since the load
    began), also from threads of the library, one call at a time; phases are manifest, driver,
    memory, content, kernels, objects, graphs. background: build graphs in the background; ordered:
    only those that `order` names. own_context: kernels and graphs in a context of the image's own.
    check_overlap: find launches that may overlap. externals: {name: bytes}, how much to back of
    external tensors that were captured with room. into: a Capture of this process among whose
    allocations the image is placed: they must be the first of those that the sealing process had.
    keep: [(address, bytes)] that keep the bytes they have then; None: every allocation.
    """
    opts = load_options(facts, device, verify, poison, build, driver, order, threads, progress,
                        background, own_context, check_overlap, externals, into, keep, ordered)
    raw, store = _lib.IMAGE(), as_store(store)
    try:
        with opts.calls:
            lib.fdry_image_load(store._handle, _lib.text(name), ctypes.byref(opts),
                                ctypes.byref(raw))
    except BaseException:
        _lib.Handle(raw, keeps=[opts]).close()
        raise
    return Image(raw, device, opts)
