# SPDX-License-Identifier: Apache-2.0
"""The folders in which vLLM and its compilers keep what they make."""
import os

from ..engines import caches, deepgemm, jit
from . import infos


def folders():
    """Return {name: path} of the engine's cache folders."""
    import vllm.envs
    found = {**caches.triton(), **infos.folder(), **jit.folder()}
    root = getattr(vllm.envs, "VLLM_CACHE_ROOT", None)
    if root:
        found["vllm"] = os.path.join(root, "torch_compile_cache")
        found["autotune"] = os.path.join(root, "flashinfer_autotune_cache")
        found.update(deepgemm.folder(os.path.join(root, "deep_gemm")))
    try:
        from torch._inductor.runtime.cache_dir_utils import cache_dir
        found["inductor"] = cache_dir()
    except ImportError:
        pass
    return {name: os.path.abspath(path) for name, path in found.items() if path}
