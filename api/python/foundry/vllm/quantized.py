# SPDX-License-Identifier: Apache-2.0
"""Which quantized weights vLLM can use with an image.

Graphs point to weights and scales, and each start fills both. The numbers that vLLM computes from
weights are compared (engines/numbers.py). What remains are kernels that have a state of their own,
or that are chosen or compiled at a first use which later starts omit. So those are allowed that
were run with images.
"""
import os

from ..engines import log
from ..engines.session import Unfit, check_configuration
from ..settings import check_variables
from . import weights

METHODS = ("fp8", "compressed-tensors", "auto_gptq", "auto_awq")
KERNELS = ("CutlassFP8ScaledMMLinearKernel", "CutlassFp8BlockScaledMMKernel", "MacheteLinearKernel")
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
    if method is None:
        return
    check_variables(VARIABLE)
    more = ("torch.compile" if config.compilation_config.mode else
            "several GPUs" if count > 1 else
            "weights from images" if config.load_config.load_format == weights.FORMAT else None)
    what = f"quantized weights with {more} were not run with images on a GPU"
    if more and os.environ.get(VARIABLE) != "1":
        raise Unfit(f"{what} (set {VARIABLE}=1 to use images nevertheless)")
    if more:
        log.warning("Foundry: %s", what)


def kernels(module):
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
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        cache = getattr(module, "kv_cache_dtype", "auto")
        check_configuration((isinstance(cache, str) and cache not in CACHES,
                             f"a quantized KV cache ({name})"))
        kind = type(method).__name__
        if method is None or kind.startswith("Unquantized") or _of_cache(method):
            continue
        found = sorted({type(each).__name__ for each in kernels(module)})
        check_configuration((not found, f"layers quantized by {kind}"), *(
            (each not in KERNELS, f"the kernel {each} for quantized weights") for each in found))
