#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of SGLang with tensor parallelism on two GPUs, from one image for each rank.

    python3 tests/gpu/sglang_ranks.py [--limit SECONDS] [KIND...]    # needs two GPUs and SGLang

KIND: decode, without graphs of prefill; prefill, with those that SGLang has by default; defaults,
the same with SGLang's own choice of attention and sampling. Without KIND, decode. Kinds run side by
side, so the times say little.

For each kind a plain and a first start run side by side, then a later one, which has imported
beside them. All give the same tokens and logprobs to prompts one by one. The later start neither
warms up, captures nor compiles on any rank.

For decode the image of rank 1 is removed then: the next start captures and seals on both ranks,
says why, and the one after it loads again. Logs go to the folder that OUT names.
"""
import glob
import os
import shutil
import sys
import tempfile

import sglang_start

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {"decode": (), "prefill": ("--prefill", "breakable"),
         "defaults": ("--prefill", "breakable", "--defaults")}
RANKS = 2
TAIL = 25  # lines of a rank's log


def tails(start):
    """Print the end of a start's log, and of what each rank has logged."""
    lines = start.log().splitlines()
    for what, own in (("the log", lines), *(
            (f"rank {rank}", [line for line in lines if f" TP{rank}]" in line])
            for rank in range(RANKS))):
        print(f"--- {start.title}: the end of {what}", flush=True)
        print("\n".join(line[:300] for line in own[-TAIL:]), flush=True)


class Kind:
    """The starts of one kind, and what was found: [(what, whether it is so)]."""

    def __init__(self, name, folder, limit):
        self.name, self.folder, self.limit = name, folder, limit
        self.starts, self.results, self.found = {}, {}, []
        os.makedirs(folder)
        sglang_start.write_model(folder, sglang_start.QWEN3)

    def begin(self, title, mode, gate=True):
        self.starts[title] = sglang_start.begin(
            self.limit, f"{self.name} {title}", mode, self.folder, "--ranks", str(RANKS), "--model",
            sglang_start.model_in(self.folder), *sglang_start.SIDE, *KINDS[self.name], gate=gate)

    def end(self, title, *says):
        """Let a start run, and wait for it. Note whether it succeeds with the answers of the plain
        one, and whether each rank's line has each text of `says`.
        """
        start = self.starts[title]
        if start.gate:
            start.open()
        result = self.results[title] = start.result()
        good = [("succeeds", bool(result)),
                *((f"says on both ranks: {text}", start.says(RANKS, text)) for text in says)]
        if title != "plain":
            good += [("answers are equal", so) for so in sglang_start.equal_answers(
                (self.results["plain"], result), sglang_start.ASKED)]
        if title in ("later", "again"):
            good.append(("no work", sglang_start.nothing_done(result)))
        self.found += [(f"{title}: {what}", so) for what, so in good]
        if not all(so for _, so in good):
            tails(start)
        return all(so for _, so in good)

    def run(self):
        import engine_child
        self.begin("plain", "plain", gate=False)
        self.begin("first", "first", gate=False)
        for title in ("later", "lost", "again") if self.name == "decode" else ("later",):
            self.begin(title, "next")
        try:
            plain, first = self.end("plain"), self.end(
                "first", "captured and sealed 'test.rank", "there is no ref")
            self.found.append(("different prompts have different answers", self.results[
                "plain"].get("alone", {}).get("different", 0) > 1))
            good = plain and first and self.end("later", "Foundry: loaded 'test.rank")
            if good and self.name == "decode":
                engine_child.remove(os.path.join(self.folder, "store"), "test.rank1")
                self.end("lost", "captured and sealed 'test.rank", "there is no ref 'test.rank1'")
                self.end("again", "Foundry: loaded 'test.rank")
        finally:
            for start in self.starts.values():
                start.kill()
        missing = [title for title in self.starts if title not in self.results]
        return [*self.found, *((f"{title}: was run", False) for title in missing)]


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import engine_child
    import parts
    parts.need("sglang", gpus=RANKS)
    names = sys.argv[1:]
    limit = engine_child.Limit(names, 280)
    names = names or ["decode"]
    with tempfile.TemporaryDirectory() as folder:
        kinds = [Kind(name, os.path.join(folder, name), limit) for name in names]
        try:
            found = parts.side_by_side(*([kind.run] for kind in kinds))
        finally:
            for path in glob.glob(os.path.join(folder, "*", "*.log")) if "OUT" in os.environ else (
                    ):
                shutil.copy(path, os.path.join(os.environ["OUT"],
                                               os.path.basename(path).replace(" ", "-")))
    for kind in kinds:
        print(f"--- {kind.name}, seconds beside the other starts")
        sglang_start.show_table(tuple(kind.results), kind.results.values(), sglang_start.ROWS,
                                "Foundry, ")
    for name, each in zip(names, found):
        for what, so in each:
            print(f"{name}: {what}: {'yes' if so else 'NO'}", flush=True)
    parts.finish([so for each in found for _, so in each])


if __name__ == "__main__":
    main()
