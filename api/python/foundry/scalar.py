# SPDX-License-Identifier: Apache-2.0
"""Numbers in device memory that programs change between launches of a graph."""
import ctypes
import struct

from . import _lib
from ._lib import lib
from .image import _stream
from .tensor import NUMBERS

# Types that struct can pack; values of bfloat16 and 8-bit floats are given as their bits.
_FORMATS = {"bool": "?", "uint8": "B", "int8": "b", "int16": "h", "int32": "i", "int64": "q",
            "float16": "e", "float32": "f",
            "float64": "d", "uint16": "H", "uint32": "I", "uint64": "Q", "bytes": "B",
            "bfloat16": "H",
            "float8_e4m3fn": "B", "float8_e5m2": "B"}


def _format(dtype):
    """The struct format of a dtype by name, or as torch and numpy have it."""
    name = str(dtype).rpartition(".")[2] if not isinstance(dtype, type) else dtype.__name__
    if name not in _FORMATS:
        raise ValueError(
            f"{dtype} is not a type of device scalars; use one of {', '.join(sorted(_FORMATS))}")
    return name, "<" + _FORMATS[name]


class DeviceScalar(_lib.Closing):
    """One number in device memory, updated on a stream before a graph is launched.

    dtype: its name, such as "float32". The values of bfloat16 and 8-bit floats are their bits, as
    integers. addr: its device address, which never changes: kernels take it as an argument, and
    graphs keep it. The memory is its own, on `device`, unless `addr` names some (8 bytes, a
    multiple of 8, which the caller keeps). Raises Error FDRY_E_NODRIVER or FDRY_E_NOGPU without a
    GPU.
    """

    def __init__(self, dtype, value=0, device=0, addr=0, driver=None):
        self.dtype, self._pack = _format(dtype)
        types = (ctypes.c_uint32 * 1)(NUMBERS[self.dtype])
        opts = _lib.ScalarsOpts(sz=ctypes.sizeof(_lib.ScalarsOpts), device=device, count=1,
                                dtypes=types, addr=addr, values=self._cell(value),
                                driver=_lib.file_name(driver) if driver else None)
        raw = _lib.SCALARS()
        lib.fdry_scalars_new(opts, raw)
        self._handle = _lib.Handle(raw)
        at = ctypes.c_uint64()
        lib.fdry_scalars_addr(self._handle, 0, at)
        self.addr = at.value
        self._shown = f" {self.dtype} at {self.addr:#x}"

    def _cell(self, value):
        """`value` for the library. Raises OverflowError if it does not fit."""
        if not any(hasattr(value, method) for method in ("__index__", "__float__")):
            raise TypeError(
                f"{_lib.argument(value)}{value!r} is of type {type(value).__name__}; give a number")
        try:
            data = struct.pack(self._pack, value)
        except struct.error as e:
            raise OverflowError(f"{value!r} is not a {self.dtype}: {e}") from None
        return (ctypes.c_uint64 * 1)(int.from_bytes(data, "little"))

    def update(self, value, stream=None):
        """Set the number for later work on `stream`, without waiting. Earlier launches read the old
        value.

        Raises Error FDRY_E_STATE if the stream captures.
        """
        lib.fdry_scalars_update(self._handle, 0, 1, self._cell(value), _stream(stream))

    def read(self, stream=None):
        """The number after the present work of `stream`; waits for that."""
        cell = ctypes.c_uint64()
        lib.fdry_scalars_read(self._handle, 0, cell, _stream(stream))
        return struct.unpack_from(self._pack, cell)[0]


class DecodeState(_lib.Closing):
    """The state of a decoder in device memory: token, position, and length of the KV cache.

    The position is the step, the length step + 1. token_addr, position_addr, length_addr: device
    addresses of uint32, int32, int32, which never change. token, position, length: the values of
    the last set(). from_device: which values the program's code should use; False at first. It may
    be set at any time.
    """

    def __init__(self, device=0, addr=0, driver=None):
        opts = _lib.DecodeStateOpts(sz=ctypes.sizeof(_lib.DecodeStateOpts), device=device,
                                    addr=addr,
                               driver=_lib.file_name(driver) if driver else None)
        raw = _lib.DECODE()
        lib.fdry_decode_state_new(opts, raw)
        self._handle = _lib.Handle(raw)
        args = self._args()
        self.token_addr, self.position_addr = args.token_addr, args.position_addr
        self.length_addr = args.length_addr
        self._shown = f" at {self.token_addr:#x}"

    def _args(self):
        args = _lib.DecodeStateArgs()
        lib.fdry_decode_state_args(self._handle, args)
        return args

    def set(self, token, step, stream=None):
        """Set the step: all three numbers by one operation, in the order of `stream`, without
        waiting.
        """
        lib.fdry_decode_state_set(self._handle, token, step, _stream(stream))

    @property
    def token(self):
        """The token of the last set()."""
        return self._args().token

    @property
    def position(self):
        """The position of the last set(): its step."""
        return self._args().position

    @property
    def length(self):
        """The length of the last set(): its step + 1."""
        return self._args().length

    @property
    def from_device(self):
        """Whether the program's code should use the values in device memory; may be set."""
        return bool(self._args().source)

    @from_device.setter
    def from_device(self, on):
        lib.fdry_decode_state_use(self._handle, int(bool(on)))
