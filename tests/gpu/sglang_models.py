#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of SGLang with models of several families, which are dummies of eight layers.

    python3 tests/gpu/sglang_models.py [--prefill BACKEND] [--moe-runner BACKEND] [--limit SECONDS]
                                       [MODEL...]

MODEL: see MODELS in tests/python/engine_models.py; without one, all run side by side, so the times
say little. With two GPUs, half of the models run on each. --prefill: the backend of prefill graphs,
which are off if nothing is said. For each model a plain and a first start run side by side, then,
with empty caches, a later one. It loads the image and neither captures, warms up nor compiles, and
all answers to requests one by one are equal. gpt-oss needs --moe-runner triton, the backend for
experts, and FOUNDRY_SGLANG_COMPARED=1. With --limit, it ends its starts after SECONDS, and prints
what it has.
"""
import argparse
import os
import sys

import sglang_start

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import engine_child
    import engine_models
    more = sys.argv[1:]
    limit = engine_child.Limit(more, 560)
    p = argparse.ArgumentParser()
    p.add_argument("--prefill", default="disabled")
    p.add_argument("--moe-runner", default="auto")
    p.add_argument("models", nargs="*")
    a = p.parse_args(more)
    options = ["--prefill", a.prefill, "--moe-runner", a.moe_runner]
    engine_models.run(engine_models.Engine(
        "sglang", sglang_start.begin_beside, sglang_start.nothing_done, options,
        sglang_start.ASKED), a.models, limit)


if __name__ == "__main__":
    main()
