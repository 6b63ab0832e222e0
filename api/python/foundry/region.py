# SPDX-License-Identifier: Apache-2.0
"""Regions: fixed device addresses for everything that the process allocates, with the names of the
original API.

One region at a time. It begins with set_allocation_region(), gives no addresses between
stop_allocation_region() and resume_allocation_region(), and ends when the next one begins or the
process does; what lives in it stays valid. Behind it stands a Capture, so that what lies in it can
be saved, and loaded into it.
"""
import array
import contextlib
import ctypes
import fractions
import operator
import re
import threading

from . import _lib, _segments, _torch
from ._lib import Error, lib, libc
from .capture import Capture

_BLOCK = 2 << 20  # addresses and memory come in pieces of this many bytes
_UNIT = 512       # what smaller allocations are rounded up to
_UNITS = {"": 1, "b": 1}
_UNITS.update({prefix + suffix: 1 << 10 * (power + 1)
               for power, prefix in enumerate("kmgt") for suffix in ("", "b", "ib")})
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)
_current = None
lock = threading.RLock()  # around every use of the region and of what is loaded into it


def _integer(value):
    """What is an integer and not negative, numpy's too, as an int; else None."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None
    return number if number >= 0 else None


def parse_size(size):
    """Bytes, as an int: of "1GB", "16MB", "1.5 kb", "4096", or of an int as it is.

    Units are b, kb, mb, gb and tb, or their first letter, or kib, mib, ...; in either case; a kb is
    1,024 bytes. Fractions are rounded down to whole bytes. ValueError for anything else, negative
    sizes among it.
    """
    number = _integer(size)
    if number is not None:
        return number
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    unit = _UNITS.get(found[2].lower()) if found else None
    if unit is None:
        raise ValueError(f"{size!r} is no size; sizes are like 4096, '16MB', '1GB' or '1.5 kb'")
    return int(fractions.Fraction(found[1]) * unit)


def _parse_base(base):
    """An address: an int as it is, or hexadecimal digits with or without 0x."""
    number = _integer(base)
    if number is not None:
        return number
    try:
        return (int(base, 16)
                if isinstance(base, str) and not base.strip().startswith("-") else int(""))
    except ValueError:
        raise ValueError(
            f"{base!r} is no base address; give an int such as 0x7f0000000000, or the same as a "
            "string") from None


class Region:
    """The region: its capture, the graphs captured in it, the images loaded into it."""

    def __init__(self, base, size, after=None):
        self.base, self.size, self.device = base, size, _torch.device()
        self.capture = Capture(base=base, size=size, device=self.device,
                               after=after and after.capture)
        self.active = True
        self.keys = 0       # of graphs so far
        self.graphs = {}    # key -> what torch captured, for those that are alive
        self.images = {}    # (store, id) -> what was loaded
        self.memory = _segments.Memory(self)

    def allocs(self):
        """[(address, bytes)] of the live allocations, in the order in which they were made."""
        found, count = ctypes.POINTER(_lib.Memory)(), ctypes.c_size_t()
        lib.fdry_capture_allocs(self.capture._handle, ctypes.byref(found), ctypes.byref(count))
        try:
            words = array.array("Q", ctypes.string_at(found, 16 * count.value) if count else b"")
            return list(zip(words[::2], words[1::2]))
        finally:
            libc.free(found)

    def segments(self):
        """Torch's segments that lie in the region."""
        return [s for s in _torch.segments(self.device)
                if self.base <= s.addr < self.base + self.size]

    def end(self):
        self.active = False
        self.capture.end()
        self.graphs.clear()


def current(what):
    """The region, for `what` needs one."""
    if _current is None:
        raise Error(_lib.STATE,
                    f"{what} needs a region; begin one with set_allocation_region() first")
    return _current


def find():
    """The region, or None."""
    return _current


def set_allocation_region(base, size):
    """From here on device memory comes from [base, base + size), at addresses that the same calls
    get in every process.

    base: an int or a hexadecimal string, a multiple of 2 MiB. size: bytes or as for parse_size(),
    rounded up to 2 MiB. The region that there is, active or stopped, ends: what lives in it stays
    valid and is freed as before, but its graphs can no longer be saved. Raises Error, and leaves
    that region as it is: FDRY_E_TAKEN names what lies at the addresses; FDRY_E_STATE while another
    capture is begun; FDRY_E_LATE if torch was imported before foundry.
    """
    global _current
    base, size = _parse_base(base), -(-parse_size(size) // _BLOCK) * _BLOCK
    if not size:
        raise ValueError("a region of 0 bytes holds nothing; give a size such as '1GB'")
    with lock:
        old, _current = _current, Region(base, size, after=_current)
        if old:
            old.end()


def stop_allocation_region():
    """Device memory comes from the driver again; what lives in the region stays valid, and can
    still be saved.
    """
    with lock:
        current("stop_allocation_region()").capture.pause()
        _current.active = False


def resume_allocation_region():
    """Device memory comes from the stopped region again, where it left off."""
    with lock:
        current("resume_allocation_region()").capture.resume()
        _current.active = True


def get_current_alloc_offset():
    """Bytes from the region's base to its cursor, behind which new memory is handed out."""
    with lock:
        return current("get_current_alloc_offset()").capture.offset


def set_current_alloc_offset(offset):
    """Put the cursor `offset` bytes behind the base. Error FDRY_E_STATE where memory lives behind
    that, FDRY_E_RANGE.
    """
    with lock:
        current("set_current_alloc_offset()").capture.offset = parse_size(offset)


def preallocate_region(size):
    """Map the next `size` bytes at the cursor ahead, so that allocating there calls no driver;
    whether there was room.

    size: bytes or as for parse_size(), rounded up to 2 MiB. False where the device or the region
    lacks the memory or the addresses; nothing is changed then. Error FDRY_E_STATE without a region.
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
    """[(offset, bytes)] of memory in the region that is allocated, offsets counted from its base,
    ascending.

    Sizes are rounded up as the region does; allocations that touch are one range. With
    get_current_alloc_offset(), what preallocate_ranges() wants in a process that will make the same
    allocations. Error FDRY_E_STATE without a region.
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
    """Map memory ahead for what lies between the cursor and `end_offset`; whether there was room.

    ranges: [(offset, bytes)], such as another process' get_live_region_ranges(); end_offset: an
    offset from the base. One piece is mapped from the cursor to the end of the last range, gaps
    between ranges among it; nothing if no range ends behind the cursor. Otherwise as
    preallocate_region(). free_preallocated_region() gives back what no allocation uses.
    """
    limit, ends = parse_size(end_offset), [0]
    for each in ranges:
        offset, size = (_integer(n) for n in each)
        if offset is None or size is None:
            raise ValueError(f"{each!r} is no range; give pairs of an offset and a number of bytes")
        ends.append(offset + size)
    with lock:
        ahead = min(limit, max(ends)) - current("preallocate_ranges()").capture.offset
        return ahead <= 0 or preallocate_region(ahead)


def preallocate_cublas_workspaces():
    """Have torch make what cuBLAS and cuBLASLt work with on the current stream, so that their
    memory lies where it lies in every process that calls this at the same place. Without torch, or
    before it has started CUDA, nothing happens.
    """
    _torch.blas_workspaces()


def free_preallocated_region():
    """Give back what no allocation uses of the memory mapped ahead. Error FDRY_E_STATE where none
    was.
    """
    with lock:
        lib.fdry_capture_free_preallocated(current("free_preallocated_region()").capture._handle)


@contextlib.contextmanager
def allocation_region(base, size, prealloc_size=None):
    """A region for the length of a with block, with `prealloc_size` bytes of it mapped ahead where
    given.

    base, size: as for set_allocation_region(); prealloc_size: as for preallocate_region(), but
    where there is no room that is an Error, and no region begins. The region is stopped at the end:
    what was loaded or captured in it stays valid.
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
                    with contextlib.suppress(Error):  # the block gave it back itself
                        free_preallocated_region()
                if region.active:
                    stop_allocation_region()
