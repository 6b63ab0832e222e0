#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of SGLang with dummy weights: times, counters, digests of the tokens.

    python3 tests/gpu/sglang_start.py              # four starts; all answers are equal
    python3 tests/gpu/sglang_start.py --table [--pair] [--cold] [--caches DIR]    # a table of times
    python3 tests/gpu/sglang_start.py --side [--caches DIR]    # the same sooner: see side()
    python3 -m foundry run tests/gpu/sglang_start.py --mode first|next [--model DIR]
    python3 tests/gpu/sglang_start.py --mode plain [--model DIR]

DIR holds the configuration of a model; without it, that of Qwen3 0.6B is used. The mode sets
FOUNDRY_SGLANG, except for plain. FOUNDRY_STORE names the store. --caches DIR lets all compilers
keep their files in DIR. The weights are scaled so that different prompts give different tokens. The
last line is a JSON object. With --limit SECONDS, it ends its starts then, and prints what it has.
With --defaults, SGLang chooses the backends of attention and sampling; if not, see CHOSEN.
With --ranks N, SGLang starts a scheduler on each of N GPUs (sglang_ranks.py).
Answers must be equal for requests that run alone; those that are sent together may be batched in
another way in each start, in plain SGLang, too.
"""
import argparse
import json
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import engine_start  # noqa: E402
from engine_start import (QWEN3, STARTS, Notes, age, digest, entry_points,  # noqa: E402
                          equal_answers, first_and_later, limit_time, model_in, nothing_done,
                          notes, pretend, scale, show_table, strict, write_model)

BEGIN = time.monotonic()
PHASES = {"init_torch_distributed": "device", "load_model": "weights",
          "alloc_memory_pool": "kv cache", "init_attention_backends": "attention",
          "init_cuda_graphs": "capture or load"}
ASKED = ("alone", "sampled alone")  # answers that depend on no other request
FIRST_PORT, PORTS = 10000, 20000  # below those that Linux gives to clients
ROWS = ("imports", "imports of the scheduler", "device", "weights", "kv cache", "attention",
        "capture or load", "engine", "first token", "first token since the process began")
# SGLang's defaults for this GPU are FlashAttention 3, and FlashInfer, which compiles for minutes.
CHOSEN = {"attention_backend": "triton", "sampling_backend": "pytorch"}
CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor",
          "TVM_FFI_CACHE_DIR": "tvm-ffi", "FLASHINFER_WORKSPACE_BASE": "flashinfer",
          "SGLANG_DG_CACHE_DIR": "deep_gemm"}

# Ranks share NCCL's collectives alone, without multicast memory.
ONE_WAY = {"NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "0",
           "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=("plain", "first", "next"), required=True)
    p.add_argument("--model")
    p.add_argument("--sizes", type=int, default=32, help="the largest batch of a decode graph")
    p.add_argument("--memory", type=float, default=0.5, help="the fraction of the GPU's memory")
    p.add_argument("--defaults", action="store_true", help="SGLang chooses attention and sampling")
    p.add_argument("--weights", default="dummy", help="SGLang's load format, or foundry: from "
                   "files, then from an image; the folder of the model has the files")
    p.add_argument("--quantization", help="how SGLang quantizes weights while it loads them")
    p.add_argument("--fp8-gemm", default="auto", help="the kernels for FP8 in blocks")
    p.add_argument("--moe-runner", default="auto", help="the backend for experts")
    p.add_argument("--prefill", default="disabled", help="the backend of prefill graphs")
    p.add_argument("--prefill-tokens", type=int, default=256, help="of the largest prefill graph")
    p.add_argument("--tokens", type=int, help="of the KV cache; default: what fits")
    p.add_argument("--requests", type=int, help="the largest number of running requests")
    p.add_argument("--caches", help="the folder of all caches")
    p.add_argument("--ranks", type=int, default=1, help="GPUs, by tensor parallelism")
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
    from sglang.srt.model_executor.runner_backend.breakable_cuda_graph_backend import (
        BreakableCudaGraphBackend)
    from sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph import (
        breakable_cuda_graph as breakable)
    noted = Notes(**{"warm-ups": 0, "captures": 0, "triton": 0, "ninja": 0, "tvm-ffi": 0})
    noted.count(FullCudaGraphBackend, "capture_one", "warm-ups")
    noted.count(BreakableCudaGraphBackend, "capture_one", "warm-ups")
    noted.count(breakable.BreakableCUDAGraphCapture, "_begin_new_segment", "captures")
    noted.count(torch.cuda.graph, "__enter__", "captures")
    noted.count(core, "run_ninja", "ninja")
    noted.count(cpp, "load_inline", "tvm-ffi")
    noted.count(cpp, "load", "tvm-ffi")
    noted.count_triton("triton")
    logging.getLogger("sglang.foundry").setLevel(logging.DEBUG)
    load_model = ModelRunner.load_model

    def scaled(this, *args, **kwargs):
        load_model(this, *args, **kwargs)
        if this.server_args.load_format == "dummy":
            scale(this.model)
    ModelRunner.load_model = scaled
    for name, shown in PHASES.items():
        noted.times(ModelRunner, name, shown)
    begin = ModelRunner.init_torch_distributed

    def begun(this):
        noted.seconds["imports of the scheduler"] = round(age(), 3)
        return begin(this)
    ModelRunner.init_torch_distributed = begun
    if os.environ.get("FOUNDRY_SGLANG"):
        sessions(noted)
    else:
        without_multicast()
    if multiprocessing.parent_process() is not None:
        noted.wait()


def without_multicast():
    """Let plain SGLang gather logits by NCCL, as it does on GPUs without multicast memory."""
    from sglang.srt.distributed.device_communicators.triton_symm_mem_ag import MultimemAllGatherer
    original = MultimemAllGatherer.__init__

    def made(this, *args, **kwargs):
        original(this, *args, **{**kwargs, "enabled": False})
    MultimemAllGatherer.__init__ = made


def sessions(noted):
    """Note the seconds that Foundry has measured."""
    from foundry.sglang import facts, runner
    pretend(facts)
    original = runner.Session.summary

    def summary(session_of):
        original(session_of)
        noted.seconds["of Foundry"] = {name: round(value, 3)
                                       for name, value in session_of.seconds.items()}
        noted.write()
    runner.Session.summary = summary


def model(a):
    """Return the folder of the model's configuration."""
    if a.model:
        return a.model
    folder = os.path.join(tempfile.gettempdir(), "sglang-start-qwen3")
    os.makedirs(folder, exist_ok=True)
    write_model(folder, QWEN3)
    return model_in(folder)


def plug_in(caches):
    """Let SGLang find the plug-in of this tree and watch(). caches: the folder of all, or None."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if caches:
        for name, folder in CACHES.items():
            os.environ[name] = os.path.join(caches, folder)
    entry_points(__file__, "[sglang.srt.plugins]\nfoundry = foundry.sglang:register\n"
                 "watch = sglang_start:watch\n")


def port():
    """Return a port for the ranks, of this process alone. SGLang chooses a free one long before it
    listens there, so engines side by side could get the same.
    """
    return FIRST_PORT + os.getpid() % PORTS


def main():
    a = arguments()
    limit_time(a.limit)
    if a.mode != "plain":
        os.environ.setdefault("FOUNDRY_SGLANG", "test")
    if a.ranks > 1:
        for name, value in ONE_WAY.items():
            os.environ.setdefault(name, value)
    if a.weights == "foundry":
        os.environ["FOUNDRY_SGLANG_WEIGHTS"], a.weights = "1", "auto"
    plug_in(a.caches)
    import sglang
    imported = time.monotonic()
    engine = sglang.Engine(
        model_path=model(a), load_format=a.weights, skip_tokenizer_init=True,
        **({} if a.defaults else CHOSEN), mem_fraction_static=a.memory,
        cuda_graph_backend_decode="full", cuda_graph_backend_prefill=a.prefill,
        cuda_graph_max_bs_prefill=a.prefill_tokens, max_total_tokens=a.tokens,
        max_running_requests=a.requests, cuda_graph_max_bs_decode=a.sizes,
        disable_flashinfer_autotune=True, random_seed=0, disable_radix_cache=True,
        context_length=2048, log_level="info", tp_size=a.ranks,
        disable_custom_all_reduce=a.ranks > 1, quantization=a.quantization,
        fp8_gemm_runner_backend=a.fp8_gemm, moe_runner_backend=a.moe_runner, nccl_port=port())
    ready, noted = time.monotonic(), notes()
    engine.generate(input_ids=[1, 2, 3], sampling_params={"max_new_tokens": 1, "temperature": 0.0})
    first, since_start = time.monotonic(), age()
    print(json.dumps({
        "mode": a.mode, "imports": round(imported - BEGIN, 2),
        "engine": round(ready - imported - noted["waited"], 2),
        "first token": round(first - ready, 3),
        "first token since the process began": round(since_start - noted["waited"], 2), **noted,
        **answers(engine), **(throughput(engine) if a.ranks == 1 else {}),
        "counts after": notes()["counts"]}), flush=True)
    engine_start.serve_on(a.mode)
    engine.shutdown()


def chances(out):
    """The logprobs of an answer, comparable to the bit: of its tokens, then of the likeliest."""
    found = out["meta_info"]
    return [[repr(p[0]), p[1]] for step in (
        found["output_token_logprobs"], *found["output_top_logprobs"]) for p in step]


def answers(engine):
    """Digests of tokens and of logprobs of prompts of many lengths: sent together, and each by
    itself, greedy and sampled.
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
        found[name] = {"tokens": digest(each), "logprobs": digest(list(map(chances, out))),
                       "different": len(set(map(tuple, each))), "first": each[0][:6],
                       "seconds": round(time.monotonic() - start, 3)}
    return found


def throughput(engine):
    """The tokens a second of full batches, twice."""
    found = []
    for _ in range(2):
        start = time.monotonic()
        engine.generate(input_ids=[[i + 1, 2, 3] for i in range(32)], sampling_params={
            "max_new_tokens": 128, "temperature": 0.0, "ignore_eos": True})
        found.append(round(32 * 128 / (time.monotonic() - start)))
    return {"tokens a second": found}


def begin(limit, title, mode, folder, *more, **options):
    """Begin a start, as engine_start.begin() does."""
    return engine_start.begin(__file__, limit, title, mode, folder, *more, **options)


def start(limit, mode, folder, *more):
    """Return what one start in a process of its own prints; nothing if it fails."""
    from engine_child import together
    return together([begin(limit, mode, mode, folder, *more)], [])[mode]


SIDE = ["--memory", "0.6", "--tokens", "20000", "--requests", "32"]  # fixed: others use the GPU


def begin_beside(limit, title, mode, folder, *more, **options):
    """Begin a start of the model in a folder while others use the GPU, too."""
    return begin(limit, title, mode, folder, *SIDE, "--model", model_in(folder), *more, **options)


def side(more, limit):
    """Print the times of a plain and a first start, side by side, then of a plain one with the
    caches that they filled, and of a later one. These import beside the others. Each runs its
    engine alone.
    """
    from engine_child import together
    with tempfile.TemporaryDirectory() as folder:
        both = [begin(limit, title, mode, folder, *SIDE, *more)
                for title, mode in (("plain", "plain"), ("first", "first"))]
        alone = [begin(limit, title, mode, folder, *SIDE, *more, gate=True)
                 for title, mode in (("later", "next"), ("plain, warm", "plain"))]
        found = together(both, alone)
    return shown(found)


def shown(found):
    """Print a table of starts. Return what is as it should be."""
    show_table(tuple(found), found.values(), ROWS, "Foundry, ")
    starts = list(found.values())
    return [*starts, *equal_answers(starts, ASKED), nothing_done(found["later"]),
            starts[0].get("alone", {}).get("different", 0) > 1]


def table(more, limit):
    """Print the times of a plain start, a first and a later one, with caches. --pair: without the
    plain one. --cold: before them, those of a plain start without caches. FlashInfer's caches are
    valid at their own path alone.
    """
    kinds = {"plain": "plain", "first": "first", "later": "next"}
    if "--pair" in more:
        del kinds["plain"]
    if "--cold" in more:
        kinds = {"plain, cold": "plain", **kinds}
    more = [each for each in more if each not in ("--pair", "--cold")]
    with tempfile.TemporaryDirectory() as folder:
        found = {title: start(limit, mode, folder, *more) for title, mode in kinds.items()}
    return shown(found)


def whole(more, limit):
    """A first start and a plain one, then a later start without their caches, and one with its own.

    All succeed, with the answers of plain SGLang. The later ones neither warm up nor capture nor
    compile, not even for requests. Each begins its engine when the one before has ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        begun = [begin(limit, title, mode, folder, *more, gate=True,
                       **strict("SGLANG", mode))
                 for title, mode in STARTS.items()]
        caches = os.path.join(folder, "caches")
        return first_and_later(begun, lambda: shutil.rmtree(caches, ignore_errors=True), ASKED)


def run(more):
    import engine_child
    import parts
    parts.need("sglang")
    limit = engine_child.Limit(more, 600)
    for option, function in (("--table", table), ("--side", side)):
        if option in more:
            more.remove(option)
            parts.finish(function(more, limit))
    parts.finish(whole(more, limit))


if __name__ == "__main__":
    if "--mode" in sys.argv:
        main()
    else:
        run(sys.argv[1:])
