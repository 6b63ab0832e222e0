# SPDX-License-Identifier: Apache-2.0
"""What this process did, in numbers: counters of the library, which always run."""
import ctypes

from ._lib import Telemetry, lib, libc


def snapshot():
    """Every number as a dict: "name" or 'name{label="value"}' -> int, or float where it is seconds.
    """
    count = ctypes.c_size_t()
    lib.fdry_telemetry_at(None, 0, ctypes.byref(count))
    found = (Telemetry * count.value)()
    lib.fdry_telemetry_at(found, len(found), ctypes.byref(count))
    return {f"{t.name.decode()}{{{t.labels.decode()}}}" if t.labels else t.name.decode():
            t.value / 1e9 if t.unit == 2 else t.value for t in found}


def reset():
    """Counters begin at zero again; gauges, caches and buffers stay."""
    lib.fdry_telemetry_reset()


def text(store=None):
    """Everything in Prometheus' text format; with a Store, what that holds comes too. Content type:
    text/plain; version=0.0.4. Raises Error where the store cannot be read, ValueError where it is
    closed.
    """
    found = ctypes.c_void_p()
    lib.fdry_telemetry_text(None if store is None else store._handle,
                            ctypes.byref(found))  # pylint: disable=protected-access
    try:
        return ctypes.string_at(found).decode()
    finally:
        libc.free(found)
