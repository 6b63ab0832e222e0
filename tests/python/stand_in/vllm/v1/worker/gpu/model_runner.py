# SPDX-License-Identifier: Apache-2.0
import os
import types

import torch
from vllm.v1.worker import gpu_worker
from vllm.v1.worker.gpu.cudagraph_utils import ModelCudaGraphManager

SHAPE = (100, 10)
_lazy = {}


class GPUModelRunner:
    def __init__(self, config):
        self.config, self.sizes = config, config.sizes
        self.model = types.SimpleNamespace(modules=lambda: [self])
        self.more = [torch.full(SHAPE, 0.0) for _ in range(int(os.environ.get("STAND_IN_MORE", 0)))]
        self.inputs = torch.full(SHAPE, 0.0)

    def load_model(self):
        self.weights = torch.full(SHAPE, 1.0) + torch.full(SHAPE, self.config.weight - 1.0)

    def forward(self, size):
        out = self.inputs
        for _ in range(size):
            out = out + self.weights
        constant = self.constant()
        if self.config.hidden_constant == "copied":
            constant = constant.copied(torch.cuda.current_stream().cuda_stream)
        return out + constant + self.cache

    def constant(self):
        """Made at its first use, as compiled code and attention kernels do."""
        keeper = _lazy if self.config.hidden_constant else self.__dict__
        if "kept" not in keeper:
            keeper["kept"] = torch.full(SHAPE, 1000.0)
        return keeper["kept"]

    def profile_run(self):
        peak = [torch.empty((1 << 20,)) for _ in range(3)]
        out = self.inputs + self.weights + self.constant()
        del peak, out

    def initialize_kv_cache(self, blocks):
        self.cache = torch.full((*SHAPE, blocks), 0.0)
        self.attn_groups = [[types.SimpleNamespace(backend=types.SimpleNamespace(
            get_name=lambda: "STAND_IN"))]]
        self.cudagraph_manager = ModelCudaGraphManager(self.sizes)

    def capture_model(self):
        gpu_worker.COUNTS["capture"] += 1
        self.cudagraph_manager.capture(self.forward)
        return 0

    def decode(self, size):
        return self.cudagraph_manager.run(size)
