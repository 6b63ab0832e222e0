#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of SGLang with quantized weights, each kind with two sets of weights.

    python3 tests/gpu/sglang_quantized.py [--prefill BACKEND] [--ranks 2] [--from DIR] [--first]
                                          [--compared] [--limit SECONDS] [KIND...]

KIND: see KINDS; without one, all run side by side, so the times say little. With two GPUs, half of
the kinds run on each. --prefill: the backend of prefill graphs, which are off if nothing is said.
--ranks 2: each engine runs on two GPUs; two kinds at a time slow each other down. --from: a folder
of caches, as sglang_start.py fills it; each kind begins with a copy. Without that, the first two
starts of int4, gptq and awq compile Marlin's kernel for some minutes.

For each kind a plain and a first start run side by side, then, with empty caches, a later one with
the same weights, then a plain and a later one with other weights in the same place. The starts that
have equal weights give equal answers, and the later ones load the image and neither capture, warm
up nor compile. --first: only the first starts, which must seal. --compared: set the variable
FOUNDRY_SGLANG_COMPARED, which is needed for what was not run before, such as all kinds with --ranks
2, and most with graphs of prefill. With --limit, it ends its starts then, and prints what it has.

If a layer has fewer than 2,048 outputs and at least 2,048 inputs, Marlin's kernel adds in an order
that varies. This model has no such layer.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import engine_quantized  # noqa: E402
import sglang_start  # noqa: E402
from engine_quantized import BLOCKS, GPTQ, Files  # noqa: E402

# Further kinds: of blocks by kernels of Triton's and of DeepGEMM, and in the order of activations.
KINDS = {
    **engine_quantized.KINDS,
    "deepgemm": Files(engine_quantized.in_blocks, BLOCKS, ("--fp8-gemm", "deep_gemm")),
    "triton": Files(engine_quantized.in_blocks, BLOCKS, ("--fp8-gemm", "triton")),
    "ordered": Files(engine_quantized.ordered, {**GPTQ, "desc_act": True}),
}
SHOWN = ("Foundry: quantized", "quantization", "marlin", "Marlin", "DeepGEMM")


ENGINE = engine_quantized.Engine(
    "sglang", os.path.abspath(__file__), sglang_start.begin_beside, sglang_start.nothing_done,
    {**sglang_start.QWEN3, "hidden_size": 2048, "intermediate_size": 6144}, KINDS,
    lambda line: any(word in line for word in SHOWN))


def main():
    import engine_child
    # Otherwise SGLang compiles DeepGEMM's kernels for all numbers of tokens, for many minutes.
    os.environ.setdefault("SGLANG_JIT_DEEPGEMM_PRECOMPILE", "0")
    more = sys.argv[1:]
    limit = engine_child.Limit(more, 560)
    p = engine_quantized.parser()
    p.add_argument("--prefill", default="disabled")
    p.add_argument("--from", dest="caches", metavar="DIR")
    a = p.parse_args(more)
    engine_quantized.run(ENGINE, a, engine_quantized.Options(
        ["--prefill", a.prefill, "--ranks", str(a.ranks)], sglang_start.ASKED,
        caches=a.caches), limit)


if __name__ == "__main__":
    engine_quantized.main(ENGINE, main)
