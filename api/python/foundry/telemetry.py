# SPDX-License-Identifier: Apache-2.0
"""What this process did, in numbers: the counters of the library, which always run."""
import ctypes

from ._lib import Telemetry, lib, libc


def snapshot():
    """Every counter as {name: int}, float for seconds; a name may have labels:
    'name{label="value"}'.
    """
    count = ctypes.c_size_t()
    lib.fdry_telemetry_at(None, 0, ctypes.byref(count))
    found = (Telemetry * count.value)()
    lib.fdry_telemetry_at(found, len(found), ctypes.byref(count))
    return {f"{t.name.decode()}{{{t.labels.decode()}}}" if t.labels else t.name.decode():
            t.value / 1e9 if t.unit == 2 else t.value for t in found}


def reset():
    """Set the counters to zero; gauges, caches and buffers stay."""
    lib.fdry_telemetry_reset()


def text(store=None):
    """All counters in Prometheus' text format; with a Store, also its numbers.

    The content type is text/plain; version=0.0.4. Raises Error if the store cannot be read,
    ValueError if it is closed.
    """
    found = ctypes.c_void_p()
    lib.fdry_telemetry_text(None if store is None else store._handle,
                            ctypes.byref(found))  # pylint: disable=protected-access
    try:
        return ctypes.string_at(found).decode()
    finally:
        libc.free(found)
