#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM in every mode that images support: plain, first and later start of each.

    python3 tests/gpu/vllm_modes.py [--alone] [--foundry] [--twice] [--big] [--prefix] [MODE...]
    MODE: runner-compilation-graphs, as in MODES

The modes run side by side, so the times say little, and the KV cache has a fixed size. With --alone
one start comes after the other, the first one twice, and first starts profile the memory. With
--foundry there is no plain start. With --twice, a second one compiles for itself. With --big, the
model has 16.4 GB of dummy weights. With --prefix, requests share the KV cache of equal prefixes.
Every later start must give the tokens and logprobs of the plain one, and neither profile, capture
nor compile. Logs go to the folder that OUT names.

Plain and first starts compile by themselves. By default Inductor measures which of several kernels
are fastest. Beside other starts this varies, and some kernels add numbers up in another order. So
Inductor chooses without measuring here (vllm_start.py --unmeasured), except with --alone.
"""
import concurrent.futures
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import vllm_start
from engine_start import answers, first_difference, strict

MODES = ("V2-3-FULL_AND_PIECEWISE", "V1-3-FULL_AND_PIECEWISE", "V2-3-PIECEWISE", "V2-3-FULL",
         "V2-0-FULL", "V1-3-PIECEWISE", "V1-0-FULL_DECODE_ONLY", "V2-3-FULL_DECODE_ONLY",
         "V1-3-FULL", "V1-0-FULL", "V2-0-FULL_DECODE_ONLY", "V1-3-FULL_DECODE_ONLY")
ASKED = vllm_start.asked(())  # which answers are compared
HERE = os.path.dirname(os.path.abspath(__file__))


def start(mode, which, model, folder, more):
    """One start, with its log in `folder`. Returns what it printed last, or nothing."""
    runner, compilation, graphs = mode.split("-")
    path = os.path.join(folder, f"{mode}-{which}.log")
    texts = os.path.join(model, f"{mode}-{which}.json")
    with open(path, "w", encoding="utf-8") as log:
        status = subprocess.run(
            [sys.executable, *(() if which.startswith("plain") else ("-m", "foundry", "run")),
             os.path.join(HERE, "vllm_start.py"), "--mode", which.partition(" ")[0], "--model",
             vllm_start.model_in(model), "--runner", runner, "--compile", compilation, "--graphs",
             graphs, *more, "--limit", "240", "--answers", texts, "--caches",
             os.path.join(model, mode + which.partition(" ")[2])],
            stdout=log, stderr=subprocess.STDOUT, check=False,
            env={**os.environ, "FOUNDRY_STORE": os.path.join(model, "store"),
                 "FOUNDRY_VLLM": "" if which.startswith("plain") else mode,
                 **strict("VLLM", which)}).returncode
    with open(path, encoding="utf-8", errors="replace") as log:
        lines = log.read().splitlines()
    for line in lines:
        if "Foundry: " in line and "blocks in the region" not in line and (
                "Foundry: allocations" not in line):
            print(f"{mode} {which}: {line[:600]}", flush=True)
    last = next((line for line in lines if line.startswith('{"mode"')), "")
    print(f"{mode} {which}: status {status} {last}", flush=True)
    if not last:
        print("\n".join(line[:300] for line in lines[-60:]), flush=True)
        return {}
    with open(texts, encoding="ascii") as f:
        return {**json.loads(last), "texts": json.load(f)}


def chain(mode, model, folder, options):
    """The starts of one mode. Returns [(what, whether it is so)]."""
    more = () if "--alone" in options else ("--kv", str(4 << 30), "--util", "0.1",
                                            "--unmeasured")
    if "--prefix" in options:
        more = (*more, "--prefix")
    kinds = ["first", "next"] if "--foundry" in options else ["plain", "first", "next"]
    if "--twice" in options:
        kinds.insert(0, "plain 2")
    if "--alone" in options:
        kinds.insert(0, kinds[0])  # again, with caches
    starts = [start(mode, which, model, folder, more) for which in kinds]
    for which, each, before in zip(kinds[1:], starts[1:], starts):
        found = first_difference(before.get("texts"), each.get("texts"))
        if found:
            print(f"{mode} {which} differs from the one before: {found[:600]}", flush=True)
    return [*((f"{which} start succeeds", bool(each)) for which, each in zip(kinds, starts)),
            *((f"{which} start answers as the one before",
               answers(each, ASKED) == answers(before, ASKED))
              for which, each, before in zip(kinds[1:], starts[1:], starts)),
            ("different prompts have different answers", all(
                starts[-1].get(asked, {}).get("different", 0) > 1 for asked in ASKED)),
            ("no work", vllm_start.nothing_done(starts[-1]))]


def main():
    options, out = sys.argv[1:], os.environ.get("OUT")
    modes = [each for each in options if not each.startswith("-")] or MODES
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import parts
    parts.need()
    if not importlib.util.find_spec("vllm"):
        parts.skip("no GPU, or none with vllm")
    with tempfile.TemporaryDirectory() as model:
        vllm_start.write_model(model, vllm_start.BIG if "--big" in options else
                               vllm_start.QWEN3)
        with concurrent.futures.ThreadPoolExecutor(
                1 if "--alone" in options else len(modes)) as pool:
            found = list(pool.map(lambda mode: chain(mode, model, out or model, options), modes))
    for mode, each in zip(modes, found):
        print(f"{mode:28}", ", ".join(f"{what}: {'yes' if so else 'NO'}" for what, so in each))
    parts.finish([so for each in found for _, so in each])


if __name__ == "__main__":
    main()
