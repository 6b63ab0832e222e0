# SPDX-License-Identifier: Apache-2.0
"""The folders in which SGLang and its compilers keep what they make."""
import os

from ..engines import caches, deepgemm, jit


def folders():
    """Return {name: path} of the engine's cache folders."""
    found = {**caches.triton(), **jit.folder(),
             **deepgemm.folder(os.path.expanduser("~/.cache/deep_gemm"))}
    found["tvm-ffi"] = os.path.expanduser(os.environ.get("TVM_FFI_CACHE_DIR", "~/.cache/tvm-ffi"))
    try:
        from torch._inductor.runtime.cache_dir_utils import cache_dir
        found["inductor"] = cache_dir()
    except ImportError:
        pass
    return {name: os.path.abspath(path) for name, path in found.items() if path}
