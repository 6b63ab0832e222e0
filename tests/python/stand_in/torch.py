# SPDX-License-Identifier: Apache-2.0
"""A small array library in torch's place, for tests on the software driver.

It has the functions that the quick starts of the original API call, and an allocator that caches as
torch's does. Blocks are pieces of segments of 2 and 20 MiB: the smallest sufficient free piece is
split, and free neighbours are merged, separately for each stream and each pool of graphs. Kernels
are the tests' own. Nothing in it knows Foundry.
"""
import contextlib
import ctypes
import os
import pickle
import struct
import sys
import threading
import time
import types

__version__ = os.environ.get("STAND_IN_TORCH", "2.11.0")
version = types.SimpleNamespace(cuda="13.0")
MIB = 1 << 20
_CUBIN = os.path.join(os.environ.get("BUILD", "build"), "sim", "kernels.cubin")


class OutOfMemoryError(RuntimeError):
    pass


class dtype:
    def __init__(self, name, size):
        self.name, self.itemsize = name, size

    def __str__(self):
        return f"torch.{self.name}"


float32, uint8 = dtype("float32", 4), dtype("uint8", 1)


class _Driver:
    """The driver, started by cuda.init() or the first use."""

    def __init__(self):
        self.lib, self.kernels = ctypes.CDLL("libcuda.so.1"), {}
        self.started = False

    def start(self):
        if self.started:
            return
        ctx, module = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(ctx), 0)
        self.call("cuCtxSetCurrent", ctx)
        with open(_CUBIN, "rb") as f:
            self.call("cuModuleLoadData", ctypes.byref(module), f.read())
        for name in (b"vecadd", b"scale", b"copy", b"draw"):
            self.kernels[name] = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(self.kernels[name]), module, name)
        self.ctx, self.started = ctx, True

    def call(self, name, *args):
        result = getattr(self.lib, name)(*args)
        if result:
            raise RuntimeError(f"{name}: {result}")

    def launch(self, name, n, *args):
        values = (ctypes.c_void_p * len(args))(*(ctypes.addressof(a) for a in args))
        self.call("cuLaunchKernel", self.kernels[name], (n + 63) // 64, 1, 1, 64, 1, 1, 0,
                  ctypes.c_void_p(_stream_now()), values, None)


_driver = _Driver()


class _Block:
    def __init__(self, addr, size, segment):
        self.addr, self.size, self.segment, self.live = addr, size, segment, False


class _Segment:
    def __init__(self, size, kind, pool):
        addr, mode = ctypes.c_uint64(), ctypes.c_int(2)
        _driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        _driver.call("cuMemAlloc_v2", ctypes.byref(addr), ctypes.c_size_t(size))
        _driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        self.addr, self.size, self.kind, self.pool = addr.value, size, kind, pool
        self.blocks = [_Block(addr.value, size, self)]


class _Allocator:
    def __init__(self):
        self.segments, self.routes, self.dead = [], [], set()
        self.totals = [[0, 0], [0, 0]]  # [allocated, freed] of blocks and of segments

    def alloc(self, size, stream):
        _driver.start()
        size = max(512, -(-size // 512) * 512)
        kind, pool = ((stream, "small" if size <= MIB else "large"), self.routes[0]
                      if self.routes else (0, 0))
        fit = [b for s in self.segments if s.kind == kind and s.pool == pool for b in s.blocks
               if not b.live and b.size >= size]
        if not fit:
            extent = (2 * MIB if size <= MIB
                    else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB)
            self.segments.append(_Segment(extent, kind, pool))
            self.totals[1][0] += 1
            fit = self.segments[-1].blocks
        block = min(fit, key=lambda b: (b.size, b.addr))
        rest = block.size - size
        if rest > MIB or (rest and kind[1] == "small"):
            tail = _Block(block.addr + size, rest, block.segment)
            block.size = size
            block.segment.blocks.insert(block.segment.blocks.index(block) + 1, tail)
        block.live = True
        self.totals[0][0] += 1
        return block.addr

    def free(self, addr):
        block = next(b for s in self.segments for b in s.blocks if b.addr == addr and b.live)
        block.live, blocks = False, block.segment.blocks
        self.totals[0][1] += 1
        at = blocks.index(block)
        for left in (at, at - 1):
            if 0 <= left < len(blocks) - 1 and not blocks[left].live and not blocks[left + 1].live:
                blocks[left].size += blocks.pop(left + 1).size

    def empty(self):
        for s in [s for s in self.segments if len(s.blocks) == 1 and not s.blocks[0].live]:
            if s.pool == (0, 0) or s.pool in self.dead:
                self.segments.remove(s)
                self.totals[1][1] += 1
                _driver.call("cuMemFree_v2", ctypes.c_uint64(s.addr))


    def stats(self, _device=None):
        live = [b.size for s in self.segments for b in s.blocks if b.live]
        now = ((len(live), sum(live)), (len(self.segments), sum(s.size for s in self.segments)))
        found = {name: {"all": {"current": count, "bytes": size, "allocated": made, "freed": freed}}
                 for name, (count, size), (made, freed)
                 in zip(("allocation", "segment"), now, self.totals)}
        found["reserved_bytes"] = {"all": {"current": now[1][1]}}
        return found

    def reset(self, _device=None):
        self.totals = [[0, 0], [0, 0]]


_allocator = _Allocator()


class device:
    def __init__(self, name):
        self.type, _, index = str(name).partition(":")
        self.index = int(index or 0)


def set_default_device(_):
    pass


class inference_mode(contextlib.ContextDecorator):
    """Memory that is allocated inside can be changed in place inside alone. A thread's own."""

    now = threading.local()

    def __init__(self, mode=True):
        self.mode, self.before = mode, []

    def __enter__(self):
        self.before.append(is_inference_mode_enabled())
        self.now.on = self.mode

    def __exit__(self, *_):
        self.now.on = self.before.pop()


def is_inference_mode_enabled():
    return getattr(inference_mode.now, "on", False)


_grad = [True]


class no_grad:
    def __enter__(self):
        _grad.append(False)

    def __exit__(self, *_):
        _grad.pop()


def is_grad_enabled():
    return _grad[-1]


class _Memory:
    """A block of the allocator, or memory that keep() releases."""

    def __init__(self, addr, nbytes, keep):
        self.addr, self.nbytes, self._keep = addr, nbytes, keep
        self.inference = is_inference_mode_enabled()

    def __del__(self):
        if self._keep is None:
            _allocator.free(self.addr)
        else:
            self._keep()


class _Storage:
    def __init__(self, memory):
        self._memory = memory

    def data_ptr(self):
        return self._memory.addr

    def nbytes(self):
        return self._memory.nbytes

    def cpu(self):
        cuda.synchronize()
        data = ctypes.create_string_buffer(self.nbytes())
        _driver.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(self.data_ptr()),
                     ctypes.c_size_t(self.nbytes()))
        return data

    def copy_(self, data):
        _driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.data_ptr()), data,
                     ctypes.c_size_t(self.nbytes()))


def _row_by_row(shape):
    found, step = [], 1
    for n in reversed(shape):
        found.insert(0, step)
        step *= n
    return tuple(found)


strided = "torch.strided"


class Tensor:
    # A program's own attributes are in __dict__, as with torch.
    __slots__ = ("shape", "dtype", "device", "_addr", "_stride", "_memory", "_version", "negated",
                 "__dict__", "__weakref__")
    requires_grad = False
    _base = None  # its views keep memory, but no tensor
    layout = strided

    def __init__(self, addr, shape, keep=None, dtype=float32, stride=None, memory=None):
        self.shape, self.dtype, self.device = tuple(shape), dtype, device("cuda:0")
        self._addr, self._stride = addr, tuple(stride or _row_by_row(self.shape))
        self._memory, self._version = memory or _Memory(addr, self.nbytes, keep), 0
        self.negated = False

    @property
    def nbytes(self):
        return self.dtype.itemsize * self.numel()

    def numel(self):
        n = 1
        for each in self.shape:
            n *= each
        return n

    def data_ptr(self):
        return self._addr if self.numel() else 0

    def untyped_storage(self):
        return _Storage(self._memory)

    def storage_offset(self):
        return (self._addr - self._memory.addr) // self.dtype.itemsize

    def stride(self):
        return self._stride

    # --- views ---

    def _view(self, addr, shape, kind, stride=None):
        return Tensor(addr, shape, dtype=kind, stride=stride, memory=self._memory)

    def __getitem__(self, part):
        start, stop, _ = part.indices(self.shape[0])
        step = self._stride[0] * self.dtype.itemsize
        return self._view(self._addr + start * step, (stop - start, *self.shape[1:]), self.dtype,
                          self._stride)

    def view(self, kind):
        assert len(self.shape) == 1
        return self._view(self._addr, (self.nbytes // kind.itemsize,), kind)

    def as_strided(self, shape, stride):
        return self._view(self._addr, shape, self.dtype, stride)

    def reshape(self, n):
        return self._view(self._addr, (self.numel(),), self.dtype)

    def contiguous(self):
        assert self._stride == _row_by_row(self.shape)
        return self

    def detach(self):
        return self

    def is_neg(self):
        return self.negated

    def resolve_neg(self):
        return empty(self.shape).copy_(self).mul_(-1.0) if self.negated else self

    def set_(self, storage, offset, shape, stride):
        memory = storage._memory
        self._memory, self._addr, self.shape = memory, memory.addr + offset, shape
        self._stride = stride
        return self

    @property
    def data(self):
        return self

    @data.setter
    def data(self, other):
        self._memory, self._addr = other._memory, other._addr
        self.shape, self._stride = other.shape, other._stride

    # --- elements ---

    def is_inference(self):
        return self._memory.inference

    def _changing(self):
        if self.is_inference() and not is_inference_mode_enabled():
            raise RuntimeError("Inplace update to inference tensor outside InferenceMode")
        self._version += 1

    def __add__(self, other):
        result, n = empty(self.shape), self.numel()
        _driver.launch(b"vecadd", n, *(ctypes.c_uint64(t._addr) for t in (self, other, result)),
                       ctypes.c_int(n))
        return result

    def copy_(self, other):
        n = self.numel()
        self._changing()
        if self.dtype is float32:
            _driver.launch(b"copy", n, ctypes.c_uint64(other._addr), ctypes.c_uint64(self._addr),
                           ctypes.c_size_t(n))
        else:
            _copy(self, other, _stream_now())
        return self

    def clone(self):
        made = empty(self.shape, self.dtype).copy_(self)
        made.negated = self.negated
        return made

    def copied(self, stream):
        """A copy, made by the driver and not by a kernel."""
        result = empty(self.shape)
        _copy(result, self, stream)
        return result

    def mul_(self, factor):
        n = self.numel()
        self._changing()
        _driver.launch(b"scale", n, ctypes.c_uint64(self._addr), ctypes.c_float(factor),
                       ctypes.c_int(n))
        return self

    def fill_(self, value):
        cuda.synchronize()
        self._changing()
        data = struct.pack("f", value) * self.numel()
        _driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self._addr), data,
                     ctypes.c_size_t(len(data)))
        return self

    def zero_(self):
        cuda.synchronize()
        self._changing()
        _driver.call("cuMemsetD8_v2", ctypes.c_uint64(self._addr), ctypes.c_ubyte(0),
                     ctypes.c_size_t(self.nbytes))
        return self

    def _bytes(self):
        cuda.synchronize()
        data = ctypes.create_string_buffer(self.nbytes)
        if self.nbytes:
            _driver.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(self._addr),
                         ctypes.c_size_t(self.nbytes))
        return data.raw

    def tolist(self):
        return list(struct.unpack(f"{self.numel()}f", self._bytes()))

    def item(self):
        """Waits for the GPU, as torch does."""
        if _sync_debug[-1] == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        return self.tolist()[0]


def _copy(to, source, stream):
    _driver.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to._addr), ctypes.c_uint64(source._addr),
                 ctypes.c_size_t(to.nbytes), ctypes.c_void_p(stream))


def empty(shape, dtype=float32, device=None):
    n = dtype.itemsize
    for each in shape:
        n *= each
    return Tensor(_allocator.alloc(n, _stream_now()), shape, dtype=dtype)


def empty_strided(shape, stride, dtype=float32, device=None):
    assert tuple(stride) == _row_by_row(shape)
    return empty(shape, dtype)


def full(shape, value, device=None):
    return empty(shape).fill_(value)


def equal(a, b):
    return a._bytes() == b._bytes()


# --- torch.nn ---

_registration_hooks = []


def _register_hook(hook):
    _registration_hooks.append(hook)
    return types.SimpleNamespace(remove=lambda: _registration_hooks.remove(hook))


class Parameter(Tensor):
    requires_grad = True

    def __init__(self, tensor):
        super().__init__(tensor._addr, tensor.shape, memory=tensor._memory)


class Module:
    def __init__(self):
        vars(self).update(training=True, _parameters={}, _buffers={}, _modules={},
                          _forward_hooks={}, _forward_pre_hooks={})

    def __setattr__(self, name, value):
        for kind, each in ((Parameter, self._parameters), (Module, self._modules)):
            if isinstance(value, kind):
                each[name] = value
                for hook in _registration_hooks if kind is Parameter else ():
                    assert hook(self, name, value) is None  # it would replace the parameter
                return
        if name in self._buffers:
            self._buffers[name] = value
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name):
        for each in (vars(self)[d] for d in ("_parameters", "_buffers", "_modules")):
            if name in each:
                return each[name]
        raise AttributeError(name)

    def register_buffer(self, name, tensor):
        self._buffers[name] = tensor

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, each in self._modules.items():
            yield from each.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self):
        return [module for _, module in self.named_modules()]

    def eval(self):
        for each in self.modules():
            each.training = False
        return self

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)


nn = types.SimpleNamespace(Module=Module, Parameter=Parameter, modules=types.SimpleNamespace(
    module=types.SimpleNamespace(register_module_parameter_registration_hook=_register_hook)))


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p),
                ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


def from_dlpack(other):
    _driver.start()
    capsule, api = other, ctypes.pythonapi
    if hasattr(other, "__dlpack__"):
        assert other.__dlpack_device__() == (2, 0)
        capsule = other.__dlpack__(stream=1)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    addr = api.PyCapsule_GetPointer(capsule, b"dltensor")
    api.PyCapsule_SetName(capsule, b"used_dltensor")
    raw = _DLTensor.from_address(addr)
    assert (raw.code, raw.bits) in ((2, 32), (1, 8))
    return Tensor(raw.data, raw.shape[:raw.ndim], lambda: raw.deleter(addr),
                  float32 if raw.bits == 32 else uint8)


# --- torch.cuda ---


class Stream:
    def __init__(self, handle=None):
        self.cuda_stream = handle
        if handle is None:
            _driver.start()
            made = ctypes.c_void_p()
            _driver.call("cuStreamCreate", ctypes.byref(made), 1)
            self.cuda_stream = made.value

    def wait_event(self, _event):
        cuda.synchronize()


class _Event:
    def record(self, _stream):
        pass


_sync_debug = ["default"]
_streams = [Stream(0)]
_count = [0]


def _stream_now():
    return _streams[-1].cuda_stream


class _StreamContext:
    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        _streams.append(self.stream)

    def __exit__(self, *_):
        _streams.pop()


def _pool_handle():
    _count[0] += 1
    return (0, _count[0])


_capturing = []


class Generator:
    """A generator whose graphs share the memory of its state. Several may share a state."""

    def __init__(self, state=None):
        self.state = state or types.SimpleNamespace(seed=1, offset=0, graphs=set(), cells=None)

    def graphsafe_get_state(self):
        return Generator(self.state)

    def graphsafe_set_state(self, other):
        self.state = other.state

    def clone_state(self):
        made = Generator()
        made.set_state(self.get_state())
        return made

    def manual_seed(self, seed):
        self.state.seed, self.state.offset = seed & (1 << 64) - 1, 0

    def initial_seed(self):
        return self.state.seed

    def get_offset(self):
        return self.state.offset

    def set_offset(self, offset):
        assert offset % 4 == 0
        self.state.offset = offset & (1 << 64) - 1

    def get_state(self):
        return self.state.seed, self.state.offset

    def set_state(self, state):
        self.state.seed, self.state.offset = state


class _DrawState(ctypes.Structure):
    _fields_ = [("seed", ctypes.c_uint64), ("offset", ctypes.c_uint64), ("within", ctypes.c_uint32),
                ("captured", ctypes.c_char)]


def _cells(state):
    """Device memory with a state's seed and offset, a tensor for each."""
    found = empty((2,)), empty((2,))
    _fill_cells(found, state)
    return found


def _fill_cells(cells, state):
    for cell, value in zip(cells, (state.seed, state.offset)):
        _driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(cell._addr), struct.pack("Q", value),
                     ctypes.c_size_t(8))


def rand(n):
    """n random words, as a tensor of 2 * n elements that are no useful numbers."""
    result, state, within = empty((2 * n,)), cuda.default_generators[0].state, 0
    if _capturing:
        cells, within = state.cells, _capturing[-1].drawn(state)
    else:
        cells = _cells(state)
        state.offset += 4
    given = _DrawState(*(cell._addr for cell in cells), within, b"\1")
    _driver.launch(b"draw", n, ctypes.c_uint64(result._addr), given, ctypes.c_int(n))
    return result


class CUDAGraph:
    def __new__(cls, keep_graph=False):
        return super().__new__(cls)

    def __init__(self, keep_graph=False):
        self._keep, self._graph, self._exec, self._pool = keep_graph, ctypes.c_void_p(
            ), ctypes.c_void_p(), None
        self._dump, self._states = [], []  # of generators, each with its increment

    def capture_begin(self, pool=None, capture_error_mode="global"):
        assert _stream_now(), "capture needs a stream that is not the default one"
        self._pool = tuple(pool) if pool else _pool_handle()
        for generator in cuda.default_generators:
            self.register_generator_state(generator)
        _allocator.routes.append(self._pool)
        _capturing.append(self)
        mode = ("global", "thread_local", "relaxed").index(capture_error_mode)
        _driver.call("cuStreamBeginCapture_v2", ctypes.c_void_p(_stream_now()), mode)

    def capture_end(self):
        _allocator.routes.pop()
        _capturing.pop()
        _driver.call("cuStreamEndCapture", ctypes.c_void_p(_stream_now()),
                     ctypes.byref(self._graph))
        if not self._keep:
            self.instantiate()

    def instantiate(self):
        if self._exec:
            _driver.call("cuGraphExecDestroy", self._exec)
        _driver.call("cuGraphInstantiateWithFlags", ctypes.byref(self._exec), self._graph,
                     ctypes.c_uint64(0))

    def replay(self):
        if not self._exec:
            self.instantiate()
        for each in self._states:
            _fill_cells(each[0].cells, each[0])
            each[0].offset += each[1]
        _driver.call("cuGraphLaunch", self._exec, ctypes.c_void_p(_stream_now()))

    def reset(self):
        if self._exec:
            _driver.call("cuGraphExecDestroy", self._exec)
        if self._graph:
            _driver.call("cuGraphDestroy", self._graph)
        if self._pool:
            _allocator.dead.add(self._pool)
        self._graph, self._exec, self._pool = ctypes.c_void_p(), ctypes.c_void_p(), None
        for state, _ in self._states:
            state.graphs.discard(id(self))
            state.cells = state.cells if state.graphs else None
        self._states = []

    def __del__(self):
        self.reset()

    def pool(self):
        return self._pool

    def raw_cuda_graph(self):
        return self._graph.value

    def raw_cuda_graph_exec(self):
        if not self._exec:
            raise RuntimeError("not instantiated")
        return self._exec.value

    def enable_debug_mode(self):
        self._dump.append(True)

    def debug_dump(self, path):
        with open(path, "w", encoding="ascii") as f:
            f.write("digraph {}\n")

    def register_generator_state(self, generator):
        state = getattr(generator, "state", None)
        if state is None:
            generator.graphs.append(self)
        elif all(state is not each for each, _ in self._states):
            state.cells = state.cells or _cells(state)
            state.graphs.add(id(self))
            self._states.append([state, 0])

    def drawn(self, state):
        """Count a draw from a state; returns the sum of the earlier ones."""
        each = next(each for each in self._states if each[0] is state)
        each[1] += 4
        return each[1] - 4


class _Graph:
    _shared = []

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        if stream is None:
            if not self._shared:
                self._shared.append(Stream())
            stream = self._shared[0]
        self._graph, self._pool, self._mode = cuda_graph, pool, capture_error_mode
        self._context = _StreamContext(stream)

    def __enter__(self):
        cuda.synchronize()
        cuda.empty_cache()
        self._context.__enter__()
        self._graph.capture_begin(*(() if self._pool is None else (self._pool,)),
                                  capture_error_mode=self._mode)

    def __exit__(self, *_):
        try:
            self._graph.capture_end()
        finally:
            self._context.__exit__()


class _DeviceContext:
    """Makes a device current. There is one; current_device() says in tests that another is."""

    def __init__(self, index):
        self.index = index

    def __enter__(self):
        self.before, cuda.current_device = cuda.current_device, lambda: self.index

    def __exit__(self, *_):
        cuda.current_device = self.before


class _MemPool:
    def __init__(self):
        self.id = _pool_handle()[::-1]

    def __del__(self):
        _allocator.dead.add(self.id)


class _Distributed:
    """Ranks exchange values by files in the working folder. Collectives on the device do nothing,
    but a group's first one makes a communicator as NCCL does: it maps all of its memory, and shares
    some with other processes.
    """

    calls = 0

    def __init__(self):
        self.connected = set()

    def all_reduce(self, _tensor, group):
        if group not in self.connected:
            self.connected.add(group)
            self.map_memory()
            handle, fd = self.map_memory(), ctypes.c_int()
            _driver.call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, 1,
                         ctypes.c_uint64(0))
            os.close(fd.value)

    @staticmethod
    def map_memory():
        size, addr, handle = ctypes.c_size_t(2 * MIB), ctypes.c_uint64(), ctypes.c_uint64()
        pinned, posix_fd, on_device, read_write = 1, 1, 1, 3
        _driver.call("cuMemCreate", ctypes.byref(handle), size, struct.pack(
            "<iiiiQQ", pinned, posix_fd, on_device, 0, 0, 0), ctypes.c_uint64(0))
        _driver.call("cuMemAddressReserve", ctypes.byref(addr), size, ctypes.c_size_t(0),
                     ctypes.c_uint64(0), ctypes.c_uint64(0))
        _driver.call("cuMemMap", addr, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        _driver.call("cuMemSetAccess", addr, size, struct.pack("<iii", on_device, 0, read_write),
                     ctypes.c_size_t(1))
        return handle

    def get_world_size(self, _group):
        return int(os.environ["STAND_IN_RANKS"])

    def all_gather_object(self, found, value, group):
        assert group == "cpu"
        self.calls += 1
        own = f"gather.{self.calls}.{os.environ['STAND_IN_RANK']}"
        with open(own + ".new", "wb") as f:
            pickle.dump(value, f)
        os.rename(own + ".new", own)
        end = time.monotonic() + 20
        for rank in range(len(found)):
            path = f"gather.{self.calls}.{rank}"
            while not os.path.exists(path):
                assert time.monotonic() < end, f"rank {rank} did not come to call {self.calls}"
                time.sleep(0.002)
            with open(path, "rb") as f:
                found[rank] = pickle.load(f)


distributed = sys.modules["torch.distributed"] = _Distributed()

_C = types.SimpleNamespace(
    _cuda_beginAllocateCurrentThreadToPool=lambda device, pool: _allocator.routes.append(pool),
    _cuda_endAllocateToPool=lambda device, pool: _allocator.routes.remove(pool),
    _cuda_releasePool=lambda device, pool: None)


def _mem_get_info(_device=None):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _driver.start()
    _driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def _properties(_device=None):
    return types.SimpleNamespace(name="software", total_memory=_mem_get_info()[1])


def _snapshot():
    return [{"device": 0, "address": s.addr, "total_size": s.size, "stream": s.kind[0],
             "segment_type": s.kind[1],
             "segment_pool_id": s.pool, "blocks": [{"address": b.addr, "size": b.size,
                                                    "state": "active_allocated" if b.live
                                                    else "inactive"} for b in s.blocks]}
            for s in sorted(_allocator.segments, key=lambda s: s.addr)]


def _alloc_raw(size, device=None, stream=None):
    return _allocator.alloc(size, _stream_now() if stream is None else stream)


cuda = types.SimpleNamespace(
    init=_driver.start, is_initialized=lambda: _driver.started, is_available=lambda: True,
    device_count=lambda: int(os.environ.get("STAND_IN_DEVICES", 1)),
    current_device=lambda: 0, device=_DeviceContext, default_generators=(),
    synchronize=lambda: _driver.call("cuCtxSynchronize"), empty_cache=_allocator.empty,
    memory_snapshot=_snapshot,
    memory_reserved=lambda device=None: sum(s.size for s in _allocator.segments),
    memory_stats_as_nested_dict=_allocator.stats, reset_accumulated_memory_stats=_allocator.reset,
    get_allocator_backend=lambda: "native", caching_allocator_alloc=_alloc_raw,
    caching_allocator_delete=_allocator.free, Stream=Stream, stream=_StreamContext,
    current_stream=lambda device=None: _streams[-1], graph=_Graph, CUDAGraph=CUDAGraph,
    graph_pool_handle=_pool_handle, MemPool=_MemPool, mem_get_info=_mem_get_info,
    get_device_properties=_properties, get_device_capability=lambda ordinal: (9, 0),
    graphs=types.SimpleNamespace(CUDAGraph=CUDAGraph), Event=_Event,
    is_current_stream_capturing=lambda: bool(_capturing), set_sync_debug_mode=_sync_debug.append,
    get_sync_debug_mode=lambda: _sync_debug[-1],
    nccl=types.SimpleNamespace(version=lambda: (2, int(os.environ.get("STAND_IN_NCCL", 28)), 9)))
