# SPDX-License-Identifier: Apache-2.0
"""Settings of torch that choose kernels: a call by a graph needs those of compile()."""
import functools
import operator
import sys
import warnings

_MODES = ("get_float32_matmul_precision", "are_deterministic_algorithms_enabled",
          "get_default_dtype")
_BACKENDS = ("cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic", "cudnn.allow_tf32",
             "cuda.matmul.allow_tf32", "cuda.matmul.allow_fp16_reduced_precision_reduction",
             "cuda.matmul.allow_bf16_reduced_precision_reduction",
             "cuda.matmul.allow_fp16_accumulation")
_SDP = ("flash", "mem_efficient", "math", "cudnn")
# Each setting has this value until a program changes it.
_DEFAULTS = {"get_float32_matmul_precision": "highest",
             "are_deterministic_algorithms_enabled": False, "get_default_dtype": "torch.float32",
             "autocast": False, "cudnn.enabled": True, "cudnn.benchmark": False,
             "cudnn.deterministic": False, "cudnn.allow_tf32": True,
             "cuda.matmul.allow_tf32": False,
             "cuda.matmul.allow_fp16_reduced_precision_reduction": True,
             "cuda.matmul.allow_bf16_reduced_precision_reduction": True,
             "cuda.matmul.allow_fp16_accumulation": False,
             **{f"{name}_sdp": True for name in _SDP}}


def _getters(torch):
    """{name: a function without arguments that returns the setting}."""
    found = {name: getattr(torch, name) for name in _MODES if hasattr(torch, name)}
    if hasattr(torch, "get_autocast_dtype"):
        found["autocast"] = lambda: (torch.is_autocast_enabled("cuda")
                                     and torch.get_autocast_dtype("cuda"))
    backends = getattr(torch, "backends", None)
    for path in _BACKENDS:
        parent, _, name = path.rpartition(".")
        try:
            found[path] = functools.partial(getattr, operator.attrgetter(parent)(backends), name,
                                            None)
        except AttributeError:  # another version of torch
            continue
    cuda = getattr(backends, "cuda", None)
    for name in _SDP:
        if hasattr(cuda, f"{name}_sdp_enabled"):
            found[f"{name}_sdp"] = functools.partial(_called, cuda, f"{name}_sdp_enabled")
    return found


def _called(owner, name):
    return getattr(owner, name)()


class Modes:
    """The settings at the time of compile()."""

    def __init__(self, torch):
        getters = _getters(torch)
        self.names, self._each = list(getters), list(getters.values())
        self.then = self._now()

    def _now(self):
        found = []
        for get in self._each:
            try:
                found.append(get())
            except RuntimeError:  # a program has mixed torch's old settings with its new ones
                found.append("mixed")
        return found

    def changed(self):
        """The name of a setting that differs from that of compile(), or None."""
        now = self._now()
        if now == self.then:
            return None
        return next(name for name, a, b in zip(self.names, now, self.then) if a != b)

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in zip(self.names, self.then))


def current(torch):
    """The settings that torch has now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of older names for its precision
        return Modes(torch)


def altered():
    """The settings that differ from torch's defaults, as text.

    So a process that has not imported torch yet, and one that has set nothing, say the same.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return "defaults"
    modes = current(torch)
    return ", ".join(f"{name} {value}" for name, value in zip(modes.names, modes.then)
                     if value is not None and str(value) != str(_DEFAULTS[name])) or "defaults"


def watched(torch):
    """What observes each call of a module, but not the launch of a graph; None if nothing does."""
    modules = getattr(getattr(getattr(torch, "nn", None), "modules", None), "module", None)
    if any(getattr(modules, f"_global_forward_{name}", None) for name in ("hooks", "pre_hooks")):
        return "a hook of all modules"
    core = getattr(torch, "_C", None)
    if getattr(core, "_len_torch_dispatch_stack", int)():
        return "a mode of torch's dispatcher"
    level = getattr(getattr(core, "_functorch", None), "maybe_current_level", type(None))
    if level() is not None:
        return "a transform of torch.func"
    forward_ad = getattr(getattr(torch, "autograd", None), "forward_ad", None)
    if getattr(forward_ad, "_current_level", -1) >= 0:
        return "forward-mode differentiation"
    return None
