# SPDX-License-Identifier: Apache-2.0
"""Which quantized weights and mixtures of experts SGLang can use with an image.

Kernels have the names of SGLang's functions that start them, and those of experts have the name of
SGLang's backend. Marlin's kernel has locks in a tensor of SGLang's object for the layer. Each start
makes this tensor, and its values are 0 between calls.
"""
import functools
import os

from ..engines import attach
from ..engines.facts import stated, tuned
from ..engines.quantized import (check_kernel, check_layers, check_run, check_scales, not_run,
                                 places, remedy_of)
from ..engines.session import check_configuration
from . import experts, facts, weights

METHODS = ("fp8", "compressed-tensors", "gptq_marlin", "awq_marlin")
KERNELS = ("fp8_scaled_mm", "cutlass_w8a8_block_fp8_linear_with_fallback",
           "deepgemm_w8a8_block_fp8_linear_with_fallback", "triton_w8a8_block_fp8_linear",
           "triton_scaled_mm", "gptq_marlin_gemm", "triton_experts")
# (SGLang's class for layers, its kernel) that were run with images.
RUN = (("Fp8LinearMethod", "fp8_scaled_mm"),
       ("Fp8LinearMethod", "cutlass_w8a8_block_fp8_linear_with_fallback"),
       ("Fp8LinearMethod", "triton_w8a8_block_fp8_linear"),
       ("CompressedTensorsW8A8Fp8", "fp8_scaled_mm"),
       ("CompressedTensorsWNA16", "gptq_marlin_gemm"),
       ("GPTQMarlinLinearScheme", "gptq_marlin_gemm"),
       ("AWQMarlinLinearScheme", "gptq_marlin_gemm"),
       ("Fp8LinearMethod", "deepgemm_w8a8_block_fp8_linear_with_fallback"),
       ("Fp8MoEMethod", "triton_experts"),
       ("UnquantizedFusedMoEMethod", "triton_experts"))
# The pairs that were run with graphs of prefill.
IN_PREFILL = (("Fp8LinearMethod", "cutlass_w8a8_block_fp8_linear_with_fallback"),
              ("Fp8LinearMethod", "fp8_scaled_mm"),
              ("CompressedTensorsW8A8Fp8", "fp8_scaled_mm"),
              ("UnquantizedFusedMoEMethod", "triton_experts"))
ORDERED = ("GPTQMarlinLinearScheme",)  # run with weights in the order of activations
VARIABLE = "FOUNDRY_SGLANG_COMPARED"  # the operator compares the answers
EXPERTS = "UnquantizedFusedMoEMethod"
# Files with block sizes of kernels for experts, and for quantized weights.
TUNED = ("srt/layers/moe/moe_runner/triton_utils/configs/*/*.json",
         "srt/layers/quantization/configs/*.json")
TYPES = ("weight_type", "quant_type")  # where a configuration has the type of weights
TILE = 128  # weights in each direction that the kernel of CUTLASS for blocks multiplies
ROWS = 64  # the same for DeepGEMM, of outputs
BLOCK = [128, 128]  # the blocks of weights with one scale that were run
_NO_DEEPGEMM = ("deepgemm", "start with --fp8-gemm-backend cutlass")
_REMEDIES = (_NO_DEEPGEMM,
             ("fp8_marlin", "set SGLANG_FORCE_FP8_MARLIN=0"),
             ("_experts", "start with --moe-runner-backend triton"))


def check(runner):
    """Raise Unfit for an unsupported way to quantize. runner: SGLang's model runner."""
    method, args = runner.model_config.quantization, runner.server_args
    check_configuration((method not in (None, *METHODS), f"weights quantized by {method}"),
                        (args.torchao_config, "weights quantized by torchao"))
    if method is not None:
        # SGLang quantizes and repacks in the function that reads the files.
        check_configuration((weights.wanted(), f"quantized weights with {weights.VARIABLE}"))
        check_run(VARIABLE, (runner.tp_size > 1, "several GPUs"))


def check_model(runner):
    """Raise Unfit for unsupported kernels or experts in the model that was just loaded."""
    prefill = runner.server_args.cuda_graph_config.prefill.backend != "disabled"
    check_layers(VARIABLE, runner.model, KINDS, functools.partial(_check_layer, prefill))
    if experts.has(runner.model):
        not_run(VARIABLE, "experts", list(experts.not_run(runner)))


def _schemes(model):
    """Yield (path, object) of what the layers of a model have as schemes, and as kernels of these.
    """
    for name, module in model.named_modules():
        scheme = getattr(module, "scheme", None)
        yield name + ".scheme", scheme
        yield name + ".kernel", getattr(scheme, "kernel", None)


def facts_of(runner):
    """Return {key: value} of facts of the model that was just loaded, if its weights are quantized
    or it has experts: where the tensors of its schemes lie, and the files with block sizes of
    kernels.
    """
    if runner.model_config.quantization is None and not experts.has(runner.model):
        return {}
    own = os.environ.get("SGLANG_MOE_CONFIG_DIR")
    return stated(facts.PREFIX, {
        "quantized": places("schemes", attach.held(_schemes(runner.model))),
        "tuned": tuned("sglang", TUNED, None if own is None else (own, "configs/*/*.json"))})


def _is_uneven(layer):
    """Return whether the weights of a layer are no multiple of what CUTLASS' kernel multiplies."""
    return any(size % TILE for size in layer.weight.shape)


def _blocks(function, layer):
    """Return the kernel of a function for weights in blocks."""
    name, (rows, columns) = function.__name__, layer.weight.shape
    if (name.startswith("cutlass") and _is_uneven(layer)) or (
            name.startswith("deepgemm") and (rows % ROWS or columns % TILE)):
        return "triton_w8a8_block_fp8_linear"
    return name


def _scaled(layer):
    """Return the kernel for weights with a scale for each output."""
    from sglang.srt.layers.quantization import fp8_utils
    shape = layer.weight.shape
    if layer.weight_scale.numel() != shape[1] or not fp8_utils.cutlass_fp8_supported():
        return "torch._scaled_mm"
    if fp8_utils.use_triton_w8a8_fp8_kernel or any(size % 16 for size in shape):
        return "triton_scaled_mm"
    return "fp8_scaled_mm"


def _fp8(method, layer):
    if method.use_marlin:
        return "apply_fp8_marlin_linear"
    if method.use_mxfp8:
        return method.w8a8_mxfp8_linear.__name__
    return _blocks(method.w8a8_block_fp8_linear, layer) if method.block_quant else _scaled(layer)


def _compressed_fp8(scheme, layer):
    if scheme.weight_block_size is not None:
        return _blocks(scheme.w8a8_block_fp8_linear, layer)
    return _scaled(layer)


def _marlin(_owner, _layer):
    return "gptq_marlin_gemm"


def _experts(method, _layer):
    backend = getattr(getattr(method, "runner", None), "runner_backend", None)
    return f"{getattr(backend, 'value', 'other')}_experts"


# {SGLang's class for layers: returns the kernel of an object of this class, and of its layer}
KINDS = {"Fp8LinearMethod": _fp8, "CompressedTensorsW8A8Fp8": _compressed_fp8,
         "CompressedTensorsWNA16": _marlin, "GPTQMarlinLinearScheme": _marlin,
         "AWQMarlinLinearScheme": _marlin, "Fp8MoEMethod": _experts, EXPERTS: _experts}


def _config(owner):
    """Return what has the type of Marlin's weights, and their order; None for other kernels."""
    for each in (owner, getattr(owner, "kernel", None)):
        found = getattr(each, "kernel_config", None)
        if found is not None:
            return found
    return getattr(owner, "quant_config", None)


def _block(owner):
    """Return the size of the blocks of weights that have one scale, as a list, or None."""
    config = getattr(owner, "quant_config", None)
    found = getattr(owner, "weight_block_size", getattr(config, "weight_block_size", None))
    return found and list(found)


def _check_layer(prefill, module, method):
    """Raise Unfit for an unsupported layer. Yield what of it was not run. prefill: whether there
    are graphs of prefill.
    """
    from sglang.srt.environ import envs
    owner = getattr(module, "scheme", None) or method
    kind, config = type(owner).__name__, _config(owner)
    check_configuration((kind not in KINDS, f"layers quantized by {kind}"))
    name = KINDS[kind](owner, module)
    check_kernel(KERNELS, name, _REMEDIES,
                 "mixtures of experts" if kind == EXPERTS else "quantized weights")
    if kind == "Fp8MoEMethod":
        check_scales(method)
        if not method.block_quant:
            yield "one scale for each tensor"
        if method.use_mxfp8 or method.is_fp4_expert:
            yield "other types of experts' weights"
    if (kind, name) not in RUN:
        yield f"{kind} and {name}{remedy_of(name, (_NO_DEEPGEMM,))}"
    elif prefill and (kind, name) not in IN_PREFILL:
        yield f"{kind} and {name} in graphs of prefill"
    if name.startswith("deepgemm") and envs.SGLANG_JIT_DEEPGEMM_PRECOMPILE.get():
        yield "DeepGEMM's compilation ahead (set SGLANG_JIT_DEEPGEMM_PRECOMPILE=0)"
    if "block_fp8" in name and _is_uneven(module):
        yield f"shapes that are no multiples of {TILE}"
    if _block(owner) not in (None, BLOCK):
        yield "blocks of other sizes than 128 x 128"
    if getattr(config, "has_g_idx", False) and kind not in ORDERED:
        yield "weights in the order of activations"
    if getattr(config, "zero_points", False):  # AWQ's, which were run, are stated otherwise
        yield "zero points"
    # SGLang's types of weights have no truth value.
    of_weights = [getattr(config, name) for name in TYPES if hasattr(config, name)]
    bits = getattr(of_weights[0], "size_bits", "an unknown number of") if of_weights else 4
    if bits != 4:
        yield f"{bits} bits"
    if getattr(module, "input_scale", None) is not None:
        yield "static scales of inputs"
