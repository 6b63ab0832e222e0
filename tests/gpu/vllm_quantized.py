#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM with quantized weights, each kind with two sets of weights.

    python3 tests/gpu/vllm_quantized.py [--mode3] [--runner V1] [--ranks 2] [--image] [--first]
                                        [--compared] [--limit SECONDS] [KIND...]

KIND: see KINDS; without one, all run side by side, so the times say little. Some have a mixture of
experts, or a quantized KV cache. With two GPUs, half of the kinds run on each. --mode3: with
torch.compile, vLLM's default. --ranks 2: each engine runs on two GPUs; two kinds at a time slow
each other down. --image: the starts of Foundry have the load format foundry.

For each kind a plain and a first start run side by side, then, with empty caches, a later one with
the same weights, then a plain and a later one with other weights in the same place. The starts that
have equal weights give equal answers, and the later ones load the image and neither profile,
capture nor compile. --first: only the first starts, which must seal. --compared: set the variable
FOUNDRY_VLLM_COMPARED, which is needed for what was not run before, such as a KV cache in FP8 with
--mode3, and most kinds with --ranks 2. With --limit, it ends its starts then, and prints what it
has.
"""
import functools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import engine_quantized  # noqa: E402
import vllm_start  # noqa: E402
from engine_quantized import FP8, GPTQ, Files  # noqa: E402

CACHE = ("--kv-type", "fp8")
MARLIN = ("--no-machete",)
KINDS = {
    **engine_quantized.KINDS,
    "inputs": Files(engine_quantized.with_inputs, {**FP8, "activation_scheme": "static"}),
    "int8": Files(functools.partial(engine_quantized.packed, bits=8), engine_quantized.integers(8)),
    "gptq8": Files(functools.partial(engine_quantized.gptq, bits=8), {**GPTQ, "bits": 8}),
    "deepgemm": Files(engine_quantized.in_blocks, engine_quantized.BLOCKS, ("--deep-gemm",)),
    "marlin": Files(engine_quantized.packed, engine_quantized.integers(4), MARLIN),
    "ordered": Files(engine_quantized.ordered, {**GPTQ, "desc_act": True}, MARLIN),
    "cache": Files(None, None, CACHE),
    "cache-scales": Files(engine_quantized.with_caches, FP8, CACHE),
}


def compiled(folder):
    """Return the names of DeepGEMM's kernels that are there and that no image of a store has."""
    import foundry
    place = os.path.join(folder, "caches", "VLLM_CACHE_ROOT", "deep_gemm", "cache")
    if not os.path.isdir(place):
        return []
    with foundry.Store(os.path.join(folder, "store")) as store:
        carried = {each.name.split("/")[1] for ref in store.refs() for each in store.files(ref.name)
                   if each.name.startswith("deepgemm/")}
    return sorted(set(os.listdir(place)) - carried)


ENGINE = engine_quantized.Engine(
    "vllm", os.path.abspath(__file__), vllm_start.begin_beside, vllm_start.nothing_done,
    vllm_start.QWEN3, KINDS,
    lambda line: ("Kernel" in line and " for " in line) or "MoE backend" in line, compiled)


def main():
    import engine_child
    os.environ.pop("DG_JIT_CACHE_DIR", None)  # compiled() looks for the kernels where vLLM does
    more = sys.argv[1:]
    limit = engine_child.Limit(more, 400)
    p = engine_quantized.parser()
    p.add_argument("--mode3", action="store_true")
    p.add_argument("--runner", default="V2")
    p.add_argument("--image", action="store_true")
    a = p.parse_args(more)
    more = ["--runner", a.runner, *(("--mode3", "--unmeasured") if a.mode3 else ()),
            *(("--ranks", str(a.ranks)) if a.ranks > 1 else ())]
    engine_quantized.run(ENGINE, a, engine_quantized.Options(
        more, vllm_start.asked(more), image=a.image), limit)


if __name__ == "__main__":
    engine_quantized.main(ENGINE, main)
