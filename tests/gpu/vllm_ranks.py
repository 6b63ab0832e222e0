#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM with tensor parallelism on two GPUs, from one image for each rank.

    python3 tests/gpu/vllm_ranks.py [--limit SECONDS] [--control] [KIND...]    # needs two GPUs

KIND: 0 and 3, the compilation modes of the V2 runner; V1: mode 3 of the V1 runner; big and big3: a
model of 16.4 GB in modes 0 and 3; weights: weights from images. The kinds run side by side, so the
times say little.

For each kind a plain and a first start run side by side, then a later one. All give the same tokens
and logprobs to prompts one by one. The engine has a process of its own, so the batches of a slow
model, and those of prompts longer than a step, depend on the time. So the big model, and all kinds
with --control, have a second plain start, and those batches are compared that both plain starts
answer alike, also those of long prompts. Without a second one, all batches of short prompts are
compared. The later start neither profiles, captures nor compiles on any rank.

In mode 0 the image of rank 1 is removed then: the next start captures and seals on both ranks, says
why, and the one after it loads again. Logs go to the folder that OUT names.
"""
import glob
import os
import shutil
import sys
import tempfile

import vllm_start
import vllm_weights

HERE = os.path.dirname(os.path.abspath(__file__))
FILES, IMAGE = ("--weights", "safetensors"), ("--weights", "foundry")
# kind: (model, options of a plain start, options of the others)
MODE3 = ("--mode3", "--unmeasured")
KINDS = {"0": (vllm_start.QWEN3, (), ()), "3": (vllm_start.QWEN3, *2 * [MODE3]),
         "V1": (vllm_start.QWEN3, *2 * [(*MODE3, "--runner", "V1")]),
         "big": (vllm_start.BIG, (), ()), "big3": (vllm_start.BIG, *2 * [MODE3]),
         "weights": (vllm_start.QWEN3, FILES, IMAGE)}
BOTH = ("--ranks", "2", *vllm_start.SIDE)
ALONE = "alone"


def steady(name, plains):
    """Return which answers of a kind are compared: to prompts one by one, and those that both plain
    starts give alike.
    """
    if len(plains) == 1:
        return vllm_start.ASKED
    found = [ALONE]
    for each in ("greedy", "sampled", "long"):
        alike = all(vllm_start.equal_answers(plains, (each,)))
        print(f"{name}: plain starts answer alike, {each}: {alike}", flush=True)
        found += [each] if alike else []
    return found


def kind(name, folder, limit, controlled):
    """The starts of one kind. Returns [(what, whether it is so)]."""
    import engine_child
    config, plain, others = KINDS[name]
    os.makedirs(folder)
    vllm_start.write_model(folder, config)
    if plain is FILES:
        vllm_weights.write_files(folder)

    def begin(title, mode):
        return vllm_start.begin(limit, f"{name} {title}", mode, folder, *BOTH,
                                *(plain if mode == "plain" else others),
                                place=title.partition(",")[0].replace("later", "first"))

    def done(begun):
        return begun.result()
    both = [begin("plain", "plain"), begin("first", "first")]
    control = [begin("control", "plain")] if controlled or config is vllm_start.BIG else []
    wanted, first = map(done, both)
    plains = [wanted, *map(done, control)]
    loads = begin("later", "next")
    later = done(loads)
    asked = steady(name, plains)
    found = [("plain starts", all(plains)), ("first start", bool(first)),
             ("both ranks are sealed", both[1].says(2, "captured and sealed 'test.rank")),
             ("both ranks load", loads.says(2, "Foundry: loaded 'test.rank")),
             ("no work in the later start", vllm_start.nothing_done(later)),
             ("different prompts have different answers",
              wanted.get("greedy", {}).get("different", 0) > 1),
             *(("plain starts answer alike", each)
               for each in vllm_start.equal_answers(plains, (ALONE,))),
             *zip(("first start's answers", "later start's answers"),
                  vllm_start.equal_answers((wanted, first, later), asked))]
    if name != "0" or not all(so for _, so in found):
        return found
    engine_child.remove(os.path.join(folder, "first", "store"), "test.rank1")
    lost = begin("later, rank 1 has no image", "next")
    answers = [done(lost)]
    again = begin("later, again", "next")
    answers.append(done(again))
    return [*found, ("both ranks seal again", lost.says(2, "captured and sealed 'test.rank")),
            ("the reason is said", lost.says(2, "there is no ref 'test.rank1'")),
            ("both ranks load again", again.says(2, "Foundry: loaded 'test.rank")),
            *(("answers after the fault", each) for each in vllm_start.equal_answers(
                (wanted, *answers), asked))]


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import engine_child
    import parts
    parts.need("vllm", gpus=2)
    arguments = sys.argv[1:]
    limit = engine_child.Limit(arguments, 280)
    names = [each for each in arguments if each != "--control"] or ["0", "3"]
    controlled = "--control" in arguments
    with tempfile.TemporaryDirectory() as folder:
        found = parts.side_by_side(*(
            [lambda name=name: kind(name, os.path.join(folder, name), limit, controlled)]
            for name in names))
        for path in glob.glob(os.path.join(folder, "*", "*.log")) if "OUT" in os.environ else ():
            shutil.copy(path, os.environ["OUT"])
    for name, each in zip(names, found):
        for what, so in each or [("its starts", False)]:
            print(f"{name}: {what}: {'yes' if so else 'NO'}", flush=True)
    parts.finish([so for each in found for _, so in each or [(name, False)]])


if __name__ == "__main__":
    main()
