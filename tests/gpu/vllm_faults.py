#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM whose image cannot be used: each says why, and answers as plain vLLM does.

    python3 tests/gpu/vllm_faults.py [FAULT...] [--mode3] [--limit SECONDS]

A plain and a first start run side by side. One start for each fault imports beside them, and begins
its engine when they have ended, with a copy of the store. The times say little. With --mode3, vLLM
compiles the model, its default.
"""
import os
import sys

import vllm_start

HERE = os.path.dirname(os.path.abspath(__file__))
# fault: (options of the start, what it changes before, what its line in the log says)
FAULTS = {
    "version": ([], {"ENGINE_START_PRETEND": "vllm=0.25.0"},
                "because vllm is 0.25.0 here and 0.25.1 in the image"),
    "memory": ([], {"ENGINE_START_PRETEND": "memory=1"}, "because memory is 1 here and "),
    "sequences": (["--seqs", "31"], {}, "because max_num_seqs is 31 here and 32 in the image"),
    "damaged": ([], {}, "damaged"),
    "collected": ([], {}, "there is no ref 'test' in the store"),
    "killed": ([], {}, "because there is no ref 'killed' in the store"),
}


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import engine_child
    import engine_faults
    import parts
    parts.need("vllm")
    names = sys.argv[1:]
    limit = engine_child.Limit(names, 170)
    options = ["--kv", str(4 << 30), "--util", "0.1"]
    if "--mode3" in names:
        names.remove("--mode3")
        options += ["--mode3", "--unmeasured"]
    engine = engine_faults.Engine(
        os.path.join(HERE, "vllm_start.py"), options, {"VLLM_LOGGING_LEVEL": "DEBUG"},
        "FOUNDRY_VLLM", "Capturing CUDA graphs", vllm_start.ASKED, FAULTS, ("sequences",))
    parts.finish(engine_faults.starts(engine, names or list(FAULTS), limit))


if __name__ == "__main__":
    main()
