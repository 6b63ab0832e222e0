# SPDX-License-Identifier: Apache-2.0
"""Which versions and configurations of vLLM can start from an image."""
import contextlib
import importlib.util
import os

import torch

from ..engines import ranks as common_ranks
from ..engines.session import check_configuration, check_source
from . import facts, quantized

MODES = {0: ("FULL", "FULL_DECODE_ONLY"),
         3: ("FULL", "FULL_DECODE_ONLY", "PIECEWISE", "FULL_AND_PIECEWISE")}
# Those whose graphs use buffers of constructors alone. FlashInfer's, for example, makes wrappers of
# its buffers at the first batch of a size, and a later start would make others.
ATTENTION = ("FLASH_ATTN", "TRITON_ATTN")
KEEPS = "VLLM_USE_AOT_COMPILE"  # whether vLLM keeps compiled code in its cache
NOT_KEPT = "compiled code that vLLM does not keep in its cache"


def ranks(worker):
    """Return the Ranks of a worker's engine."""
    return common_ranks.of_engine(worker.rank, worker.vllm_config.parallel_config.world_size,
                                  parallel_state)


def parallel_state():
    """Return vLLM's module of the groups of ranks."""
    from vllm.distributed import parallel_state as found
    return found


def _check_ranks(config, count, envs):
    """Raise Unfit if several ranks share more than NCCL's collectives."""
    parallel = config.parallel_config
    if count == 1:
        return
    fused = getattr(config.compilation_config.pass_config, "fuse_allreduce_rms", False)
    check_configuration(
        (parallel.tensor_parallel_size != parallel.world_size, "pipeline parallelism"),
        # The ranks of one host have the same variables and plug-ins, so all decide together.
        (parallel.nnodes != 1 or count > torch.cuda.device_count() or
         parallel.distributed_executor_backend in ("ray", "external_launcher"),
         "ranks on several hosts"),
        (parallel.enable_expert_parallel, "expert parallelism"),
        (not parallel.disable_custom_all_reduce,
         "custom all-reduce (start with --disable-custom-all-reduce)"),
        (envs.VLLM_ALLREDUCE_USE_SYMM_MEM or envs.VLLM_USE_NCCL_SYMM_MEM,
         "all-reduce by symmetric memory (set VLLM_ALLREDUCE_USE_SYMM_MEM=0)"),
        (envs.VLLM_ALLREDUCE_USE_FLASHINFER or fused, "all-reduce by FlashInfer"),
        *common_ranks.nccl_settings())


def _keep_whole_code():
    """Let vLLM keep and load compiled code as a whole, unless its variable is set already.

    This is vLLM's default from torch 2.12 on. Otherwise its cache has the traced model, which each
    start splits again to find the code of each piece.
    """
    os.environ.setdefault("VLLM_USE_MEGA_AOT_ARTIFACT", "1")


@contextlib.contextmanager
def keeping_code():
    """Let vLLM keep compiled code after the with block if it was to do so before.

    vLLM initializes a worker's device inside the block, and its batch-invariant mode changes the
    variable there. Then each start would trace the model to find the code of its pieces.
    """
    from vllm import envs
    before = os.environ.get(KEEPS)
    try:
        yield
    finally:
        if getattr(envs, "VLLM_BATCH_INVARIANT", False):
            os.environ.pop(KEEPS, None)
            if before is not None:
                os.environ[KEEPS] = before


def _is_tuned(config):
    """Return whether the warm-up, which a later start omits, selects kernels of FlashInfer."""
    return (config.model_config.is_moe and
            config.kernel_config.enable_flashinfer_autotune is not False and
            importlib.util.find_spec("flashinfer") is not None)


def check_model(config, model):
    """Raise Unfit if a layer of the model that was just loaded has another attention than
    ATTENTION, or other kernels for quantized weights or a mixture of experts than those that are
    supported. vLLM may select them itself.
    """
    quantized.check_model(config, model)
    layers = config.compilation_config.static_forward_context.values()
    names = {each.get_attn_backend().get_name() for each in layers
             if hasattr(each, "get_attn_backend")}
    check_configuration(*((name not in ATTENTION, f"the attention backend {name}")
                          for name in sorted(names)))


def check_version():
    """Return whether the code of vLLM that is wrapped or left out was run with images. Raise Unfit
    if it is not known.
    """
    return check_source(facts, "vllm", "worker", "vLLM")


def check(config, count, was_run):
    """Raise Unfit for an unsupported configuration. count: of the ranks. was_run: as
    check_version() returned it.
    """
    from vllm import envs
    _check_ranks(config, count, envs)
    compilation, model = config.compilation_config, config.model_config
    attention = config.attention_config.backend
    mode = int(compilation.mode or 0)
    check_configuration(
        (model.runner_type != "generate", "models that generate no text"),
        (model.is_multimodal_model, "multimodal models"),
        (model.is_encoder_decoder, "models with an encoder"),
        # Their kernels are chosen by time, at a first use that later starts omit.
        (model.is_hybrid or model.is_attention_free,
         "models with states in place of a KV cache"),
        (attention and attention.name not in ATTENTION,
         f"the attention backend {getattr(attention, 'name', None)}"),
        (config.parallel_config.data_parallel_size != 1, "data parallelism"),
        (mode not in MODES, f"the compilation mode {mode}"),
        (model.enforce_eager, "eager mode, which has no graphs"),
        (compilation.cudagraph_mode.name not in MODES.get(mode, ()),
         f"the graph mode {compilation.cudagraph_mode.name} with the compilation mode "
         f"{mode}"),
        (compilation.use_inductor_graph_partition, "graph partitions by Inductor"),
        (compilation.cudagraph_copy_inputs, "graphs that copy their inputs"),
        (compilation.cudagraph_mm_encoder, "graphs of an encoder"),
        (getattr(envs, "VLLM_USE_BREAKABLE_CUDAGRAPH", False), "breakable graphs"),  # since 0.22
        (mode and compilation.backend != "inductor",
         f"the compilation backend '{compilation.backend}'"),
        (mode and compilation.compile_cache_save_format != "binary",
         "compiled code in unpacked form"),
        (mode and (envs.VLLM_DISABLE_COMPILE_CACHE or not envs.VLLM_USE_AOT_COMPILE), NOT_KEPT),
        (mode and not was_run and getattr(envs, "VLLM_BATCH_INVARIANT", False),
         "compiled code in the batch-invariant mode of this version"),  # see keeping_code()
        (model.enable_sleep_mode, "sleep mode"),
        # In 0.21 V1's function that captures, which a later start omits, makes their buffers.
        (getattr(model, "enable_return_routed_experts", False), "the choice of experts in answers"),
        (config.speculative_config is not None, "speculative decoding"),
        (config.lora_config is not None, "LoRA"),
        (_is_tuned(config), "mixtures of experts that FlashInfer tunes in the warm-up (start with "
         "--kernel-config '{\"enable_flashinfer_autotune\": false}')"),
        (config.kv_transfer_config is not None, "a KV connector"),
        (getattr(config.parallel_config, "assigned_physical_gpu_ids", None),
         "assigned GPUs"))
    quantized.check(config, count)
    if count > 1:
        common_ranks.set_up_nccl()
    if mode and was_run and envs.VLLM_USE_STANDALONE_COMPILE:
        _keep_whole_code()
