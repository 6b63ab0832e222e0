# SPDX-License-Identifier: Apache-2.0
"""Which quantized weights vLLM can use with an image."""
from ..engines.quantized import check_kernel, check_layers, check_run, more_of
from ..engines.session import check_configuration
from . import weights

METHODS = ("fp8", "compressed-tensors", "auto_gptq", "auto_awq")
# (vLLM's class for layers, its kernel) that were run with images.
RUN = (("Fp8PerTensorOnlineLinearMethod", "CutlassFP8ScaledMMLinearKernel"),
       ("Fp8LinearMethod", "CutlassFp8BlockScaledMMKernel"),
       ("CompressedTensorsLinearMethod", "CutlassFP8ScaledMMLinearKernel"),
       ("CompressedTensorsLinearMethod", "MacheteLinearKernel"),
       ("AutoGPTQLinearMethod", "MacheteLinearKernel"),
       ("AutoAWQMarlinLinearMethod", "MacheteLinearKernel"))
KINDS, KERNELS = map(set, zip(*RUN))
CACHES = ("auto", "bfloat16", "float16")  # types of KV caches, unless they are quantized
VARIABLE = "FOUNDRY_VLLM_COMPARED"  # the operator compares the answers
_KERNELS = "vllm.model_executor.kernels.linear."
_REMEDIES = (("deepgemm", "set VLLM_USE_DEEP_GEMM=0"),)


def check(config, count):
    """Raise Unfit for an unsupported way to quantize. config: of vLLM. count: of the ranks."""
    method = config.model_config.quantization
    check_configuration(
        (method not in (None, *METHODS), f"weights quantized by {method}"),
        (method and config.model_config.is_moe, "quantized mixtures of experts"),
        (config.cache_config.cache_dtype not in CACHES, "a quantized KV cache"))
    if method is not None:
        check_run(VARIABLE, (config.compilation_config.mode, "torch.compile"),
                  (count > 1, "several GPUs"),
                  (config.load_config.load_format == weights.FORMAT, "weights from images"))


def _kernels(module):
    """Return the kernels of a layer of a model: objects of vLLM."""
    owners = (module, getattr(module, "quant_method", None), getattr(module, "scheme", None))
    return [each for owner in owners for each in getattr(owner, "__dict__", {}).values()
            if f"{type(each).__module__}.".startswith(_KERNELS)]


def check_model(config, model):
    """Raise Unfit for unsupported kernels in a model that was just loaded. config: of vLLM."""
    if config.model_config.quantization is None:
        return
    for name, module in model.named_modules():
        cache = getattr(module, "kv_cache_dtype", "auto")
        check_configuration((isinstance(cache, str) and cache not in CACHES,
                             f"a quantized KV cache ({name})"))
    check_layers(VARIABLE, model, _check_layer)


def _check_layer(module, method):
    """Raise Unfit for an unsupported layer. Yield what of it was not run."""
    kind, found = type(method).__name__, _kernels(module)
    check_configuration((not found or kind not in KINDS, f"layers quantized by {kind}"))
    for kernel in found:
        name, config = type(kernel).__name__, getattr(kernel, "config", None)
        check_kernel(KERNELS, name, _REMEDIES)
        # Its permutation is in no tensor of the model.
        check_configuration((getattr(config, "has_g_idx", False),
                             "weights in the order of activations"))
        if (kind, name) not in RUN:
            yield f"{kind} and {name}"
        yield from more_of(module, getattr(getattr(config, "weight_type", None), "size_bits", None))
