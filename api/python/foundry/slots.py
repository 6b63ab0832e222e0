# SPDX-License-Identifier: Apache-2.0
"""Executable graphs in slots with 64-bit keys. Any thread may replace one while others replay it.
"""
import contextlib
import ctypes
import threading

from . import _lib, _log
from ._lib import lib
from .image import Image, _stream

_UPLOADS = {None: 0, "first": 1, "always": 2}
_SYNCS = {None: 0, False: 1, True: 2}


def _number(what, choices, chosen):
    if chosen not in choices:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, choices))}, not {chosen!r}")
    return choices[chosen]


class SlotCall(_lib.Record):
    """The times of one replay, in nanoseconds: upload_ns, launch_ns, sync_ns and total_ns.

    key: of the slot. nr: the number of the call, from 1.
    """

    def __init__(self, raw):
        for name, _ in _lib.SlotsCall._fields_:
            setattr(self, name, getattr(raw, name))


class SlotPhase(_lib.Record):
    """The times of one part of replays.

    calls: how many replays had this part. total_ns, p50_ns, p90_ns, p99_ns (exact to a sixteenth)
    and max_ns, in nanoseconds.
    """

    def __init__(self, raw):
        for name, _ in _lib.SlotsPhase._fields_:
            setattr(self, name, getattr(raw, name))


class SlotStats(_lib.Record):
    """The times of replays: upload, launch, sync and total, each a SlotPhase."""

    def __init__(self, raw):
        for name, _ in _lib.SlotsStats._fields_[1:]:
            setattr(self, name, SlotPhase(getattr(raw, name)))


def _exec_of(graph):
    """The CUgraphExec, as an integer, of torch's CUDAGraph, of this package's, or of an integer."""
    return _as_int(graph.raw_cuda_graph_exec() if hasattr(graph, "raw_cuda_graph_exec") else graph)


def _as_int(graph):
    if not isinstance(graph, int):
        raise TypeError(
            f"{graph!r} is not a graph; pass a CUDAGraph, or the driver's handle as an int")
    return graph


class Slots(_lib.Closing):
    """A table of executable graphs by key. Any thread may use it. Use it as a context manager, or
    close().

    device: its ordinal; graphs and streams belong to its primary context. upload: "first" (once,
    when a graph is installed) or "always" (also before each launch). sync: whether a replay waits
    until its stream has no more work. None for either: FOUNDRY_SLOTS_UPLOAD and FOUNDRY_SLOTS_SYNC,
    else "first" and False. driver: the path of a libcuda.
    """

    def __init__(self, device=0, upload=None, sync=None, driver=None):
        # key -> the owner of the slot's graph, which must live as long as the graph is in the slot
        self._held = {}
        # re-entrant, since a signal handler or the garbage collector may change the table, too
        self._lock = threading.RLock()
        callbacks = self._callbacks = []  # the callback of profile()
        # One Callback for the life of the table: calls may be in progress when profile() sets
        # another function.
        self._fn = _lib.Callback(_lib.SLOTS_FN, lambda _,
                                 call: [each(SlotCall(call.contents)) for each in tuple(callbacks)])
        opts = _lib.SlotsOpts(sz=ctypes.sizeof(_lib.SlotsOpts), device=device,
                              upload=_number("upload", _UPLOADS, upload),
                              sync=_number("sync", _SYNCS, sync),
                              driver=_lib.file_name(driver) if driver else None)
        raw = _lib.SLOTS()
        _log.follow()
        lib.fdry_slots_new(ctypes.byref(opts), ctypes.byref(raw))
        self._handle = _lib.Handle(raw, keeps=(self._held, self._callbacks, self._fn))
        self._shown = f" of device {device}"

    @contextlib.contextmanager
    def _changing(self):
        """Hold the lock and the table, until the kept objects agree with the table again.

        A callback does not wait for the lock, because the thread that has it may wait for the
        replay that runs the callback.
        """
        if not self._lock.acquire(blocking=not _lib.entered()):
            raise _lib.Error(_lib.STATE,
                             "another thread is changing the table, and a callback cannot wait for "
                             "that; do it outside of the callback")
        try:
            self._handle.take()
            try:
                yield
            finally:
                self._handle.leave()
        finally:
            self._lock.release()

    def _hold(self, key, what=None):
        """Keep an object for a slot. Returns the objects that were kept before, to be released
        without the lock.

        Their release may unload an image.
        """
        was = self._held.pop(key, None)
        if what is not None:
            self._held[key] = what
        return was

    def install(self, key, graph):
        """Install an executable graph in slot `key`, and upload it.

        The slot's earlier graph is released when its launches have ended. graph: an object with
        raw_cuda_graph_exec() (a CUDAGraph of torch, or of this package), which the table keeps
        alive; or a CUgraphExec as an integer, which the caller owns and which must outlive the
        slot.
        """
        with self._changing():
            lib.fdry_slots_install(self._handle, key, None, _exec_of(graph), 0)
            was = self._hold(key, graph)
        del was

    def install_graph(self, key, graph, flags=0):
        """Instantiate a CUgraph with these flags, and install it in slot `key`.

        graph: an integer, or an object with raw_cuda_graph(). The executable graph belongs to the
        table, the graph to the caller.
        """
        raw = _as_int(graph.raw_cuda_graph() if hasattr(graph, "raw_cuda_graph") else graph)
        with self._changing():
            lib.fdry_slots_install_graph(self._handle, key, raw, flags, 0)
            was = self._hold(key, graph)
        del was

    def install_image(self, key, image, graph):
        """Build graph `graph` of a loaded Image and install it in slot `key`.

        A replay then does what image.launch(graph) does.
        """
        if not isinstance(image, Image):
            raise TypeError(f"image: {type(image).__name__} is not an Image")
        held = _lib.Hold(image._handle, "slot")
        with self._changing():
            lib.fdry_slots_install_image(self._handle, key, image._handle, graph)
            was = self._hold(key, held)
        del was

    def holds(self, image):
        """Whether a slot has a graph of the Image."""
        if not isinstance(image, Image):
            raise TypeError(f"image: {type(image).__name__} is not an Image")
        return any(getattr(held, "handle", None) is image._handle
                   for held in list(self._held.values()))

    def capture_end(self, key, stream, flags=0):
        """End the capture of `stream`, instantiate the graph with these flags, and install it in
        slot `key`.

        Both graphs belong to the table.
        """
        with self._changing():
            lib.fdry_slots_capture_end(self._handle, key, _stream(stream), flags)
            was = self._hold(key)
        del was

    def replay(self, key, stream=None):
        """Launch the graph of slot `key` on `stream`. Returns False if the slot is empty.

        stream: torch's or CuPy's, an integer, or None for the legacy default stream.
        """
        launched = ctypes.c_int()
        lib.fdry_slots_replay(self._handle, key, _stream(stream), ctypes.byref(launched))
        return bool(launched.value)

    def invalidate(self, key=None):
        """Empty slot `key`, or without a key all slots. On return no launch of their graphs is in
        flight.
        """
        with self._changing():
            if key is None:
                lib.fdry_slots_invalidate_all(self._handle)
                was = dict(self._held)
                self._held.clear()
            else:
                lib.fdry_slots_invalidate(self._handle, key)
                was = self._hold(key)
        del was

    def keys(self):
        """The keys of the slots that hold a graph, ascending."""
        count = ctypes.c_size_t()
        lib.fdry_slots_keys(self._handle, None, 0, ctypes.byref(count))
        found = (ctypes.c_uint64 * count.value)()
        lib.fdry_slots_keys(self._handle, found, len(found), ctypes.byref(count))
        return sorted(found[:min(len(found), count.value)])

    def __iter__(self):
        """The keys, ascending."""
        return iter(self.keys())

    def __contains__(self, key):
        return bool(lib.fdry_slots_has(self._handle, key))

    def __len__(self):
        count = ctypes.c_size_t()
        lib.fdry_slots_keys(self._handle, None, 0, ctypes.byref(count))
        return count.value

    def profile(self, every=0, callback=None):
        """Begin to time replays.

        Every `every` calls it logs a line (level info) and calls callback(SlotCall) in the thread
        that replays. The callback must not change the table. 0: neither. profile_stop() ends this.
        """
        opts = _lib.SlotsProfileOpts(sz=ctypes.sizeof(_lib.SlotsProfileOpts), every=every)
        if callback:
            opts.fn = self._fn.fn
        with self._changing():
            lib.fdry_slots_profile(self._handle, ctypes.byref(opts))
            self._callbacks[:] = [callback] if callback else []

    def profile_stop(self):
        """End profile()."""
        with self._changing():
            lib.fdry_slots_profile(self._handle, None)
            self._callbacks.clear()

    def stats(self):
        """The times so far, as SlotStats. Raises Error if replays are not timed."""
        raw = _lib.SlotsStats(sz=ctypes.sizeof(_lib.SlotsStats))
        lib.fdry_slots_stats(self._handle, ctypes.byref(raw))
        return SlotStats(raw)

    def reset_stats(self):
        """Set the times to zero."""
        lib.fdry_slots_stats_reset(self._handle)

    def close(self):
        """Wait for launches in flight and free the table.

        If calls are under way, close() returns at once, and takes effect after them.
        """
        super().close()
