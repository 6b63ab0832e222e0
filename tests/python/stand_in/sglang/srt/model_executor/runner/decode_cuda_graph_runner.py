# SPDX-License-Identifier: Apache-2.0
import types

import torch
import triton
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.model_executor.counts import COUNTS, collective
from sglang.srt.model_executor.runner.base_runner import BaseRunner
from sglang.srt.model_executor.runner.shape_key import ShapeKey
from sglang.srt.model_executor.runner_backend.full_cuda_graph_backend import FullCudaGraphBackend

KERNELS = ["attention", "norm"]


class DecodeCudaGraphRunner(BaseRunner):
    seq_len_fill_value = 1

    def __init__(self, model_runner):
        self.model_runner, self.attn_backend = model_runner, model_runner.attn_backend
        self.attn_backend.init_cuda_graph_state()
        self.capture_bs = model_runner.server_args.cuda_graph_config.decode.bs
        self.buffers = types.SimpleNamespace(seq_lens=torch.full((10,), 0.0),
                                             seq_lens_cpu=torch.full((10,), 0.0))
        shared = model_runner.server_args.shared_output
        self.logits = torch.full((100, 10), 0.0) if shared else None
        self.backend = FullCudaGraphBackend()
        self.capture()

    @staticmethod
    def _make_graph_key(size):
        return ShapeKey(size)

    def capture(self):
        COUNTS["capture"] += 1
        collective(self.model_runner)
        self.buffers.seq_lens.fill_(self.seq_len_fill_value)
        for name in KERNELS:
            assert triton.compile(name) == f"code of {name}".encode()
        for size in reversed(self.capture_bs):
            self.attn_backend.init_forward_metadata_out_graph(size, in_capture=True)
            self.backend.capture_one(self._make_graph_key(size), lambda: LogitsProcessorOutput(
                self.output(size)))

    def output(self, size):
        out, held = self.model_runner.model.forward(size), self.attn_backend.forward_metadata
        if held:
            out = out + held.cache_seqlens_int32
        if self.logits is None:
            return out
        self.logits.copy_(out)  # all graphs write to one buffer
        return torch.Tensor(self.logits.data_ptr(), (25 * size, 10), keep=lambda: None)

    def execute(self, size):
        self.attn_backend.init_forward_metadata_out_graph(size)
        return self.backend.replay(self._make_graph_key(size)).next_token_logits
