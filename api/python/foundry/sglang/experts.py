# SPDX-License-Identifier: Apache-2.0
"""What of a mixture of experts SGLang was not run with images."""
import dataclasses

from ..engines.quantized import has_shared

# Arguments of the server that change how experts run, and their values that were run.
ARGUMENTS = {"moe_a2a_backend": "none", "ep_num_redundant_experts": 0,
             "init_expert_location": "trivial", "enable_eplb": False,
             "expert_distribution_recorder_mode": None, "enable_return_routed_experts": False,
             "enable_fused_moe_sum_all_reduce": False, "kt_weight_path": None}
# SGLang's variables that choose experts in place of the model, for measurements.
CHOOSING = ("SGLANG_SIMULATE_UNIFORM_EXPERTS", "SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS")
LAYER = "FusedMoE"  # SGLang's class for layers of experts
# What may differ in the configuration of such a layer, and of the choice of its experts.
SHAPES = ("num_experts", "num_local_experts", "hidden_size", "intermediate_size_per_partition",
          "layer_id", "top_k", "params_dtype", "routing_method_type")
CHOICE = ("top_k",)


def has(model):
    """Return whether a model has experts. Some models have no layers for them, and call functions.
    """
    return any(hasattr(each, "moe_runner_config") or hasattr(each, "topk_config") or
               has_shared(each) for each in model.modules())


def _is_method(module):
    """Return whether this is how a layer computes. SGLang makes modules of some, with the
    configuration of their layer.
    """
    return any(kind.__name__ == "QuantizeMethodBase" for kind in type(module).__mro__)


def _equal(value, other):
    """Return whether values are equal. 0 and False are as None."""
    if value is None or isinstance(value, (int, float, str)):
        return (value or None) == (other or None)
    return value is other


def _changed(config, may_differ):
    """Yield the names of fields of a data class that have other values than by default."""
    for field in dataclasses.fields(config):
        if field.name not in may_differ and not _equal(getattr(config, field.name), field.default):
            yield field.name


def not_run(runner):
    """Yield what of a model with experts that was just loaded was not run. runner: SGLang's model
    runner.
    """
    from sglang.srt.environ import envs
    if runner.tp_size > 1:
        yield "several GPUs"
    yield from (name for name in CHOOSING if getattr(envs, name).get())
    for name, run in ARGUMENTS.items():
        if not _equal(getattr(runner.server_args, name), run):
            yield f"--{name.replace('_', '-')}"
    layers = choices = 0
    for module in runner.model.modules():
        if hasattr(module, "moe_runner_config") and not _is_method(module):
            layers += 1
            if type(module).__name__ != LAYER:
                yield f"layers of the class {type(module).__name__}"
            yield from _changed(module.moe_runner_config, SHAPES)
        if hasattr(module, "topk_config"):
            choices += 1
            yield from _changed(module.topk_config, CHOICE)
        if has_shared(module):
            yield "shared experts"
    if not layers:
        yield f"no layers of the class {LAYER}"
    if not choices:
        yield "a choice by none of SGLang's TopK"
