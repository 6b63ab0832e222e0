# SPDX-License-Identifier: Apache-2.0
"""The aside area: memory for work that a loading start omits.

Torch places tensors in segments that it gets from the driver. Inside the area both are separate:
the driver's memory comes from the aside area of the region, and torch's blocks come from a separate
pool. So the work does not change torch's default pool or the region's cursor.
"""
import contextlib
import functools
import gc
import importlib
import sys
import threading

import torch

from .. import _torch
from . import log

# Methods of Inductor and Triton that measure a kernel: (module, class, method).
MEASURING = (("torch._inductor.runtime.benchmarking", "InductorBenchmarker", "benchmark_gpu"),
             ("torch._inductor.runtime.benchmarking", "TritonBenchmarker", "benchmark_gpu"),
             ("triton.runtime.autotuner", "Autotuner", "_bench"))


class Range:
    """Device memory as an array of bytes."""

    def __init__(self, addr, size):
        self.__cuda_array_interface__ = {"data": (addr, False), "typestr": "|u1",
                                         "shape": (size,), "version": 3}


class Pool:
    """A pool of torch's for memory of the aside area."""

    ids = set()  # of all these pools of this process

    def __init__(self, ordinal):
        self._ordinal, self._pool = ordinal, torch.cuda.MemPool()
        self.ids.add(tuple(self._pool.id))

    def enter(self):
        """Let this thread allocate from the pool."""
        torch._C._cuda_beginAllocateCurrentThreadToPool(self._ordinal, self._pool.id)

    def leave(self):
        torch._C._cuda_endAllocateToPool(self._ordinal, self._pool.id)
        torch._C._cuda_releasePool(self._ordinal, self._pool.id)


class Area:
    """The aside area of a capture on device `ordinal`. outside: use the driver's own memory
    instead. pool: the area's; a capture inside has one of its own.
    """

    entered = 0  # areas that were entered and not left

    def __init__(self, capture, ordinal, outside=False):
        self._capture, self._ordinal, self._outside = capture, ordinal, outside
        self._aside = self.pool = self._generator = None

    def __enter__(self):
        """Enter the area. If that fails, everything is as before."""
        with contextlib.ExitStack() as undo:
            self._aside = _paused(self._capture) if self._outside else self._capture.aside()
            undo.enter_context(self._aside)
            self.pool = Pool(self._ordinal)
            self.pool.enter()
            undo.callback(self.pool.leave)
            # Torch keeps the state of a generator for graphs on the device while a graph knows it.
            # The first graph allocates it.
            self._generator = torch.cuda.CUDAGraph()
            for generator in torch.cuda.default_generators[self._ordinal:self._ordinal + 1]:
                self._generator.register_generator_state(generator)
            undo.pop_all()
        Area.entered += 1
        return self

    def __exit__(self, *_):
        """Leave the area. Tensors in it stay; memory without a tensor is returned to the driver."""
        Area.entered -= 1
        self.pool.leave()
        self.pool = self._generator = None
        if not self._outside:
            gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self._aside.__exit__(None, None, None)


@contextlib.contextmanager
def _paused(capture):
    capture.pause()
    try:
        yield
    finally:
        capture.resume()


class Measurements:
    """Inside a with block, measurements of kernels have memory of the aside area, and of a pool.

    A start that finds their results in a cache makes none, so they must not change where later
    tensors lie. This holds for what a measured call allocates: not for arguments that Inductor has
    made for it, nor for other threads, whose memory comes from the aside area meanwhile, too.
    """

    def __init__(self, capture, ordinal):
        self._capture, self._ordinal = capture, ordinal
        self._lock, self._owner = threading.Lock(), None
        self._active, self._pool = False, None
        self.wrapped = []  # (class, name of a method, the method)

    def __enter__(self):
        self._active = True
        for module, kind, name in MEASURING:
            with contextlib.suppress(ImportError, AttributeError, KeyError):
                owner = getattr(importlib.import_module(module), kind)
                original = vars(owner)[name]
                setattr(owner, name, self._in_area(original))
                self.wrapped.append((owner, name, original))
        return self

    def __exit__(self, *_):
        for owner, name, original in self.wrapped:
            setattr(owner, name, original)
        self._active, self.wrapped, self._pool = False, [], None

    def _in_area(self, original):
        @functools.wraps(original)
        def measure(*args, **kwargs):
            # One may be part of another, and an area has them all.
            if not self._active or Area.entered or self._owner == threading.get_ident():
                return original(*args, **kwargs)
            with self._owned():
                try:
                    with self._allocating():
                        return original(*args, **kwargs)
                except torch.OutOfMemoryError:  # the pool uses no memory that torch keeps
                    log.debug("Foundry: the aside area has no memory to measure a kernel")
                    self._pool = None
                return original(*args, **kwargs)
        return measure

    @contextlib.contextmanager
    def _owned(self):
        """Inside the with block, no other thread measures."""
        with self._lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    @contextlib.contextmanager
    def _allocating(self):
        """Inside the with block, this thread allocates in the area, and from the pool. If that
        fails, it allocates as before.
        """
        with contextlib.ExitStack() as undo:
            try:
                self._pool = self._pool or Pool(self._ordinal)
                undo.enter_context(self._capture.aside())
                self._pool.enter()
                undo.callback(self._pool.leave)
            except Exception as e:  # the engine must start, also if Foundry fails
                log.debug("Foundry: a kernel is not measured in the aside area, because %s", e)
            yield


def blocks(ordinal, base, size):
    """Return [(offset, bytes)] of torch's live blocks in [base, base + size), ascending."""
    return sorted((addr - base, length) for s in _torch.segments(ordinal)
                  if base <= s.addr < base + size for addr, length in s.live)


def clear(ordinal):
    """Set torch's free blocks in the areas' pools to zero. They hold bytes of freed tensors.

    An image would keep these bytes, and some look like pointers. Call it while no other thread uses
    torch.
    """
    _torch.zero_pools(torch, ordinal, Pool.ids)


def name(capture, prefix, allocations):
    """Name memory of a capture, [(address, bytes)], as external: every process makes it itself.
    prefix: of the names.

    Each item lies in one allocation. Memory that ranks share, such as NCCL's buffers, gets no name:
    no image can hold it, and a seal refuses graphs with pointers to it.
    """
    for number, (addr, size) in enumerate(allocations):
        if capture.origin(addr) != "shared":
            capture.tensor(f"{prefix}.{number}", Range(addr, size), external=True)


def tensors(start, end):
    """Return every tensor known to Python whose memory is in [start, end)."""
    found = []
    if gc.get_freeze_count():
        gc.unfreeze()  # frozen objects are not listed; engines freeze again when they are ready
    for each in gc.get_objects():
        # isinstance() would read __class__ of a weak proxy whose object was freed.
        if not issubclass(type(each), torch.Tensor) or each.device.type != "cuda":
            continue
        if start <= address(each) < end:
            found.append(each)
    return found


def address(tensor):
    """Return the address of a tensor, or 0 if it has no memory."""
    # torch warns of those that it traces with (FakeTensor) in place of raising an error.
    traced = sys.modules.get("torch._subclasses.fake_tensor")
    if traced and isinstance(tensor, traced.FakeTensor):
        return 0
    try:
        return tensor.data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0
