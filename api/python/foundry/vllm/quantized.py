# SPDX-License-Identifier: Apache-2.0
"""Which quantized weights, KV caches and mixtures of experts vLLM can use with an image.

Some of Marlin's kernels have locks in a tensor of vLLM's object for the kernel. Each start makes
this tensor, and its values are 0 between calls.
"""
import functools
import os

from ..engines import attach
from ..engines.facts import stated
from ..engines.quantized import (check_kernel, check_layers, check_run, check_scales, has_shared,
                                 not_run, places, remedy_of)
from ..engines.session import check_configuration
from . import facts

METHODS = ("fp8", "compressed-tensors", "auto_gptq", "auto_awq")
# (vLLM's class for layers, its kernel) that were run with images.
RUN = (("Fp8PerTensorOnlineLinearMethod", "CutlassFP8ScaledMMLinearKernel"),
       ("Fp8LinearMethod", "CutlassFp8BlockScaledMMKernel"),
       ("CompressedTensorsLinearMethod", "CutlassFP8ScaledMMLinearKernel"),
       ("CompressedTensorsLinearMethod", "MacheteLinearKernel"),
       ("AutoGPTQLinearMethod", "MacheteLinearKernel"),
       ("AutoAWQMarlinLinearMethod", "MacheteLinearKernel"),
       ("Fp8LinearMethod", "CutlassFP8ScaledMMLinearKernel"),
       ("Fp8MoEMethod", "TritonExperts"),
       ("UnquantizedFusedMoEMethod", "TritonExperts"),
       ("CompressedTensorsLinearMethod", "MarlinLinearKernel"),
       ("AutoGPTQLinearMethod", "MarlinLinearKernel"),
       ("Fp8LinearMethod", "DeepGemmFp8BlockScaledMMKernel"))
# The pairs that were run on several GPUs, with the V2 runner.
ON_SEVERAL = (("Fp8LinearMethod", "CutlassFp8BlockScaledMMKernel"),
              ("CompressedTensorsLinearMethod", "MacheteLinearKernel"))
# Others, which need the variable.
ON_DEMAND = (("AutoAWQMarlinLinearMethod", "MarlinLinearKernel"),
             ("Fp8LinearMethod", "MarlinFP8ScaledMMLinearKernel"),
             ("Fp8PerTensorOnlineLinearMethod", "MarlinFP8ScaledMMLinearKernel"),
             ("CompressedTensorsLinearMethod", "MarlinFP8ScaledMMLinearKernel"))
ORDERED = ("MarlinLinearKernel",)  # their layers have the order of activations as a tensor
# Classes for layers that were run with such an order, and with zero points.
RUN_ORDERED = ("AutoGPTQLinearMethod",)
RUN_ZERO_POINTS = ("AutoAWQMarlinLinearMethod",)
# Classes of compressed-tensors for the layers that were run.
SCHEMES = ("CompressedTensorsW8A8Fp8", "CompressedTensorsWNA16")
KINDS, KERNELS = map(set, zip(*RUN, *ON_DEMAND))
GRAPHS = "FULL_DECODE_ONLY"  # the graph mode with which KV caches in FP8 were run
CACHES = ("auto", "bfloat16", "float16")  # types of KV caches, unless they are quantized
FP8_CACHES = ("fp8", "fp8_e4m3")
ROUTER = "FusedTopKRouter"  # vLLM's class that selects experts, which was run
VARIABLE = "FOUNDRY_VLLM_COMPARED"  # the operator compares the answers
_KERNELS = "vllm.model_executor.kernels.linear."
_REMEDIES = (("deepgemm", "set VLLM_USE_DEEP_GEMM=0"),
             ("experts", "start with --moe-backend triton"))


def check(config, count):
    """Raise Unfit for an unsupported way to quantize. config: of vLLM. count: of the ranks."""
    method, experts = config.model_config.quantization, config.model_config.is_moe
    check_configuration((method not in (None, *METHODS), f"weights quantized by {method}"))
    if experts:
        check_run(VARIABLE, (count > 1, "several GPUs"), of="experts")
    _check_cache(config.cache_config, "cache_dtype")


def _is_v1(config):
    return not getattr(config, "use_v2_model_runner", False)


def _is_compiled(config):
    return bool(config.compilation_config.mode)


def _has_ranks(config):
    return config.parallel_config.world_size > 1


def _check_cache(owner, name):
    """Raise Unfit for an unsupported KV cache, whose type is the attribute `name`. Returns whether
    it is in FP8.
    """
    kind = getattr(owner, name, "auto")
    if not isinstance(kind, str):
        return False
    check_configuration(
        (kind not in CACHES + FP8_CACHES, f"a KV cache of the type {kind}"),
        (kind in FP8_CACHES and getattr(owner, "calculate_kv_scales", False),
         "a KV cache with scales that the first request determines"))
    return kind in FP8_CACHES


def _kernels(module):
    """Return the kernels of a layer of a model: objects of vLLM."""
    method = getattr(module, "quant_method", None)
    owners = (module, method, getattr(module, "scheme", None))
    experts = getattr(getattr(method, "moe_kernel", None), "fused_experts", None)
    return [*([] if experts is None else [experts]), *(
        each for owner in owners for each in getattr(owner, "__dict__", {}).values()
        if f"{type(each).__module__}.".startswith(_KERNELS))]


def _on_ranks(config):
    """Return the pairs that were run on several GPUs as such a configuration runs them; None for
    one GPU.
    """
    if not _has_ranks(config):
        return None
    return () if _is_v1(config) else ON_SEVERAL


def _parts(model):
    """Return [(path, object)] of what quantizes a model's layers, of their schemes and of their
    kernels, each object once.
    """
    found = {}
    for path, module in model.named_modules():
        parts = (getattr(module, "quant_method", None), getattr(module, "scheme", None),
                 *_kernels(module))
        for number, each in enumerate(parts):
            found.setdefault(id(each), (f"{path}:{number}", each))
    return list(found.values())


def facts_of(model, method):
    """Return {key: value} of a fact of the model that was just loaded: where the tensors of its
    kernels lie. Other models than quantized ones need no such fact if they have none. method: how
    the weights are quantized, or None.
    """
    found = attach.held(_parts(model))
    return stated(facts.PREFIX, {"quantized": places("kernels", found)}) if found or method else {}


def check_model(config, model):
    """Raise Unfit for unsupported kernels or KV caches in a model that was just loaded. config: of
    vLLM.
    """
    caches = [_check_cache(module, "kv_cache_dtype") for _, module in model.named_modules()]
    if any(caches):
        graphs = config.compilation_config.cudagraph_mode.name
        check_run(VARIABLE, (_is_compiled(config), "torch.compile"),
                  (_is_v1(config), "the V1 runner"), (_has_ranks(config), "several GPUs"),
                  (graphs != GRAPHS, f"the graph mode {graphs}"), of="KV caches in FP8")
    check_layers(VARIABLE, model, KINDS, functools.partial(_check_layer, _on_ranks(config)))
    not_run(VARIABLE, "experts", list(_experts(model, config.model_config.is_moe)))


def _has_deepgemm():
    """Return whether vLLM uses DeepGEMM where it can. Then experts of other kernels get scales in
    another form, too.
    """
    try:
        from vllm.utils import deep_gemm
    except ImportError:
        return False
    return deep_gemm.is_deep_gemm_supported()


def _experts(model, expected):
    """Yield what of a model's experts was not run. expected: whether vLLM says that it has some."""
    modules = [module for _, module in model.named_modules()]
    layers = [each for each in modules if getattr(each, "routed_experts", None) is not None]
    if expected and not layers:
        yield "no layers of vLLM's for them"
    if (expected or layers) and any(map(has_shared, modules)):
        yield "shared experts"
    for module in layers:
        router = type(getattr(module, "router", None)).__name__
        if router != ROUTER:
            yield f"the router {router}"
        method = getattr(module.routed_experts, "quant_method", None)
        if type(method).__name__ == "Fp8MoEMethod" and not method.block_quant:
            yield "one scale for each tensor"


def _types(kind, kernel, config, several):
    """Yield which types of weights and inputs of a layer were not run. kind: vLLM's class for the
    layer. kernel: the name of its kernel. config: of the kernel.
    """
    if not hasattr(config, "weight_type"):
        return
    if config.weight_type.size_bits != 4 and (several or kernel == "MarlinLinearKernel"):
        yield f"{config.weight_type.size_bits} bits by {kernel}"
    if config.zero_points and (several or kind not in RUN_ZERO_POINTS):
        yield "zero points"
    if config.act_type.itemsize == 1:
        yield "inputs of 8 bits"


def _check_layer(on_ranks, module, method):
    """Raise Unfit for an unsupported layer. Yield what of it was not run. on_ranks: of
    _on_ranks().
    """
    kind, found = type(method).__name__, _kernels(module)
    scheme = getattr(module, "scheme", None)
    plain = kind.startswith("Unquantized")
    of = "mixtures of experts" if plain else "quantized weights"
    check_configuration((not found or kind not in KINDS,
                         f"layers of the class {kind}" if plain else f"layers quantized by {kind}"))
    if kind == "Fp8MoEMethod":
        check_scales(method)
        if _has_deepgemm():
            yield "DeepGEMM's form of scales (set VLLM_USE_DEEP_GEMM=0)"
    if kind == "CompressedTensorsLinearMethod" and type(scheme).__name__ not in SCHEMES:
        yield f"the scheme {type(scheme).__name__}"
    for kernel in found:
        name = type(kernel).__name__
        ordered = getattr(getattr(kernel, "config", None), "has_g_idx", False)
        check_kernel(KERNELS, name, _REMEDIES, of)
        # Machete has the order in no tensor of the model.
        check_configuration((ordered and name not in ORDERED, "weights in the order of activations "
                             "(set VLLM_DISABLED_KERNELS=MacheteLinearKernel)"))
        if name.startswith("DeepGemm") and os.environ.get("VLLM_DEEP_GEMM_WARMUP") == "skip":
            yield "VLLM_DEEP_GEMM_WARMUP=skip"
        yield from _types(kind, name, getattr(kernel, "config", None), on_ranks is not None)
        if (kind, name) not in RUN:
            yield f"{kind} and {name}{remedy_of(name, _REMEDIES)}"
        elif on_ranks is not None and (kind, name) not in on_ranks:
            yield f"{kind} and {name} on several GPUs{remedy_of(name, _REMEDIES)}"
        if ordered and kind not in RUN_ORDERED:
            yield "weights in the order of activations"
