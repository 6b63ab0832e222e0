# SPDX-License-Identifier: Apache-2.0
import os

import torch
import triton
from flashinfer.jit import core
from sglang.srt.distributed.device_communicators.triton_symm_mem_ag import MultimemAllGatherer
from sglang.srt.model_executor.model_runner_kv_cache_mixin import ModelRunnerKVCacheMixin
from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
from sglang.srt.model_executor.runner.prefill_cuda_graph_runner import PrefillCudaGraphRunner
from sglang.srt.model_loader.loader import get_model_loader

SHAPE = (100, 10)
GATHERS = set()  # how the last forward of each gatherer has gathered
_lazy = {}


class Model:
    def __init__(self, args, weight):
        self.args, self.gatherer = args, MultimemAllGatherer(args.tp_size > 1)
        self.inputs = torch.full(SHAPE, 0.0)
        self.weights = torch.full(SHAPE, 1.0) + torch.full(SHAPE, weight - 1.0)

    def modules(self):
        return [self]

    def named_modules(self):
        return [("", self)]

    def named_parameters(self):
        return [("weights", self.weights)]

    def parameters(self):
        return [self.weights]

    def after_loading(self):
        """What a model may do at the end of load_weights()."""

    def named_buffers(self):
        return [("inputs", self.inputs)]

    def forward(self, size):
        core.module("rope").build_and_load()
        self.gatherer(GATHERS)
        out = self.inputs
        for _ in range(size):
            out = out + self.weights
        return out + self.constant() + self.cache

    def constant(self):
        """Made at its first use, as attention kernels do."""
        keeper = _lazy if self.args.hidden_constant else self.__dict__
        if "kept" not in keeper:
            keeper["kept"] = torch.full(SHAPE, 1000.0)
        return keeper["kept"]


class ModelRunner(ModelRunnerKVCacheMixin):
    is_generation, is_multimodal, use_mla_backend, gpu_id = True, False, False, 0
    dtype = kv_cache_dtype = "torch.float32"

    def __init__(self, args, model_config, is_draft_worker=False, tp_rank=0):
        self.server_args, self.model_config = args, model_config
        self.tp_rank, self.tp_size = tp_rank, args.tp_size
        self.is_draft_worker = is_draft_worker
        self.before = self.init_torch_distributed()
        self.mambaish_config = model_config.mambaish
        self.load_model()

    def init_torch_distributed(self):
        torch.cuda.init()
        return 1

    def load_model(self):
        self.model = Model(self.server_args, self.model_config.weight)
        self.loader = get_model_loader(self.server_args.load_format)
        self.loader.load_model(self.model, self.model_config)
        vars(self.model).update(self.model_config.changes)

    def alloc_memory_pool(self):
        more = int(os.environ.get("STAND_IN_MORE", 0))
        self.more = [torch.full(SHAPE, 0.0) for _ in range(more)]
        self.max_total_num_tokens = self._profile_available_bytes(self.before) >> 10
        self.max_running_requests = 4
        self.model.cache = torch.full(SHAPE, 0.0)

    def init_attention_backends(self):
        if self.server_args.get_attention_backends()[1] == "fa3":
            from sglang.srt.layers.attention.flashattention_backend import FlashAttentionBackend
            self.attn_backend = FlashAttentionBackend()
        else:
            from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
            self.attn_backend = TritonAttnBackend()

    def init_cuda_graphs(self, capture_decode_cuda_graph=True):
        assert capture_decode_cuda_graph
        self.prefill_cuda_graph_runner = None
        if self.server_args.cuda_graph_config.prefill.backend == "breakable":
            self.prefill_cuda_graph_runner = PrefillCudaGraphRunner(self)
        if os.environ.get("STAND_IN_NO_DECODE"):
            self.decode_cuda_graph_runner = None
            return
        self.decode_cuda_graph_runner = DecodeCudaGraphRunner(self)

    def forward(self, size):
        assert triton.compile("prefill") == b"code of prefill"
        return self.decode_cuda_graph_runner.execute(size)
