# SPDX-License-Identifier: Apache-2.0
import torch
from sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph import (
    breakable_cuda_graph as breakable)


class BreakableCudaGraphBackend:
    def __init__(self):
        self._graphs, self._outputs, self._shared_output_buffer = {}, {}, None

    def capture_one(self, key, forward):
        with torch.cuda.stream(torch.cuda.Stream()):
            forward()
        graph = breakable.BreakableCUDAGraph()
        with breakable.Capture(graph, torch.cuda.graph_pool_handle()):
            out = forward()
            if self._shared_output_buffer is not None:
                self._shared_output_buffer.copy_(out)
        if self._shared_output_buffer is None:
            self._shared_output_buffer = out
        self._graphs[key] = graph
        self._outputs[key] = breakable.weak(self._shared_output_buffer)

    def replay(self, key):
        self._graphs[key].replay()
        return self._outputs[key]
