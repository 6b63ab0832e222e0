# SPDX-License-Identifier: Apache-2.0
import torch


class FullCudaGraphBackend:
    def __init__(self):
        self._graphs, self._outputs, self._pool = {}, {}, None

    def capture_one(self, key, forward):
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(2):
                forward()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(cuda_graph=graph, pool=self._pool):
            out = forward()
        self._graphs[key], self._outputs[key] = graph, out

    def replay(self, key):
        self._graphs[key].replay()
        return self._outputs[key]
