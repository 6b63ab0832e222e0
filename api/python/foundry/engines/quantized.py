# SPDX-License-Identifier: Apache-2.0
"""Which layers with quantized weights, or with experts, an engine can use with an image.

Graphs point to weights and scales, and each start fills both. The numbers that an engine computes
from weights are compared (numbers.py). But a kernel may have a state of its own, or be chosen or
compiled at its first use, which later starts omit. So a plug-in names the kernels that it allows,
and those among them that were run with images.
"""
import json

from .facts import hashed
from .session import check_allowed, check_configuration

# Where models have experts that see all tokens.
SHARED = ("shared_expert", "shared_experts", "share_expert", "shared_mlp", "residual_mlp")


def has_shared(module):
    """Return whether a module has experts that see all tokens."""
    return any(getattr(module, name, None) is not None for name in SHARED)


def check_run(variable, *more, of="quantized weights"):
    """Raise Unfit for what was not run, unless the operator allows it. more: (whether, what).
    variable, of: as not_run() takes them.
    """
    not_run(variable, of, [what for whether, what in more if whether])


def not_run(variable, of, found):
    """Raise Unfit if `found` has anything, unless the operator allows it. found: names of what was
    not run, also several times. variable: as check_allowed() takes it. of: what has it.
    """
    if found:
        check_allowed(variable, f"{of} with {' and '.join(dict.fromkeys(found))} were not run with "
                      "images on a GPU")


def places(of, found):
    """Return a fact on tensors that no module of the model has: how many there are, and a hash of
    where they lie. Graphs have their addresses. of: what has them. found: as attach.held() returned
    it.
    """
    return f"{len(found)} tensors of {of}, hash {hashed(json.dumps(found).encode())}"


def _of_cache(method):
    """Return whether this is what quantizes a KV cache. Without such a cache it does nothing."""
    return any(kind.__name__ == "BaseKVCacheMethod" for kind in type(method).__mro__)


def check_layers(variable, model, kinds, check):
    """Raise Unfit for an unsupported layer of a model that was just loaded.

    check: raises Unfit for a layer and what quantizes it, both objects of the engine, or returns
    what of them was not run. Layers that are not quantized are checked if their class is in
    `kinds`.
    """
    others = []  # what was not run
    for _, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        kind = type(method).__name__
        if not (method is None or _of_cache(method) or
                (kind.startswith("Unquantized") and kind not in kinds)):
            others.extend(check(module, method))
    not_run(variable, "layers", others)


def check_scales(method):
    """Raise Unfit if experts in FP8 have one scale for the inputs of all tokens, which the kernel
    computes: it would depend on what pads a batch. method: the engine's object for the experts.
    """
    check_configuration((not (method.block_quant or method.quant_config.activation_scheme ==
                              "static"), "experts with one dynamic scale for all tokens"))


def check_kernel(kernels, name, remedies=(), of="quantized weights"):
    """Raise Unfit for a kernel that is not in `kernels`. remedies: (part of its name, what avoids
    it). of: what it is for.
    """
    check_configuration((name not in kernels,
                         f"the kernel {name} for {of}{remedy_of(name, remedies)}"))


def remedy_of(name, remedies):
    """Return what avoids a kernel, in brackets, or an empty text."""
    return next((f" ({what})" for part, what in remedies if part in name.lower()), "")
