# SPDX-License-Identifier: Apache-2.0
"""Starting, replaying and sealing beside native PyTorch and the driver's floor, on one GPU.

    run.py [--counts 8,32,64,256] [--parts start,inside,content,hook] [--pairs 7] [--out DIR]

Runs the processes of each part, keeps what they print in DIR/bench-gpu.json (parts that are
there already from an earlier call stay), and prints the tables of Documentation/performance.rst.
Needs PyTorch and transformers. FOUNDRY_STORE is where images go; otherwise a temporary store.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.environ.get("BUILD") or os.path.join(ROOT, "build")


def program(*command):
    """Lines "name value ..." of a process, as {name: [values]}."""
    env = dict(os.environ, FOUNDRY_LIBRARY=os.path.join(BUILD, "libfoundry.so.0"))
    out = subprocess.run([str(c) for c in command], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
    ret = {}
    for line in out.splitlines():
        name, *values = line.split()
        try:
            ret.setdefault(name, []).extend(float(v) for v in values)
        except ValueError:
            pass
    return ret


def model(*args):
    return program(sys.executable, os.path.join(HERE, "model.py"), *args)


def bench(name, *args):
    return program(os.path.join(BUILD, "tests", "bench", "gpu", name), *args)


def part_start(args):
    counts = ",".join(map(str, args.counts))
    ret = {"native": model("native", counts), "capture": model("capture", counts, args.store)}
    for n in args.counts:
        keys = ",".join(str(k) for k in (1, 8, 32) if k <= n)
        ret[str(n)] = bench("start", "-s", args.store, "-r", f"bench/{n}", "-n", 5, "-k", keys if n == 32 else "")
    return ret


def part_inside(args):
    return model("inside", args.store)


def part_content(args):
    decode = os.path.join(ROOT, "api", "examples", "decode.py")
    env = {**os.environ, "FOUNDRY_LIBRARY": os.path.join(BUILD, "libfoundry.so.0"), "PYTHONPATH": os.path.join(ROOT, "api", "python")}
    subprocess.run([sys.executable, decode, "capture", "--store", args.store + "-content", "--ref", "bench", "--batches", "1"],
                   env=env, check=True, stdout=subprocess.DEVNULL)
    return bench("content", "-s", args.store + "-content", "-n", 3)


def part_hook(args):
    ret = {"native": {}, "hook": {}}
    for i in range(2 * args.pairs):
        # The one that comes first alternates, too.
        which = ("native", "hook")[(i + i // 2) % 2]
        for name, values in model("warm", *(["--hook"] if which == "hook" else [])).items():
            ret[which].setdefault(name, []).extend(values)
    return ret


def med(values):
    return statistics.median(values)


def spread(values):
    return f"{med(values):,.1f} ({min(values):,.1f} to {max(values):,.1f})"


def ratio_spread(top, bottom):
    """The median of the pairs' ratios, and the least and greatest."""
    ratios = [t / b for t, b in zip(top, bottom)]
    return f"{med(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def table(title, head, rows):
    """One reStructuredText grid of plain columns."""
    rows = [[str(c) for c in r] for r in [head] + rows]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
    rule = " ".join("=" * w for w in widths)

    def line(r):
        return " ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip()
    print(f"\n{title}\n{'=' * len(title)}\n\n{rule}\n{line(rows[0])}\n{rule}")
    print("\n".join(line(r) for r in rows[1:]))
    print(rule)


def floors(r):
    """The driver's own time, by round."""
    return [k + g for k, g in zip(r["floor_kernels"], r["floor_graphs"])]


def show_start(res):
    part = res["start"]
    counts = [k for k in part if k.isdigit()]
    head = ["milliseconds"] + [f"{n} graphs" for n in counts]
    rows = [["native: warm-up"] + [f"{part['native'][f'native_{n}'][0]:,.0f}" for n in counts],
            ["native: capture"] + [f"{part['native'][f'native_{n}'][1]:,.0f}" for n in counts],
            ["native: first launches"] + [f"{part['native'][f'native_{n}'][2]:,.0f}" for n in counts]]
    for name, title in (("load", "image: load"), ("manifest", "  of it manifest, graph objects"), ("memory", "  of it memory"),
                        ("content", "  of it content"), ("kernels", "  of it kernels"),
                        ("first_launched", "image: first graph launched"), ("all_launchable", "image: every graph built"),
                        ("floor_kernels", "the driver's own calls: kernels"), ("floor_graphs", "the driver's own calls: graphs"),
                        ("unload", "unload")):
        rows.append([title] + [spread(part[n][name]) for n in counts])
    rows.append(["in the background: first graph"] + [f"{part[n]['background_first'][0]:,.1f}" for n in counts])
    rows.append(["in the background: every graph, with launches between"] + [f"{part[n]['background_all'][0]:,.1f}" for n in counts])
    for name, title in (("launch_building", "a launch meanwhile"), ("launch_idle", "a launch afterwards")):
        rows.append([title + ": p50, p99, longest"] + [", ".join(f"{v:.3f}" for v in part[n][name]) for n in counts])
    rows.append(["device memory of the graphs, MB"] + [f"{part[n]['exec_bytes'][0] / 1e6:,.0f}" for n in counts])
    rows.append(["every graph built / the driver's own"] + [ratio_spread(part[n]["all_launchable"], floors(part[n])) for n in counts])
    rows.append(["a graph not yet built / the driver's own"] +
                [ratio_spread(part[n]["build_rest"], part[n]["floor_graphs"]) for n in counts])
    table("Starting", head, rows)
    sealed = part["capture"]
    table("Sealing", head, [
        ["nodes"] + [f"{sealed[f'nodes_{n}'][0]:,.0f}" for n in counts],
        ["capture of those not captured yet"] + [f"{sealed[f'sealed_{n}'][0]:,.0f}" for n in counts],
        ["seal"] + [f"{sealed[f'sealed_{n}'][1]:,.0f}" for n in counts],
        ["  of it reading graphs"] + [f"{sealed[f'sealed_{n}'][2]:,.0f}" for n in counts],
        ["  of it kernels"] + [f"{sealed[f'sealed_{n}'][3]:,.0f}" for n in counts],
        ["  of it content"] + [f"{sealed[f'sealed_{n}'][4]:,.0f}" for n in counts],
        ["kernels, of them whole cubins"] + [f"{sealed[f'kernels_{n}'][0]:,.0f}, {sealed[f'kernels_whole_{n}'][0]:,.0f}" for n in counts],
        ["bytes of graph objects"] + [f"{sealed[f'graph_bytes_{n}'][0]:,.0f}" for n in counts],
        ["bytes of kernel objects"] + [f"{sealed[f'kernel_bytes_{n}'][0]:,.0f}" for n in counts],
        ["bytes at rest that the store did not have"] + [f"{sealed[f'stored_new_{n}'][0]:,.0f}" for n in counts]])


def show_replay(res):
    native, rows = res["start"]["native"], []
    ours = res["start"].get("32", {})
    inside = res.get("inside", {})
    for k in ("1", "8", "32", "in_turn"):
        row = [k.replace("_", " "), f"{med(native[f'native_replay_{k}']):.3f}"]
        row.append(ratio_spread(ours[f"replay_{k}"], native[f"native_replay_{k}"]) if f"replay_{k}" in ours else "")
        for name in ("inside", "own_context"):
            here = inside.get(f"{name}_{k}")
            row.append(ratio_spread(here, inside[f"{name}_native_{k}"]) if here else "")
        rows.append(row)
    table("Replay", ["batch", "native, ms", "image in its own process", "image inside PyTorch's process", "there, in a context of its own"], rows)


def show_content(res):
    part = res["content"]
    table("Content", ["way", "GB/s", "of pinned memory, or of the disk"], [
        ["pinned memory to the GPU", spread(part["pinned"]), ""],
        ["content, verified before", spread(part["warm"]), ratio_spread(part["warm"], part["pinned"])],
        ["content, verified now", spread(part["warm_verified"]), ratio_spread(part["warm_verified"], part["pinned"])],
        ["the file read by all processors, not in the page cache", spread(part["disk"]), ""],
        ["content, not in the page cache", spread(part["cold"]), ratio_spread(part["cold"], part["disk"])]])


def show_hook(res):
    part = res["hook"]
    table("Under the stand-in", ["milliseconds", "native", "under a capture", "ratio of pairs"],
          [[title, spread(part["native"][name]), spread(part["hook"][name]), ratio_spread(part["hook"][name], part["native"][name])]
           for name, title in (("weights", "model and weights"), ("warm_up", "warm-up of six batch sizes"))])


PARTS = {"start": part_start, "inside": part_inside, "content": part_content, "hook": part_hook}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--counts", type=lambda s: [int(n) for n in s.split(",")], default=[8, 32, 64, 256])
    p.add_argument("--parts", default=",".join(PARTS))
    p.add_argument("--pairs", type=int, default=7)
    p.add_argument("--out", default=BUILD)
    args = p.parse_args()
    at = os.path.join(args.out, "bench-gpu.json")
    res = {}
    if os.path.exists(at):
        with open(at, encoding="ascii") as f:
            res = json.load(f)
    with tempfile.TemporaryDirectory() as tmp:
        args.store = os.environ.get("FOUNDRY_STORE") or os.path.join(tmp, "store")
        for name in [n for n in args.parts.split(",") if n]:
            res[name] = PARTS[name](args)
            with open(at, "w", encoding="ascii") as f:
                json.dump(res, f, indent=1)
    for name, show in (("start", show_start), ("start", show_replay), ("content", show_content), ("hook", show_hook)):
        if name in res:
            show(res)


if __name__ == "__main__":
    main()
