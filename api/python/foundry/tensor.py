# SPDX-License-Identifier: Apache-2.0
"""Tensors of an image in Python: their description, and views of them by DLPack without a copy."""
import atexit
import ctypes
import math
import struct
from ctypes import (CFUNCTYPE, POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64,
                    c_void_p, py_object)

from . import _lib

# number: (name, bytes, DLPack type code); as FDRY_DTYPES in foundry.h
DTYPES = {
    0: ("bytes", 1, 1), 1: ("bool", 1, 6), 2: ("uint8", 1, 1), 3: ("int8", 1, 0),
    4: ("int16", 2, 0),
    5: ("int32", 4, 0), 6: ("int64", 8, 0), 7: ("float16", 2, 2), 8: ("bfloat16", 2, 4),
    9: ("float32", 4, 2),
    10: ("float64", 8, 2), 11: ("float8_e4m3fn", 1, 10), 12: ("float8_e5m2", 1, 12),
    13: ("uint16", 2, 1),
    14: ("uint32", 4, 1), 15: ("uint64", 8, 1), 16: ("complex64", 8, 5), 17: ("complex128", 16, 5),
}
NUMBERS = {name: number for number, (name, _, _) in DTYPES.items()}
USES = ("input", "output", "state", "const")
EXTERNAL, HOST = 1, 2

_DL_CPU, _DL_CUDA = 1, 2


class _DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


_CALLBACK = CFUNCTYPE(None, c_void_p)


class Managed(Structure):
    """The head of a block from malloc(); the shape and the strides follow it."""

    _fields_ = [("tensor", _DLTensor), ("context", c_void_p), ("deleter", c_void_p)]


_MANAGED = struct.Struct("@Q3i2BH5Q")  # the same: one call writes what ctypes needs 13 for
assert _MANAGED.size == ctypes.sizeof(Managed)


_api = ctypes.PyDLL(None)  # not ctypes.pythonapi, whose signatures all code of the process shares
_api.PyCapsule_New.restype = py_object
_api.PyCapsule_New.argtypes = [c_void_p, ctypes.c_char_p, c_void_p]
_api.PyCapsule_IsValid.argtypes = [c_void_p, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = c_void_p
_api.PyCapsule_GetPointer.argtypes = [c_void_p, ctypes.c_char_p]
_nothing = _api.Py_IsInitialized  # like all of _api, raises the exception that is set

# address of a managed tensor -> a Hold of the image, until its consumer releases the tensor
_exported = {}


def _undisturbed(function):
    """For callbacks from C that may run while a consumer's exception is set.

    The function runs without that exception, which sys.unraisablehook receives.
    """
    def call(argument, nothing=_nothing):
        try:
            nothing()
        finally:
            function(argument)
    return call


@_CALLBACK
@_undisturbed
def _delete(address):
    del _exported[address]
    _lib.libc.free(address)


@_CALLBACK
@_undisturbed
def _capsule_delete(capsule, api=_api, delete=_delete, exported=_exported):
    # A capsule that was not consumed still has its first name. One that outlives this module has
    # nothing to release.
    if exported and api.PyCapsule_IsValid(capsule, b"dltensor"):
        delete(api.PyCapsule_GetPointer(capsule, b"dltensor"))


_deleter, _ended = ctypes.cast(_delete, c_void_p).value, False
_api.Py_IncRef.argtypes = [py_object]
_api.Py_IncRef(_capsule_delete)  # capsules may be deleted after this module


@atexit.register
def _outlived():
    """Prepare for consumers that release a tensor after Python has ended.

    They then call free() on a block from malloc(), and the image is still there.
    """
    global _deleter, _ended
    _ended = True
    _deleter = ctypes.cast(_lib.libc.free, c_void_p).value
    for address, hold in _exported.items():
        Managed.from_address(address).deleter = _deleter
        hold.handle.abandon()
    _exported.clear()


class _Numbers:
    """The interface by which numpy reads host memory. The image cannot be closed while it is alive.
    """

    def __init__(self, image, interface):
        self.__array_interface__ = interface
        self._hold = _lib.Hold(image._handle, "tensor")


class Tensor:
    """A named piece of an image's device memory, or of host memory that its graphs copy from or to.

    It is made by image[name], and keeps the image loaded. name, addr, dtype (a name such as
    "bfloat16"), use ("input", "output", "state" or "const"), external (the image has no bytes of
    it), host (whether addr is a host pointer), shape and stride (tuples, in elements), itemsize,
    nbytes. Everything that reads DLPack can view it without a copy:
    torch.from_dlpack(image["logits"]). The image cannot be closed while such a view is alive. A
    view is not ordered with launches: use it on the stream of the launches; read and write host
    memory only when no launch is in flight.
    """

    def __init__(self, image, raw):
        self._image = image
        self.name = _lib.foreign(raw.name)
        self.addr = raw.addr
        self.dtype, self.itemsize, self._code = DTYPES[raw.dtype]
        self.use = USES[raw.use]
        self.external = bool(raw.flags & EXTERNAL)
        self.host = bool(raw.flags & HOST)
        self.shape = tuple(raw.shape[:raw.rank])
        self.stride = tuple(raw.stride[:raw.rank])
        self.nbytes = self.itemsize * math.prod(self.shape)

    @classmethod
    def at(cls, image, addr, dtype, shape, stride):
        """A tensor on the GPU that the image does not name."""
        made = cls.__new__(cls)
        made._image, made.name, made.addr = image, "", addr
        made.dtype, made.itemsize, made._code = DTYPES[NUMBERS[dtype]]
        made.use, made.external, made.host = "output", False, False
        made.shape, made.stride = tuple(shape), tuple(stride)
        made.nbytes = made.itemsize * math.prod(shape)
        return made

    def __repr__(self):
        return f"<Tensor {_lib.shown(self.name)} {self.dtype}{list(self.shape)} at {self.addr:#x}>"

    def _repr_html_(self):
        from . import _show
        return _show.tensors(f"Tensor {_lib.shown(self.name)}", [self])

    def numpy(self):
        """A host tensor as a numpy array without a copy: the next launch reads the values that are
        written to it.
        """
        self._image._handle.check()
        import numpy
        kind = {1: "u", 0: "i", 2: "f", 5: "c", 6: "b"}.get(self._code)
        if not self.host or not kind:
            raise TypeError(
                f"tensor '{_lib.shown(self.name)}' ({self.dtype}) "
                f"{'has a type that numpy lacks' if self.host else 'lies on the GPU'};"
                            " use DLPack")
        return numpy.asarray(_Numbers(self._image, {
            "version": 3, "data": (self.addr, False),
            "typestr": f"{'|' if self.itemsize == 1 else '<'}{kind}{self.itemsize}",
            "shape": self.shape, "strides": tuple(s * self.itemsize for s in self.stride)}))

    def __dlpack_device__(self):
        return (_DL_CPU, 0) if self.host else (_DL_CUDA, self._image.device)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy:
            raise BufferError("a view of an image's memory is never a copy; copy it yourself")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"tensor '{_lib.shown(self.name)}' lies "
                              + ("on the host" if self.host else f"on GPU {self._image.device}"))
        if self._image._late and not (self.external or self.host):
            self._image.check_content()  # writes by the consumer must not look like damage
        hold, rank = _lib.Hold(self._image._handle, "tensor"), len(self.shape)
        address = _lib.libc.malloc(_MANAGED.size + 16 * rank)
        if not address:
            raise MemoryError
        at = address + _MANAGED.size
        block = _MANAGED.pack(self.addr, *self.__dlpack_device__(), rank, self._code,
                              8 * self.itemsize, 1, at, at + 8 * rank, 0, 0, _deleter)
        block += struct.pack(f"={2 * rank}q", *self.shape, *self.stride)
        ctypes.memmove(address, block, len(block))
        if _ended:
            hold.handle.abandon()
        else:
            _exported[address] = hold
        return _api.PyCapsule_New(address, b"dltensor", ctypes.cast(_capsule_delete, c_void_p))


def refuse_lazy(name, tensor):
    """Raise TypeError if torch would conjugate or negate a tensor's memory when it reads it."""
    for bit in ("conj", "neg"):
        if getattr(tensor, f"is_{bit}", bool)():
            raise TypeError(
                f"tensor '{name}' is a view that torch will change when it reads it (is_{bit}()); "
                f"give resolve_{bit}() of it")


def describe(name, tensor, use, external):
    """The description of a framework's tensor for the library.

    tensor: torch's, or anything with __cuda_array_interface__ or, on the host, __array_interface__.
    """
    if use not in USES:
        raise ValueError(f"use must be one of {', '.join(USES)}, not '{use}'")
    raw = _lib.Tensor(name=_lib.text(name), use=USES.index(use), flags=EXTERNAL if external else 0)
    refuse_lazy(name, tensor)
    if hasattr(tensor, "data_ptr"):
        raw.addr, dtype = tensor.data_ptr(), str(tensor.dtype).rpartition(".")[2]
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        raw.flags |= HOST if tensor.device.type == "cpu" else 0
    elif hasattr(tensor, "__cuda_array_interface__"):
        raw.addr, dtype, shape, stride = _from_interface(name, tensor.__cuda_array_interface__)
    elif hasattr(tensor, "__array_interface__"):
        raw.addr, dtype, shape, stride = _from_interface(name, tensor.__array_interface__)
        raw.flags |= HOST
    else:
        raise TypeError(
            f"tensor: {tensor!r} is not a tensor; pass torch's, or one with "
            "__cuda_array_interface__ or __array_interface__")
    if dtype not in NUMBERS:
        raise ValueError(f"tensor '{name}' has elements of type {dtype}, which images cannot hold")
    if len(shape) > _lib.RANK_MAX:
        raise ValueError(
            f"tensor '{name}' has {len(shape)} dimensions; at most {_lib.RANK_MAX} are possible")
    raw.dtype, raw.rank = NUMBERS[dtype], len(shape)
    for i, (n, s) in enumerate(zip(shape, stride)):
        raw.shape[i], raw.stride[i] = n, s
    return raw


def _from_interface(name, interface):
    kinds = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex", "V": "bytes"}
    order, kind, size = interface["typestr"][0], interface["typestr"][1], int(
        interface["typestr"][2:])
    if order == ">" or kind not in kinds or kind in "bV" and size != 1:
        raise ValueError(
            f"tensor '{name}' has elements of type {interface['typestr']}, which images cannot "
            "hold")
    dtype = kinds[kind] + ("" if kind in "bV" else str(8 * size))
    shape, stride = tuple(interface["shape"]), interface.get("strides")
    if stride is None:
        stride, step = [], 1
        for n in reversed(shape):
            stride.insert(0, step)
            step *= n
    elif any(s % size for s in stride):
        raise ValueError(
            f"tensor '{name}' has strides of {tuple(stride)} bytes, which its elements of {size} "
            "do not divide")
    else:
        stride = [s // size for s in stride]
    return interface["data"][0], dtype, shape, tuple(stride)
