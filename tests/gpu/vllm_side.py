#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""First and later starts of vLLM of several kinds, side by side, in about 100 s.

    python3 tests/gpu/vllm_side.py [--infos DIR] [KIND...]

KIND: compile (torch.compile, vLLM's default), weights (from files of 1.2 GB, then from an image),
big (16.4 GB of dummy weights). --infos: files of an earlier start in VLLM_CACHE_ROOT/modelinfos,
which save each first start 16 s. The answers of a first and a later start equal those of a plain
start, which compile does not have. The times say little, since the starts disturb each other.
"""
import concurrent.futures
import importlib.util
import os
import shutil
import sys
import tempfile

import vllm_start
import vllm_weights

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = ["--kv", str(4 << 30), "--util", "0.1"]
# kind: (model, the options of a plain start or None, the options of the others)
KINDS = {"compile": (vllm_start.QWEN3, None, ["--mode3"]),
         "weights": (vllm_start.QWEN3, ["--weights", "safetensors"], ["--weights", "foundry"]),
         "big": (vllm_start.BIG, [], [])}


def chain(kind, folder, infos):
    """A plain and a first start side by side, then a later one. Returns [(what, what it
    printed)].
    """
    config, plain, more = KINDS[kind]
    os.makedirs(folder)
    vllm_start.write_model(folder, config)
    if infos and os.path.isdir(infos):
        shutil.copytree(infos, os.path.join(folder, "caches", "VLLM_CACHE_ROOT", "modelinfos"))
    if kind == "weights":
        vllm_weights.write_files(folder)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(vllm_start.start, mode, folder, *FILES, *options)
                 for mode, options in (("plain", plain), ("first", more)) if options is not None]
        found = [each.result() for each in begun]
    found.append(vllm_start.start("next", folder, *FILES, *more))
    return [(f"{kind} {mode}", one) for mode, one in zip(("plain", "first", "next")[-len(found):],
                                                         found)]


def main():
    more, infos = sys.argv[1:], None
    if "--infos" in more:
        at = more.index("--infos")
        infos = more[at + 1]
        del more[at:at + 2]
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import parts
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("vllm") is None:
        parts.skip("no GPU, or none with vllm")
    if not os.path.exists("/dev/nvidiactl"):
        parts.skip("no GPU")
    with tempfile.TemporaryDirectory() as folder, (
            concurrent.futures.ThreadPoolExecutor(len(KINDS))) as pool:
        chains = list(pool.map(lambda kind: chain(kind, os.path.join(folder, kind), infos),
                               more or KINDS))
    rows = ("imports", "weights", "warm-up, capture or load", "engine", "first token")
    print(f"{'':16}" + "".join(f"{row[:14]:>16}" for row in rows))
    for what, one in (each for found in chains for each in found):
        print(f"{what:16}" + "".join(f"{one.get(row, float('nan')):16.3f}" for row in rows),
              one.get("of Foundry", ""))
    parts.finish([good for found in chains for good in (
        *(one for _, one in found),
        *vllm_start.equal_answers([one for _, one in found], vllm_start.ASKED),
        vllm_start.nothing_done(found[-1][1]))])


if __name__ == "__main__":
    main()
