# SPDX-License-Identifier: Apache-2.0
"""Which versions and configurations of vLLM can start from an image."""
from ..engines.session import Unfit
from . import facts

MODES = {0: ("FULL", "FULL_DECODE_ONLY"),
         3: ("FULL", "FULL_DECODE_ONLY", "PIECEWISE", "FULL_AND_PIECEWISE")}
PACKAGES = ("vllm.", "torch.nn.")  # whose objects are searched for tensors, except
COMPILED = ("vllm.compilation.",)  # these, which differ between code compiled and code loaded


def check_version():
    """Raise Unfit if the code of vLLM that is wrapped or left out is not known."""
    try:
        known = facts.source() in facts.SOURCES.values()
    except (ImportError, AttributeError, OSError, TypeError):
        known = False
    if not known:
        import vllm
        raise Unfit(f"the worker of this vLLM ({vllm.__version__}) differs from that of the "
                    f"versions that images support ({', '.join(facts.SOURCES)})")


def check(config):
    """Raise Unfit for an unsupported configuration."""
    from vllm import envs
    compilation = config.compilation_config
    mode = int(compilation.mode or 0)
    for wrong, what in (
            (config.parallel_config.world_size != 1, "more than one rank"),
            (config.parallel_config.data_parallel_size != 1, "data parallelism"),
            (mode not in MODES, f"the compilation mode {mode}"),
            (config.model_config.enforce_eager, "eager mode, which has no graphs"),
            (compilation.cudagraph_mode.name not in MODES.get(mode, ()),
             f"the graph mode {compilation.cudagraph_mode.name} with the compilation mode "
             f"{mode}"),
            (compilation.use_inductor_graph_partition, "graph partitions by Inductor"),
            (compilation.cudagraph_copy_inputs, "graphs that copy their inputs"),
            (compilation.cudagraph_mm_encoder, "graphs of an encoder"),
            (envs.VLLM_USE_BREAKABLE_CUDAGRAPH, "breakable graphs"),
            (mode and compilation.backend != "inductor",
             f"the compilation backend '{compilation.backend}'"),
            (mode and compilation.compile_cache_save_format != "binary",
             "compiled code in unpacked form"),
            (mode and (envs.VLLM_DISABLE_COMPILE_CACHE or not envs.VLLM_USE_AOT_COMPILE),
             "compiled code that vLLM does not keep in its cache"),
            (config.model_config.enable_sleep_mode, "sleep mode"),
            (config.speculative_config is not None, "speculative decoding"),
            (config.lora_config is not None, "LoRA"),
            (config.kv_transfer_config is not None, "a KV connector"),
            # Graphs have scales of such weights and caches as numbers, and the weights may
            # change while their configuration stays.
            (config.model_config.quantization is not None, "quantized weights"),
            (config.cache_config.cache_dtype not in ("auto", "bfloat16", "float16"),
             "a quantized KV cache"),
            (getattr(config.parallel_config, "assigned_physical_gpu_ids", None),
             "assigned GPUs")):
        if wrong:
            raise Unfit(f"images do not support {what} yet")
