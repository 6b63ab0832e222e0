# SPDX-License-Identifier: Apache-2.0
"""Checks of content and their cost, on one GPU, in one run, as ratios with their spread.

    contents.py [--small] [--rounds 5] [--dir DIR]

Prints what the programs report (fingerprint, seal, content), then a table: fingerprints beside
copies on the device, loads with and without the check, a seal of 16 GB of which 1 % changed beside
a full one, 64 saves beside one, and content in GB/s beside pinned memory and cat. Takes about two
minutes and 19 GB of DIR, a temporary directory otherwise. --small takes small sizes, for a run on
the software driver (FOUNDRY_DRIVER). Needs no PyTorch.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.environ.get("BUILD") or os.path.join(ROOT, "build")


def program(name, *args):
    """Run a program, show its output, and return its lines."""
    out = subprocess.run([os.path.join(BUILD, "tests", *name.split("/")), *map(str, args)],
                         stdout=subprocess.PIPE, text=True, timeout=160, check=False,
                         env={**os.environ, "TMPDIR": tempfile.gettempdir()})
    print(f"--- {name} {' '.join(map(str, args))}\n{out.stdout}", flush=True)
    if out.returncode:
        sys.exit(f"{name} failed: {out.returncode}")
    return out.stdout.splitlines()


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def fingerprints():
    """GB/s of the largest size: [fingerprint, copy], each [median, least, most]."""
    found = [re.findall(r"(\d+) GB/s \((\d+) to (\d+)\)", line)
             for line in program("gpu/fingerprint") if "GB/s" in line]
    return [[float(v) for v in one] for one in found[-1]] if found else None


def seals_changed(mib):
    """{row: [median, least, most]} in milliseconds."""
    rows = {}
    for line in program("bench/seal", "changed", mib):
        m = re.match(r"(.*\S) +([\d.]+) \(([\d.]+) to ([\d.]+)\), content", line)
        if m:
            rows[m[1]] = [float(v) for v in m.groups()[1:]]
    return rows


def saves(count, mib, rounds):
    """{way: totals in milliseconds, one a round}, with content as of a small model."""
    rows = {}
    for line in program("bench/seal", ",".join([str(count)] * rounds), 1200, mib):
        m = re.match(r" *\d+ graphs (together|in turn|fixed) +(.*)", line)
        if m:
            rows.setdefault(m[1], []).append(float(m[2].split()[4]))
    return rows


def contents(folder, mib, rounds, pairs):
    """{name: values, one a round} of the program content."""
    store, rows = os.path.join(folder, "store"), {}
    program("bench/seal", "changed", mib, store)
    for line in program("bench/gpu/content", "-s", store, "-r", "bench", "-n", rounds,
                        "-p", pairs):
        if line.startswith("GB/s"):
            break
        name, *values = line.split()
        if name != "facts":
            rows[name] = [float(v) for v in values]
    return rows


def ratio(rows, a, b):
    return [x / y for x, y in zip(rows[a], rows[b]) if y]


def table(prints, changed, saved, rows, count, pairs):
    fast, copy = prints or ([0, 0, 0], [1, 1, 1])
    full = changed["all of it new"][0]
    part = [ms / full for ms in changed["1 % changed"]]
    yield ("fingerprint, GB/s of a copy's on the device", "",
           f"{fast[0] / copy[0]:.2f} ({fast[1] / copy[2]:.2f} to {fast[2] / copy[1]:.2f})")
    yield ("check, ms a GB", "at most 1",
           spread([1e3 / v for v in rows["warm_check_gb_s"] if v] or [0]))
    middle, *quartiles = rows["pairs_load"]
    yield (f"load, checked / not, {pairs} pairs (quartiles)", "at most 1.02",
           "{:.3f} ({:.3f} to {:.3f})".format(middle, *quartiles))
    yield ("seal, 1 % changed / all new", "at most 0.1",
           f"{part[0]:.3f} ({part[1]:.3f} to {part[2]:.3f})")
    yield "seal by another capture / all new", "", f"{changed['in the store'][0] / full:.3f}"
    # Files of graphs promise that saved graphs stay as they are; other seals read them again.
    for way, what, reach in (("fixed", "saves in turn", "at most 1.5"),
                             ("in turn", "seals in turn of all graphs", "")):
        yield f"{count} {what} / one", reach, spread(ratio(saved, way, "together"))
    for name, what in (("warm", "content, warm"), ("warm_checked", "content, warm and checked"),
                       ("warm_verified", "content, warm, SHA-256"), ("restored", "restore"),
                       ("cold", "content, cold"), ("cold_checked", "content, cold and checked")):
        yield (f"{what}, GB/s", "", spread(rows[name]))
        yield (f"{what} / pinned", "at least 0.9" if name.startswith("warm") and
               name != "warm_verified" else "", spread(ratio(rows, name, "pinned")))
        cat = "cat_cold" if name.startswith("cold") else "cat"
        yield (f"{what} / {cat}", "", spread(ratio(rows, name, cat)))


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--small", action="store_true")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--dir")
    args = p.parse_args()
    if not args.small and not shutil.which("nvidia-smi"):
        print("SKIP: no GPU")
        return 77
    small, pairs = args.small, 4 if args.small else 60
    tempfile.tempdir = args.dir and os.path.abspath(args.dir)
    folder = tempfile.mkdtemp(prefix="contents-")
    try:
        rows = contents(folder, 16 if small else 1200, args.rounds, pairs)
    finally:
        shutil.rmtree(folder)
    prints = None if small else fingerprints()
    count = 8 if small else 64
    saved = saves(count, 16 if small else 1200, 1 if small else 3)
    changed = seals_changed(16 if small else 16384)
    print(f"{'':44} {'to reach':14} median (least to most)")
    for what, reach, value in table(prints, changed, saved, rows, count, pairs):
        print(f"{what:44} {reach:14} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
