# SPDX-License-Identifier: Apache-2.0
"""Starting, replaying and sealing beside native PyTorch and the driver's floor, on one GPU.

    run.py [--counts 8,32,64,256] [--parts start,inside,second,content,hook,pools] [--pairs 11]
           [--out DIR]

Runs the processes of each part, keeps what they print in DIR/bench-gpu.json (parts that are there
already from an earlier call stay), and prints the tables of Documentation/performance.rst; the last
one has the design's targets, and whether they were met. Needs PyTorch and transformers.
FOUNDRY_STORE names the store of the images; otherwise it is a temporary one.
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
    env = dict(os.environ, FOUNDRY_LIBRARY=os.path.join(BUILD, "libfoundry.so.0.2"))
    out = subprocess.run([str(c) for c in command], env=env, check=True, stdout=subprocess.PIPE,
                         text=True).stdout
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


def at_rest(store, image):
    """The objects that an image reaches, by kind: {kind: {objects, bytes, stored}}."""
    out = subprocess.run([os.path.join(BUILD, "foundry-store"), "-s", store, "--json", "show",
                          image], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out)["reaches"]


def part_start(args):
    counts = ",".join(map(str, args.counts))
    ret = {"native": model("native", counts), "capture": model("capture", counts, args.store)}
    for n in args.counts:
        keys = ",".join(str(k) for k in (1, 8, 32) if k <= n)
        ret["capture"].update({f"rest_{kind}_{n}": [r["stored"]]
                               for kind, r in at_rest(args.store, f"bench/{n}").items()})
        ret[str(n)] = bench("start", "-s", args.store, "-r", f"bench/{n}", "-n", 5,
                            "-k", keys if n == 32 else "")
    return ret


def part_replays(args):
    """Replays of one graph after each of eight loads, and after what else a round does. Prints them
    at once."""
    model("capture", "8", args.store)
    ret = {after: bench("start", "-s", args.store, "-r", "bench/8", "-n", 8, "-k", 1, "-a", after)
           for after in ("load", "build", "floor")}
    print("milliseconds of a replay, three times after each round")
    for after, figures in ret.items():
        print(f"{after:6}", " ".join(f"{ms:.3f}" for ms in figures["replay_1"]))
    return ret


def part_inside(args):
    return model("inside", args.store)


def part_second(args):
    """A second model of the same framework, weights outside, into a store that has the first."""
    test = os.path.join(ROOT, "tests", "gpu", "second_model.py")
    env = dict(os.environ, FOUNDRY_LIBRARY=os.path.join(BUILD, "libfoundry.so.0.2"))
    folder, ret = os.path.join(args.tmp, "second"), {}
    os.mkdir(folder)
    for family in ("qwen3", "llama"):
        subprocess.run([sys.executable, test, "capture", family, os.path.join(folder, "store")],
                       env=env, check=True)
        with open(os.path.join(folder, family + ".weights.json"), encoding="ascii") as f:
            ret[family] = json.load(f)
    return ret


def part_content(args):
    decode = os.path.join(ROOT, "api", "examples", "decode.py")
    env = {**os.environ, "FOUNDRY_LIBRARY": os.path.join(BUILD, "libfoundry.so.0.2"),
           "PYTHONPATH": os.path.join(ROOT, "api", "python")}
    subprocess.run([sys.executable, decode, "capture", "--store", args.store + "-content", "--ref",
                    "bench", "--batches", "1"],
                   env=env, check=True, stdout=subprocess.DEVNULL)
    return bench("content", "-s", args.store + "-content", "-n", 3)


def part_hook(args):
    return program(sys.executable, os.path.join(HERE, "warm.py"), "--rounds", args.pairs)


def part_pools(_):
    """The times of devices' pools and of the driver; nothing is stored."""
    return bench("pools")


def med(values):
    return statistics.median(values)


def low(values):
    """The lower quartile: what a busy machine spares."""
    return sorted(values)[len(values) // 4]


def spread(values, digits=1):
    return f"{med(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def ratios(top, bottom):
    """Pair by pair."""
    return [t / b for t, b in zip(top, bottom)]


def ratio_spread(top, bottom):
    """The median of the pairs' ratios, and the least and greatest."""
    return spread(ratios(top, bottom), 3)


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


def launched(r):
    """Loads that build all graphs, with the launches of all / the driver's own, by round."""
    own = [f + n for f, n in zip(floors(r), r["floor_launches"])]
    return ratios(r["together_launched"], own)


def show_start(res):
    part = res["start"]
    counts = [k for k in part if k.isdigit()]
    head = ["milliseconds"] + [f"{n} graphs" for n in counts]
    rows = [["native: warm-up"] + [f"{part['native'][f'native_{n}'][0]:,.0f}" for n in counts],
            ["native: capture"] + [f"{part['native'][f'native_{n}'][1]:,.0f}" for n in counts],
            ["native: first launches"] + [f"{part['native'][f'native_{n}'][2]:,.0f}"
                                          for n in counts]]
    for name, title in (("load", "image: load"), ("manifest", "  of it manifest, graph objects"),
                        ("memory", "  of it memory"),
                        ("content", "  of it content"), ("kernels", "  of it kernels"),
                        ("first_launched", "image: first graph launched"),
                        ("all_launchable", "image: every graph built"),
                        ("all_together", "image: every graph built by the load"),
                        ("floor_kernels", "the driver's own calls: kernels"),
                        ("floor_graphs", "the driver's own calls: graphs"),
                        ("floor_launches", "the driver's own calls: first launches"),
                        ("unload", "unload")):
        rows.append([title] + [spread(part[n][name]) for n in counts])
    rows.append(["in the background: first graph"]
                + [f"{part[n]['background_first'][0]:,.1f}" for n in counts])
    rows.append(["in the background: every graph, with launches between"]
                + [f"{part[n]['background_all'][0]:,.1f}" for n in counts])
    for name, title in (("launch_building", "a launch meanwhile"),
                        ("launch_idle", "a launch afterwards")):
        rows.append([title + ": p50, p99, longest"]
                    + [", ".join(f"{v:.3f}" for v in part[n][name]) for n in counts])
    rows.append(["device memory of the graphs, MB"]
                + [f"{part[n]['exec_bytes'][0] / 1e6:,.0f}" for n in counts])
    rows.append(["every graph built / the driver's own"]
                + [ratio_spread(part[n]["all_launchable"], floors(part[n])) for n in counts])
    rows.append(["a load that builds every graph / the driver's own"]
                + [ratio_spread(part[n]["all_together"], floors(part[n])) for n in counts])
    rows.append(["a graph not yet built / the driver's own"] +
                [ratio_spread(part[n]["build_rest"], part[n]["floor_graphs"]) for n in counts])
    table("Starting", head, rows)
    sealed = part["capture"]
    table("Sealing", head, [
        ["nodes"] + [f"{sealed[f'nodes_{n}'][0]:,.0f}" for n in counts],
        ["capture of those not captured yet"]
        + [f"{sealed[f'sealed_{n}'][0]:,.0f}" for n in counts],
        ["seal"] + [f"{sealed[f'sealed_{n}'][1]:,.0f}" for n in counts],
        ["  of it reading graphs"] + [f"{sealed[f'sealed_{n}'][2]:,.0f}" for n in counts],
        ["  of it kernels"] + [f"{sealed[f'sealed_{n}'][3]:,.0f}" for n in counts],
        ["  of it content"] + [f"{sealed[f'sealed_{n}'][4]:,.0f}" for n in counts],
        ["kernels, of them whole cubins"]
        + [f"{sealed[f'kernels_{n}'][0]:,.0f}, {sealed[f'kernels_whole_{n}'][0]:,.0f}"
           for n in counts],
        ["bytes of graph objects"] + [f"{sealed[f'graph_bytes_{n}'][0]:,.0f}" for n in counts],
        ["bytes of kernel objects"] + [f"{sealed[f'kernel_bytes_{n}'][0]:,.0f}" for n in counts],
        ["bytes at rest that the store did not have"]
        + [f"{sealed[f'stored_new_{n}'][0]:,.0f}" for n in counts]])


def show_replay(res):
    native, rows = res["start"]["native"], []
    ours = res["start"].get("32", {})
    inside = res.get("inside", {})
    for k in ("1", "8", "32", "in_turn"):
        row = [k.replace("_", " "), f"{med(native[f'native_replay_{k}']):.3f}"]
        row.append(ratio_spread(ours[f"replay_{k}"], native[f"native_replay_{k}"])
                   if f"replay_{k}" in ours else "")
        for name, before in (("inside", "inside"), ("own_context", "own_context"),
                             ("refreshed", "inside"), ("refreshed_then_native", "inside")):
            here = inside.get(f"{name}_{k}")
            row.append(ratio_spread(here, inside[f"{before}_native_{k}"]) if here else "")
        rows.append(row)
    table("Replay", ["batch", "native, ms", "image in its own process",
                     "image inside PyTorch's process", "there, in a context of its own",
                     "there, the context refreshed", "PyTorch itself then"], rows)


def show_content(res):
    part = res["content"]
    table("Content", ["way", "GB/s", "of pinned memory, or of the disk"], [
        ["pinned memory to the GPU", spread(part["pinned"]), ""],
        ["content, verified before", spread(part["warm"]),
         ratio_spread(part["warm"], part["pinned"])],
        ["content, verified now", spread(part["warm_verified"]),
         ratio_spread(part["warm_verified"], part["pinned"])],
        ["the check of its fingerprints on the GPU", spread(part["warm_check_gb_s"]), ""],
        ["the file read by all processors, not in the page cache", spread(part["disk"]), ""],
        ["content, not in the page cache", spread(part["cold"]),
         ratio_spread(part["cold"], part["disk"])]])


def show_hook(res):
    part = res["hook"]
    rows = []
    for name, title in (("weights", "model and weights"),
                        ("warm_up", "warm-up of six batch sizes")):
        for kind, of in (("", title), ("_cpu", "  of it processor time")):
            native, hook = part[f"native_{name}{kind}"], part[f"hook_{name}{kind}"]
            rows.append([of, spread(native), spread(hook), f"{low(hook) / low(native):.3f}",
                         ratio_spread(hook, native)])
    table("Under the interposer", ["milliseconds", "native", "under a capture",
                                   "ratio of lower quartiles", "ratio of pairs"], rows)


def show_pools(res):
    rows = [[name.replace("_", " "), *(f"{v:,.0f}" for v in values[:3]), f"{values[3]:.4f}"]
            for name, values in res["pools"].items() if len(values) == 4]
    table("Getting and giving back", ["nanoseconds", "median", "least", "most", "ratio"], rows)


def target(what, value, limit, text, below=True):
    """A row: what, the target, what was measured, and whether that is met."""
    return [what, ("at most " if below else "at least ") + text[0], text[1],
            "met" if (value <= limit) == below or value == limit else "missed"]


def targets_start(res):
    part, sealed, rows = res["start"], res["start"]["capture"], []
    for n, limit in ((64, 20), (256, 50)):
        if str(n) in part:
            load = part[str(n)]["load"]
            rows.append(target(f"{n} graphs launchable, ms", med(load), limit,
                               (str(limit), spread(load))))
    for n in [k for k in part if k.isdigit()]:
        first, ratio = part[n]["first_launched"], ratios(part[n]["all_launchable"], floors(part[n]))
        rows.append(target(f"first of {n} graphs launched, ms", med(first), 35,
                           ("35", spread(first))))
        rows.append(target(f"load and first launch of all {n} / the driver's own", med(ratio), 1.1,
                           ("1.1", spread(ratio, 3))))
        ratio = ratios(part[n]["all_together"], floors(part[n]))
        rows.append(target(f"load that builds all {n}, and a launch / the driver's own", med(ratio),
                           1.1, ("1.1", spread(ratio, 3))))
        ratio = launched(part[n])
        rows.append(target(f"load that builds all {n}, launches of all / the driver's own",
                           med(ratio), 1.1, ("1.1", spread(ratio, 3))))
        ratio = ratios(part[n]["build_rest"], part[n]["floor_graphs"])
        rows.append(target(f"a graph of {n} not yet built / the driver's own", med(ratio), 1.1,
                           ("1.1", spread(ratio, 3))))
    if "32" in part:
        rest = {kind: sealed[f"rest_{kind}_32"][0] / 1e6
                for kind in ("kernel", "graph", "manifest")}
        rows.append(target("at rest, 32 graphs and their kernels, MB", rest["kernel"]
                           + rest["graph"], 3,
                           ("3", f"kernels {rest['kernel']:.2f}, graphs {rest['graph']:.2f} "
                                 f"(manifest {rest['manifest']:.2f})")))
        own = sealed["sealed_32"][1] - sealed["sealed_32"][4]
        rows.append(target("seal of 32 graphs without reading content, ms", own, 1000,
                           ("1,000", f"{own:,.0f}")))
        for k in ("1", "8", "32", "in_turn"):
            ratio = ratios(part["32"][f"replay_{k}"], part["native"][f"native_replay_{k}"])
            rows.append(target(f"replay in a process of its own / PyTorch, batch "
                               f"{k.replace('_', ' ')}", med(ratio), 0.87,
                               ("0.87", spread(ratio, 3))))
    return rows


def targets_inside(res):
    part, rows = res["inside"], []
    for name, native, title, limit in (("inside", "inside",
                                        "replay inside PyTorch's process / PyTorch", 1.01),
                                       ("own_context", "own_context",
                                        "there, in a context of its own", 0.87),
                                       ("refreshed", "inside",
                                        "there, the context refreshed / PyTorch before", 0.87)):
        for k in ("1", "8", "32", "in_turn"):
            if f"{name}_{k}" in part:
                ratio = ratios(part[f"{name}_{k}"], part[f"{native}_native_{k}"])
                rows.append(target(f"{title}, batch {k.replace('_', ' ')}", med(ratio), limit,
                                   (str(limit), spread(ratio, 3))))
    return rows


def targets_second(res):
    """The second model may add what it does not share: its own kernels, graphs and manifest."""
    first, second = res["second"]["qwen3"], res["second"]["llama"]
    shared = len(set(first["objects"]) & set(second["objects"]))
    rows = [target("a second model: kernels stored that the first has", second["objects_known"],
                   shared,
                   (f"least {shared} known"[6:], f"{shared} of {second['kernels']} shared"),
                   below=False)]
    rows.append(["a second model adds, bytes at rest", "",
                 f"{second['stored_new']:,} (alone {second['alone_stored']:,})", ""])
    return rows


def targets_content(res):
    part, rows = res["content"], []
    for name, over, title in (("warm", "pinned", "content from the page cache / pinned memory"),
                              ("cold", "disk", "content, not in the page cache / the disk")):
        ratio = ratios(part[name], part[over])
        rows.append(target(title, med(ratio), 0.9,
                           ("0.9", f"{spread(ratio, 3)}; {med(part[name]):.1f} GB/s"), below=False))
    rows.append(["content from the page cache, verified now, GB/s", "",
                 spread(part["warm_verified"]), ""])
    ratio = ratios(part["warm_load_ms"], part["warm_load_unchecked_ms"])
    rows.append(target("a load / the same without the check of fingerprints", med(ratio), 1.02,
                       ("1.02", f"{spread(ratio, 4)}; {spread(part['warm_check_ms'])} ms")))
    return rows


def targets_hook(res):
    part, rows = res["hook"], []
    for name, title in (("weights", "model and weights under a capture / natively"),
                        ("warm_up", "warm-up under a capture / natively")):
        ratio = ratios(part[f"hook_{name}"], part[f"native_{name}"])
        rows.append(target(title, med(ratio), 1.03, ("1.03", spread(ratio, 3))))
    return rows


def show_targets(res):
    rows = []
    for name, rows_of in (("start", targets_start), ("inside", targets_inside),
                          ("second", targets_second), ("content", targets_content),
                          ("hook", targets_hook)):
        if name in res:
            rows += rows_of(res)
    if rows:
        table("Targets", ["what", "to reach", "measured", ""], rows)


PARTS = {"start": part_start, "inside": part_inside, "second": part_second, "content": part_content,
         "hook": part_hook,
         "pools": part_pools}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--counts", type=lambda s: [int(n) for n in s.split(",")],
                   default=[8, 32, 64, 256])
    p.add_argument("--parts", default=",".join(PARTS))
    p.add_argument("--pairs", type=int, default=11)
    p.add_argument("--out", default=BUILD)
    args = p.parse_args()
    at = os.path.join(args.out, "bench-gpu.json")
    res = {}
    if os.path.exists(at):
        with open(at, encoding="ascii") as f:
            res = json.load(f)
    os.makedirs(args.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        args.tmp, args.store = tmp, os.environ.get("FOUNDRY_STORE") or os.path.join(tmp, "store")
        for name in [n for n in args.parts.split(",") if n]:
            res[name] = PARTS[name](args)
            with open(at, "w", encoding="ascii") as f:
                json.dump(res, f, indent=1)
    for name, show in (("start", show_start), ("start", show_replay), ("content", show_content),
                       ("hook", show_hook),
                       ("pools", show_pools)):
        if name in res:
            show(res)
    show_targets(res)


if __name__ == "__main__":
    main()
