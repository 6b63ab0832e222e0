# SPDX-License-Identifier: Apache-2.0
from sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph import (
    breakable_cuda_graph as breakable)

FACTORS = {}  # of the current request, by layer


def unified_attention_with_output(query, output, layer_id, *, factor=1.0):
    output.copy_(query).mul_(factor * FACTORS.get(layer_id, 1.0))


def other(query, output, layer_id, *, factor=1.0):
    output.copy_(query).mul_(factor)


breakable_unified_attention_with_output = breakable.eager_on_graph(unified_attention_with_output)
breakable_other = breakable.eager_on_graph(other)
