#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM with models of several families, which are dummies of eight layers.

    python3 tests/gpu/vllm_models.py [--mode3] [--limit SECONDS] [MODEL...]

MODEL: see MODELS in tests/python/engine_models.py; without one, all run side by side, so the times
say little. With two GPUs, half of the models run on each. --mode3: with torch.compile, vLLM's
default. For each model a plain and a first start run side by side, then, with empty caches, a later
one. It loads the image and neither profiles, captures nor compiles, and all answers are equal. With
--limit, it ends its starts then, and prints what it has.
"""
import os
import sys

import vllm_start

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import engine_child
    import engine_models
    names = sys.argv[1:]
    limit = engine_child.Limit(names, 400)
    options = ["--mode3", "--unmeasured"] if "--mode3" in names else []
    engine_models.run(engine_models.Engine(
        "vllm", vllm_start.begin_beside, vllm_start.nothing_done, options,
        vllm_start.asked(options)), [each for each in names if each != "--mode3"], limit)


if __name__ == "__main__":
    main()
