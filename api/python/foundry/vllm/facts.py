# SPDX-License-Identifier: Apache-2.0
"""The facts of a start of vLLM that an image must share to be used."""
import platform

import torch

from ..engines import facts, ranks
from . import compiled, runners

PREFIX = "vllm."
# Variables of vLLM that select kernels and are not in its own list of those.
VARIABLES = ("VLLM_TUNED_CONFIG_FOLDER", "VLLM_NCCL_SO_PATH")
# Files with block sizes of kernels for experts, and for quantized weights.
TUNED = ("model_executor/layers/fused_moe/configs/*.json",
         "model_executor/layers/quantization/utils/configs/*.json")
# source() of the versions of vLLM that were run with Foundry on a GPU.
SOURCES = {"0.25.1": "badee3b771a8b58b"}
# source() of those that were read, compared with the former, and tested without a GPU.
COMPARED = {"0.26.0": "9074365b2ce311f0", "0.25.0": "badee3b771a8b58b",
            "0.24.0": "b10152ffa97a9482", "0.23.0": "fbfc73cacb7f2970",
            "0.22.1": "f9bc49f0af75edfa", "0.22.0": "f9bc49f0af75edfa",
            "0.21.0": "341c1de564f53863", "0.20.2": "d016c4ba2cc8596b",
            "0.20.1": "d016c4ba2cc8596b", "0.20.0": "2130f99a89084ed5"}


def early(worker):
    """Return {key: value} of the facts known before the worker uses the GPU. The most informative
    facts come first.
    """
    import triton
    import vllm
    from vllm import envs
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
        **ranks.shared_facts(config.parallel_config.world_size),
        "runner": "V2" if worker.use_v2_model_runner else "V1",
        "environment": facts.environment((*envs.compile_factors(), *VARIABLES)),
        "modes": facts.modes(), "packages": facts.packages(), "source": source(),
        "config": config.compute_hash(),
    }
    if model.is_moe or model.quantization is not None:
        own = envs.VLLM_TUNED_CONFIG_FOLDER
        found["tuned"] = facts.tuned("vllm", TUNED, None if own is None else (own, "*.json"))
    return facts.stated(PREFIX, found)


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
        "blocks": cache.num_gpu_blocks, "code": facts.code(runner.get_model()),
    }
    return facts.stated(PREFIX, found)


def source():
    """Return a hash of the files of vLLM with code that is wrapped or left out, so that another
    version is detected.
    """
    return facts.source("vllm", (
        "v1.worker.gpu_worker", "v1.worker.gpu.cudagraph_utils", "v1.worker.gpu.model_runner",
        "v1.worker.gpu_model_runner", "v1.cudagraph_dispatcher", "compilation.cuda_graph",
        "compilation.decorators", "compilation.caching", "compilation.backends",
        "compilation.piecewise_backend"))
