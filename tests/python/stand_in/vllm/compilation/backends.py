# SPDX-License-Identifier: Apache-2.0
import os
import sys
import types

import torch
from vllm import envs
from vllm.compilation import caching
from vllm.compilation.counter import compilation_counter
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.compilation.piecewise_backend import PiecewiseBackend
from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context

CODE = "of the stand-in"
CONSTANTS = types.ModuleType("constants")  # as Inductor keeps them in the module with the code
sys.modules["torch._inductor"] = types.ModuleType("torch._inductor")
sys.modules["torch._inductor.codecache"] = types.SimpleNamespace(
    PyCodeCache=types.SimpleNamespace(modules=[CONSTANTS]))


def _before(inputs, weights, size):
    """The first piece: all before the attention, and the memory for its output."""
    out = inputs
    for _ in range(size):
        out = out + weights
    return out, [torch.empty(out.shape), None, size]


def _after(hidden, model):
    constant = model.constant()
    if model.config.hidden_constant == "copied":
        constant = constant.copied(torch.cuda.current_stream().cuda_stream)
    if model.config.compiled_constant:
        constant = constant + CONSTANTS.zero
    return hidden + constant


def build(config):
    """Compiled code as a function: two pieces, and the attention between them, which no graph has.
    """
    compilation = config.compilation_config
    compilation.cache_dir = os.path.join(envs.VLLM_CACHE_ROOT, "code")
    artifact = os.path.join(compilation.cache_dir, "rank_0_0", "backbone", "artifact_0")
    if caching.read(artifact) is None:
        compilation_counter.num_inductor_compiles += 1
        caching.write(artifact, CODE)
    if config.compiled_constant:
        CONSTANTS.zero = torch.full((100, 10), 0.0)
    backend = types.SimpleNamespace(prefix="backbone")
    first, last = (PiecewiseBackend(each, i, backend) for i, each in enumerate((_before, _after)))
    if CUDAGraphMode.PIECEWISE in compilation.cudagraph_mode.modes():
        first, last = (CUDAGraphWrapper(each, config, CUDAGraphMode.PIECEWISE)
                       for each in (first, last))

    def run(model, size):
        hidden, (attention, nothing, same) = first(model.inputs, model.weights, size)
        assert nothing is None and same == size
        cache = getattr(model, "cache", None)
        attention.copy_(hidden if cache is None else hidden + cache)
        return last(attention, model)
    return run
