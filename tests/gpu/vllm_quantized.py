#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM with quantized weights, each kind with two sets of weights.

    python3 tests/gpu/vllm_quantized.py [--mode3] [--limit SECONDS] [KIND...]

KIND: see engine_quantized.KINDS; without one, all run side by side, so the times say little. With
two GPUs, half of the kinds run on each. --mode3: with torch.compile, vLLM's default.

For each kind a plain and a first start run side by side, then a later one with the same weights,
then a plain and a later one with other weights in the same place. The starts that have equal
weights give equal answers, and the later ones load the image and neither profile, capture nor
compile. With --limit, it ends its starts then, and prints what it has.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import engine_quantized  # noqa: E402
import vllm_start  # noqa: E402


def begin(*start, **options):
    return vllm_start.begin(*start, *vllm_start.SIDE, "--weights", "safetensors", **options)


ENGINE = engine_quantized.Engine(
    "vllm", os.path.abspath(__file__), begin, vllm_start.ASKED, vllm_start.nothing_done,
    {**vllm_start.QWEN3, "num_hidden_layers": 8}, engine_quantized.KINDS,
    lambda line: "Kernel" in line and " for " in line)


def main():
    import engine_child
    more = sys.argv[1:]
    limit = engine_child.Limit(more, 400)
    names = [each for each in more if not each.startswith("-")] or list(ENGINE.kinds)
    engine_quantized.run(ENGINE, names, ("--mode3", "--unmeasured") if "--mode3" in more else (),
                        limit)


if __name__ == "__main__":
    engine_quantized.main(ENGINE, main)
