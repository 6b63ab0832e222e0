#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vLLM under load: the answers and the speed of a later start beside those of plain vLLM.

    python3 tests/gpu/vllm_load.py [--requests 1000] [--rate 150] [--rounds 3] [--steps 3]
                                   [--later 1] [--invariant] [--mode3 [--unmeasured]] [--big]
                                   [--runner V1] [--profile] [--limit SECONDS]

First, requests of many lengths arrive at once, in batches of several sizes, with chunked prefill,
prefix caching and seeded sampling. Tokens and logprobs of plain vLLM, a first and a later start
must be equal, bit for bit.

All engines import side by side. When the first start has answered, the later ones begin. Then two
plain engines and those of later starts live side by side.

Requests arrive between the engines' steps, at drawn numbers of steps. So engines of any speed see
the same batches, in which prompts and answers of many lengths are mixed. Tokens and logprobs must
be equal again, and so must the batches. The engines do this in --steps turns, and the test prints
what a step costs: that is the same work in every turn. With --profile, each engine does it once
more under Python's profiler, and the test prints which functions take longer in a later start.

Then the engines serve the same timed requests in turns, while the others are idle. Batches depend
on the time there, so answers may differ even between two plain engines. The test prints throughput
and latencies of each turn, and how many of its first batches are those of other turns. With
--invariant, vLLM runs in its batch-invariant mode, and all answers to timed requests must be equal.
With --mode3, vLLM compiles the model, its default; each engine but the later ones does so itself,
and with --unmeasured, Inductor does not measure which kernels are fastest. With --big, the model
has 16.4 GB of dummy weights. When the limit is reached, the script ends the engines and prints what
it has.
"""
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import engine_load  # noqa: E402
import engine_start  # noqa: E402
import vllm_start  # noqa: E402

KV_BYTES = 8 << 30
SEQS = 64
DEFAULTS = {"mode": 3, "cudagraph_mode": "FULL_AND_PIECEWISE"}


def arguments():
    p = engine_load.parser(280)
    p.add_argument("--invariant", action="store_true",
                   help="vLLM's batch-invariant mode: all answers are equal")
    p.add_argument("--steps", type=int, default=3, help="turns with equal batches")
    p.add_argument("--profile", action="store_true",
                   help="compare the time of Python's functions in the later and a plain start")
    p.add_argument("--mode3", action="store_true",
                   help="vLLM's defaults: torch.compile, and graphs of pieces and of all")
    p.add_argument("--unmeasured", action="store_true",
                   help="Inductor chooses its kernels without measuring which is fastest")
    p.add_argument("--big", action="store_true", help="the shape of Qwen3 8B")
    p.add_argument("--runner", choices=("V1", "V2"), default="V2")
    return p.parse_args()


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
        self.a, self.began = a, time.monotonic()
        self.sampling = SamplingParams
        self.llm = LLM(model=a.model, load_format="dummy", skip_tokenizer_init=True,
                       dtype="bfloat16", max_model_len=2048, max_num_seqs=SEQS,
                       max_num_batched_tokens=512, enable_chunked_prefill=True,
                       enable_prefix_caching=True, kv_cache_memory_bytes=KV_BYTES,
                       gpu_memory_utilization=0.2,
                       attention_backend="FLASH_ATTN", seed=0,
                       compilation_config={
                           **(DEFAULTS if a.mode3 else
                              {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}),
                           **a.compiler})

        self.batches = []  # for each step that ran a batch: how many tokens of how many requests
        scheduler = self.llm.llm_engine.engine_core.engine_core.scheduler
        schedule = scheduler.schedule

        def noted(*args, **kwargs):
            found = schedule(*args, **kwargs)
            if found.total_num_scheduled_tokens:
                self.batches.append(tuple(sorted(found.num_scheduled_tokens.values())))
            return found
        scheduler.schedule = noted

    def params(self, tokens, seed, **more):
        """Return the settings of an answer."""
        greedy = seed is None
        return self.sampling(max_tokens=tokens, ignore_eos=True, detokenize=False, seed=seed,
                             temperature=0.0 if greedy else 0.8, top_p=1.0 if greedy else 0.9,
                             **more)

    def at_once(self, _turn):
        """Return a digest of tokens and logprobs for each size of batch."""
        found = {}
        for size in engine_load.BATCHES:
            asked = engine_load.batch(size)
            out = self.llm.generate(
                [{"prompt_token_ids": prompt} for prompt, _, _ in asked],
                [self.params(*each, logprobs=2) for _, *each in asked], use_tqdm=False)
            found[size] = vllm_start.digest(list(map(answer, out)))
        return found

    def arrivals(self, turn, seed, count, rate, **more):
        """Forget earlier prompts and batches. Return when each request arrives, and the arguments
        of add_request().
        """
        self.llm.reset_prefix_cache()
        self.batches.clear()
        return [(at, f"{turn}-{i}", {"prompt_token_ids": prompt}, self.params(*each, **more))
                for i, (at, prompt, *each) in enumerate(engine_load.arrivals(seed, count, rate))]

    def by_steps(self, turn):
        """Serve requests that arrive at drawn steps. Return digests of the answers, in their order,
        and of the batches.
        """
        engine = self.llm.llm_engine
        asked = self.arrivals(turn, 2, self.a.requests // 2, 0.9, logprobs=2)
        answers, i, cost = {}, 0, engine_load.Cost()
        while i < len(asked) or engine.has_unfinished_requests():
            while i < len(asked) and (asked[i][0] <= len(self.batches)
                                      or not engine.has_unfinished_requests()):
                engine.add_request(*asked[i][1:])
                i += 1
            for out in engine.step():
                if out.finished:
                    answers[out.request_id] = vllm_start.digest(answer(out))
        return {"cost": cost.of(len(self.batches)),
                "answers": [answers[name] for _, name, _, _ in asked],
                "batches": vllm_start.digest(self.batches), "steps": len(self.batches),
                "mixed": sum(each[0] == 1 < each[-1] for each in self.batches),
                "sizes": len({len(each) for each in self.batches})}

    def timed(self, turn):
        """Serve requests that arrive at random times. Return what a user would measure."""
        engine = self.llm.llm_engine
        asked = self.arrivals(turn, 1, self.a.requests, self.a.rate)
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
        served = [(at, first[name], last[name], tokens[name]) for at, name, _, _ in asked]
        return {**engine_load.measured(served, took),
                "batches": list(map(vllm_start.digest, self.batches))}


def serve(a):
    """Be an engine that does what standard input says."""
    vllm_start.limit_time(a.limit)
    for key, value in vllm_start.SETTINGS.items():
        os.environ.setdefault(key, value)
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(a.runner == "V2"))
    if a.invariant:
        os.environ["VLLM_BATCH_INVARIANT"] = "1"
    os.environ.update(vllm_start.cache_folders(a.caches))
    if a.mode != "plain":
        os.environ["FOUNDRY_VLLM"] = engine_load.NAME
    os.environ.update(engine_start.strict("VLLM", a.mode))
    a.compiler = vllm_start.inductor(a)
    vllm_start.plug_in()
    engine = Engine(a)
    engine_load.serve(engine.began, {
        "at once": engine.at_once, "by steps": engine.by_steps, "timed": engine.timed,
        "profile": lambda turn: engine_load.profiled(engine.by_steps, turn)})


def steps(children, count, profile):
    """Let the engines serve requests that arrive at drawn steps, in `count` turns. Return whether
    each had the batches and the answers of the first in every turn.

    profile: also compare the time of their functions.
    """
    found, costs = [], {child.name: [] for child in children}
    for child in engine_load.in_turns(children, count):
        each = child.ask("by steps")
        costs[child.name].append(each.pop("cost", {}))
        found.append(each)
        one = found[0]
        if each and one and len(found) <= len(children):
            equal = sum(map(str.__eq__, each["answers"], one["answers"]))
            print(f"by steps, {child.name}: {each['steps']} batches {each['batches']} of "
                  f"{each['sizes']} sizes, {each['mixed']} of them mixed; {equal} of "
                  f"{len(one['answers'])} answers are those of {children[0].name}", flush=True)
    engine_load.costs(costs)
    if profile:
        engine_load.compare_profiles({child.name: child.ask("profile") for child in children})
    return [bool(each) and each == found[0] for each in found]


def whole(a, folder, end):
    """Return what is as it should be, as a list."""
    def begin(name):
        own = name if a.mode3 and name.startswith("plain") else "of all"
        return engine_load.Child(name, folder, end, os.path.join(folder, "caches", own))

    def then(children):
        return [*steps(children, a.steps, a.profile),
                *engine_load.turns(children, a.rounds, a.invariant)]
    return engine_load.whole(begin, then, vllm_start.ZERO, a.later)


def main():
    a = arguments()
    if a.mode:
        serve(a)
        return
    import engine_child
    import parts
    parts.need("vllm")
    limit = engine_child.Limit(sys.argv[1:], a.limit)  # also if a signal ends this script
    with tempfile.TemporaryDirectory() as folder:
        vllm_start.write_model(folder, vllm_start.BIG if a.big else vllm_start.QWEN3)
        good = whole(a, folder, limit.end)
    parts.finish(good)


if __name__ == "__main__":
    main()
