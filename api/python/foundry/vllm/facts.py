# SPDX-License-Identifier: Apache-2.0
"""The facts of a start of vLLM that an image must share to be used."""
import hashlib
import importlib.metadata
import inspect
import os
import platform
import re
import sys

import torch

from . import compiled, runners

PREFIX = "vllm."
# source() of the versions of vLLM that were run with Foundry on a GPU.
SOURCES = {"0.25.1": "badee3b771a8b58b"}
# Packages with kernels, or with host code that prepares what kernels read.
PACKAGES = ("flashinfer-python", "flashinfer-cubin", "flash-attn", "deep-gemm",
            "nvidia-cutlass-dsl", "transformers")
# Variables of other libraries that select kernels or their precision.
VARIABLES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG")
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD")
_SHORT = re.compile(r"[A-Za-z0-9_.,:-]{1,24}")


def early(worker):
    """Return {key: value} of the facts known before the worker uses the GPU. What says most comes
    first.
    """
    import triton
    import vllm
    config = worker.vllm_config
    ordinal = torch.cuda.get_device_properties(worker.local_rank)
    model, scheduler = config.model_config, config.scheduler_config
    compilation, cache = config.compilation_config, config.cache_config
    found = {
        "vllm": vllm.__version__, "torch": torch.__version__,
        "triton": triton.__version__, "python": platform.python_version(),
        "gpu": ordinal.name, "memory": ordinal.total_memory,
        "model": model.model, "dtype": model.dtype, "quantization": model.quantization,
        "seed": model.seed, "load_format": config.load_config.load_format,
        "max_model_len": model.max_model_len, "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "capture_sizes": compilation.cudagraph_capture_sizes,
        "compilation_mode": int(compilation.mode or 0),
        "utilization": cache.gpu_memory_utilization, "kv_bytes": cache.kv_cache_memory_bytes,
        "kv_dtype": cache.cache_dtype, "prefix_caching": cache.enable_prefix_caching,
        "ranks": f"{worker.rank} of {config.parallel_config.world_size}",
        "runner": "V2" if worker.use_v2_model_runner else "V1",
        "environment": environment(), "packages": packages(), "source": source(),
        "config": config.compute_hash(),
    }
    return {PREFIX + key: str(value) for key, value in found.items()}


def late(worker, code_files):
    """Return {key: value} of the facts known when the KV cache has its memory.

    code_files: as compiled.load() returned them.
    """
    runner, cache = worker.model_runner, worker.cache_config
    mode = runners.of(worker).mode
    compiled_code = compiled.identity(code_files, worker.vllm_config)
    backends = sorted({group.backend.get_name() for groups in runner.attn_groups
                       for group in groups})
    found = {
        "graph_mode": getattr(mode, "name", mode), "compiled": compiled_code,
        "backend": ",".join(backends), "block_size": cache.block_size,
        "blocks": cache.num_gpu_blocks, "code": code(runner.get_model()),
    }
    return {PREFIX + key: str(value) for key, value in found.items()}


def environment():
    """Return the variables in the environment that may change what vLLM computes, with a hash in
    place of a long value. vLLM names its own; secrets are left out.
    """
    from vllm import envs
    found = []
    for name in sorted({*envs.compile_factors(), *VARIABLES}):
        value = os.environ.get(name)
        if value and not _SECRET.search(name):
            found.append(f"{name}={value if _SHORT.fullmatch(value) else _hash(value.encode())}")
    text = " ".join(found) or "empty"
    return text if len(text) < 4000 else _hash(text.encode())


def packages():
    """Return the installed PACKAGES with their versions."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return ", ".join(found) or "none"


def code(model):
    """Return a hash of the files with the classes of a model's modules and of their attention.

    A model's own code may change while its configuration stays.
    """
    parts = [each for module in model.modules() for each in (module, getattr(module, "impl", None))]
    files = {}
    for name in {type(each).__module__ for each in parts}:
        path = getattr(sys.modules.get(name), "__file__", None)
        if path:
            with open(path, "rb") as f:
                files[name] = _hash(f.read())
    return _hash(repr(sorted(files.items())).encode())


def _hash(data):
    return hashlib.sha256(data).hexdigest()[:16]


def source():
    """Return a hash of the files of vLLM with code that is wrapped or left out, so that another
    version is detected.

    Files, because another plug-in may have wrapped the same functions.
    """
    from vllm.compilation import backends, caching, cuda_graph, decorators, piecewise_backend
    from vllm.v1 import cudagraph_dispatcher
    from vllm.v1.worker import gpu_model_runner, gpu_worker
    from vllm.v1.worker.gpu import cudagraph_utils, model_runner
    return _hash("\0".join(inspect.getsource(each) for each in (
        gpu_worker, cudagraph_utils, model_runner, gpu_model_runner, cudagraph_dispatcher,
        cuda_graph, decorators, caching, backends, piecewise_backend)).encode())


def difference(wanted, found):
    """Return a sentence on the first fact of `wanted` that `found` has with another value, or None.
    """
    for key, value in wanted.items():
        if found.get(key) != value:
            return (f"{key.removeprefix(PREFIX)} is {value} here and "
                    f"{found.get(key, 'not stated')} in the image")
    return None


def of_image(text):
    """Return the facts in the description of an image."""
    found = {}
    for line in text.splitlines():
        if line.startswith("fact " + PREFIX):
            key, _, value = line.removeprefix("fact ").partition(" = ")
            found[key] = value
    return found
