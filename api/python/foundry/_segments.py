# SPDX-License-Identifier: Apache-2.0
"""Torch's segments in a region, with the tensors of this process and of loaded images in them.

Torch allocates device memory in segments and places tensors in them. A file of a saved graph lists
the segments of the process that saved it. A load compares these with the segments of this process,
and keeps the bytes of all tensors that are there already.
"""
import bisect
import functools

from . import _lib, _torch
from ._lib import Error

_by_addr = {}  # address -> (description in a file, Segment): the last one read


class Segment:
    """A segment as a file describes it: addr, size; live: the (addr, size) of its tensors."""

    def __init__(self, addr, size, live):
        self.addr, self.size, self.live = addr, size, live

    @functools.cached_property
    def free(self):
        """[(addr, size)] of the ranges without a tensor, ascending."""
        return minus([(self.addr, self.size)], sorted(self.live))


def of_file(described):
    """The Segments of a file. Files that agree about a segment share it."""
    found = []
    for each in described:
        known, segment = _by_addr.get(each[0], (None, None))
        if known != each:
            segment = Segment(each[0], each[1], frozenset(map(tuple, each[2])))
            _by_addr[each[0]] = each, segment
        found.append(segment)
    return found


def minus(ranges, holes):
    """[(addr, size)] without the parts that lie in `holes`. Both ascend; ranges do not overlap."""
    left, first = [], 0
    for addr, size in ranges:
        end = addr + size
        while first < len(holes) and sum(holes[first]) <= addr:
            first += 1
        for i in range(first, len(holes)):
            hole, length = holes[i]
            if hole >= end:
                break
            if hole > addr:
                left.append((addr, hole - addr))
            addr = max(addr, hole + length)
        if addr < end:
            left.append((addr, end - addr))
    return left


def _conflict(live, own):
    """Raise if a tensor of this process in `own` overlaps a different tensor of the image."""
    ends = None
    for addr, length in sorted(own - live):
        if ends is None:
            tensors = sorted(live)
            ends = [a + n for a, n in tensors]
        i = bisect.bisect_right(ends, addr)
        if i < len(ends) and tensors[i][0] < addr + length:
            raise Error(_lib.LAYOUT, f"a tensor of this process has {length} bytes at {addr:#x}, "
                        "and the process that saved the graph had one of "
                        f"{tensors[i][1]} bytes at {tensors[i][0]:#x}; make the same allocations "
                        "in the same order, and no others before the graph is loaded")


def compare(segments, wanted):
    """The image's tensors that lie in torch's `segments` and that this process does not have.

    wanted: the Segments of the file. A tensor of this process that overlaps a tensor of the image
    must be the same one; else Error FDRY_E_LAYOUT.
    """
    missing, by_addr = [], {s.addr: s for s in wanted}
    for s in segments:
        other = by_addr.get(s.addr)
        # The library compares allocations later; compare_sizes() then finds other sizes.
        if other is None or other is s.compared or other.size != s.size:
            continue
        _conflict(other.live, s.live)
        lacks = sorted(other.live - s.live)
        missing += lacks
        if not lacks:
            s.compared = other
    return missing


def compare_sizes(segments, wanted):
    """Compare the sizes of segments when all allocations are equal. They differ only if torch joins
    several into one.
    """
    sizes = {s.addr: s.size for s in wanted}
    for s in segments:
        if sizes.get(s.addr, s.size) != s.size:
            raise Error(_lib.LAYOUT, f"torch's segment at {s.addr:#x} has {s.size} bytes, and had "
                        f"{sizes[s.addr]} in the process that saved the graph: segments that grow "
                        "cannot be shared with an image; turn off expandable_segments "
                        "(PYTORCH_CUDA_ALLOC_CONF), or load the graph before torch allocates")


class Memory:
    """The memory of a region that tensors use: those of this process, and those of loaded images.

    A list of torch's segments takes milliseconds. It is reused if nothing can have changed:

    - Torch's counters are the same as before. Each allocation and each free increments one.
    - The counters were not reset while torch had memory; see _torch.counters().
    - If they were reset while torch had none, torch has allocated all its segments anew, so the
      region lists them behind the memory that a loaded image claimed before. So a list is reused
      only if some of torch's segments lay before that memory.
    """

    def __init__(self, region):
        self._region = region
        self._loaded = {}  # (addr, size) -> the Segment with the tensors of all loaded images
        self.forget()

    def forget(self):
        """Get the list of segments from torch again at the next use."""
        self._torch, self._counters, self._allocs = [], None, []

    def torch(self, allocs):
        """Torch's segments in the region. allocs: the list of its live allocations."""
        counters = _torch.counters(self._region.device)
        if (counters is None or counters != self._counters
                or allocs[:len(self._allocs)] != self._allocs):
            self.forget()
            self._torch = self._region.segments()
            if self._torch and allocs and self._is_claimed(*allocs[-1]):
                self._counters, self._allocs = counters, allocs
        return self._torch

    def _is_claimed(self, addr, size):
        return (addr, size) in self._loaded and all(s.addr != addr for s in self._torch)

    def add(self, segments):
        """Note that an image with these Segments was loaded."""
        for s in segments:
            known = self._loaded.setdefault((s.addr, s.size), s)
            if known is not s and not s.live <= known.live:
                self._loaded[s.addr, s.size] = Segment(s.addr, s.size, known.live | s.live)

    def reset(self, images):
        """Note that exactly the images with these lists of Segments are loaded."""
        self._loaded = {}
        self.forget()
        for segments in images:
            self.add(segments)

    def kept(self, torch, allocs):
        """[(addr, size)] of the bytes that a load keeps: all allocations, without unused blocks."""
        own = {s.addr for s in torch}
        free = [hole for s in torch for hole in s.free]
        free += [hole for s in self._loaded.values() if s.addr not in own for hole in s.free]
        return minus(sorted(allocs), sorted(free))
