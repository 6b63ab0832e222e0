#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of SGLang that load weights by SGLang's loaders, and from an image: seconds and GB/s.

    python3 tests/gpu/sglang_weights.py [--big] [--caches DIR] [--limit SECONDS] [FORMAT...]

FORMAT: load formats of SGLang to compare with; the default is safetensors. --big: 16.4 GB of
weights, in place of 1.2 GB. --caches DIR lets all compilers keep their files in DIR. All starts
give the same answers. Those of Foundry have FOUNDRY_SGLANG_WEIGHTS=1.
"""
import argparse
import os
import sys
import tempfile

import sglang_start
import vllm_weights
from engine_start import BIG, QWEN3, equal_answers, model_in, nothing_done, write_model

HERE = os.path.dirname(os.path.abspath(__file__))


def starts(formats, folder, limit, more):
    """Run the starts. Returns [(what, what it printed)]."""
    found = []
    for mode, name in (*(("plain", name) for name in formats), ("first", "foundry"),
                       ("next", "foundry"), ("next", "foundry")):
        found.append((f"{mode} {name}", sglang_start.start(
            limit, mode, folder, "--model", model_in(folder), "--weights", name,
            *sglang_start.SIDE, *more)))
    return found


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import engine_child
    import parts
    parts.need("sglang")
    p = argparse.ArgumentParser()
    p.add_argument("--big", action="store_true")
    p.add_argument("--caches")
    p.add_argument("formats", nargs="*", metavar="FORMAT", default=["safetensors"])
    more = sys.argv[1:]
    limit = engine_child.Limit(more, 580)
    a = p.parse_args(more)
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, BIG if a.big else QWEN3)
        paths, total = vllm_weights.write_files(folder)
        if not paths:
            parts.skip("no GPU")
        found = starts(a.formats, folder, limit, ("--caches", a.caches) if a.caches else ())
    vllm_weights.show(found, total)
    each = [one for _, one in found]
    parts.finish([*each, *equal_answers(each, sglang_start.ASKED),
                  *(nothing_done(one) for one in each[-2:]),
                  *("weights" in one.get("of Foundry", {}) for one in each[-2:])])


if __name__ == "__main__":
    main()
