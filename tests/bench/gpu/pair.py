# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of this tree and of another built tree in alternating turns, on one GPU.

    pair.py [--parts capture,start,content,slots,inside,sealed,whole,outside,threads,saves]
            [--graphs 32] [--turns 6] [--limit 160] [--out FILE] OTHER

Each tree runs its own programs with its own library and stores, so formats may differ. The tree
that comes first alternates. A turn is left out, and reported, if it would end after LIMIT seconds.
Prints a table: each figure of the other tree and of this one as a median (least to greatest), and
the ratio this / other of the turns in pairs. A time below 1 is faster here; rows in GB/s are faster
above 1. FILE receives all figures. In the parts from sealed on, both trees load the same images,
which this tree makes: sealed is content of 1.2 GB with two kernels; whole and outside are loads of
a decoder's eight graphs, with its weights in the image and outside; threads varies the threads of
this tree's loads of the former; saves is 64 seals in turn beside one. The images come from
PyTorch's decoder (model.py, decode.py); without PyTorch, or on the software driver, from the vecadd
example, with the parts start and slots.
"""
import argparse
import glob
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
WITH_CONTENT = ("content", "sealed", "whole")
GB_S = ("pinned", "pinned_small", "warm", "warm_verified", "cold", "disk", "restored",
        "warm_checked", "warm_verified_checked", "cold_checked", "pinned_2m", "cat", "cat_cold")


class Tree:
    """A built tree: its programs, its figures and its stores."""

    def __init__(self, name, root, tmp):
        self.name, self.root, self.figures = name, os.path.abspath(root), {}
        self.build = os.path.join(self.root, "build")
        if name == "this":
            self.build = os.path.abspath(os.environ.get("BUILD") or self.build)
        self.store = os.path.join(tmp, name)
        library = sorted(glob.glob(os.path.join(self.build, "libfoundry.so.*")))
        if not library:
            sys.exit(f"pair.py: {self.root} is not built")
        self.env = {**os.environ, "BUILD": self.build, "FOUNDRY_LIBRARY": library[-1],
                    "PYTHONPATH": os.pathsep.join(filter(None, (
                        os.path.join(self.root, "api", "python"), os.environ.get("PYTHONPATH"))))}

    def path(self, *names):
        return os.path.join(self.root, *names)

    def start(self, *command):
        return subprocess.Popen([str(c) for c in command], env=self.env, text=True,
                                stdout=subprocess.PIPE)

    def output(self, process):
        """The lines of a process, as lists of words."""
        out, _ = process.communicate()
        if process.returncode:
            sys.exit(f"pair.py: {self.name}: {process.args} failed ({process.returncode})")
        return [line.split() for line in out.splitlines() if line.strip()]

    def add(self, part, name, value):
        self.figures.setdefault(part, {}).setdefault(name, []).append(value)

    def finish(self, process, part):
        """Adds the lines "name value ..." of a process: the median of each name's values."""
        for name, *values in self.output(process):
            try:
                values = [float(v) for v in values]
            except ValueError:
                continue
            if values:
                self.add(part, name, self.pick(name, values))

    @staticmethod
    def pick(name, values):
        """A launch's values are percentiles, the first of them the median."""
        return values[0] if name.startswith(("launch_", "step_")) else statistics.median(values)

    def program(self, name):
        return os.path.join(self.build, "tests", "bench", "gpu", name)

    def ratios(self, part, of, parts):
        """Adds the ratios of the last turn's medians to the sum of those of PARTS."""
        last = {k: v[-1] for k, v in self.figures.get(part, {}).items() if v}
        whole = sum(last.get(p, 0) for p in parts)
        for name in of:
            if whole and name in last:
                self.add(part, f"{name} / {' + '.join(parts)}", last[name] / whole)


def capture_torch(tree, args, turn):
    """The times of a capture in lines of their own; model.py's line has six of a seal."""
    process = tree.start(sys.executable, tree.path("tests", "bench", "gpu", "model.py"), "capture",
                         args.graphs, f"{tree.store}-{turn}")
    for name, *values in tree.output(process):
        names = [name]
        if name.startswith("sealed_"):
            names = ["capture", "seal", "seal_graphs", "seal_kernels", "seal_content",
                     "seal_commit"]
        try:
            for key, value in zip(names, map(float, values)):
                tree.add("capture", key, value)
        except ValueError:
            continue


def capture_vecadd(tree, _, turn):
    command = [os.path.join(tree.build, "examples", "vecadd"), "capture", "-s",
               f"{tree.store}-{turn}"]
    if "/sim/" in os.environ.get("FOUNDRY_DRIVER", ""):
        command += ["-m", os.path.join(tree.build, "sim", "kernels.cubin")]
    tree.finish(tree.start(*command), "capture")


def turn_start(tree, args, _):
    ref = f"bench/{args.graphs}" if args.torch else "vecadd"
    keys = ",".join(str(k) for k in (1, 8, 32) if k <= args.graphs) if args.torch else ""
    tree.finish(tree.start(tree.program("start"), "-s", f"{tree.store}-0", "-r", ref, "-n", 5,
                           "-k", keys), "start")


def turn_content(tree, _, turn):
    if turn < 0:
        return tree.start(sys.executable, tree.path("api", "examples", "decode.py"), "capture",
                          "--store", tree.store + "-content", "--ref", "bench", "--batches", "1")
    tree.finish(tree.start(tree.program("content"), "-s", tree.store + "-content", "-r", "bench",
                           "-n", 3), "content")
    return None


def turn_slots(tree, _args, _turn):
    """Its rows: threads, graphs, nanoseconds of a launch, of one by slot, their ratio, a search."""
    for threads, graphs, *values in tree.output(tree.start(tree.program("slots"))):
        if graphs in ("own", "shared"):
            tree.add("slots", f"{threads} {graphs}, launch", float(values[0]))
            tree.add("slots", f"{threads} {graphs}, by slot", float(values[1]))


def turn_inside(tree, _args, _turn):
    tree.finish(tree.start(sys.executable, tree.path("tests", "bench", "gpu", "model.py"),
                           "inside", f"{tree.store}-0"), "inside")


def alternate(trees, part, turn, times, args):
    """Up to TIMES pairs of turns, as long as the next one ends before the limit."""
    for i in range(times):
        begun = time.monotonic()
        for tree in trees[::(-1) ** i]:
            turn(tree, args, i)
        took = time.monotonic() - begun
        print(f"# {part}: pair {i + 1} of {times}, {took:.1f} s", flush=True)
        if i + 1 < times and time.monotonic() + took > args.end:
            print(f"# {part}: {times - i - 1} pairs left out, for lack of time")
            break


OWN = ("floor_kernels", "floor_graphs", "floor_launches")
LAUNCHED = ("together_launched", "each_launched", "behind_launched")


def shared(args, name):
    """The store of an image that both trees load."""
    return os.path.join(args.tmp, "shared", name)


def shared_make(this, args):
    """The images of the parts that are asked for, made at once by the tree THIS."""
    os.makedirs(shared(args, ""), exist_ok=True)
    running = []
    if "sealed" in args.parts:
        running.append(this.start(os.path.join(this.build, "tests", "bench", "seal"), "changed",
                                  1200 if args.torch else 32, shared(args, "sealed")))
    for name, weights in (("whole", "content"), ("outside", "external")):
        if args.torch and (name in args.parts or (name == "whole" and "threads" in args.parts)):
            running.append(this.start(
                sys.executable, this.path("api", "examples", "decode.py"), "capture", "--store",
                shared(args, name), "--ref", "bench", "--batches", "1,2,3,4,5,6,7,8", "--weights",
                weights, "--weights-file", shared(args, "weights.bin")))
    for process in running:
        this.output(process)


def content_shared(tree, args, name, rounds):
    tree.finish(tree.start(tree.program("content"), "-s", shared(args, name), "-r", "bench", "-n",
                           rounds), name)
    tree.ratios(name, ("warm", "warm_checked", "restored"), ("pinned",))
    tree.ratios(name, ("warm_load_ms",), ("warm_load_unchecked_ms",))


def start_shared(tree, args, name, part, *options):
    tree.finish(tree.start(tree.program("start"), "-s", shared(args, name), "-r", "bench",
                           *options), part)
    tree.ratios(part, LAUNCHED, OWN)
    tree.ratios(part, LAUNCHED, (*OWN, "floor_copy"))


def turn_sealed(tree, args, _turn):
    content_shared(tree, args, "sealed", 2)


def turn_whole(tree, args, _turn):
    start_shared(tree, args, "whole", "whole", "-n", 5)
    content_shared(tree, args, "whole", 1)


def turn_outside(tree, args, _turn):
    start_shared(tree, args, "outside", "outside", "-n", 5)


def turn_saves(tree, args, _turn):
    """Its rows: graphs, way (one or two words), five times and the number of graphs."""
    count, mib = (64, 1200) if args.torch else (8, 32)
    for words in tree.output(tree.start(os.path.join(tree.build, "tests", "bench", "seal"), count,
                                        1200, mib)):
        if words[0] == str(count):
            tree.add("saves", " ".join(words[2:-6]), float(words[-2]))
            tree.add("saves", " ".join(words[2:-6]) + ", commits", float(words[-3]))
    tree.ratios("saves", ("fixed", "in turn"), ("together",))


def threads_vary(this, args):
    """This tree's loads with fewer threads: what do builds beside copies gain?"""
    for n in (3, 5, 7, 9):
        if fits(args, f"threads {n}", 8):
            start_shared(this, args, "whole", f"threads {n}", "-n", 5, "-t", n)


def fits(args, part, seconds):
    """Whether a part that takes SECONDS at least can begin."""
    if time.monotonic() + seconds <= args.end:
        return True
    print(f"# {part}: left out, for lack of time")
    return False


def run(trees, args):
    if {"capture", "start", "inside"} & set(args.parts):
        alternate(trees, "capture", capture_torch if args.torch else capture_vecadd, 1, args)
    shared_make(trees[1], args)
    turns = {"sealed": (turn_sealed, 3, 25), "whole": (turn_whole, 3, 20),
             "outside": (turn_outside, 2, 15), "saves": (turn_saves, 1, 40)}
    for part in args.parts:
        if part in turns and (args.torch or part in ("sealed", "saves")):
            turn, times, seconds = turns[part]
            if fits(args, part, seconds):
                alternate(trees, part, turn, times, args)
        elif part == "threads" and args.torch:
            threads_vary(trees[1], args)
        elif part == "start":
            alternate(trees, part, turn_start, args.turns, args)
        elif part == "content" and args.torch and fits(args, part, 45):
            for tree, process in [(t, turn_content(t, args, -1)) for t in trees]:
                tree.output(process)
            alternate(trees, part, turn_content, 2, args)
        elif part == "slots" and fits(args, part, 5):
            alternate(trees, part, turn_slots, 3, args)
        elif part == "inside" and args.torch and fits(args, part, 50):
            alternate(trees, part, turn_inside, 2, args)


def spread(values):
    if len(values) == 1:
        return f"{values[0]:,.4g}"
    return f"{statistics.median(values):,.4g} ({min(values):,.4g} to {max(values):,.4g})"


def show(other, this):
    print(f"{'figure':<58}{'other':>30}{'this':>30}{'this / other':>30}")
    for part, figures in this.figures.items():
        for name, values in figures.items():
            before = other.figures.get(part, {}).get(name)
            if not before:
                print(f"{part + ': ' + name:<58}{'':>30}{spread(values):>30}")
                continue
            ratio = [a / b for a, b in zip(values, before) if b]
            unit = ", GB/s" if part in WITH_CONTENT and name in GB_S else ""
            print(f"{part + ': ' + name + unit:<58}{spread(before):>30}{spread(values):>30}"
                  f"{spread(ratio) if ratio else '':>30}")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--parts", type=lambda s: s.split(","),
                   default=["start", "content", "slots", "inside"])
    p.add_argument("--graphs", type=int, default=32)
    p.add_argument("--turns", type=int, default=6)
    p.add_argument("--limit", type=float, default=160)
    p.add_argument("--out")
    p.add_argument("other", metavar="OTHER")
    args = p.parse_args()
    args.end = time.monotonic() + args.limit
    args.torch = (importlib.util.find_spec("torch") is not None
                  and "/sim/" not in os.environ.get("FOUNDRY_DRIVER", ""))
    with tempfile.TemporaryDirectory() as tmp:
        args.tmp = tmp
        trees = [Tree("other", args.other, tmp), Tree("this", ROOT, tmp)]
        run(trees, args)
    show(*trees)
    if args.out:
        with open(args.out, "w", encoding="ascii") as f:
            json.dump({t.name: t.figures for t in trees}, f, indent=1)


if __name__ == "__main__":
    main()
