#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of SGLang whose image cannot be used: each says why, and answers as plain SGLang does.

    python3 tests/gpu/sglang_faults.py [--caches DIR] [FAULT...] [--limit SECONDS]

A plain and a first start run side by side. One start for each fault imports beside them, and begins
its engine when they have ended, with a copy of the store. DIR has the caches of an earlier start,
which save their compilation, and gets more of them. The times say little.
"""
import os
import sys

import sglang_start

HERE = os.path.dirname(os.path.abspath(__file__))
# fault: (options of the start, what it changes before, what its line in the log says)
FAULTS = {
    "version": ([], {"ENGINE_START_PRETEND": "sglang=0.5.14"},
                "because sglang is 0.5.14 here and 0.5.15.post1 in the image"),
    "memory": ([], {"ENGINE_START_PRETEND": "memory=1"}, "because memory is 1 here and "),
    "requests": (["--requests", "31"], {},
                 "because max_running_requests is 31 here and 32 in the image"),
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
    parts.need("sglang")
    names, caches = sys.argv[1:], None
    limit = engine_child.Limit(names, 170)
    if "--caches" in names:
        at = names.index("--caches")
        caches = names[at + 1]
        del names[at:at + 2]
    engine = engine_faults.Engine(
        os.path.join(HERE, "sglang_start.py"),
        ["--memory", "0.6", "--tokens", "20000", "--requests", "32", "--sizes", "8"], {},
        "FOUNDRY_SGLANG", "decode CUDA graph begin", sglang_start.ASKED, FAULTS, ("requests",),
        caches)
    parts.finish(engine_faults.starts(engine, names or list(FAULTS), limit))


if __name__ == "__main__":
    main()
