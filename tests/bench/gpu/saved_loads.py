# SPDX-License-Identifier: Apache-2.0
"""A table of the time of each step if graphs are loaded one by one from files with an image each.

    saved_loads.py [COUNTS [MADE]]      COUNTS: 8,64; MADE: model,nothing (the loading process makes
                                        the model, or leaves it to the image)
    saved_loads.py --sim [...]          a small model on the software driver, without PyTorch

One process captures a decoder and saves each graph when it is captured. For each MADE one process
loads them with clocks around the steps, and another one under cProfile. The first prints a table:
a row for each step, with the milliseconds of some loads and the sum of all. The rows below "of the
library" are the phases that the library measures itself; some of them run side by side. Then come
the sizes on which the steps depend.
"""
import contextlib
import cProfile
import gc
import importlib
import io
import os
import pstats
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(TESTS, name) for name in ("gpu", "python")]
import parts  # noqa: E402
import saved_graphs  # noqa: E402

PHASES = ("manifest", "driver", "memory", "content", "kernels", "objects", "wait")
# (row, module of the package, class or "", function): the innermost one that runs has the time.
STEPS = (("read the file", "_file", "", "read"),
         ("find the store", "_file", "", "_open"),
         ("unload unused images", "placed", "Placed", "leave"),
         ("torch's memory snapshot", "_torch", "", "_snapshot"),
         ("its segments", "region", "Region", "segments"),
         ("torch's counters", "_torch", "", "counters"),
         ("segments of the file", "_segments", "", "of_file"),
         ("compare tensors", "_segments", "", "compare"),
         ("compare sizes", "_segments", "", "compare_sizes"),
         ("memory that is kept", "_segments", "Memory", "kept"),
         ("memory of the image", "_segments", "Memory", "add"),
         ("synchronize", "_torch", "", "synchronize"),
         ("list of allocations", "region", "Region", "allocs"),
         ("take torch's blocks", "_torch", "Held", "hold"),
         ("call of the library", "placed", "", "load"),
         ("make the graph object", "cudagraph", "", "open_graph"),
         ("views as torch's", "_torch", "", "view"))
COLLECTION = "Python's garbage collection"


class Clocks:
    """Time that is spent in each step, without that of the steps inside it."""

    def __init__(self):
        self.rows, self.names, self.mark = [], [], 0.0

    def turn(self):
        now = time.perf_counter()
        if self.names:
            self.rows[-1][self.names[-1]] = self.rows[-1].get(self.names[-1], 0) + now - self.mark
        self.mark = now

    @contextlib.contextmanager
    def step(self, name):
        self.turn()
        self.names.append(name)
        try:
            yield
        finally:
            self.turn()
            self.names.pop()

    def wrap(self, owner, function, name):
        inner = getattr(owner, function)

        def timed(*args, **options):
            with self.step(name):
                return inner(*args, **options)
        setattr(owner, function, timed)

    def collecting(self, phase, _info):
        if self.names:
            self.turn()
            if phase == "start":
                self.names.append(COLLECTION)
            elif self.names[-1] == COLLECTION:
                self.names.pop()

    @contextlib.contextmanager
    def load(self):
        self.rows.append({})
        with self.step("the rest"):
            yield


def watch(clocks):
    gc.callbacks.append(clocks.collecting)
    for name, module, kind, function in STEPS:
        owner = importlib.import_module("foundry." + module)
        owner = getattr(owner, kind) if kind else owner
        clocks.wrap(owner, function, name)


def table(rows):
    """rows: a dict for each load."""
    count = len(rows)
    shown = sorted({0, 1, count // 2, count - 1})
    print(f"{'ms of load':28}" + "".join(f"{i:>9}" for i in shown) + f"{'all':>10}")
    sums = COLLECTION, "the rest", "= the package", "= of the library"
    for name in (*(name for name, *_ in STEPS), *sums, *PHASES):
        if any(name in row for row in rows):
            mark = "  " if name in PHASES else ""
            some = "".join(f"{rows[i].get(name, 0):9.3f}" for i in shown)
            print(f"{mark + name:28}{some}{sum(row.get(name, 0) for row in rows):10.1f}")


def finish_row(row, image):
    report = image.report()
    row = {name: 1e3 * seconds for name, seconds in row.items()}
    row["call of the library"] = row.get("call of the library", 0) - report.total_ms
    whole = sum(row.values())
    row.update({name: getattr(report, name + "_ms") for name in PHASES})
    row["= the package"], row["= of the library"] = whole, report.total_ms
    return row


def sizes(foundry, folder, paths):
    """The numbers on which the steps depend."""
    where = foundry.region.current("figures")
    segments, files = where.segments(), [foundry._file.read(path) for path in (paths[0], paths[-1])]
    for path, file in zip((paths[0], paths[-1]), files):
        print(f"{os.path.basename(path)}: {os.path.getsize(path)} bytes, "
              f"{len(file.torch)} segments with {sum(len(s[2]) for s in file.torch)} tensors")
    print(f"torch has {len(segments)} segments in the region, "
          f"with {sum(len(s.blocks) for s in segments)} blocks, "
          f"{sum(len(s.live) for s in segments)} in use; "
          f"the region has {len(where.allocs())} allocations")
    store = foundry.Store(os.path.join(folder, "foundry-store"))
    for line in store.describe(files[1].image).splitlines():
        if line.startswith("memory"):
            print(line)


class Little:
    """A model for the software driver: weights in many segments, graphs of a few adds."""

    def __init__(self, rows):
        import torch
        self.torch = torch
        self.token, self.position = torch.full((16,), 7.0), torch.full((16,), 0.0)
        self.weights = [torch.full((40_000 + 1000 * (i % 7),), 1.0) for i in range(200)]
        self.sums = [torch.full((16,), float(i)) for i in range(1000 + rows)]

    def warm_up(self, _):
        pass

    def step(self, b):
        x = self.token
        for w in self.sums[:8 + b]:
            x = x + w
        self.token.copy_(x)
        return x


def save(count, folder):
    """Do what saved_graphs.py does with "turn", without the steps that only PyTorch has."""
    import foundry as fdry
    import torch
    torch.cuda.init()
    fdry.set_allocation_region(saved_graphs.BASE, "4GB")
    d, made = Little(int(count)), {}
    for b in saved_graphs.batches(int(count)):
        g = fdry.CUDAGraph()
        with fdry.graph(g, pool=made[int(count)][0].pool() if made else None):
            logits = d.step(b)
        made[b] = g, logits
        g.save(os.path.join(folder, f"{b}.json"),
               {"logits": logits, "token": d.token, "position": d.position})


def begin(made, count, sim):
    import foundry as fdry
    import torch
    torch.cuda.init()
    fdry.set_allocation_region(saved_graphs.BASE, "4GB" if sim else "64GB")
    model = (Little if sim else saved_graphs.Decoder)(int(count)) if made == "model" else None
    torch.cuda.synchronize()
    return fdry, model


def load(made, count, folder, *sim):
    fdry, _model = begin(made, count, sim)
    clocks, found, rows = Clocks(), [], []
    paths = [os.path.join(folder, f"{b}.json") for b in saved_graphs.batches(int(count))]
    watch(clocks)
    for path in paths:
        with clocks.load():
            found.append(fdry.CUDAGraph.load(path)[0])
        rows.append(finish_row(clocks.rows[-1], found[-1]._placed.image))
    start = time.perf_counter()
    for g in found:
        g.replay()
    import torch
    torch.cuda.synchronize()
    replays = 1e3 * (time.perf_counter() - start)
    loads = sum(row["= the package"] + row["= of the library"] for row in rows)
    print(f"\n{count} files, {made}: loads {loads:.1f} ms, first replays {replays:.1f} ms")
    table(rows)
    sizes(fdry, folder, paths)


def profile(made, count, folder, *sim):
    fdry, _model = begin(made, count, sim)
    paths = [os.path.join(folder, f"{b}.json") for b in saved_graphs.batches(int(count))]
    profiler, text = cProfile.Profile(), io.StringIO()
    profiler.enable()
    found = [fdry.CUDAGraph.load(path) for path in paths]
    profiler.disable()
    pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("tottime").print_stats(25)
    print(f"\n{len(found)} files, {made}, under cProfile")
    lines = [line[:110] for line in text.getvalue().splitlines()[4:] if line.strip()]
    print("\n".join(lines), flush=True)


def run(script, *args, env):
    quiet = subprocess.DEVNULL if args[0] == "save" else None
    done = subprocess.run([sys.executable, script, *map(str, args)], env=env, stdout=quiet,
                          check=False, timeout=500)
    if done.returncode:
        sys.exit(f"{args}: status {done.returncode}")


def whole(counts="8,64", ways="model,nothing", sim=""):
    env = {key: value for key, value in os.environ.items() if key != "FOUNDRY_STORE"}
    own = [os.path.abspath(__file__)]
    if sim:
        env["PYTHONPATH"] = os.path.join(TESTS, "python", "stand_in")
        driver = os.path.join(parts.BUILD, "foundry", "sim", "libcuda.so.1")
        env.setdefault("FOUNDRY_DRIVER", driver)
    else:
        parts.need()
    for count in counts.split(","):
        with tempfile.TemporaryDirectory() as folder:
            if sim:
                run(*own, "save", count, folder, env=env)
            else:
                run(saved_graphs.__file__, "save", "turn", count, folder, env=env)
            for made in ways.split(","):
                run(*own, "load", made, count, folder, *sim.split(), env=env)
                run(*own, "profile", made, count, folder, *sim.split(), env=env)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ("save", "load", "profile"):
        {f.__name__: f for f in (save, load, profile)}[sys.argv[1]](*sys.argv[2:])
    elif sys.argv[1:2] == ["--sim"]:
        whole(*sys.argv[2:], **{"sim": "sim"})
    else:
        whole(*sys.argv[1:])
