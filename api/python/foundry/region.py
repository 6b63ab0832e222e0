# SPDX-License-Identifier: Apache-2.0
"""Regions: fixed device addresses for all allocations of a process, with the original API's names.

A process has one region at a time. It begins with set_allocation_region(). Allocations lie outside
it from stop_allocation_region() to resume_allocation_region(). It ends when the next one begins, or
with the process; memory in it stays valid. Each region has a Capture, so graphs in it can be saved,
and images can be loaded into it.
"""
import contextlib
import fractions
import operator
import re
import threading

from . import _lib, _segments, _torch
from ._lib import Error, lib
from .capture import Capture

_BLOCK = 2 << 20  # addresses and memory come in pieces of this many bytes
_UNIT = 512       # smaller allocations are rounded up to multiples of this
_UNITS = {"": 1, "b": 1}
_UNITS.update({prefix + suffix: 1 << 10 * (power + 1)
               for power, prefix in enumerate("kmgt") for suffix in ("", "b", "ib")})
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)
_current = None
lock = threading.RLock()  # held during every use of the region and of the images in it


def _integer(value):
    """An integer that is not negative, numpy's too, as an int; None for anything else."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None
    return number if number >= 0 else None


def parse_size(size):
    """The bytes of a size such as "1GB", "16MB", "1.5 kb" or "4096"; an int is returned as it is.

    Units are b, kb, mb, gb and tb, their first letters, or kib, mib, ..., in either case; a kb is
    1,024 bytes. Fractions are rounded down to whole bytes. Raises ValueError for anything else,
    also for negative sizes.
    """
    number = _integer(size)
    if number is not None:
        return number
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    unit = _UNITS.get(found[2].lower()) if found else None
    if unit is None:
        raise ValueError(f"{size!r} is not a size; sizes are like 4096, '16MB', '1GB' or '1.5 kb'")
    return int(fractions.Fraction(found[1]) * unit)


def _parse_base(base):
    """An address: an int, or a string of hexadecimal digits with or without 0x."""
    number = _integer(base)
    if number is not None:
        return number
    try:
        return (int(base, 16)
                if isinstance(base, str) and not base.strip().startswith("-") else int(""))
    except ValueError:
        raise ValueError(
            f"{base!r} is not a base address; pass an int such as 0x7f0000000000, or the same as a "
            "string") from None


class Region:
    """The region: its capture, the graphs captured in it, the images loaded into it."""

    def __init__(self, base, size, after=None):
        self.base, self.size, self.device = base, size, _torch.device()
        self.capture = Capture(base=base, size=size, device=self.device,
                               after=after and after.capture)
        self.active = True
        self.keys = 0       # the number of graphs so far
        self.graphs = {}    # key -> the graph that torch captured, if it is alive
        self.images = {}    # (store, id) -> the loaded image
        self.memory = _segments.Memory(self)

    def allocs(self):
        """[(address, bytes)] of the live allocations, in the order in which they were made."""
        return self.capture.allocs()

    def segments(self):
        """Torch's segments in the region."""
        return [s for s in _torch.segments(self.device)
                if self.base <= s.addr < self.base + self.size]

    def end(self):
        self.active = False
        self.capture.end()
        self.graphs.clear()


def current(what):
    """The region; Error FDRY_E_STATE, which names the function `what`, if there is none."""
    if _current is None:
        raise Error(_lib.STATE,
                    f"{what} needs a region; begin one with set_allocation_region() first")
    return _current


def find():
    """The region, or None."""
    return _current


def set_allocation_region(base, size):
    """Begin a region: from now on device memory comes from [base, base + size).

    The same calls get the same addresses in every process. base: an int or a hexadecimal string, a
    multiple of 2 MiB. size: bytes, or as for parse_size(), rounded up to 2 MiB.

    The present region, active or stopped, ends: its memory stays valid and is freed as before, but
    its graphs can no longer be saved. If this raises Error, that region stays as it is:
    FDRY_E_TAKEN names the mapping at the addresses; FDRY_E_STATE means that another capture has
    begun; FDRY_E_LATE, that torch was imported before foundry.
    """
    global _current
    base, size = _parse_base(base), -(-parse_size(size) // _BLOCK) * _BLOCK
    if not size:
        raise ValueError("a region of 0 bytes holds nothing; pass a size such as '1GB'")
    with lock:
        old, _current = _current, Region(base, size, after=_current)
        if old:
            old.end()


def stop_allocation_region():
    """Let the driver make allocations again. Memory in the region stays valid, and can still be
    saved.
    """
    with lock:
        current("stop_allocation_region()").capture.pause()
        _current.active = False


def resume_allocation_region():
    """Allocate in the stopped region again, from where it stopped."""
    with lock:
        current("resume_allocation_region()").capture.resume()
        _current.active = True


def get_current_alloc_offset():
    """Bytes from the region's base to its cursor, where new memory is allocated."""
    with lock:
        return current("get_current_alloc_offset()").capture.offset


def set_current_alloc_offset(offset):
    """Move the cursor to `offset` bytes behind the base.

    Errors: FDRY_E_STATE if there is live memory behind it, FDRY_E_RANGE.
    """
    with lock:
        current("set_current_alloc_offset()").capture.offset = parse_size(offset)


def preallocate_region(size):
    """Map `size` bytes at the cursor in advance, so that allocations there need no driver call.

    size: bytes, or as for parse_size(), rounded up to 2 MiB. Returns True, or False if the device
    or the region lacks the memory or the addresses; then nothing changes. Raises Error FDRY_E_STATE
    without a region.
    """
    size = -(-parse_size(size) // _BLOCK) * _BLOCK
    with lock:
        capture = current("preallocate_region()").capture
        try:
            lib.fdry_capture_preallocate(capture._handle, size)
        except Error as e:
            if e.name in ("FDRY_E_NODEVMEM", "FDRY_E_RANGE"):
                return False
            raise
    return True


def get_live_region_ranges():
    """[(offset from the base, bytes)] of the live memory in the region, ascending.

    Sizes are rounded up as in the region, and adjacent allocations are one range. A process that
    will make the same allocations can pass this list, with get_current_alloc_offset(), to
    preallocate_ranges(). Raises Error FDRY_E_STATE without a region.
    """
    found = []
    with lock:
        where = current("get_live_region_ranges()")
        for addr, size in sorted(where.allocs()):
            start, unit = addr - where.base, _BLOCK if size >= _BLOCK else _UNIT
            end = start + -(-size // unit) * unit
            if found and start <= found[-1][1]:
                found[-1][1] = max(end, found[-1][1])
            else:
                found.append([start, end])
    return [(start, end - start) for start, end in found]


def preallocate_ranges(ranges, end_offset):
    """Map memory in advance between the cursor and `end_offset`. Returns True, or False if there is
    no space.

    ranges: [(offset, bytes)], such as get_live_region_ranges() of another process. end_offset: an
    offset from the base. The call maps one piece from the cursor to the end of the last range, with
    the gaps between ranges, or nothing if no range ends behind the cursor. Otherwise it works like
    preallocate_region(). free_preallocated_region() frees the part that no allocation uses.
    """
    limit, ends = parse_size(end_offset), [0]
    for each in ranges:
        offset, size = (_integer(n) for n in each)
        if offset is None or size is None:
            raise ValueError(
                f"{each!r} is not a range; pass pairs of an offset and a number of bytes")
        ends.append(offset + size)
    with lock:
        ahead = min(limit, max(ends)) - current("preallocate_ranges()").capture.offset
        return ahead <= 0 or preallocate_region(ahead)


def preallocate_cublas_workspaces():
    """Let torch allocate the workspaces of cuBLAS and cuBLASLt for the current stream.

    The workspaces then have the same addresses in every process that makes this call at the same
    point. Without torch, or before torch has started CUDA, nothing happens.
    """
    _torch.blas_workspaces()


def free_preallocated_region():
    """Free the memory mapped in advance that no allocation uses. Error FDRY_E_STATE if there is
    none.
    """
    with lock:
        lib.fdry_capture_free_preallocated(current("free_preallocated_region()").capture._handle)


@contextlib.contextmanager
def allocation_region(base, size, prealloc_size=None):
    """A region for the length of a with block; `prealloc_size` bytes of it are mapped in advance.

    base, size: as for set_allocation_region(). prealloc_size: as for preallocate_region(), but
    without space it raises Error, and no region begins. At the end the region is stopped: images
    and graphs in it stay valid.
    """
    global _current
    ahead = None if prealloc_size is None else -(-parse_size(prealloc_size) // _BLOCK) * _BLOCK
    set_allocation_region(base, size)
    region = _current
    if ahead:
        try:
            lib.fdry_capture_preallocate(region.capture._handle, ahead)
        except Error:
            with lock:
                region.end()
                _current = None
            raise
    try:
        yield
    finally:
        with lock:
            if _current is region:
                if ahead:
                    with contextlib.suppress(Error):  # the block may have freed it itself
                        free_preallocated_region()
                if region.active:
                    stop_allocation_region()
