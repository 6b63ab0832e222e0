#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM with dummy weights: times, counters, digests of the tokens.

    python3 tests/gpu/vllm_start.py [--profile]    # four starts; all tokens are equal
    python3 tests/gpu/vllm_start.py --table [--pair] [--big] [--mode3]    # a table of times
    python3 tests/gpu/vllm_start.py --side [--big] [--profile]    # modes 0 and 3: see side()
    python3 -m foundry run tests/gpu/vllm_start.py --mode first|next --model DIR
    python3 tests/gpu/vllm_start.py --mode plain --model DIR

DIR holds the configuration of a model. The mode sets FOUNDRY_VLLM, except for plain. FOUNDRY_STORE
names the store. --caches DIR lets all compilers keep their files in DIR. With --processes, vLLM
starts its engine core as a process of its own, and with --ranks N also a worker on each of N GPUs.
The weights are scaled so that different prompts give different tokens. The last line is a JSON
object. With --limit SECONDS, it ends its starts then, and prints what it has.
"""
import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import engine_start  # noqa: E402
from engine_start import (BIG, QWEN3, STARTS, Notes, age, digest, entry_points,  # noqa: E402
                          equal_answers, first_and_later, limit_time, model_in, notes, pretend,
                          scale, show_table, strict, waited, write_model)

BEGIN = time.monotonic()
SETTINGS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_DEEP_GEMM": "0",
            "VLLM_LOGGING_LEVEL": "INFO"}
# The variables that name the folders of the compilers.
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT", "TVM_FFI_CACHE_DIR",
          "FLASHINFER_WORKSPACE_BASE")
# What no later start does.
ZERO = ("profiles", "captures", "triton", "ninja", "Dynamo", "Inductor", "graphs captured")
# Ranks share NCCL's collectives alone, without multicast memory.
ONE_WAY = {"VLLM_ALLREDUCE_USE_SYMM_MEM": "0", "NCCL_NVLS_ENABLE": "0"}
# vLLM's default, but for measurements: which kernels to combine, with which blocks, and which of
# several ways to compute a kernel.
UNMEASURED = {"combo_kernels": True, "benchmark_combo_kernel": False, "combo_kernels_autotune": 0,
              "deterministic": True}
LOADED = "the time at which the weights were in place"
PHASES = {"init_device": "device", "load_model": "weights",
          "determine_available_memory": "profile", "initialize_from_config": "kv cache",
          "compile_or_warm_up_model": "warm-up, capture or load"}


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=("plain", "first", "next"), required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--seqs", type=int, default=32)
    p.add_argument("--util", type=float, default=0.5)
    p.add_argument("--backend", default="FLASH_ATTN")
    p.add_argument("--flashinfer", metavar="DIR",
                   help="sample with FlashInfer, as vLLM does by default; its modules are in DIR")
    p.add_argument("--prefix", action="store_true", help="share the KV cache of equal prefixes")
    p.add_argument("--processes", action="store_true")
    p.add_argument("--ranks", type=int, default=1, help="GPUs, by tensor parallelism")
    p.add_argument("--limit", type=float, default=140,
                   help="seconds, then it ends with a traceback")
    p.add_argument("--compile", type=int, default=0)
    p.add_argument("--graphs", default="FULL_DECODE_ONLY")
    p.add_argument("--caches", help="the folder of all caches")
    p.add_argument("--mode3", action="store_true",
                   help="vLLM's defaults: torch.compile, and graphs of pieces and of all")
    p.add_argument("--unmeasured", action="store_true",
                   help="Inductor chooses its kernels without measuring which is fastest")
    p.add_argument("--runner", choices=("V1", "V2"), default="V2")
    p.add_argument("--answers", help="a file for all tokens and logprobs")
    p.add_argument("--weights", default="dummy", help="vLLM's load format; DIR has the files")
    p.add_argument("--quantization", help="how vLLM quantizes weights while it loads them")
    p.add_argument("--deep-gemm", action="store_true", help="let vLLM use DeepGEMM")
    p.add_argument("--no-machete", action="store_true",
                   help="let vLLM use Marlin for integers in place of Machete")
    p.add_argument("--kv-type", default="auto", help="the type of the KV cache")
    p.add_argument("--kv", type=int, help="bytes of the KV cache; default: by profiling")
    p.add_argument("--profile", action="store_true",
                   help="print where the engine and the first token spend their time")
    a = p.parse_args()
    if a.mode3:
        a.compile, a.graphs = 3, "FULL_AND_PIECEWISE"
    a.processes = a.processes or a.ranks > 1
    return a


ENTRY_POINTS = ("[vllm.general_plugins]\nfoundry = foundry.vllm:register\n"
                "watch = vllm_start:watch\n")


def cache_folders(folder):
    """Return the variables that let all compilers keep their files in a folder."""
    return {name: os.path.join(folder, name) for name in CACHES}


def plug_in():
    """Let vLLM find, in all of its processes, the plug-in of this tree, and that of this test."""
    entry_points(__file__, ENTRY_POINTS)


class Watch(Notes):
    """Notes of a start: seconds of its phases, and how often it compiles, profiles, captures."""

    def __init__(self):
        super().__init__(profiles=0, captures=0, triton=0, ninja=0)

    def write(self):
        from vllm.compilation.counter import compilation_counter as compiled
        with self.lock:
            self.counts.update({
                "Dynamo": compiled.num_aot_compiles,
                "Inductor": compiled.num_compiled_artifacts_saved,
                "pieces searched": compiled.num_inductor_compiles,
                "code loaded": compiled.num_aot_artifacts_loaded,
                "graphs captured": compiled.num_cudagraph_captured})
            super().write()

    def install(self):
        import torch
        if os.environ.get("VLLM_USE_V2_MODEL_RUNNER", "1") == "1":
            from vllm.v1.worker.gpu.model_runner import GPUModelRunner
        else:
            from vllm.v1.worker.gpu_model_runner import GPUModelRunner
        from vllm.v1.worker.gpu_worker import Worker
        self.count(GPUModelRunner, "profile_run", "profiles")
        self.count(torch.cuda.graph, "__enter__", "captures")
        self.count_triton("triton")
        if importlib.util.find_spec("flashinfer"):
            from flashinfer.jit import core
            self.count(core, "run_ninja", "ninja")
        original = GPUModelRunner.load_model

        def load_model(this, *args, **kwargs):
            original(this, *args, **kwargs)
            if os.environ.get("VLLM_START_SCALE", "1") == "1":
                scale(this.model)
            start = time.monotonic()
            torch.cuda.synchronize()
            self.seconds[LOADED] = time.monotonic()  # the same clock in all processes
            self.seconds["weights, the GPU's rest"] = round(self.seconds[LOADED] - start, 3)
        GPUModelRunner.load_model = load_model
        for name, shown in PHASES.items():
            self.times(Worker, name, shown)
        self.triton()
        from vllm.v1.worker import gpu_worker
        warm_up = gpu_worker.warmup_kernels

        def warmup_kernels(*args, **kwargs):
            start, before = time.monotonic(), dict(self.kernels)
            warm_up(*args, **kwargs)
            self.seconds["warm-up after capture"] = round(time.monotonic() - start, 3)
            self.seconds["of it Triton"] = {
                key: round(self.kernels[key] - before[key], 3) for key in before}
            self.write()
        gpu_worker.warmup_kernels = warmup_kernels
        if os.environ.get("FOUNDRY_VLLM"):
            self.sessions()

    def sessions(self):
        """Note the seconds of Foundry's phases and steps."""
        from foundry.engines import ahead, session
        from foundry.vllm import facts, worker
        for owner, name, shown in (
                (worker.Session, "begin_worker", "begin"), (facts, "early", "begin: facts"),
                (facts, "source", "begin: source"), (session, "Capture", "begin: region"),
                (worker.Session, "begin_caches", "begin: caches"),
                (ahead, "begin", "begin: ahead"), (facts, "late", "ready: facts"),
                (worker.Session, "layout", "ready: layout"),
                (worker.Session, "load_failed", "ready: load"),
                (worker.Session, "fill_tables", "ready: tables")):
            self.times(owner, name, f"Foundry, {shown}")
        original = worker.Session.summary

        def summary(session_of):
            original(session_of)
            self.seconds["of Foundry"] = {
                name: round(value, 3) for name, value in session_of.seconds.items()
                if name not in PHASES}
            self.write()
        worker.Session.summary = summary

    kernels = {"compile or read": 0, "load": 0, "loads": 0}

    def triton(self):
        """Add up the time in which Triton finds and loads its kernels."""
        from triton.compiler import compiler
        from triton.runtime import jit
        find, load = jit.JITFunction._do_compile, compiler.CompiledKernel._init_handles

        def timed(original, name):
            def inner(this, *args, **kwargs):
                new = name == "load" and this.module is None
                start = time.monotonic()
                try:
                    return original(this, *args, **kwargs)
                finally:
                    self.kernels[name] += time.monotonic() - start
                    self.kernels["loads"] += new
            return inner
        jit.JITFunction._do_compile = timed(find, "compile or read")
        compiler.CompiledKernel._init_handles = timed(load, "load")


def inductor(a):
    """Return the settings of a start for Inductor. a: the options."""
    return {"inductor_compile_config": UNMEASURED} if a.unmeasured else {}


def watch():
    """Watch a process of vLLM: the entry point of this test."""
    Watch().install()
    if os.environ.get("FOUNDRY_VLLM"):
        from foundry.vllm import facts
        pretend(facts)


def main():
    import sampling  # plug_in() takes its folder out of the path
    a = arguments()
    limit_time(a.limit)
    if a.deep_gemm:
        os.environ["VLLM_USE_DEEP_GEMM"] = "1"
    if a.no_machete:
        os.environ["VLLM_DISABLED_KERNELS"] = "MacheteLinearKernel"
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    if a.mode != "plain":
        os.environ.setdefault("FOUNDRY_VLLM", "test")
    if a.processes:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    if a.ranks > 1:
        os.environ.update(ONE_WAY)
    if a.caches:
        os.environ.update(cache_folders(a.caches))
    if a.flashinfer:
        os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "1"
        os.environ["FLASHINFER_WORKSPACE_BASE"] = a.flashinfer
    os.environ["VLLM_START_SCALE"] = str(int(a.weights == "dummy"))
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(a.runner == "V2"))
    compiler = inductor(a)
    plug_in()
    from vllm import LLM, SamplingParams
    imported = time.monotonic()
    wait = waited()
    with sampling.shown("engine") if a.profile else contextlib.nullcontext():
        llm = LLM(model=a.model, load_format=a.weights, skip_tokenizer_init=True, dtype="bfloat16",
                  max_model_len=2048, max_num_seqs=a.seqs, gpu_memory_utilization=a.util,
                  attention_backend=a.backend, seed=0, enable_prefix_caching=a.prefix,
                  quantization=a.quantization, kv_cache_dtype=a.kv_type,
                  kv_cache_memory_bytes=a.kv, tensor_parallel_size=a.ranks,
                  # With more, the warm-up compiles kernels of DeepGEMM for ten minutes.
                  max_num_batched_tokens=256 if a.deep_gemm else None,
                  disable_custom_all_reduce=a.ranks > 1,
                  compilation_config={
                      "mode": a.compile, "cudagraph_mode": a.graphs, **compiler})
    ready = time.monotonic()
    ask = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True, detokenize=False)
    with sampling.shown("first token") if a.profile else contextlib.nullcontext():
        llm.generate([{"prompt_token_ids": [1, 2, 3]}], ask, use_tqdm=False)
    first, since_start = time.monotonic(), age()
    noted = notes()
    print(json.dumps({
        "mode": a.mode, "imports": round(imported - BEGIN, 2),
        "engine": round(ready - imported - wait, 2), "first token": round(first - ready, 3),
        "weights to ready": round(ready - noted.pop(LOADED), 3),
        "compile": round(llm.llm_engine.vllm_config.compilation_config.compilation_time, 3),
        "first token since the process began": round(since_start - wait, 2), **noted,
        "blocks": llm.llm_engine.vllm_config.cache_config.num_gpu_blocks,
        **tokens(llm, SamplingParams, a.answers), "counts after": notes()["counts"]}), flush=True)
    engine_start.serve_on(a.mode)


def tokens(llm, params, path=None):
    """Digests of tokens and of logprobs of prompts of many lengths: greedy, sampled, and each by
    itself, which does not depend on when requests arrive; then prompts of 1,900 tokens each, more
    than a step takes. And the tokens a second of full batches.
    path: of a file for all of them.
    """
    prompts = [{"prompt_token_ids": [(17 * i + 13 * j) % 150000 for j in range(5 + 11 * i)]}
               for i in range(9)]
    long = [{"prompt_token_ids": (each["prompt_token_ids"] * 400)[:1900]} for each in prompts]
    found, whole_answers = {}, {}
    for name, batches, more in (
            ("greedy", [prompts], {"temperature": 0.0}),
            ("sampled", [prompts], {"temperature": 1.0, "seed": 7, "top_k": 50}),
            ("alone", [[p] for p in prompts], {"temperature": 1.0, "seed": 7, "top_k": 50}),
            ("long", [long], {"temperature": 0.0})):
        ask = params(max_tokens=32, ignore_eos=True, detokenize=False, logprobs=3, **more)
        start = time.monotonic()
        out = [o.outputs[0] for batch in batches
               for o in llm.generate(batch, ask, use_tqdm=False)]
        each = [list(o.token_ids) for o in out]
        chances = [[sorted((t, repr(p.logprob)) for t, p in step.items()) for step in o.logprobs]
                   for o in out]
        found[name] = {"tokens": digest(each), "logprobs": digest(chances),
                       "different": len(set(map(tuple, each))), "first": each[0][:6],
                       "seconds": round(time.monotonic() - start, 3)}
        whole_answers[name] = {"tokens": each, "logprobs": chances}
    if path:
        with open(path, "w", encoding="ascii") as f:
            json.dump(whole_answers, f)
    ask = params(max_tokens=256, temperature=0.0, ignore_eos=True, detokenize=False)
    found["tokens a second"] = []
    for _ in range(3):
        start = time.monotonic()
        llm.generate([{"prompt_token_ids": [i + 1, 2, 3]} for i in range(32)], ask, use_tqdm=False)
        found["tokens a second"].append(round(32 * 256 / (time.monotonic() - start)))
    return found


def begin(limit, title, mode, folder, *more, **options):
    """Begin a start of the model in a folder, as engine_start.begin() does."""
    return engine_start.begin(__file__, limit, title, mode, folder, "--model", model_in(folder),
                              *more, **options)


def start(mode, folder, *more, limit=None):
    """The output of one start in a process of its own; nothing if it fails."""
    from engine_child import Limit
    begun = begin(limit or Limit([], 300), mode, mode, folder, *more)
    try:
        return begun.result("--profile" in more)
    finally:
        begun.kill()


def nothing_done(one):
    """Return whether a start neither profiled nor captured nor compiled."""
    return engine_start.nothing_done(one, ZERO)


def whole(more, limit):
    """A first start and a plain one, then a later start without their caches, and one with its own.

    All succeed, with the answers of plain vLLM. The later ones neither profile nor capture nor
    compile, not even for requests. Each begins its engine when the one before has ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, QWEN3)
        begun = [begin(limit, title, mode, folder, *more, gate=True, **strict("VLLM", mode))
                 for title, mode in STARTS.items()]

        def remove():
            for i, path in enumerate(removed(folder, more)):
                shutil.move(path, os.path.join(folder, f"removed-{i}"))
        good = first_and_later(begun, remove, asked(more), ZERO)
        if "--profile" in more:
            print(*(one.log() for one in begun[1:]), flush=True)
    return good


def removed(folder, more):
    """Return the folders of caches that another host does not have."""
    found = [os.path.join(folder, "caches")]
    if "--flashinfer" in more:
        found.append(more[more.index("--flashinfer") + 1])
    return list(filter(os.path.isdir, found))


ASKED = ("greedy", "sampled", "alone")


def asked(more):
    """Return which answers of starts with the options `more` are equal. An engine core in a process
    of its own gets requests one by one, so its batches depend on the time.
    """
    ranks = more[more.index("--ranks") + 1] if "--ranks" in more else "1"
    return ("alone",) if "--processes" in more or ranks != "1" else (*ASKED, "long")


ROWS = ("imports", "device", "weights", "profile", "compile", "kv cache",
        "warm-up, capture or load", "warm-up after capture", "weights to ready", "engine",
        "first token", "first token since the process began")
SIDE = ("--kv", str(4 << 30), "--util", "0.1")  # fixed: others use the GPU at the same time
MODES = {"0": (), "3": ("--mode3",)}


def begin_beside(*start, **options):
    """Begin a start while others use the GPU, too."""
    return begin(*start, *SIDE, **options)


def side(more, limit):
    """Print the times of a plain and a first start of modes 0 and 3, all side by side, then of a
    later one of each, and of a plain one with the caches that they filled. These import beside the
    others. Each runs its engine alone. --profile: at the end, profile a later one of each mode.
    """
    from engine_child import together
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, BIG if "--big" in more else QWEN3)
        profile = [each for each in more if each == "--profile"]
        more = [each for each in more if each not in ("--big", "--profile")]

        def one(title, mode, kind, gate, *also):
            return begin(limit, f"{title} {mode}", kind, folder, *SIDE, *MODES[mode], *more, *also,
                         gate=gate, place=f"{mode}-" + title.partition(",")[0].replace(
                             "later", "first"), **strict("VLLM", kind))
        both = [one(title, mode, title, False) for mode in MODES for title in ("plain", "first")]
        alone = [one(title, mode, kind, True) for title, kind in (
            ("later", "next"), ("plain, warm", "plain")) for mode in MODES]
        profiled_ones = [one("later, profiled", mode, "next", True, option)
                         for mode in MODES for option in profile]
        found = together(both, alone + profiled_ones)
        print(*(each.log() for each in profiled_ones), flush=True)
    return [good for mode in MODES for good in shown(
        {title: each for title, each in found.items() if mode in title}, more)]


def shown(found, more):
    """Print a table of starts. Return what is as it should be.

    By default Inductor measures which kernels are fastest, so starts that compile may have other
    kernels, and logprobs: then only the answers of first and later starts must be equal.
    """
    show_table(tuple(found), found.values(), ROWS, "Foundry, ")
    starts = list(found.values())
    different = starts[0].get("greedy", {}).get("different", 0)
    print(f"9 prompts gave {different} different answers", flush=True)
    compared = starts
    if "--unmeasured" not in more and any(
            one.get("counts", {}).get("pieces searched") for one in starts):
        compared = [one for title, one in found.items() if "plain" not in title]
        for title in (title for title in found if "plain" in title):
            equal, = equal_answers([compared[0], found[title]], asked(more))
            print(f"{title}: answers as the first start: {'yes' if equal else 'no'}", flush=True)
    return [*starts, *equal_answers(compared, asked(more)), different > 1,
            *(nothing_done(one) for title, one in found.items() if "later" in title)]


def table(more, limit):
    """A plain start without caches, one with caches, a first and a later start: their times.
    --pair: without the plain ones.
    """
    config = BIG if "--big" in more else QWEN3
    kinds = {"plain, cold": "plain", "plain, warm": "plain", "first": "first", "later": "next"}
    if "--pair" in more:
        kinds = {"first": "first", "later": "next"}
    more = [each for each in more if each not in ("--big", "--pair")]
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, config)
        found = {title: start(mode, folder, *more, limit=limit) for title, mode in kinds.items()}
    return shown(found, more)


def run(more):
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.join(here, os.pardir, "python"))
    import engine_child
    import parts
    parts.need("vllm")
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
