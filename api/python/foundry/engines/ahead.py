# SPDX-License-Identifier: Apache-2.0
"""Work of a later start that a thread does beside the engine's.

Triton finds a kernel in its cache by a hash of its own files, 400 MB, and of the version of an
assembler that it asks. Inductor finds compiled code by the same hash and one of torch's sources. An
engine computes them while it profiles or captures, which a later start omits. They would delay the
first kernel by half a second, and compiled code by 0.2 s more. So a thread computes them while the
engine loads its weights.

At their first use, cuBLAS and torch load kernels from files of hundreds of megabytes. A thread does
this while the engine's own one reads compiled code, where the region is paused: so no memory of the
thread changes what the region has.
"""
import contextlib
import ctypes
import importlib
import os
import sys
import threading

import torch

from . import area, log

_AT_FIRST = "triton.experimental.gluon.nvidia.hopper"  # imported at Triton's first kernel
# Numbers of CUDA's cudaDataType_t, and of cuBLAS's cublasComputeType_t and cublasGemmAlgo_t.
_TYPES = {"torch.float16": 2, "torch.bfloat16": 14}
_COMPUTE_32F, _DEFAULT_TENSOR_OP = 68, 99


def triton(arch):
    """Let Triton compute what it needs to find kernels for an architecture such as 90, and import
    what its first kernel imports.
    """
    from triton.backends.nvidia.compiler import get_ptxas_version
    from triton.runtime.cache import triton_key
    triton_key()
    get_ptxas_version(arch)
    with contextlib.suppress(ImportError):  # other versions of Triton
        importlib.import_module(_AT_FIRST)


def inductor():
    """Let Inductor compute what it needs to find compiled code, if it was imported. To import it
    here could disturb an import of the main thread, since its modules import each other.
    """
    codecache = sys.modules.get("torch._inductor.codecache")
    if codecache:
        codecache.torch_key()
    else:
        log.debug("Foundry: torch's hash is not computed ahead, because Inductor is not imported")


class Logits:
    """Loads the kernels of cuBLAS and torch that compute `rows` rows of logits and find the best.

    weight: of the layer that computes logits, with a row for each token; usable() tells which ones
    are suitable. Call the object once, from a thread of its own, while the region is paused. Call
    close() afterwards, when no thread allocates from a pool of torch's: else torch ends the
    process. cuBLAS gets a handle for this alone, since torch's would keep memory of the thread.
    """

    def __init__(self, ordinal, weight, rows):
        self._ordinal, self._weight, self._rows = ordinal, weight, rows
        self._pool = area.Pool(ordinal)

    def __call__(self):
        torch.cuda.set_device(self._ordinal)
        self._pool.enter()
        try:
            with torch.inference_mode():
                out = torch.zeros(self._rows, len(self._weight), dtype=self._weight.dtype,
                                  device=self._weight.device)
                _multiply(self._weight, out)
                out.float().topk(2)
                torch.cuda.synchronize()
                del out
        finally:
            self._pool.leave()

    def close(self):
        """Return the memory of the thread."""
        self._pool = None

    @staticmethod
    def usable(weight, rows):
        """Return whether a weight is a usual one, with `rows` rows or more."""
        return isinstance(weight, torch.Tensor) and (
            weight.device.type == "cuda" and str(weight.dtype) in _TYPES and weight.dim() == 2 and
            weight.is_contiguous() and len(weight) >= rows and area.address(weight) != 0)


def _multiply(weight, out):
    """Let cuBLAS compute out = the first rows of `weight` times `weight`, transposed."""
    library = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.partition('.')[0]}", os.RTLD_NOLOAD)

    def call(name, *args):
        status = getattr(library, name)(*args)
        if status:
            raise RuntimeError(f"{name} returned {status}")
    handle, one, zero = ctypes.c_void_p(), ctypes.c_float(1), ctypes.c_float(0)
    call("cublasCreate_v2", ctypes.byref(handle))
    try:
        tokens, width, kind = len(weight), weight.shape[1], _TYPES[str(weight.dtype)]
        matrix, result = (ctypes.c_void_p(each.data_ptr()) for each in (weight, out))
        call("cublasGemmEx", handle, 1, 0, tokens, len(out), width, ctypes.byref(one), matrix, kind,
             width, matrix, kind, width, ctypes.byref(zero), result, kind, tokens, _COMPUTE_32F,
             _DEFAULT_TENSOR_OP)
    finally:
        call("cublasDestroy_v2", handle)


def _run(steps):
    for step in steps:
        try:
            step()
        except Exception as e:  # the engine does it when it needs it
            log.debug("Foundry: nothing was done ahead: %s", repr(e))  # not e, with its frames


def begin(*steps):
    """Begin to call functions without arguments. Returns the thread."""
    thread = threading.Thread(target=_run, args=(steps,), name="foundry-ahead", daemon=True)
    thread.start()
    return thread


def _end(thread):
    try:
        thread.join()
    except BaseException:  # of a signal: what the thread uses must not be closed before it ends
        thread.join()
        raise


@contextlib.contextmanager
def beside(*steps):
    """Call functions without arguments in a thread, which has ended when the with block ends. If
    there can be no thread, they are not called.
    """
    thread = None
    try:
        thread = begin(*steps) if steps else None
    except RuntimeError as e:
        log.debug("Foundry: nothing is done beside: %s", e)
    try:
        yield
    finally:
        if thread:
            _end(thread)
