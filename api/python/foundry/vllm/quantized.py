# SPDX-License-Identifier: Apache-2.0
"""Which quantized weights vLLM can use with an image.

Graphs point to weights and scales, and each start fills both. The numbers that vLLM computes from
weights are compared (engines/numbers.py). But a kernel may have a state of its own, or be chosen or
compiled at its first use, which later starts omit. So only kernels that were run with images are
allowed.
"""
import os

from ..engines import log
from ..engines.session import Unfit, check_configuration
from ..settings import check_variables
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


def check(config, count):
    """Raise Unfit for an unsupported way to quantize. config: of vLLM. count: of the ranks."""
    method = config.model_config.quantization
    check_configuration(
        (method not in (None, *METHODS), f"weights quantized by {method}"),
        (method and config.model_config.is_moe, "quantized mixtures of experts"),
        (config.cache_config.cache_dtype not in CACHES, "a quantized KV cache"))
    if method is not None:
        _check_run((config.compilation_config.mode, "torch.compile"), (count > 1, "several GPUs"),
                   (config.load_config.load_format == weights.FORMAT, "weights from images"))


def _check_run(*more):
    """Raise Unfit for what was not run, unless the operator allows it. more: (whether, what)."""
    found = [what for whether, what in more if whether]
    if not found:
        return
    check_variables(VARIABLE)
    what = f"quantized weights with {' and '.join(found)} were not run with images on a GPU"
    if os.environ.get(VARIABLE) != "1":
        raise Unfit(f"{what} (set {VARIABLE}=1 to use images nevertheless)")
    log.warning("Foundry: %s", what)


def _kernels(module):
    """Return the kernels of a layer of a model: objects of vLLM."""
    owners = (module, getattr(module, "quant_method", None), getattr(module, "scheme", None))
    return [each for owner in owners for each in getattr(owner, "__dict__", {}).values()
            if f"{type(each).__module__}.".startswith(_KERNELS)]


def _of_cache(method):
    """Return whether this is what quantizes a KV cache. Without such a cache it does nothing."""
    return any(kind.__name__ == "BaseKVCacheMethod" for kind in type(method).__mro__)


def check_model(config, model):
    """Raise Unfit for unsupported kernels in a model that was just loaded. config: of vLLM."""
    if config.model_config.quantization is None:
        return
    others = {}  # {what was not run: True}
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        cache = getattr(module, "kv_cache_dtype", "auto")
        check_configuration((isinstance(cache, str) and cache not in CACHES,
                             f"a quantized KV cache ({name})"))
        if not (method is None or type(method).__name__.startswith("Unquantized") or
                _of_cache(method)):
            others.update(dict.fromkeys(_check_layer(module, type(method).__name__), True))
    _check_run(*((True, what) for what in others))


def _check_layer(module, kind):
    """Raise Unfit for an unsupported layer. Yield what of it was not run."""
    found = _kernels(module)
    check_configuration((not found or kind not in KINDS, f"layers quantized by {kind}"))
    for kernel in found:
        name, config = type(kernel).__name__, getattr(kernel, "config", None)
        remedy = " (set VLLM_USE_DEEP_GEMM=0)" if "deepgemm" in name.lower() else ""
        check_configuration(
            (name not in KERNELS, f"the kernel {name} for quantized weights{remedy}"),
            # Its permutation is in no tensor of the model.
            (getattr(config, "has_g_idx", False), "weights in the order of activations"))
        if (kind, name) not in RUN:
            yield f"{kind} and {name}"
        if getattr(getattr(config, "weight_type", None), "size_bits", 4) != 4:
            yield f"{config.weight_type.size_bits} bits"
        if getattr(module, "input_scale", None) is not None:
            yield "static scales of inputs"
