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


class CompilerManager:
    """Compiles pieces, or loads them from the cache. Equal pieces are in the cache once."""

    def __init__(self, folder):
        self.folder, self.known = folder, {}

    def load(self, graph, _inputs, graph_index, _compile_range):
        path = os.path.join(self.folder, f"artifact_{graph_index}")
        if caching.read(path) is None:
            return None
        return self.known.setdefault(graph, types.SimpleNamespace(call=graph))

    def compile(self, graph, inputs, compile_range, graph_index):
        found = self.load(graph, inputs, graph_index, compile_range)
        if found is None:
            compilation_counter.num_inductor_compiles += 1
            found = self.known.get(graph)
        if found is None:
            compilation_counter.num_compiled_artifacts_saved += 1
            caching.write(os.path.join(self.folder, f"artifact_{graph_index}"), CODE)
            found = self.known.setdefault(graph, types.SimpleNamespace(call=graph))
        return found


def _copied(hidden):
    return torch.empty(hidden.shape).copy_(hidden)


def build(config):
    """Compiled code as a function: pieces, and the attention between the first two, which no graph
    has.
    """
    compilation = config.compilation_config
    compilation.cache_dir = os.path.join(envs.VLLM_CACHE_ROOT, "code")
    manager = CompilerManager(os.path.join(compilation.cache_dir, "rank_0_0", "backbone"))
    codes = [manager.compile(graph, (), compile_range=(1, 8), graph_index=i)
             for i, graph in enumerate((_before, _copied, _copied, _after))]
    if config.compiled_constant:
        CONSTANTS.zero = torch.full((100, 10), 0.0)
    backend = types.SimpleNamespace(prefix="backbone")
    pieces = [PiecewiseBackend(each.call, i, backend) for i, each in enumerate(codes)]
    if CUDAGraphMode.PIECEWISE in compilation.cudagraph_mode.modes():
        pieces = [CUDAGraphWrapper(each, config, CUDAGraphMode.PIECEWISE) for each in pieces]
    first, *middle, last = pieces

    def run(model, size):
        hidden, (attention, nothing, same) = first(model.inputs, model.weights, size)
        assert nothing is None and same == size
        cache = getattr(model, "cache", None)
        attention.copy_(hidden if cache is None else hidden + cache)
        for piece in middle:
            attention = piece(attention)
        return last(attention, model)
    return run
