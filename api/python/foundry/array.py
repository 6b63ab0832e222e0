# SPDX-License-Identifier: Apache-2.0
"""Arrays of the caller that the library copies from and to, through the buffer protocol or DLPack.
"""
import contextlib
import ctypes
import math
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_ssize_t, c_void_p, py_object

from . import _lib, _torch
from .tensor import DTYPES, HOST, NUMBERS, Managed, refuse_lazy

_WRITABLE, _RECORDS = 0x1, 0x1c  # of PyObject_GetBuffer(): with shape, strides and format
_DL_CPU, _DL_CUDA, _DL_CUDA_HOST, _DL_MANAGED = 1, 2, 3, 13
_INT, _UINT, _FLOAT, _COMPLEX, _BOOL = 0, 1, 2, 5, 6  # type codes of DLPack
_LEGACY = 1  # the legacy default stream as DLPack names it
_CODES = {**dict.fromkeys("bhilqn", _INT), **dict.fromkeys("BHILQNcs", _UINT),
          **dict.fromkeys("efd", _FLOAT), **dict.fromkeys(("Zf", "Zd"), _COMPLEX), "?": _BOOL}
# types that other packages lack, and whose elements they exchange as integers
_AS_BITS = ("bytes", "bool", "bfloat16", "float8_e4m3fn", "float8_e5m2")


class _Buffer(Structure):
    """Py_buffer."""
    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t), ("itemsize", c_ssize_t),
                ("readonly", c_int), ("ndim", c_int), ("format", c_char_p),
                ("shape", POINTER(c_ssize_t)), ("strides", POINTER(c_ssize_t)),
                ("suboffsets", POINTER(c_ssize_t)), ("internal", c_void_p)]


_api = ctypes.PyDLL(None)  # not ctypes.pythonapi, whose signatures all code of the process shares
_api.PyObject_GetBuffer.argtypes = [py_object, POINTER(_Buffer), c_int]
_api.PyBuffer_Release.argtypes = [POINTER(_Buffer)]
_api.PyBuffer_Release.restype = None
_api.PyCapsule_GetPointer.restype = c_void_p
_api.PyCapsule_GetPointer.argtypes = [py_object, c_char_p]


def _rows(shape):
    """The strides of an array without gaps, row by row, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return tuple(strides)


class Array:
    """A description of the caller's memory.

    raw: a _lib.Tensor; flat: whether it is plain bytes, row by row; nbytes: their number.
    """

    def __init__(self, tensor, addr, host, dtype, shape, strides, flat=False):
        if len(shape) > _lib.RANK_MAX:
            raise ValueError(
                f"the array for tensor '{tensor.name}' has {len(shape)} dimensions, and at most "
                f"{_lib.RANK_MAX} are possible")
        self.raw = _lib.Tensor(name=_lib.text(tensor.name), addr=addr or 0, dtype=NUMBERS[dtype],
                               flags=HOST if host else 0, rank=len(shape))
        for i, (n, s) in enumerate(zip(shape, strides)):
            self.raw.shape[i], self.raw.stride[i] = n, s
        self.flat, self.host = flat, host
        self.nbytes = math.prod(shape) * DTYPES[NUMBERS[dtype]][1]


def _check_type(tensor, code, size, what):
    """Raise TypeError if elements of that DLPack type are not those of the tensor."""
    mine = DTYPES[NUMBERS[tensor.dtype]]
    integers = (_INT, _UINT)
    if (size == mine[1]
        and (code == mine[2] or code in integers
             and (mine[2] in integers or tensor.dtype in _AS_BITS))):
        return
    raise TypeError(
        f"tensor '{tensor.name}' has elements of type {tensor.dtype}, and the array of type "
        f"{what}; convert it first")


@contextlib.contextmanager
def _of_buffer(tensor, data, writable):
    view = _Buffer()
    _api.PyObject_GetBuffer(data, byref(view), _RECORDS | (_WRITABLE if writable else 0))
    try:
        shape, strides = tuple(view.shape[:view.ndim]), tuple(view.strides[:view.ndim])
        form = (view.format or b"B").decode()
        if form[0] in ">!" and view.itemsize > 1:
            raise TypeError(
                f"the array for tensor '{tensor.name}' has its bytes in the other order ({form}); "
                "convert it first")
        if 0 in shape or all(n == 1 or s == want * view.itemsize
                             for n, s, want in zip(shape, strides, _rows(shape))):
            yield Array(tensor, view.buf, True, "bytes", (view.len,), (1,), flat=True)
            return
        _check_type(tensor, _CODES.get(form.lstrip("@=<"), -1), view.itemsize, form)
        if any(s % view.itemsize for s in strides):
            raise TypeError(
                f"the array for tensor '{tensor.name}' has strides of {strides} bytes, which are "
                "not multiples of its elements' size; give a copy")
        yield Array(tensor, view.buf, True, tensor.dtype, shape,
                    [s // view.itemsize for s in strides])
    finally:
        _api.PyBuffer_Release(byref(view))


def _as_exported(tensor, data):
    """Torch's tensor in a form that it exports by DLPack: without gradient, of a type that DLPack
    knows.
    """
    refuse_lazy(tensor.name, data)
    if not _torch.is_tensor(data) or "torch" not in sys.modules:
        return data
    if getattr(data, "requires_grad", False):
        data = data.detach()
    kind = str(data.dtype).rpartition(".")[2]
    if kind == tensor.dtype and tensor.itemsize == 1:
        data = data.view(sys.modules["torch"].uint8)
    elif kind.startswith("float8"):
        _check_type(tensor, -1, 1, kind)
    return data


def _capsule(data, stream, on_device):
    return data.__dlpack__(stream=number(stream) or _LEGACY) if on_device else data.__dlpack__()


def number(stream):
    """A stream as other packages expect it: an integer, 0 for the legacy default stream."""
    return getattr(stream, "value", stream) or 0


@contextlib.contextmanager
def _of_dlpack(image, tensor, data, stream):
    kept = _as_exported(tensor, data)
    kind, ordinal = kept.__dlpack_device__()
    on_device = kind in (_DL_CUDA, _DL_MANAGED)
    if (not on_device and kind not in (_DL_CPU, _DL_CUDA_HOST)
        or on_device and ordinal != image.device):
        raise ValueError(
            f"the array for tensor '{tensor.name}' lies on device {ordinal} of DLPack's kind "
            f"{int(kind)}; bring it to the host or "
                         f"to GPU {image.device}")
    capsule = _capsule(kept, stream, on_device)  # frees the exported tensor when it is deleted
    dl = ctypes.cast(_api.PyCapsule_GetPointer(capsule, b"dltensor"),
                     POINTER(Managed)).contents.tensor
    shape = tuple(dl.shape[:dl.ndim])
    strides = tuple(dl.strides[:dl.ndim]) if dl.strides else _rows(shape)
    named = next((name for name, size, code in DTYPES.values()
                  if (code, 8 * size) == (dl.code, dl.bits)),
                 f"{dl.code} of {dl.bits} bits (DLPack)")
    _check_type(tensor, dl.code if dl.lanes == 1 else -1, dl.bits // 8, named)
    yield Array(tensor, (dl.data or 0) + dl.byte_offset, not on_device, tensor.dtype, shape,
                strides)
    del capsule


def _has_buffer(data):
    try:
        memoryview(data).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True


def opened(image, tensor, data, stream, writable=False):
    """A context manager that yields `data` as an Array. `stream` waits until data on the GPU is
    ready.
    """
    if hasattr(data, "__dlpack__") and not _has_buffer(data):
        return _of_dlpack(image, tensor, data, stream)
    return _of_buffer(tensor, data, writable)
