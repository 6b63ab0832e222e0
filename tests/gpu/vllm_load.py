#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vLLM under load: the answers and the speed of a later start beside those of plain vLLM.

    python3 tests/gpu/vllm_load.py [--requests 1000] [--rate 150] [--rounds 3] [--invariant]
                                   [--mode3] [--limit SECONDS]

First, requests of many lengths arrive at once, in batches of several sizes, with chunked prefill,
prefix caching and seeded sampling. Tokens and logprobs of plain vLLM, a first and a later start
must be equal, bit for bit.

All engines import side by side. When the first start has answered, the later one begins. Then two
plain engines and one of the later start live side by side.

Requests arrive between the engines' steps, at drawn numbers of steps. So engines of any speed see
the same batches, in which prompts and answers of many lengths are mixed. Tokens and logprobs must
be equal again, and so must the batches.

Then the engines serve the same timed requests in turns, while the others are idle. Batches depend
on the time there, so answers may differ even between two plain engines. The test prints throughput
and latencies of each turn, and how many of its first batches are those of other turns. With
--invariant, vLLM runs in its batch-invariant mode, and all answers to timed requests must be equal.
With --mode3, vLLM compiles the model, its default; each engine but the later one does so itself.
When the limit is reached, the script ends the engines and prints what it has.
"""
import argparse
import collections
import faulthandler
import itertools
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import vllm_start

BATCHES = (1, 2, 7, 32, 100)
KV_BYTES = 8 << 30
SEQS = 64


DEFAULTS = {"mode": 3, "cudagraph_mode": "FULL_AND_PIECEWISE"}
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT")


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--mode", choices=("plain", "first", "next"))
    p.add_argument("--model")
    p.add_argument("--requests", type=int, default=1000)
    p.add_argument("--rate", type=float, default=150, help="requests a second")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--limit", type=float, default=280,
                   help="seconds, then an engine ends with a traceback")
    p.add_argument("--invariant", action="store_true",
                   help="vLLM's batch-invariant mode: all answers are equal")
    p.add_argument("--mode3", action="store_true",
                   help="vLLM's defaults: torch.compile, and graphs of pieces and of all")
    p.add_argument("--caches", help="the folder of all caches")
    return p.parse_args()


def request(rng, longest):
    """Return a prompt and the settings of its answer. Half of the prompts begin like others."""
    prompt = [rng.randrange(100000) for _ in range(rng.choice((3, 17, 60, 200, longest)))]
    if rng.random() < 0.5:
        prompt = [1000 * rng.randrange(4) + i for i in range(96)] + prompt
    greedy = rng.random() < 0.4
    return prompt, {"max_tokens": rng.randrange(8, 96), "ignore_eos": True, "detokenize": False,
                    "temperature": 0.0 if greedy else 0.8, "top_p": 1.0 if greedy else 0.9,
                    "seed": None if greedy else rng.randrange(1 << 30)}


def answer(out):
    """The tokens and logprobs of an answer, comparable to the bit."""
    one = out.outputs[0]
    return list(one.token_ids), [sorted((t, repr(p.logprob)) for t, p in step.items())
                                 for step in one.logprobs]


class Engine:
    """An engine of vLLM in this process."""

    def __init__(self, a):
        from vllm import LLM, SamplingParams
        vllm_start.waited()
        self.began = time.monotonic()
        self.params = SamplingParams
        self.llm = LLM(model=a.model, load_format="dummy", skip_tokenizer_init=True,
                       dtype="bfloat16", max_model_len=2048, max_num_seqs=SEQS,
                       max_num_batched_tokens=512, enable_chunked_prefill=True,
                       enable_prefix_caching=True, kv_cache_memory_bytes=KV_BYTES,
                       gpu_memory_utilization=0.2,
                       attention_backend="FLASH_ATTN", seed=0,
                       compilation_config=DEFAULTS if a.mode3 else
                       {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"})

        self.batches = []  # for each step that ran a batch: how many tokens of how many requests
        scheduler = self.llm.llm_engine.engine_core.engine_core.scheduler
        schedule = scheduler.schedule

        def noted(*args, **kwargs):
            found = schedule(*args, **kwargs)
            if found.total_num_scheduled_tokens:
                self.batches.append(tuple(sorted(found.num_scheduled_tokens.values())))
            return found
        scheduler.schedule = noted

    def at_once(self, _a, _turn):
        """Return a digest of tokens and logprobs for each size of batch."""
        found = {}
        for size in BATCHES:
            rng = random.Random(size)
            asked = [request(rng, 1200) for _ in range(size)]
            out = self.llm.generate(
                [{"prompt_token_ids": prompt} for prompt, _ in asked],
                [self.params(logprobs=2, **each) for _, each in asked], use_tqdm=False)
            found[size] = vllm_start.digest(list(map(answer, out)))
        return found

    def arrivals(self, turn, seed, count, rate, **more):
        """Forget earlier prompts and batches. Return when each of `count` requests arrives, at
        `rate` of them per unit of time on average, and the arguments of add_request().
        """
        self.llm.reset_prefix_cache()
        self.batches.clear()
        rng, asked, at = random.Random(seed), [], 0.0
        for i in range(count):
            at += rng.expovariate(rate)
            prompt, each = request(rng, 400)
            asked.append((at, f"{turn}-{i}", {"prompt_token_ids": prompt},
                          self.params(**each, **more)))
        return asked

    def by_steps(self, a, turn):
        """Serve requests that arrive at drawn steps. Return digests of the answers, in their order,
        and of the batches.
        """
        engine = self.llm.llm_engine
        asked = self.arrivals(turn, 2, a.requests // 2, 0.9, logprobs=2)
        answers, i = {}, 0
        while i < len(asked) or engine.has_unfinished_requests():
            while i < len(asked) and (asked[i][0] <= len(self.batches)
                                      or not engine.has_unfinished_requests()):
                engine.add_request(*asked[i][1:])
                i += 1
            for out in engine.step():
                if out.finished:
                    answers[out.request_id] = vllm_start.digest(answer(out))
        return {"answers": [answers[name] for _, name, _, _ in asked],
                "batches": vllm_start.digest(self.batches), "steps": len(self.batches),
                "mixed": sum(each[0] == 1 < each[-1] for each in self.batches),
                "sizes": len({len(each) for each in self.batches})}

    def timed(self, a, turn):
        """Serve requests that arrive at random times. Return what a user would measure."""
        engine = self.llm.llm_engine
        asked = self.arrivals(turn, 1, a.requests, a.rate)
        first, last, tokens = {}, {}, {}
        start, i = time.monotonic(), 0
        while i < len(asked) or engine.has_unfinished_requests():
            now = time.monotonic() - start
            while i < len(asked) and asked[i][0] <= now:
                engine.add_request(*asked[i][1:])
                i += 1
            if not engine.has_unfinished_requests():
                time.sleep(0.0005)
                continue
            for out in engine.step():
                now = time.monotonic() - start
                first.setdefault(out.request_id, now)
                if out.finished:
                    last[out.request_id] = now
                    tokens[out.request_id] = list(out.outputs[0].token_ids)
        took = time.monotonic() - start
        begin = {name: at for at, name, _, _ in asked}
        wait = sorted(first[name] - begin[name] for name in begin)
        whole = sorted(last[name] - begin[name] for name in begin)
        return {"tokens a second": sum(map(len, tokens.values())) / took,
                "requests a second": a.requests / took,
                "first token p50": wait[len(wait) // 2] * 1e3,
                "first token p99": wait[len(wait) * 99 // 100] * 1e3,
                "answer p50": whole[len(whole) // 2] * 1e3,
                "answer p99": whole[len(whole) * 99 // 100] * 1e3,
                "answers": [vllm_start.digest(tokens[name]) for name in begin],
                "batches": list(map(vllm_start.digest, self.batches))}


def serve(a):
    """Do what standard input says, one word a line; each result is a line of JSON."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(a.limit, exit=True)
    for key, value in {**vllm_start.SETTINGS, "VLLM_USE_V2_MODEL_RUNNER": "1"}.items():
        os.environ.setdefault(key, value)
    if a.invariant:
        os.environ["VLLM_BATCH_INVARIANT"] = "1"
    for name in CACHES:
        os.environ[name] = os.path.join(a.caches, name)
    if a.mode != "plain":
        os.environ["FOUNDRY_VLLM"] = "load-test"
    vllm_start.plug_in()
    engine = Engine(a)

    def say(found):
        print("@" + json.dumps(found), flush=True)
    say({"engine": time.monotonic() - engine.began, **vllm_start.notes()})
    turn = 0
    for line in sys.stdin:
        turn += 1
        serve_turn = {"at once": engine.at_once, "by steps": engine.by_steps,
                      "timed": engine.timed}[line.strip()]
        say(serve_turn(a, turn))


class Child:
    """An engine in a process of its own."""

    def __init__(self, name, folder, end, compiles):
        self.name, self.end = name, end
        self.gate = os.path.join(folder, "gate") if name == "next" else ""
        mode = name.partition(" ")[0]
        pre = [] if mode == "plain" else ["-m", "foundry", "run"]
        self.process = subprocess.Popen(
            [sys.executable, *pre, os.path.abspath(__file__), "--mode", mode, "--model", folder,
             "--caches", os.path.join(folder, "caches", name if compiles else "of all"),
             *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
            env={**os.environ, "FOUNDRY_STORE": os.path.join(folder, "store"),
                 "ENGINE_START_GATE": self.gate})
        self.tail, self.results = collections.deque(maxlen=60), queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("@"):
                self.results.put(json.loads(line[1:]))
                continue
            self.tail.append(line[:300].rstrip())
            if "Foundry: " in line and "; seconds:" in line:
                print(f"{self.name}: {line[:700]}", end="", flush=True)
        self.results.put({})  # it has ended

    def result(self):
        """Return its next result; nothing if it has ended, or if the time is over."""
        try:
            found = self.results.get(timeout=max(0, self.end - time.monotonic()))
        except queue.Empty:
            found = {}
            print(f"{self.name}: the time is over", flush=True)
        if not found:
            print("\n".join([f"--- the end of the log of {self.name}", *self.tail]), flush=True)
            self.tail.clear()
            self.results.put({})
        return found

    def say(self, what):
        try:
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended

    def ask(self, what):
        self.say(what)
        return self.result()

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all have ended
        self.process.wait()

    def close(self):
        """Return whether it ends well."""
        try:
            self.process.stdin.close()
        except OSError:
            pass  # it has ended
        try:
            return self.process.wait(max(0, self.end - time.monotonic())) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.kill()


def show(mode, found):
    numbers = " ".join(f"{found.get(name, 0):>16.1f}" for name in COLUMNS)
    print(f"{mode:8} {numbers}", flush=True)


COLUMNS = ("tokens a second", "requests a second", "first token p50", "first token p99",
           "answer p50", "answer p99")


def compare(answers):
    """Print how many answers to timed requests are equal, in pairs of turns. Return whether all
    are.
    """
    for one, other in (("plain 1", "plain 2"), ("plain 1", "next"), ("plain 2", "next"),
                       ("next", "next"), ("plain 1", "plain 1")):
        for x, y in (itertools.combinations(answers[one], 2) if one == other else
                     itertools.product(answers[one], answers[other])):
            equal = sum(map(str.__eq__, x["answers"], y["answers"])) / len(x["answers"])
            batches = x["batches"], y["batches"]
            print(f"{one} and {other}: {100 * equal:.1f} % of the answers are equal, and the first "
                  f"{len(os.path.commonprefix(batches))} of {len(batches[0])} and "
                  f"{len(batches[1])} batches", flush=True)
    every = [each["answers"] for found in answers.values() for each in found]
    return bool(every) and all(each and each == every[0] for each in every)


def steps(children):
    """Let the engines serve requests that arrive at drawn steps. Return whether each had the
    batches and the answers of the first.
    """
    found = {child.name: child.ask("by steps") for child in children}
    one = found[children[0].name]
    for name, each in found.items():
        if each and one:
            equal = sum(map(str.__eq__, each["answers"], one["answers"]))
            print(f"by steps, {name}: {each['steps']} batches {each['batches']} of "
                  f"{each['sizes']} sizes, {each['mixed']} of them mixed; {equal} of "
                  f"{len(one['answers'])} answers are those of {children[0].name}", flush=True)
    return [bool(each) and each == one for each in found.values()]


def turns(a, children):
    """Let the engines serve timed requests in turns. Return whether each turn was served and, with
    --invariant, whether all answers are equal.
    """
    print(f"{'':8} " + " ".join(f"{name:>16}" for name in COLUMNS), flush=True)
    answers = {child.name: [] for child in children}
    for _ in range(a.rounds):
        for child in children:
            found = child.ask("timed")
            if found:
                show(child.name, found)
                answers[child.name].append(found)
    same = compare(answers)
    return [*(len(found) == a.rounds for found in answers.values()), same or not a.invariant]


def whole(a, folder, end):
    """Return what is as it should be, as a list."""
    children = [Child(name, folder, end, a.mode3 and name.startswith("plain"))
                for name in ("first", "plain 1", "next", "plain 2")]
    first, later = children[0], children[2]
    try:
        noted, at_once = {}, {}
        for child in children:
            if child is not later:
                noted[child.name] = child.result()
                child.say("at once")
        at_once["first"] = first.result()
        ended = first.close()
        open(later.gate, "w", encoding="utf-8").close()
        noted[later.name] = later.result()
        later.say("at once")
        for child in children[1:]:
            at_once[child.name] = child.result()
        for name, each in noted.items():
            print(name, json.dumps(each), flush=True)
        for name, each in at_once.items():
            print(f"at once, {name}: {each}", flush=True)
        good = [*steps(children[1:]), *turns(a, children[1:])]
        closed = [child.close() for child in children[1:]]
    finally:
        for child in children:
            child.kill()
    counts = noted["next"].get("counts", {"captures": 1})
    return [ended, *closed, *good, *(bool(each) and each == at_once["plain 1"]
                                     for each in at_once.values()),
            not counts["captures"] and not counts.get("profiles")]


def main():
    a = arguments()
    if a.mode:
        serve(a)
        return
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.join(here, os.pardir, "python"))
    import engine_child
    import parts
    parts.need("vllm")
    limit = engine_child.Limit(sys.argv[1:], a.limit)  # also if a signal ends this script
    with tempfile.TemporaryDirectory() as folder:
        vllm_start.write_model(folder, vllm_start.QWEN3)
        good = whole(a, folder, limit.end)
    parts.finish(good)


if __name__ == "__main__":
    main()
