# SPDX-License-Identifier: Apache-2.0
"""Captures: device memory at fixed addresses, from which images are sealed."""
import array
import bisect
import contextlib
import ctypes
import os

from . import _lib, _log, _progress, _torch
from ._lib import Error, lib, libc
from .generators import Names, recognise
from .host import HostFunction
from .store import Store
from .tensor import describe


class Sealed(_lib.Record):
    """The report of a seal: `id`, the image's hash, and the fields of fdry_seal_report."""

    def __init__(self, ident, report):
        self.id = ident
        for name, _ in _lib.SealReport._fields_[1:]:
            setattr(self, name, getattr(report, name))

    def __repr__(self):
        return f"<Sealed {self.id[:12]}: {self.graphs} graphs, {self.kernels} kernels>"


def base_for_name(name=None):
    """The device address at which captures of this name begin; without a name, the default one."""
    return lib.fdry_base_for_name(_lib.text(name) if name else None)


_PINNED = 1  # FDRY_CAPTURE_PINNED
_ORIGINS = ("region", "mapped", "shared")  # by enum fdry_memory_origin
_PHASES = ("graphs", "slices", "content", "kernels", "commit")


def seal_callback(progress, ref):
    """A Callback for the progress of a seal."""
    progress, ends = _progress.opened(progress, f"sealing {ref}" if ref else "sealing",
                                      ("content",))
    return _lib.Callback(_lib.SEAL_FN, progress and (
        lambda _, phase, done, total, ms: progress(_PHASES[phase], done, total, ms)), ends=ends)


class Capture(_lib.Closing):
    """Device memory at fixed addresses, and the graphs and tensors that a seal writes to an image.

        with foundry.Capture() as capture:
            model = build()                       # allocations take the region's addresses
            model(x)                              # warm up
            with capture.graph(1, stream=s):      # capture, by key
                y = model(x)
            capture.tensor("x", x, use="input")
            capture.tensor("y", y, use="output")
            sealed = capture.seal(store, "my-model")

    A process has one capture at a time. Any thread may use it, but nothing may use the memory of
    the region during a seal. The tensors and graphs that are given to it live until it ends.

    name: of the workload, such as its ref. Images of different names have different addresses, so
    that one process can load several. base: the first device address (0: it follows from the name).
    size: bytes of addresses (0: as many as are free there, at most 1 TiB). preallocate: bytes of
    memory to map in advance. device: its ordinal. after: the present Capture. Its region ends when
    this one has begun; memory in it stays valid. aside: bytes of addresses for an aside area behind
    the region, which needs a size; see aside(). pinned: pinned host memory gets fixed addresses, so
    that graphs whose kernels use it, such as batch norm in training, can be sealed.
    """

    def __init__(self, name=None, base=0, size=0, preallocate=0, device=0, after=None, aside=0,
                 pinned=False):
        opts = _lib.CaptureOpts(sz=ctypes.sizeof(_lib.CaptureOpts), device=device, base=base,
                                size=size, preallocate=preallocate,
                                name=_lib.text(name) if name else None,
                                after=after._handle.raw if after else None, aside=aside,
                                flags=_PINNED if pinned else 0)
        raw = _lib.CAPTURE()
        _log.follow()
        lib.fdry_hook_install(None)
        lib.fdry_capture_begin(ctypes.byref(opts), ctypes.byref(raw))
        self._prepare(raw, device)

    def _prepare(self, pointer, device, lent=False):
        self._lent = lent  # the library owns the capture and ends it
        self._device = device
        self._graphs, self._tensors = [], []  # kept alive until the capture ends
        self._handle = _lib.Handle(pointer, keeps=(self._graphs, self._tensors), lent=lent)
        self._shown = f" on device {device}"
        self.named = []  # every tensor that was named, as _lib.Tensor
        self._pool = None
        self._cleared = False
        self._names = Names()
        # of the graphs that were captured here: key -> {generator: (increment, address of the seed,
        # address of the offset)}
        self.rng_uses = {}

    @classmethod
    def adopt(cls, pointer, device):
        """A capture that the library began."""
        capture = cls.__new__(cls)
        capture._prepare(_lib.CAPTURE(pointer), device, lent=True)
        return capture

    def settle(self, kept):
        """Note that the library has ended the capture, or passed it to the caller. The captured
        objects live as long as this object.
        """
        self._lent = False
        self._handle.settle(kept)

    def tensor(self, name, tensor, use="input", external=False):
        """Name a tensor: torch's, or anything with __cuda_array_interface__.

        On the host, pinned or not: torch's, or anything with __array_interface__. use: "input",
        "output", "state" or "const". external: the image keeps no bytes of the tensor; the loading
        process fills it. If graphs copy to or from host memory, a tensor named here must
        contain that memory. Inputs there are external. With pinned=True, pinned memory that is not
        named comes back at its own address. The tensor is kept alive until the capture ends.
        """
        raw = describe(name, tensor, use, external)
        lib.fdry_capture_tensor(self._handle, ctypes.byref(raw))
        self.named.append(raw)
        self._tensors.append(tensor)

    def capacity(self, name, nbytes):
        """Reserve addresses behind the external tensor `name`, so that a load can give it up to
        `nbytes`.

        The tensor must have an allocation of its own, a multiple of 2 MiB, and be the last one
        allocated. A load changes its first dimension: load(..., externals={name: bytes}).
        """
        lib.fdry_capture_capacity(self._handle, _lib.text(name), nbytes)

    def fact(self, key, value):
        """State a fact that loads can compare: model revision, engine version, rank, ..."""
        lib.fdry_capture_fact(self._handle, _lib.text(key), _lib.text(str(value)))

    def host_function(self, name, function):
        """Name a function that graphs call on the host. Returns its address as an integer.

        function: a callable without arguments, the address of a C function, or a pair (address,
        argument). Pass the address, and the argument 0 for a callable, to cuLaunchHostFunc() in a
        stream that captures. A process that loads the image binds a function of its own to the
        name: load(..., functions={name: function}). A callable lives as long as the process,
        because graphs that outlive the capture may call it.
        """
        made = HostFunction(name, function)
        lib.fdry_capture_host_function(self._handle, ctypes.byref(made.raw))
        made.keep()
        return made.address

    def semaphore(self, name, semaphore):
        """Name a semaphore of another API that graphs signal or wait for.

        semaphore: what cuImportExternalSemaphore() returned, as an integer. A process that loads
        the image binds a semaphore of its own, of the same kind, to the name: load(...,
        semaphores={name: semaphore}).
        """
        lib.fdry_capture_semaphore(self._handle, _lib.text(name), semaphore)

    def add_graph(self, key, graph, name=None):
        """Add a captured graph: a CUgraph as an integer, or a torch.cuda.CUDAGraph made with
        keep_graph=True.
        """
        raw = graph.raw_cuda_graph() if hasattr(graph, "raw_cuda_graph") else int(graph)
        lib.fdry_capture_graph(self._handle, key, _lib.text(name) if name else None, raw)
        self._graphs.append(graph)

    @contextlib.contextmanager
    def graph(self, key, name=None, stream=None, pool=None, generators=(),
              capture_error_mode="global"):
        """Capture what torch does inside the block as graph `key`. Yields the torch.cuda.CUDAGraph.

        Graphs of one capture share a memory pool unless `pool` names another. generators: a
        sequence, or {name: generator}, of those that the block may use besides torch's default
        ones. The random numbers that it uses are recorded in `rng_uses`. If they cannot be
        recognised, this warns, and the seal is refused.
        """
        torch = _torch.module()
        self._clear_free()
        generators = generators if hasattr(generators, "items") else list(generators)
        watched = self._names.of(torch, self._device, generators)
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        for generator in generators.values() if hasattr(generators, "items") else generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, pool=pool or self._pool, stream=stream,
                              capture_error_mode=capture_error_mode):
            yield graph
        self._pool = self._pool or graph.pool()
        self.add_graph(key, graph, name)
        try:
            graph.instantiate()
            self.rng_uses[key] = recognise(self._handle, key, graph, watched)
        except BaseException:
            lib.fdry_capture_graph_remove(self._handle, key)  # its random numbers are not known
            if graph in self._graphs:
                self._graphs.remove(graph)
            raise

    def _clear_free(self):
        """Set torch's free memory in the region to zero, once, before the first graph is captured.

        Otherwise the image would keep the bytes of tensors that were freed. Does nothing if the
        capture has a graph.
        """
        if self._cleared or self._graphs:
            return
        self._cleared = True
        allocs = sorted(self.allocs())
        starts = [addr for addr, _ in allocs]

        def inside(segment):
            at = bisect.bisect_right(starts, segment.addr) - 1
            return at >= 0 and segment.addr < sum(allocs[at])
        _torch.clear_free(self._device, inside)

    def pause(self):
        """Let allocations come from the driver until resume()."""
        lib.fdry_capture_pause(self._handle)

    def resume(self):
        """Allocate in the region again."""
        lib.fdry_capture_resume(self._handle)

    def allocs(self):
        """[(address, bytes)] of the live allocations, in the order in which they were made; those
        of the aside area last.
        """
        found, count = ctypes.POINTER(_lib.Memory)(), ctypes.c_size_t()
        lib.fdry_capture_allocs(self._handle, ctypes.byref(found), ctypes.byref(count))
        try:
            words = array.array("Q", ctypes.string_at(found, 16 * count.value) if count else b"")
            return list(zip(words[::2], words[1::2]))
        finally:
            libc.free(found)

    def origin(self, addr):
        """Return who made the memory at an address of a live allocation.

        The answer is "region"; "mapped", if the program or a library has made and mapped it; or
        "shared", if it is also shared with another process or mapped twice, so that no image can
        hold it.
        """
        value = ctypes.c_uint32()
        lib.fdry_capture_origin(self._handle, addr, ctypes.byref(value))
        return _ORIGINS[value.value]

    def code_files(self):
        """Return the paths, without links, of the files from which this process has loaded code by
        their paths; see fdry_capture_code_files().
        """
        found, size = ctypes.c_void_p(), ctypes.c_size_t()
        lib.fdry_capture_code_files(self._handle, ctypes.byref(found), ctypes.byref(size))
        try:
            paths = ctypes.string_at(found, size.value) if size else b""
            return [os.fsdecode(path) for path in paths.split(b"\0")[:-1]]
        finally:
            libc.free(found)

    @contextlib.contextmanager
    def aside(self):
        """Allocate in the aside area inside the with block; see fdry_capture_aside().

        Its allocations move no later allocation of the region. So a process that captures may do
        work there that a process that loads leaves out, such as warming up.
        """
        lib.fdry_capture_aside(self._handle, 1)
        try:
            yield
        finally:
            lib.fdry_capture_aside(self._handle, 0)

    @property
    def offset(self):
        """Bytes from the region's base to its cursor, where new memory is allocated."""
        value = ctypes.c_uint64()
        lib.fdry_capture_offset(self._handle, ctypes.byref(value))
        return value.value

    @offset.setter
    def offset(self, value):
        lib.fdry_capture_set_offset(self._handle, value)

    def seal(self, store=None, ref=None, progress=None):
        """Write the graphs, and all that they need, to a store as an image. Returns a Sealed.

        store: a Store, or the path of one, which is created if it does not exist (None: the default
        store). ref: a name for the image. The image has the memory as it is now: reset state
        before.

        progress: True: a bar on standard error; tqdm's class, or an object of it: that bar; or a
        function that is called with (phase, done, total, milliseconds since the seal began) by this
        thread. Phases are "graphs", "slices" and "kernels", which count graphs and
        kernels, "content" (bytes of device memory), and "commit" at the end. The function must not
        use the capture or launch graphs.
        """
        callback = seal_callback(progress, ref)
        store = store if isinstance(store, Store) else Store(store, create=True)
        report = _lib.SealReport(sz=ctypes.sizeof(_lib.SealReport))
        ident = ctypes.create_string_buffer(_lib.ID_SIZE)
        ref = _lib.text(ref) if ref is not None else None
        self._report_to(callback)
        try:
            with callback:
                lib.fdry_capture_seal(self._handle, store._handle, ref, ident,
                                      ctypes.byref(report))
        finally:
            self._report_to(_lib.Callback(_lib.SEAL_FN, None))
        return Sealed(ident.value.decode(), report)

    def _report_to(self, callback):
        """Let the next seals call a callback of seal_callback()."""
        self._reports = callback  # the library keeps its function
        lib.fdry_capture_progress(self._handle, callback.fn, None)

    def selftest(self, seed=1):
        """Let the next seals replay their graphs and record the outputs, for Image.selftest().

        seed: determines the inputs; 0: no self-test. Inputs of floating point get values from it,
        and external inputs of other types zeros. Afterwards all memory is as before. Do not use
        this for graphs that wait for other processes.
        """
        lib.fdry_capture_selftest(self._handle, seed)

    def end(self):
        """End the capture: new allocations come from the driver again. Live memory stays valid."""
        if self._lent:
            raise Error(_lib.STATE,
                        "load_or_capture() ends this capture itself, when the function that got it "
                        "returns")
        self._handle.close()

    def close(self):
        """Do what end() does."""
        self.end()

    def __exit__(self, *_):
        if self._handle:
            self.end()
