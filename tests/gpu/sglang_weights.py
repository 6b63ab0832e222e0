#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of SGLang that load weights by SGLang's loaders, and from an image: seconds and GB/s.

    python3 tests/gpu/sglang_weights.py [--big] [--limit SECONDS] [FORMAT...]

FORMAT: load formats of SGLang to compare with; the default is safetensors. --big: 16.4 GB of
weights, in place of 1.2 GB. All starts give the same answers. Those of Foundry have
FOUNDRY_SGLANG_WEIGHTS=1.
"""
import os
import sys
import tempfile

import sglang_start
import vllm_weights
from engine_start import BIG, QWEN3, equal_answers, model_in, nothing_done, write_model

HERE = os.path.dirname(os.path.abspath(__file__))


def starts(formats, folder, limit):
    """Run the starts. Returns [(what, what it printed)]."""
    found = []
    for mode, name in (*(("plain", name) for name in formats), ("first", "foundry"),
                       ("next", "foundry"), ("next", "foundry")):
        found.append((f"{mode} {name}", sglang_start.start(
            limit, mode, folder, "--model", model_in(folder), "--weights", name,
            *sglang_start.SIDE)))
    return found


def main():
    more = sys.argv[1:]
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import engine_child
    import parts
    parts.need("sglang")
    limit = engine_child.Limit(more, 580)
    formats = [each for each in more if not each.startswith("-")] or ["safetensors"]
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, BIG if "--big" in more else QWEN3)
        paths, total = vllm_weights.write_files(folder)
        if not paths:
            parts.skip("no GPU")
        found = starts(formats, folder, limit)
    vllm_weights.show(found, total)
    each = [one for _, one in found]
    parts.finish([*each, *equal_answers(each, sglang_start.ASKED),
                  *(nothing_done(one) for one in each[-2:]),
                  *("weights" in one.get("of Foundry", {}) for one in each[-2:])])


if __name__ == "__main__":
    main()
