#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SGLang under load: the answers and the speed of a later start beside those of plain SGLang.

    python3 tests/gpu/sglang_load.py [--requests 1000] [--rate 150] [--rounds 3] [--later 1]
                                     [--invariant] [--big] [--defaults] [--caches DIR]
                                     [--limit SECONDS]

First, requests of many lengths arrive at once, in batches of several sizes, with chunked prefill
and prefix caching; the answers are greedy. Tokens and logprobs of plain SGLang, a first and a later
start must be equal, bit for bit.

All engines import side by side. When the first start has answered, the later ones begin. Then two
plain engines and those of later starts live side by side, and serve the same timed requests in
turns, while the others are idle. Batches depend on the time there, so answers may differ even
between two plain engines. The test prints throughput and latencies of each turn, and how many
answers are equal in pairs of turns.

With --invariant, SGLang runs in its deterministic mode: sampling has seeds, no answer depends on
others, and all must be equal. With --big, the model has the shape of Qwen3 8B. With --defaults,
SGLang chooses the backends of attention and sampling. All engines share the caches in DIR. When the
limit is reached, the script ends the engines and prints what it has.
"""
import asyncio
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import engine_load  # noqa: E402
import sglang_start  # noqa: E402
from engine_start import BIG, QWEN3, digest, limit_time, write_model  # noqa: E402

TOKENS = 40000  # of the KV cache
ALIGNED = 4096  # In its deterministic mode SGLang divides prompts at multiples of this alone.
MEMORY = 0.6  # the fraction of the GPU's memory: others use it, too


def arguments():
    p = engine_load.parser(400)
    p.add_argument("--invariant", action="store_true",
                   help="SGLang's deterministic mode: all answers are equal")
    p.add_argument("--big", action="store_true", help="the shape of Qwen3 8B")
    p.add_argument("--defaults", action="store_true", help="SGLang chooses attention and sampling")
    return p.parse_args()


class Engine:
    """An engine of SGLang with a scheduler in a process of its own."""

    def __init__(self, a):
        import sglang
        self.a, self.began = a, time.monotonic()
        self.engine = sglang.Engine(
            model_path=a.model, load_format="dummy", skip_tokenizer_init=True,
            **({} if a.defaults else sglang_start.CHOSEN), mem_fraction_static=MEMORY,
            max_total_tokens=TOKENS, max_running_requests=64,
            chunked_prefill_size=ALIGNED if a.invariant else 512,
            cuda_graph_max_bs_decode=64, cuda_graph_max_bs_prefill=64,
            disable_flashinfer_autotune=True, random_seed=0, context_length=2048,
            enable_deterministic_inference=a.invariant, log_level="info")

    def params(self, tokens, seed):
        """Return the settings of an answer."""
        found = {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0.0}
        if seed is not None and self.a.invariant:
            found.update(temperature=0.8, top_p=0.9, sampling_seed=seed)
        return found

    def forget(self):
        """Forget earlier prompts, as soon as no request is left."""
        while not self.engine.flush_cache().success:
            time.sleep(0.01)

    def at_once(self, _turn):
        """Return a digest of tokens and logprobs for each size of batch."""
        found = {}
        for size in engine_load.BATCHES:
            self.forget()
            asked = engine_load.batch(size)
            out = self.engine.generate(
                input_ids=[prompt for prompt, _, _ in asked],
                sampling_params=[self.params(*each) for _, *each in asked],
                return_logprob=True, top_logprobs_num=2)
            found[size] = digest([[one["output_ids"], sglang_start.chances(one)] for one in out])
        return found

    def timed(self, _turn):
        """Serve requests that arrive at random times. Return what a user would measure."""
        asked = list(engine_load.arrivals(1, self.a.requests, self.a.rate))
        self.forget()
        start = time.monotonic()

        async def one(at, prompt, *each):
            await asyncio.sleep(start + at - time.monotonic())
            first, out = None, {}
            async for out in await self.engine.async_generate(
                    input_ids=prompt, sampling_params=self.params(*each), stream=True):
                first = first or time.monotonic() - start
            return at, first, time.monotonic() - start, out["output_ids"]

        async def every():
            return await asyncio.gather(*(one(*each) for each in asked))
        served = self.engine.loop.run_until_complete(every())
        return engine_load.measured(served, time.monotonic() - start)


def serve(a):
    """Be an engine that does what standard input says."""
    limit_time(a.limit)
    if a.mode != "plain":
        os.environ["FOUNDRY_SGLANG"] = engine_load.NAME
    sglang_start.plug_in(a.caches)
    engine = Engine(a)
    engine_load.serve(engine.began, {"at once": engine.at_once, "timed": engine.timed})
    engine.engine.shutdown()


def main():
    a = arguments()
    if a.mode:
        serve(a)
        return
    import engine_child
    import parts
    parts.need("sglang")
    limit = engine_child.Limit(sys.argv[1:], a.limit)  # also if a signal ends this script
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, BIG if a.big else QWEN3)
        parts.finish(engine_load.whole(
            lambda name: engine_load.Child(name, folder, limit.end, a.caches or os.path.join(
                folder, "caches")),
            lambda children: engine_load.turns(children, a.rounds, a.invariant), later=a.later))


if __name__ == "__main__":
    main()
