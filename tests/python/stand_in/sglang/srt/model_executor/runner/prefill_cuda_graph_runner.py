# SPDX-License-Identifier: Apache-2.0
import os

import torch
from sglang.srt.layers import radix_attention
from sglang.srt.model_executor.counts import COUNTS, collective
from sglang.srt.model_executor.runner.shape_key import ShapeKey
from sglang.srt.model_executor.runner_backend.breakable_cuda_graph_backend import (
    BreakableCudaGraphBackend)

LAYERS = 2


class PrefillCudaGraphRunner:
    use_captured_attn_metadata = False

    def __init__(self, model_runner):
        self.model_runner = model_runner
        self.capture_num_tokens = model_runner.server_args.cuda_graph_config.prefill.bs
        self.inputs = torch.full((100, 10), 0.0)
        self.backend = BreakableCudaGraphBackend()
        self.capture()

    def capture(self):
        COUNTS["prefill"] = COUNTS.get("prefill", 0) + 1
        collective(self.model_runner)
        for tokens in reversed(self.capture_num_tokens):
            self.backend.capture_one(ShapeKey(tokens), lambda: self.forward(tokens))

    def forward(self, tokens):
        """Each layer computes (x + tokens * weight) * factor of the request."""
        attention = radix_attention.breakable_unified_attention_with_output
        if os.environ.get("STAND_IN_OTHER"):
            attention = radix_attention.breakable_other
        out = self.inputs
        for layer in range(LAYERS):
            for _ in range(tokens):
                out = out + self.model_runner.model.weights
            after = torch.empty((100, 10))
            attention(out, after, layer, factor=1.0)
            out = after
        return out + self.model_runner.model.cache

    def execute(self, tokens):
        return self.backend.replay(ShapeKey(tokens))
