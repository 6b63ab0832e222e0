# SPDX-License-Identifier: Apache-2.0
"""All uses of torch. Only functions that need torch import it."""
import bisect
import contextlib
import ctypes
import functools
import importlib
import sys

# The first version with CUDAGraph.raw_cuda_graph_exec(). The version before it introduced
# keep_graph and raw_cuda_graph().
LEAST = (2, 9)
_accepted = None  # the version that was found to do
_SMALL = 1 << 20  # larger requests come from torch's other pool


def module():
    """Import torch. Raises ImportError if it is older than LEAST, before anything is captured that
    could not be sealed.
    """
    global _accepted
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as e:
        if e.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"this needs PyTorch {LEAST[0]}.{LEAST[1]} or newer, which this Python "
            f"({sys.executable}) does not have; install it (pip install torch), or activate the "
            "environment that has it; foundry.load() works without it", name="torch") from None
    version = str(getattr(torch, "__version__", "without a version"))
    if version == _accepted:
        return torch
    import re
    found = re.match(r"(\d+)\.(\d+)", version)
    if not found or tuple(map(int, found.groups())) < LEAST:
        raise ImportError(
            f"PyTorch {version} is installed, and foundry captures with {LEAST[0]}.{LEAST[1]} and "
            "newer; install a newer one")
    _accepted = version
    return torch


def _started():
    """torch, if it is imported and has started CUDA; else None."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return torch if cuda is not None and cuda.is_initialized() else None


def device():
    """The ordinal of torch's current device; 0 without torch."""
    torch = _started()
    return torch.cuda.current_device() if torch else 0


def stream(ordinal):
    """The current stream as an integer; 0 (the legacy default stream) without torch."""
    torch = _started()
    return torch.cuda.current_stream(ordinal).cuda_stream if torch else 0


def used_on(tensor, stream, ordinal):
    """Record with torch that `stream` (an integer) uses the memory of `tensor`, if it is a tensor
    of torch.

    Torch then reuses the memory only after the present work of the stream.
    """
    torch = _started()
    if torch and hasattr(tensor, "record_stream"):
        own = (torch.cuda.ExternalStream(stream, device=ordinal)
               if stream else torch.cuda.default_stream(ordinal))
        tensor.record_stream(own)


def synchronize():
    torch = _started()
    if torch:
        torch.cuda.synchronize()


def empty_cache():
    """Let torch free its segments without tensors. Returns whether it freed any."""
    torch = _started()
    if not torch:
        return False
    before = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() < before


def blas_workspaces():
    """Make cuBLAS and cuBLASLt allocate their workspaces for the current stream, by a first matrix
    product.
    """
    torch = _started()
    if torch:
        # this makes the context current first
        one = torch.zeros((16, 16), dtype=torch.float16, device="cuda")
        torch.cuda.current_blas_handle()
        torch.mm(one, one)
        torch.nn.functional.linear(one, one, one[0])


def is_tensor(value):
    return hasattr(value, "data_ptr") and hasattr(value, "stride")


def strided(torch, tensor):
    """Whether a tensor is a piece of memory with strides, not a sparse or nested one."""
    return (getattr(tensor, "layout", None) is getattr(torch, "strided", None)
            and not getattr(tensor, "is_nested", False))


def is_inference():
    """Whether torch is in its inference mode, in which its new tensors are of another kind."""
    ask = getattr(sys.modules.get("torch"), "is_inference_mode_enabled", None)
    return ask() if ask else False


def inference(on):
    """A context in which torch is in its inference mode or not."""
    mode = getattr(sys.modules.get("torch"), "inference_mode", None)
    return mode(on) if mode and is_inference() != on else contextlib.nullcontext()


def view(tensor):
    """A tensor of an image as torch's, without a copy; without torch, the tensor itself."""
    try:
        torch = module()
    except ModuleNotFoundError:
        return tensor
    if not torch.cuda.is_initialized():
        return torch.from_dlpack(tensor)
    # Given the tensor, torch would look for the stream that the view is to be ordered with.
    return torch.from_dlpack(tensor.__dlpack__())


class Segment:
    """A piece of device memory that torch's allocator has from the driver.

    addr, size; kind: (stream, "small" or "large"); private: whether it belongs to a pool of graphs;
    blocks: [(addr, size, live)], all of it; compared: the segment of a file that it was compared
    with and equals.
    """

    compared = None

    def __init__(self, raw):
        self.addr, self.size = raw["address"], raw["total_size"]
        self.kind = (raw.get("stream", 0), raw.get("segment_type"))
        self.private = any(raw.get("segment_pool_id", (0, 0)))
        self.blocks, at = [], self.addr
        for block in raw["blocks"]:
            self.blocks.append((block.get("address", at), block["size"],
                                block["state"] != "inactive"))
            at += block["size"]

    @functools.cached_property
    def live(self):
        """The (addr, size) of the blocks in use."""
        return frozenset((addr, size) for addr, size, live in self.blocks if live)

    @functools.cached_property
    def free(self):
        """[(addr, size)] of the other blocks, ascending."""
        return [(addr, size) for addr, size, live in self.blocks if not live]


def _caching():
    """torch, if it has started CUDA with its caching allocator, since no other allocator lists
    segments.
    """
    torch = _started()
    return torch if torch and torch.cuda.get_allocator_backend() == "native" else None


def _stats(torch, ordinal):
    read = getattr(torch.cuda, "memory_stats_as_nested_dict", None)
    return read(ordinal) if read else {}


def _snapshot(torch):
    return torch.cuda.memory_snapshot()


def segments(ordinal):
    """Torch's segments on a device; an empty list if its allocator has none, such as
    cudaMallocAsync.
    """
    torch = _caching()
    if not torch:
        return []
    # The counter of segments does not count expandable_segments; the counter of bytes counts all.
    if _stats(torch, ordinal).get("reserved_bytes", {}).get("all", {}).get("current") == 0:
        return []
    return [Segment(s) for s in _snapshot(torch) if s["device"] == ordinal]


def counters(ordinal):
    """Torch's counters of allocations on a device. If they are equal, torch allocated and freed
    nothing in between.

    None if that is not certain. reset_accumulated_memory_stats() sets the totals of allocations and
    of frees to zero, and leaves the number of those in use; so a reset is detected if any was in
    use.
    """
    torch = _caching()
    found = _stats(torch, ordinal) if torch else {}
    for name in ("allocation", "segment"):
        total = found.get(name, {}).get("all")
        if not total or not total["current"]:
            return None
        if total["current"] != total["allocated"] - total["freed"]:
            return None
    return found


def zero(ranges):
    """Set device memory, [(addr, size)], to zero. Raises RuntimeError if the driver refuses."""
    memset = ctypes.CDLL("libcuda.so.1").cuMemsetD8_v2
    for addr, size in ranges:
        code = memset(ctypes.c_uint64(addr), ctypes.c_ubyte(0), ctypes.c_size_t(size))
        if code:
            raise RuntimeError(f"the driver set no memory to zero at {addr:#x}: error {code}")


def zero_pools(torch, ordinal, pools):
    """Set the free blocks of torch's pools with these ids to zero. They have the bytes of freed
    tensors, which an image would keep. No other thread may use the pools meanwhile.
    """
    torch.cuda.synchronize()
    zero(block for raw in _snapshot(torch) if raw["device"] == ordinal
         and tuple(raw["segment_pool_id"]) in pools for block in Segment(raw).free)
    torch.cuda.synchronize()


def clear_free(ordinal, inside):
    """Set torch's free blocks to zero, in the segments for which `inside(segment)` is true.

    A free block has the bytes of tensors that were freed. Nothing may read them, but a graph may
    point into the same segment, so an image would keep them. Blocks of graphs' pools stay as they
    are. Each block is allocated meanwhile, so no other thread gets it. Returns the number of bytes.
    """
    found = [s for s in segments(ordinal) if not s.private and inside(s)]
    blocks = sorted((size, addr, s.kind) for s in found for addr, size in s.free)
    # Torch would take a small piece from its other pool.
    blocks = [b for b in blocks if b[2][1] == "small" or b[0] > _SMALL]
    if not blocks:
        return 0
    torch = module()
    with torch.cuda.device(ordinal):  # torch waits for the work of the current device
        return _clear(torch, ordinal, blocks)


def _clear(torch, ordinal, blocks):
    """Allocate the `blocks`, set them to zero, and free them."""
    taken = []
    ends = {addr: addr + size for size, addr, _ in blocks}
    starts = sorted(ends)
    torch.cuda.synchronize()
    try:
        for size, _, kind in blocks:
            for piece in _pieces(size, kind):
                addr = torch.cuda.caching_allocator_alloc(piece, ordinal, kind[0])
                taken.append((addr, piece))
                at = bisect.bisect_right(starts, addr) - 1
                if at < 0 or addr + piece > ends[starts[at]]:
                    raise RuntimeError("torch took memory from elsewhere")
        zero(taken)
        torch.cuda.synchronize()
    except RuntimeError:  # torch is configured otherwise, or is out of memory: the bytes stay
        return 0
    finally:
        for addr, _ in taken:
            torch.cuda.caching_allocator_delete(addr)
    return sum(size for _, size in taken)


class Held:
    """Pieces of torch's free blocks, which are reserved until release()."""

    def __init__(self, ordinal):
        self._torch, self._ordinal, self._taken = module(), ordinal, []

    def _take(self, size, kind):
        addr = self._torch.cuda.caching_allocator_alloc(size, self._ordinal, kind[0])
        self._taken.append((addr, size))
        return addr

    def _give(self, unless=()):
        """Free the pieces, except those at the addresses `unless`."""
        gone = [addr for addr, _ in self._taken if addr not in unless]
        self._taken = [(addr, size) for addr, size in self._taken if addr in unless]
        for addr in gone:
            self._torch.cuda.caching_allocator_delete(addr)

    def release(self):
        self._give()

    def hold(self, wanted):
        """Allocate the pieces `wanted`, [(addr, size)], which lie in free blocks.

        Torch allocates from the beginning of the smallest block that is large enough. So this first
        allocates all free blocks, and then frees one at a time, from which the next allocations
        come. Raises RuntimeError if torch does otherwise; then nothing is held.
        """
        try:
            self._hold(sorted(wanted))
        except BaseException:
            self.release()
            raise

    def _hold(self, wanted):
        found = [s for s in segments(self._ordinal) if not s.private]
        kinds = {s.kind for s in found if any(s.addr <= addr < s.addr + s.size
                                              for addr, _ in wanted)}
        keep = {addr for addr, _ in self._taken}
        for kind in sorted(kinds, key=str):
            blocks = [b for s in found if s.kind == kind for b in s.free]
            for _, size in sorted(blocks, key=lambda b: b[1]):
                for piece in _pieces(size, kind):
                    self._take(piece, kind)
            for addr, size in blocks:
                inside = [w for w in wanted if addr <= w[0] < addr + size]
                if inside:
                    self._carve(addr, size, kind, inside)
                    keep.update(w[0] for w in inside)
            self._give(keep)
        if not keep.issuperset(addr for addr, _ in wanted):
            raise RuntimeError("memory that the image uses is not in a free block of torch")

    def _carve(self, addr, size, kind, inside):
        """Free one block, and allocate from it so that the pieces `inside` begin at their
        addresses.
        """
        self._give({at for at, _ in self._taken if not addr <= at < addr + size})
        at = addr
        for start, length in inside:
            for gap in _pieces(start - at, kind):
                self._expect(at, gap, kind)
                at += gap
            self._expect(start, length, kind)
            at = start + length

    def _expect(self, addr, size, kind):
        got = self._take(size, kind)
        if got != addr:
            raise RuntimeError(
                f"torch's allocator returned {got:#x} for {size} bytes, not {addr:#x}; it is "
                "configured to place tensors in a way that images cannot be loaded beside "
                               "(PYTORCH_CUDA_ALLOC_CONF)")


def _pieces(size, kind):
    """Sizes of allocations that fill a block without using torch's other pool."""
    if kind[1] != "small":
        return [size] if size else []
    return [_SMALL] * (size // _SMALL) + ([size % _SMALL] if size % _SMALL else [])
