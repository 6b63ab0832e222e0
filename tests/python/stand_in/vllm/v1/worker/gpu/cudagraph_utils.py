# SPDX-License-Identifier: Apache-2.0
import dataclasses

import torch
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor, set_forward_context


@dataclasses.dataclass(frozen=True)
class BatchExecutionDescriptor:
    cg_mode: CUDAGraphMode
    num_tokens: int
    num_active_loras: int = 0


class ModelCudaGraphManager:
    def __init__(self, sizes, mode):
        self.graphs, self.hidden_states, self._graphs_captured = {}, None, False
        self.pool, self.cudagraph_mode = torch.cuda.graph_pool_handle(), mode
        self._capture_descs = {each: [BatchExecutionDescriptor(each, size) for size in sizes]
                               for each in mode.modes()}

    def capture(self, model):
        for descs in self._capture_descs.values():
            for desc in descs:
                with torch.cuda.stream(torch.cuda.Stream()):
                    self.step(model, desc)
                    if desc.cg_mode is CUDAGraphMode.PIECEWISE:
                        self.piecewise(model, desc)
                        continue
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, self.pool):
                    self.step(model, desc)
                self.graphs[desc] = graph
        self._graphs_captured = True

    def step(self, model, desc):
        with set_forward_context(CUDAGraphMode.NONE, None):
            out = model(desc.num_tokens)
        if desc.cg_mode is CUDAGraphMode.PIECEWISE:
            return
        if self.hidden_states is None:
            self.hidden_states = torch.empty(out.shape)
        self.hidden_states.copy_(out)

    @staticmethod
    def piecewise(model, desc):
        with set_forward_context(desc.cg_mode, BatchDescriptor(desc.num_tokens)):
            return model(desc.num_tokens)

    def run(self, model, size, mode=None):
        """Run a batch: by the graph of `mode`, or of the first mode that has one."""
        mode = mode or list(self._capture_descs)[-1]
        assert self._graphs_captured
        desc = BatchExecutionDescriptor(mode, size)
        if mode is CUDAGraphMode.PIECEWISE:
            return self.piecewise(model, desc)
        self.graphs[desc].replay()
        return self.hidden_states
