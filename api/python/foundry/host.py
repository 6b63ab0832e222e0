# SPDX-License-Identifier: Apache-2.0
"""Host functions: functions of the program that graphs call (cuLaunchHostFunc)."""
import ctypes

from . import _lib


_named = []  # of captures: graphs that outlive a capture may call them


class _Called(_lib.Callback):
    """The callable of a host function."""

    def of(self, handle):
        """Another thread frees what the callable closes: freeing any object may use CUDA."""
        return True


class HostFunction:
    """A function for the library, which the driver calls in a thread of its own.

    function: a callable without arguments, the address of a C function, or a pair (address,
    argument), both integers. A callable must not use CUDA.
    """

    def __init__(self, name, function):
        address, data = function if isinstance(function, tuple) else (function, 0)
        self.name, self.called = _lib.text(name), None
        if callable(address):
            called = address
            self.called = _Called(_lib.HOST_FN, lambda _: called())
            address = ctypes.cast(self.called.fn, ctypes.c_void_p).value
        self.address = _lib.fit(ctypes.c_void_p, address)
        self.raw = _lib.HostFunction(self.name, self.address, _lib.fit(ctypes.c_void_p, data))

    def keep(self):
        """Keep the callable for the life of the process."""
        if self.called:
            _named.append(self.called)
