# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os

import torch

LENGTHS = {}  # of the current requests, by batch size


@dataclasses.dataclass
class FlashAttentionMetadata:
    cache_seqlens_int32: object = None
    max_seq_len_k: int = 0
    window_size: tuple = (-1, -1)
    scheduler_metadata: object = None
    local_attn_metadata: object = None

    @dataclasses.dataclass
    class LocalAttentionMetadata:
        local_max_query_len: int = 0


class FlashAttentionBackend:
    """It keeps tensors for each batch size, in buffers that it fills before each replay."""

    def __init__(self):
        self.decode_cuda_graph_metadata, self.forward_metadata = {}, None

    def init_cuda_graph_state(self):
        self.decode_cuda_graph_metadata = {"cache_seqlens": torch.full((100, 10), 0.0)}
        self.plan = torch.full((8, 4), 0.0)

    def init_forward_metadata_out_graph(self, size, in_capture=False):
        table = self.decode_cuda_graph_metadata
        if in_capture:
            table[size] = FlashAttentionMetadata(
                table["cache_seqlens"], scheduler_metadata=torch.Tensor(
                    self.plan.data_ptr(), (size, 4), keep=lambda: None))
            if os.environ.get("STAND_IN_LOCAL"):
                table[size].local_attn_metadata = FlashAttentionMetadata.LocalAttentionMetadata()
        table[size].max_seq_len_k = 100 * size
        table[size].cache_seqlens_int32.fill_(LENGTHS.get(size, 0.0))
        table[size].scheduler_metadata.fill_(1.0)
        self.forward_metadata = table[size]
