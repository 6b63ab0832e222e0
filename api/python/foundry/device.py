# SPDX-License-Identifier: Apache-2.0
"""Devices and their pools: memory, streams, events, and buffers with handles."""
import ctypes

from . import _lib, _log
from ._lib import lib
from .image import _stream

_MEMORY = {"device": 0, "pinned": 1}
_SYNC = {"stream": 0, "event": 1, "timer": 2}
_NONE = ctypes.c_void_p(-1)


def _where(stream):
    return _NONE if stream == "none" else _stream(stream)


def _kind(kinds, kind):
    if kind not in kinds:
        raise ValueError(f"kind must be one of {', '.join(kinds)}, not '{kind}'")
    return kinds[kind]


def _fields(struct):
    return {name: getattr(struct, name) for name, *_ in struct._fields_[1:]}


class Device(_lib.Closing):
    """A device by number, from 0. All Devices of one number share it; the last one to close frees
    it.

    caps: a dict of the device's properties; sizes in bytes, clocks in kHz, 1 and 0 for yes and no.
    A stream is torch's or CuPy's, an int, None for the default stream, or "none": the host has
    waited for earlier uses, or will use the memory at once.
    """

    def __init__(self, ordinal=0):
        raw = _lib.DEVICE()
        _log.follow()
        lib.fdry_device_get(ordinal, ctypes.byref(raw))
        self._handle = _lib.Handle(raw)
        caps = _lib.DeviceCaps(sz=ctypes.sizeof(_lib.DeviceCaps))
        lib.fdry_device_caps(self._handle, ctypes.byref(caps))
        self.caps = _fields(caps)
        self.caps["name"] = caps.name.decode(errors="replace")
        self._shown = f" {caps.ordinal}: {self.caps['name']}"

    def warm_up(self):
        """Make the device's primary context current in this thread."""
        lib.fdry_device_warm_up(self._handle)

    def clean_up(self):
        """Free memory, streams and events that the pools keep for later uses; those in use stay."""
        lib.fdry_device_clean_up(self._handle)

    def get(self, nbytes, stream=None, kind="device"):
        """The address of `nbytes` of memory that `stream` uses first. kind: "device" or "pinned".

        With stream "none" the host can write pinned memory at once: no earlier copy still reads it.
        """
        addr, code = ctypes.c_uint64(), _kind(_MEMORY, kind)
        where = _where("none" if stream is None and kind == "pinned" else stream)
        lib.fdry_transient_get(self._handle, code, nbytes, where, ctypes.byref(addr))
        return addr.value

    def put(self, addr, stream=None, kind="device"):
        """Return memory to its pool. Nothing may use it after the present work of `stream`."""
        lib.fdry_transient_put(self._handle, _kind(_MEMORY, kind), addr, _where(stream))

    def pool(self, kind="device"):
        """The counters of a pool as a dict: limit, cached, used, peak (bytes), hits, misses, ..."""
        stats = _lib.TransientStats(sz=ctypes.sizeof(_lib.TransientStats))
        lib.fdry_transient_stats(self._handle, _kind(_MEMORY, kind), ctypes.byref(stats))
        return _fields(stats)

    def set_limit(self, nbytes, kind="device"):
        """Set the most bytes that a pool keeps."""
        lib.fdry_transient_set_limit(self._handle, _kind(_MEMORY, kind), nbytes)

    def get_sync(self, kind="stream"):
        """A CUstream, or a CUevent ("event", or "timer": with timing), as an int."""
        what = ctypes.c_void_p()
        lib.fdry_sync_get(self._handle, _kind(_SYNC, kind), ctypes.byref(what))
        return what.value

    def put_sync(self, what, kind="stream"):
        """Return a stream or an event to its pool."""
        lib.fdry_sync_put(self._handle, _kind(_SYNC, kind), what)

    def syncs(self, kind="stream"):
        """The counters of streams or events as a dict: limit, kept, used, made, destroyed, again.
        """
        stats = _lib.SyncStats(sz=ctypes.sizeof(_lib.SyncStats))
        lib.fdry_sync_stats(self._handle, _kind(_SYNC, kind), ctypes.byref(stats))
        return _fields(stats)

    def new(self, nbytes):
        """The handle of a new buffer of device memory. No other buffer ever has the same handle."""
        handle = ctypes.c_uint64()
        lib.fdry_resident_new(self._handle, nbytes, ctypes.byref(handle))
        return handle.value

    def view(self, handle):
        """(address, bytes) of a buffer. Error FDRY_E_STALE if it was freed, FDRY_E_NOKEY if it
        never existed.
        """
        addr, nbytes = ctypes.c_uint64(), ctypes.c_size_t()
        lib.fdry_resident_view(self._handle, handle, ctypes.byref(addr), ctypes.byref(nbytes))
        return addr.value, nbytes.value

    def write(self, handle, data, offset=0, stream=None):
        """Copy bytes, or an object with the buffer protocol, into a buffer of the device, and wait.
        """
        data = memoryview(data).tobytes()
        lib.fdry_resident_write(self._handle, handle, offset, data, len(data), _where(stream))

    def read(self, handle, nbytes, offset=0, stream=None):
        """The bytes of a buffer, after the present work of `stream`."""
        data = ctypes.create_string_buffer(nbytes)
        lib.fdry_resident_read(self._handle, handle, offset, data, nbytes, _where(stream))
        return data.raw

    def free(self, handle, stream=None):
        """Free the buffer after the present work of `stream`."""
        lib.fdry_resident_free(self._handle, handle, _where(stream))
