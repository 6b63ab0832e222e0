# SPDX-License-Identifier: Apache-2.0
"""Kernels for programs without images: compiles code to functions, with a cache in memory and a
store.
"""
import collections
import ctypes
import operator

from . import _lib
from ._lib import FUNCTION, KERNELS, lib
from .image import _stream

_COOPERATIVE = 1
_CDATA = (ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._Pointer)
_U32 = (1 << 32) - 1  # ctypes would cut off larger numbers, and launch less
KernelTarget = collections.namedtuple("KernelTarget", "arch exact cc driver ptx")
KernelStats = collections.namedtuple("KernelStats",
                                     [name for name, _ in _lib.KernelsStats._fields_[1:]])


def _text(value):
    return None if value is None else _lib.text(value)


def _path(value):
    return None if value is None else _lib.file_name(value)


class Code:
    """Code, and how to compile it.

    data: PTX, a cubin or a fatbin (str or bytes); with source=True CUDA C++, for NVRTC. options:
    one or several, for the compiler. target: of source, such as "sm_90a". name: for messages.
    version: a part of the key. A store keeps compiled source that includes files only if it has a
    version.
    """

    def __init__(self, data, source=False, options=(), target=None, name=None, version=None):
        if not isinstance(data, (str, bytes, bytearray, memoryview)):
            raise TypeError(
                f"data: {data!r} is of type {type(data).__name__}; give code as str or bytes")
        self._data = data.encode() if isinstance(data, str) else bytes(data)
        self._name = name
        options = [_lib.text(option) for option in ([options] if isinstance(options, str)
                                                    else options)]
        self._options = (ctypes.c_char_p * len(options))(*options)
        self.raw = _lib.KernelsSource(
            ctypes.sizeof(_lib.KernelsSource), int(source), 0, self._data, len(self._data),
            _text(name), _text(target), self._options, len(options), _text(version))

    def __repr__(self):
        return f"<Code {self._name or 'without a name'}: {len(self._data)} bytes>"


def _code(code, how):
    if isinstance(code, Code):
        if how:
            raise TypeError("options were given besides a Code; pass them to Code()")
        return code
    return Code(code, **how)


def _address(tensor):
    """The address of a tensor. Kernels read device memory and pinned host memory."""
    if not hasattr(tensor, "data_ptr"):
        return tensor.__cuda_array_interface__["data"][0]
    if getattr(getattr(tensor, "device", None), "type", None) == "cpu" and not tensor.is_pinned():
        raise TypeError(
            "a tensor in host memory was given, which kernels cannot read; move it to the device, "
            "or pin it")
    return tensor.data_ptr()


def _packed(argument):
    """An argument as (object to keep, address, bytes)."""
    if hasattr(argument, "data_ptr") or hasattr(argument, "__cuda_array_interface__"):
        argument = ctypes.c_void_p(_address(argument))
    elif isinstance(argument, bytes):
        argument = (ctypes.c_char * len(argument)).from_buffer_copy(argument)
    elif isinstance(argument, (int, float)):
        raise TypeError("a number has no size; pass a ctypes number, such as ctypes.c_int(7)")
    elif not isinstance(argument, _CDATA):
        raise TypeError(
            f"{argument!r} cannot be an argument; pass a tensor, a ctypes number or structure, or "
            "bytes")
    return argument, ctypes.addressof(argument), ctypes.sizeof(argument)


def _three(what, counts):
    counts = tuple(map(operator.index, counts if hasattr(counts, "__iter__") else (counts,)))
    if not 1 <= len(counts) <= 3 or not all(1 <= n <= _U32 for n in counts):
        raise ValueError(f"{what} is {counts}; pass one to three numbers from 1 to {_U32}")
    return (ctypes.c_uint32 * 3)(*counts, *(1,) * (3 - len(counts)))


class Function:
    """A kernel that can be launched, until its Kernels is cleared or closed.

    handle: the CUfunction as an int.
    """

    def __init__(self, kernels, handle):
        self._kernels, self.handle, self._cleared = kernels, handle, kernels._cleared

    def __repr__(self):
        gone = not self._kernels._handle or self._cleared != self._kernels._cleared
        return f"<Function {self.handle:#x}{', unloaded' if gone else ''}>"

    def launch(self, grid, block, args=(), shared=0, stream=0, cooperative=False):
        """Launch the kernel and return at once.

        grid, block: the blocks, and the threads of a block: an int from 1, or up to three of them.
        shared: bytes of dynamic shared memory of a block. stream: torch's or CuPy's, a CUstream as
        an int, None or 0 for the default stream; it may capture. cooperative: run all blocks at the
        same time, so that they can wait for each other.

        args: one for each parameter. ctypes numbers and structures and bytes are copied as they
        are. For a pointer use a tensor (anything with data_ptr() or __cuda_array_interface__), or
        ctypes.c_void_p(address). The number of arguments and their sizes must be those of the
        kernel.

        Errors: FDRY_E_INVAL if the number of arguments, or the size of one, differs from the
        kernel's; the message has both numbers. FDRY_E_UNABLE if the device cannot launch
        cooperatively, or not so many blocks; the message says which. FDRY_E_NOKEY if the Kernels
        was cleared. TypeError for Python's own numbers, which have no size, and for tensors in host
        memory that is not pinned. ValueError for a grid, block or shared of another kind, and if
        the Kernels is closed.
        """
        _lib.fit(ctypes.c_uint32, shared)
        opts = _lib.KernelsLaunchOpts(ctypes.sizeof(_lib.KernelsLaunchOpts), _three("grid", grid),
                                      _three("block", block), shared,
                                     _COOPERATIVE if cooperative else 0, _stream(stream))
        packed = [_packed(a) for a in args]
        raw = (_lib.KernelsArg * len(packed))(*((address, size) for _, address, size in packed))
        # reading the address of an argument may have run code that cleared the cache
        if self._cleared != self._kernels._cleared:
            raise _lib.Error(_lib.NOKEY,
                             "the function's Kernels was cleared; request the function again")
        lib.fdry_kernels_launch(self._kernels._handle, self.handle, ctypes.byref(opts), raw,
                                len(packed))


class Kernels(_lib.Closing):
    """A cache of compiled kernels for one device.

    store: a foundry.Store that keeps compiled code for all processes of the host; None: memory
    only. driver, nvrtc: paths of these libraries; None: those that the environment names.
    """

    def __init__(self, store=None, device=0, driver=None, nvrtc=None):
        self._cleared = 0  # number of clears, since the driver reuses handles
        opts = _lib.KernelsOpts(ctypes.sizeof(_lib.KernelsOpts), device, 0, None, _path(driver),
                                _path(nvrtc))
        kept, raw = [], KERNELS()
        if store is not None:
            opts.store = store._handle
            kept.append(_lib.Hold(store._handle, "kernels"))  # the store stays open as long as this
        lib.fdry_kernels_new(ctypes.byref(opts), ctypes.byref(raw))
        self._handle = _lib.Handle(raw, keeps=[kept])
        self._shown = f" of device {device}"

    @property
    def handle(self):
        """The struct fdry_kernels as an int. Raises ValueError if it is closed."""
        return self._handle.raw

    def function(self, code, entry, **how):
        """The Function of an entry; compiles and loads the code if that was not done before.

        code: a Code, or the first argument of one.
        """
        function = FUNCTION()
        lib.fdry_kernels_function(self._handle, ctypes.byref(_code(code, how).raw),
                                  _lib.text(entry), ctypes.byref(function))
        return Function(self, function.value)

    def load(self, code, **how):
        """Compile and load code without returning a function."""
        lib.fdry_kernels_function(self._handle, ctypes.byref(_code(code, how).raw), None, None)

    def key(self, code, **how):
        """The key of code, 32 bytes, for find()."""
        key = _lib.KernelsKey()
        lib.fdry_kernels_key(self._handle, ctypes.byref(_code(code, how).raw), ctypes.byref(key))
        return bytes(key.bytes)

    def find(self, key, entry):
        """The Function of an entry of code that is in memory, by the code's key; hashes nothing.

        Raises Error FDRY_E_NOKEY if the code is not in memory.
        """
        function, raw = FUNCTION(), _lib.KernelsKey((ctypes.c_ubyte * 32)(*key))
        lib.fdry_kernels_find(self._handle, ctypes.byref(raw), _lib.text(entry),
                              ctypes.byref(function))
        return Function(self, function.value)

    def prepare(self, requests, threads=0):
        """Compile and load in the background. requests: a Code each, or a pair of a Code and an
        entry's name.
        """
        requests = [request if isinstance(request, tuple) else (request, None)
                    for request in requests]
        raw = (_lib.KernelsRequest * len(requests))(*(
            (ctypes.pointer(code.raw), _text(entry)) for code, entry in requests))
        lib.fdry_kernels_prepare(self._handle, raw, len(requests), threads)

    def wait(self):
        """Wait for the end of all prepare(). Raises the first failure since the last wait."""
        lib.fdry_kernels_wait(self._handle)

    def __len__(self):
        return lib.fdry_kernels_count(self._handle)

    def clear(self):
        """Unload every module. Functions become invalid, so none may run or be about to be
        launched.

        The store does not change.
        """
        self._cleared += 1
        lib.fdry_kernels_clear(self._handle)

    def stats(self):
        """The counters of struct fdry_kernels_stats, as a KernelStats."""
        raw = _lib.KernelsStats(ctypes.sizeof(_lib.KernelsStats))
        lib.fdry_kernels_stats(self._handle, ctypes.byref(raw))
        return KernelStats(*(getattr(raw, name) for name in KernelStats._fields))

    def reset_stats(self):
        """Set the counters to zero. Unloads nothing."""
        lib.fdry_kernels_stats_reset(self._handle)

    def log(self):
        """The compiler's whole output when it last refused code; "" if it refused none."""
        need = ctypes.c_size_t()
        lib.fdry_kernels_log(self._handle, None, 0, ctypes.byref(need))
        text = ctypes.create_string_buffer(need.value)
        lib.fdry_kernels_log(self._handle, text, need.value, None)
        return text.value.decode(errors="replace")

    def target(self):
        """The kinds of code that this device can run: a KernelTarget (arch, exact, cc, driver,
        ptx).
        """
        raw = _lib.KernelsTarget(ctypes.sizeof(_lib.KernelsTarget))
        lib.fdry_kernels_target(self._handle, ctypes.byref(raw))
        return KernelTarget(raw.arch.decode(), raw.exact.decode(), raw.cc, raw.driver, raw.ptx)

    def close(self):
        """Unload everything and release the device's context; a second call does nothing.

        If calls are under way, close() returns at once, and takes effect after them.
        """
        super().close()
