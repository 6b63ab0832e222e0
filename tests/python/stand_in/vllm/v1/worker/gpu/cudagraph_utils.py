# SPDX-License-Identifier: Apache-2.0
import dataclasses
import enum

import torch


class CUDAGraphMode(enum.Enum):
    NONE = 0
    FULL_DECODE_ONLY = 3


@dataclasses.dataclass(frozen=True)
class BatchExecutionDescriptor:
    cg_mode: CUDAGraphMode
    num_tokens: int


class ModelCudaGraphManager:
    cudagraph_mode = CUDAGraphMode.FULL_DECODE_ONLY

    def __init__(self, sizes):
        self.graphs, self.hidden_states, self._graphs_captured = {}, None, False
        self.pool = torch.cuda.graph_pool_handle()
        self._capture_descs = {self.cudagraph_mode: [
            BatchExecutionDescriptor(self.cudagraph_mode, size) for size in sizes]}

    def capture(self, forward):
        for desc in self._capture_descs[self.cudagraph_mode]:
            with torch.cuda.stream(torch.cuda.Stream()):
                self.step(forward, desc)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, self.pool):
                self.step(forward, desc)
            self.graphs[desc] = graph
        self._graphs_captured = True

    def step(self, forward, desc):
        out = forward(desc.num_tokens)
        if self.hidden_states is None:
            self.hidden_states = torch.empty(out.shape)
        self.hidden_states.copy_(out)

    def run(self, size):
        self.graphs[BatchExecutionDescriptor(self.cudagraph_mode, size)].replay()
        return self.hidden_states
