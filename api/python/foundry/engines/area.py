# SPDX-License-Identifier: Apache-2.0
"""The aside area: memory for work that a loading start omits.

Torch places tensors in segments that it gets from the driver. Inside the area both are separate:
the driver's memory comes from the aside area of the region, and torch's blocks come from a separate
pool. So the work does not change torch's default pool or the region's cursor.
"""
import contextlib
import gc
import sys

import torch

from .. import _torch


class Range:
    """Device memory as an array of bytes."""

    def __init__(self, addr, size):
        self.__cuda_array_interface__ = {"data": (addr, False), "typestr": "|u1",
                                         "shape": (size,), "version": 3}


class Area:
    """The aside area of a capture on device `ordinal`. outside: use the driver's own memory
    instead.
    """

    pools = set()  # the ids of torch's pools of all areas of this process

    def __init__(self, capture, ordinal, outside=False):
        self._capture, self._ordinal, self._outside = capture, ordinal, outside
        self._aside = self._pool = self._generator = None

    def __enter__(self):
        """Enter the area. If that fails, everything is as before."""
        with contextlib.ExitStack() as undo:
            self._aside = _paused(self._capture) if self._outside else self._capture.aside()
            undo.enter_context(self._aside)
            self._pool = torch.cuda.MemPool()
            self.pools.add(tuple(self._pool.id))
            self.pool_enter()
            undo.callback(self.pool_leave)
            # Torch keeps the state of a generator for graphs on the device while a graph knows it.
            # The first graph allocates it.
            self._generator = torch.cuda.CUDAGraph()
            for generator in torch.cuda.default_generators[self._ordinal:self._ordinal + 1]:
                self._generator.register_generator_state(generator)
            undo.pop_all()
        return self

    def pool_enter(self):
        """Allocate from the area's pool; a capture has a pool of its own."""
        torch._C._cuda_beginAllocateCurrentThreadToPool(self._ordinal, self._pool.id)

    def pool_leave(self):
        torch._C._cuda_endAllocateToPool(self._ordinal, self._pool.id)
        torch._C._cuda_releasePool(self._ordinal, self._pool.id)

    def __exit__(self, *_):
        """Leave the area. Tensors in it stay; memory without a tensor is returned to the driver."""
        self.pool_leave()
        self._pool = self._generator = None
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


def blocks(ordinal, base, size):
    """Return [(offset, bytes)] of torch's live blocks in [base, base + size), ascending."""
    return sorted((addr - base, length) for s in _torch.segments(ordinal)
                  if base <= s.addr < base + size for addr, length in s.live)


def clear(ordinal):
    """Set torch's free blocks in the areas' pools to zero. They hold bytes of freed tensors.

    An image would keep these bytes, and some look like pointers. Call it while no other thread uses
    torch.
    """
    _torch.zero_pools(torch, ordinal, Area.pools)


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
