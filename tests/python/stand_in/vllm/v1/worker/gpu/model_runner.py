# SPDX-License-Identifier: Apache-2.0
import os
import types

import torch
from vllm.compilation.decorators import Compiled
from vllm.forward_context import set_forward_context
from vllm.config import CUDAGraphMode
from vllm.model_executor import model_loader
from vllm.v1.worker import gpu_worker
from vllm.v1.worker.gpu.cudagraph_utils import ModelCudaGraphManager

SHAPE = (100, 10)
_lazy = {}


class Model(Compiled):
    def __init__(self, config, inputs):
        self.config, self.inputs = config, inputs
        self.do_not_compile = not config.compilation_config.mode

    def load(self):
        self.weights = torch.full(SHAPE, 1.0) + torch.full(SHAPE, self.config.weight - 1.0)
        if os.environ.get("STAND_IN_SWAP"):  # the same blocks, with other tensors in them
            other = torch.full(SHAPE, self.config.weight)
            self.weights, self.spare = other, self.weights
        else:
            self.spare = torch.full(SHAPE, 0.0)

    def make(self):
        """Allocate the weights, which a loader fills, and a tensor that no file contains."""
        self.weights, self.spare = torch.full(SHAPE, 0.0), torch.full(SHAPE, self.config.rope)

    def after_loading(self):
        for name, value in self.config.loader_changes.items():
            setattr(self, name, value() if callable(value) else value)

    def modules(self):
        return [self]

    def named_modules(self):
        return [("", self)]

    def parameters(self):
        return [each for _, each in self.named_parameters()]

    def buffers(self):
        return []

    def named_parameters(self):
        return [("weights", self.weights), ("spare", self.spare)]

    def named_buffers(self):
        return []

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


class GPUModelRunner:
    def __init__(self, config):
        self.config, self.sizes = config, config.sizes
        self.more = [torch.full(SHAPE, 0.0) for _ in range(int(os.environ.get("STAND_IN_MORE", 0)))]
        self.inputs = torch.full(SHAPE, 0.0)

    def load_model(self):
        self.model = Model(self.config, self.inputs)
        if self.config.load_config.load_format != "dummy":
            self.model.make()
        loader = model_loader.get_model_loader(self.config.load_config)
        loader.load_weights(self.model, self.config.model_config)

    def get_model(self):
        return self.model

    @torch.inference_mode()
    def profile_run(self):
        peak = [torch.empty((1 << 20,)) for _ in range(3)]
        if self.model.do_not_compile:
            out = self.inputs + self.model.weights + self.model.constant()
        else:
            with set_forward_context(CUDAGraphMode.NONE, None):
                out = self.model(1)
        del peak, out

    def initialize_kv_cache(self, blocks):
        self.get_model().cache = torch.full((*SHAPE, blocks), 0.0)
        self.attn_groups = [[types.SimpleNamespace(backend=types.SimpleNamespace(
            get_name=lambda: "STAND_IN"))]]
        self.make_tables()

    def make_tables(self):
        self.cudagraph_manager = ModelCudaGraphManager(
            self.sizes, self.config.compilation_config.cudagraph_mode)

    def _dummy_run(self, *_args, **_kwargs):
        gpu_worker.COUNTS["dummy_run"] += 1
        return None, None

    def _dummy_sampler_run(self, *_args, **_kwargs):
        gpu_worker.COUNTS["dummy_run"] += 1

    _dummy_pooler_run = _dummy_sampler_run

    @torch.inference_mode()
    def capture_model(self):
        gpu_worker.COUNTS["capture"] += 1
        self.cudagraph_manager.capture(self.model)
        return 0

    @torch.inference_mode()
    def decode(self, size, mode=None):
        return self.cudagraph_manager.run(self.model, size, mode)
