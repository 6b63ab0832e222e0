# SPDX-License-Identifier: Apache-2.0
"""The facts of a start of vLLM that an image must share to be used."""
import hashlib
import inspect
import platform

import torch

PREFIX = "vllm."


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
        "source": source(), "config": config.compute_hash(),
    }
    return {PREFIX + key: str(value) for key, value in found.items()}


def late(worker):
    """Return {key: value} of the facts known when the KV cache has its memory."""
    runner = worker.model_runner
    manager, cache = runner.cudagraph_manager, worker.cache_config
    backends = sorted({group.backend.get_name() for groups in runner.attn_groups
                       for group in groups})
    found = {
        "graph_mode": getattr(manager.cudagraph_mode, "name", manager.cudagraph_mode),
        "backend": ",".join(backends), "block_size": cache.block_size,
        "blocks": cache.num_gpu_blocks,
    }
    return {PREFIX + key: str(value) for key, value in found.items()}


def source():
    """Return a hash of vLLM's code that is wrapped or left out, so that another version is
    detected.
    """
    from vllm.v1.worker import gpu_worker
    from vllm.v1.worker.gpu import cudagraph_utils, model_runner
    parts = [inspect.getsource(each) for each in (
        gpu_worker.Worker.init_device, gpu_worker.Worker.determine_available_memory,
        gpu_worker.Worker.initialize_from_config, gpu_worker.Worker.compile_or_warm_up_model,
        cudagraph_utils, model_runner.GPUModelRunner.capture_model)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def difference(wanted, found):
    """Return a sentence on the first fact of `wanted` that `found` has with another value, or None.
    """
    for key, value in wanted.items():
        if found.get(key) != value:
            return (f"{key.removeprefix(PREFIX)} is {value} here and "
                    f"{found.get(key, 'not stated')} in the image")
    return None


def of_image(store, ref):
    """Return the facts of the image `ref` of a store."""
    found = {}
    for line in store.describe(ref).splitlines():
        if line.startswith("fact " + PREFIX):
            key, _, value = line.removeprefix("fact ").partition(" = ")
            found[key] = value
    return found
