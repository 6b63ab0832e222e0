# SPDX-License-Identifier: Apache-2.0
"""Files of saved graphs in which values were replaced: each is read, or refused with an Error.

graph_files.py [-n CASES] [-s SEED] [-c CASE]: as tests/long/long.h says, which names LONG and SEED,
too.
"""
import argparse
import copy
import json
import os
import random
import sys
import tempfile
import traceback

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
sys.path.insert(0, os.path.join(TOP, "api", "python"))
import foundry  # noqa: E402
from foundry import _file  # noqa: E402

SAMPLE, ALL = 2000, 300000
GOOD = {"format": "foundry graph", "version": 1, "image": "a" * 64, "key": 3,
        "base": "0x4fda00000000",
        "outputs": {"tuple": [{"tensor": {"addr": 88, "dtype": "float32", "shape": [2, 3],
                                          "stride": [3, 1]}},
                              {"dict": [["k", {"value": 1}], [3, {"list": []}]]}, None]},
        "torch": [[1 << 40, 4096, [[1 << 40, 512]]]]}
VALUES = (None, True, [], {}, "", -1, 1.5, 1e308, float("nan"), float("inf"), 1 << 70, "x", [[]],
          {"tensor": {}}, "float32", [1], "\0", {"value": []}, {"dict": [[[], None]]},
          {"list": None}, "0x", "0x" + "f" * 16, "\ud800", 10 ** 300, [[1, 2, [[3, 4]]]],
          {"value": {"tensor": None}}, {"dict": [["k", None], ["k", None]]})


def places(value, path=()):
    """The path of every value inside."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def replace(value, path, new):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def changed(numbers):
    """The good description with some values replaced, moved, removed or nested."""
    found = copy.deepcopy(GOOD)
    for _ in range(numbers.randint(1, 3)):
        paths = [path for path in places(found) if path]
        if not paths:
            break
        path, kind = numbers.choice(paths), numbers.randrange(8)
        new = copy.deepcopy(numbers.choice(VALUES))
        if kind == 0:
            other = found
            for key in numbers.choice(paths):
                other = other[key]
            new = copy.deepcopy(other)
        elif kind == 1:
            for _ in range(numbers.choice((1, 60, 70, 150))):
                new = {"list": [new]}
        replace(found, path, new)
    return found


def text_of(numbers):
    text = bytearray(json.dumps(changed(numbers)).encode())
    for _ in range(numbers.choice((0, 0, 0, 1, 3))):
        text[numbers.randrange(len(text))] = numbers.randrange(256)
    return text[:numbers.randrange(len(text))] if not numbers.randrange(20) else text


def run(path, seed, case):
    """Whether it was read."""
    with open(path, "wb") as f:
        f.write(text_of(random.Random(f"{seed}/{case}")))
    try:
        found = _file.read(path)
        if found.outputs is not None:
            _file.walk(found.outputs, _file.extent)
    except foundry.Error:
        return False
    return True


def main():
    percent, seed = int(os.environ.get("LONG") or 0), int(os.environ.get("SEED") or 1)
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=ALL * percent // 100 if percent else SAMPLE)
    parser.add_argument("-s", type=int, default=seed)
    parser.add_argument("-c", type=int)
    args = parser.parse_args()
    cases = range(args.n) if args.c is None else range(args.c, args.c + 1)
    faults = read = done = 0
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        for case in cases:
            done += 1
            try:
                read += run(os.path.join(folder, "graph.json"), args.s, case)
            except Exception:  # whatever else it raises is a fault
                faults += 1
                traceback.print_exc()
                print(f"FAULT in case {case}; to see it: -s {args.s} -c {case}", file=sys.stderr)
                if faults == 20:
                    break
    print(f"graph_files: {done} cases, seed {args.s}: {read} read, {done - read - faults} refused",
          file=sys.stderr)
    print(f"{0 if faults else 100}%: Checks: {done}, Failures: {faults}, Errors: 0")
    sys.exit(faults > 0)


main()
