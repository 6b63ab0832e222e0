#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of SGLang with dummy weights: times, counters, digests of the tokens.

    python3 tests/gpu/sglang_start.py              # four starts; all answers are equal
    python3 -m foundry run tests/gpu/sglang_start.py --mode first|next [--model DIR]
    python3 tests/gpu/sglang_start.py --mode plain [--model DIR]

DIR holds the configuration of a model; without it, that of Qwen3 0.6B is used. The mode sets
FOUNDRY_SGLANG, except for plain. FOUNDRY_STORE names the store. --caches DIR lets all compilers
keep their files in DIR. The weights are scaled so that different prompts give different tokens. The
last line is a JSON object. Answers must be equal for requests that run alone; those that are sent
together may be batched in another way in each start, in plain SGLang, too.
"""
import argparse
import faulthandler
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
from engine_start import (QWEN3, Notes, age, digest, entry_points, notes,  # noqa: E402
                          scale)

BEGIN = time.monotonic()
PHASES = {"init_torch_distributed": "device", "load_model": "weights",
          "alloc_memory_pool": "kv cache", "init_attention_backends": "attention",
          "init_cuda_graphs": "capture or load"}
CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor",
          "TVM_FFI_CACHE_DIR": "tvm-ffi", "FLASHINFER_WORKSPACE_BASE": "flashinfer"}


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=("plain", "first", "next"), required=True)
    p.add_argument("--model")
    p.add_argument("--sizes", type=int, default=32, help="the largest batch of a decode graph")
    p.add_argument("--memory", type=float, default=0.5, help="the fraction of the GPU's memory")
    p.add_argument("--prefill", default="disabled", help="the backend of prefill graphs")
    p.add_argument("--caches", help="the folder of all caches")
    p.add_argument("--limit", type=float, default=200,
                   help="seconds, then it ends with a traceback")
    return p.parse_args()


def watch():
    """Watch a process of SGLang: the entry point of this test."""
    import torch
    from flashinfer.jit import core
    from tvm_ffi import cpp
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.model_executor.runner_backend.full_cuda_graph_backend import (
        FullCudaGraphBackend)
    noted = Notes(**{"warm-ups": 0, "captures": 0, "triton": 0, "ninja": 0, "tvm-ffi": 0})
    noted.count(FullCudaGraphBackend, "capture_one", "warm-ups")
    noted.count(torch.cuda.graph, "__enter__", "captures")
    noted.count(core, "run_ninja", "ninja")
    noted.count(cpp, "load_inline", "tvm-ffi")
    noted.count(cpp, "load", "tvm-ffi")
    noted.count_triton("triton")
    logging.getLogger("sglang.foundry").setLevel(logging.DEBUG)
    load_model = ModelRunner.load_model

    def scaled(this, *args, **kwargs):
        load_model(this, *args, **kwargs)
        scale(this.model)
    ModelRunner.load_model = scaled
    for name, shown in PHASES.items():
        noted.times(ModelRunner, name, shown)


def model(a):
    """Return the folder of the model's configuration."""
    if a.model:
        return a.model
    folder = os.path.join(tempfile.gettempdir(), "sglang-start-qwen3")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(QWEN3, f)
    return folder


def main():
    a = arguments()
    faulthandler.enable()
    faulthandler.dump_traceback_later(a.limit, exit=True)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if a.mode != "plain":
        os.environ.setdefault("FOUNDRY_SGLANG", "test")
    if a.caches:
        for name, folder in CACHES.items():
            os.environ[name] = os.path.join(a.caches, folder)
    entry_points(__file__, "[sglang.srt.plugins]\nfoundry = foundry.sglang:register\n"
                 "watch = sglang_start:watch\n")
    import sglang
    imported = time.monotonic()
    engine = sglang.Engine(
        model_path=model(a), load_format="dummy", skip_tokenizer_init=True,
        attention_backend="triton", sampling_backend="pytorch", mem_fraction_static=a.memory,
        cuda_graph_backend_decode="full", cuda_graph_backend_prefill=a.prefill,
        cuda_graph_max_bs_decode=a.sizes, disable_flashinfer_autotune=True, random_seed=0,
        disable_radix_cache=True, context_length=2048, log_level="info")
    ready, noted = time.monotonic(), notes()
    engine.generate(input_ids=[1, 2, 3], sampling_params={"max_new_tokens": 1, "temperature": 0.0})
    first, since_start = time.monotonic(), age()
    print(json.dumps({
        "mode": a.mode, "imports": round(imported - BEGIN, 2), "engine": round(ready - imported, 2),
        "first token": round(first - ready, 3),
        "first token since the process began": round(since_start, 2), **noted, **answers(engine),
        "counts after": notes()["counts"]}), flush=True)
    engine.shutdown()


def answers(engine):
    """Digests of tokens and of logprobs of prompts of many lengths: sent together, and each by
    itself, greedy and sampled. And the tokens a second of full batches.
    """
    prompts = [[(17 * i + 13 * j) % 150000 for j in range(5 + 11 * i)] for i in range(9)]
    found = {}
    for name, more in (("greedy", {"temperature": 0.0}), ("alone", {"temperature": 0.0}),
                       ("sampled alone", {"temperature": 1.0, "top_k": 50})):
        ask = {"max_new_tokens": 32, "ignore_eos": True, **more}
        start = time.monotonic()
        batches = [[p] for p in prompts] if "alone" in name else [prompts]
        out = [o for batch in batches for o in engine.generate(
            input_ids=batch, sampling_params=ask, return_logprob=True, top_logprobs_num=3)]
        each = [o["output_ids"] for o in out]
        chances = [[[repr(p[0]), p[1]] for p in o["meta_info"]["output_token_logprobs"]]
                   + [[repr(p[0]), p[1]] for step in o["meta_info"]["output_top_logprobs"]
                      for p in step] for o in out]
        found[name] = {"tokens": digest(each), "logprobs": digest(chances),
                       "different": len(set(map(tuple, each))), "first": each[0][:6],
                       "seconds": round(time.monotonic() - start, 3)}
    found["tokens a second"] = []
    for _ in range(2):
        start = time.monotonic()
        engine.generate(input_ids=[[i + 1, 2, 3] for i in range(32)], sampling_params={
            "max_new_tokens": 128, "temperature": 0.0, "ignore_eos": True})
        found["tokens a second"].append(round(32 * 128 / (time.monotonic() - start)))
    return found


def start(mode, folder, *more):
    """Return what one start in a process of its own prints; nothing if it fails."""
    pre = [] if mode == "plain" else ["-m", "foundry", "run"]
    print(f"--- {mode}", flush=True)
    done = subprocess.run(
        [sys.executable, *pre, os.path.abspath(__file__), "--mode", mode, "--caches",
         os.path.join(folder, "caches"), *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False, env={**os.environ, "FOUNDRY_STORE": os.path.join(folder, "store")})
    lines = done.stdout.strip().splitlines() or [""]
    results = [line for line in lines if line.startswith('{"mode"')]
    print("\n".join([line for line in lines if "Foundry" in line] + (
        results if results and not done.returncode else lines[-60:])), flush=True)
    return json.loads(results[-1]) if results and not done.returncode else {}


def nothing_done(one):
    """Return whether a start neither warmed up nor captured nor compiled until it was ready."""
    return bool(one) and not any(one["counts"].values())


def whole(more):
    """A first start, a later one without caches, then a plain and a later one with caches.

    All succeed, with the answers of plain SGLang. The later ones neither warm up nor capture nor
    compile.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.join(here, os.pardir, "python"))
    import parts
    parts.need("sglang")
    with tempfile.TemporaryDirectory() as folder:
        first = start("first", folder, *more)
        shutil.rmtree(os.path.join(folder, "caches"), ignore_errors=True)
        elsewhere, plain, later = (start(mode, folder, *more)
                                   for mode in ("next", "plain", "next"))
    starts = (plain, first, elsewhere, later)
    found = [[(one.get(asked, {}).get("tokens"), one.get(asked, {}).get("logprobs"))
              for asked in ("alone", "sampled alone")] for one in starts]
    parts.finish([*starts, *(found[0] == each for each in found[1:]),
                  nothing_done(elsewhere), nothing_done(later)])


if __name__ == "__main__":
    if "--mode" in sys.argv:
        main()
    else:
        whole(sys.argv[1:])
