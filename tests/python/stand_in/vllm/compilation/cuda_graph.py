# SPDX-License-Identifier: Apache-2.0
import dataclasses
import weakref

import torch
from vllm.compilation import monitor
from vllm.forward_context import get_forward_context

_pool = torch.cuda.graph_pool_handle()


@dataclasses.dataclass
class CUDAGraphEntry:
    batch_descriptor: object
    cudagraph: object = None
    output: object = None
    input_addresses: object = None


def _weak(value):
    if isinstance(value, torch.Tensor):
        return torch.Tensor(value.data_ptr(), value.shape, keep=lambda: None)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_weak, value))
    return value


def addresses(args):
    return [each.data_ptr() for each in args if isinstance(each, torch.Tensor)]


class CUDAGraphWrapper:
    _all_instances = weakref.WeakSet()

    def __init__(self, runnable, config, runtime_mode):
        self.runnable, self.runtime_mode = runnable, runtime_mode
        self.compilation_config = config.compilation_config
        self.concrete_cudagraph_entries = {}
        CUDAGraphWrapper._all_instances.add(self)

    def unwrap(self):
        return self.runnable

    def __call__(self, *args):
        context = get_forward_context()
        if context.cudagraph_runtime_mode != self.runtime_mode:
            return self.runnable(*args)
        batch = context.batch_descriptor
        entry = self.concrete_cudagraph_entries.setdefault(batch, CUDAGraphEntry(batch))
        if entry.cudagraph is None:
            assert monitor.enabled, "a graph is captured while vLLM serves"
            entry.input_addresses = addresses(args)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, _pool):
                output = self.runnable(*args)
            entry.output, entry.cudagraph = _weak(output), graph
            return output
        assert addresses(args) == entry.input_addresses, (addresses(args), entry.input_addresses)
        entry.cudagraph.replay()
        return entry.output
