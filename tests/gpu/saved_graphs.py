# SPDX-License-Identifier: Apache-2.0
"""Tests and measures graphs in files with PyTorch on a GPU: a decoder saved graph by graph and
together, loaded by file and by foundry.load().

Weights are made by randn(...) * 0.02, so that torch caches segments of temporary results, which a
save releases. Every way to load must give the bits of the capturing process. The table has the cost
of each way, with ratios to native warm-up and capture and to foundry.load().

    saved_graphs.py                     8 graphs, saved in every way
    saved_graphs.py whole 8,64 turn 3   as many graphs, saved in these ways, and each way to load
three times, in turns

"ready" is the time until all graphs were replayed once. Replays need time on the GPU ("again": a
second round of them). That time overlaps with the builds of later graphs only if a graph is
replayed before those are built.
"""
import hashlib
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

LAYERS, HIDDEN, HEADS, KV_HEADS, DIM, INNER = 28, 1024, 16, 8, 128, 3072
VOCAB, CONTEXT = 151936, 256
BASE = 0x500000000000


class Clock:
    def __init__(self):
        self.mark = time.perf_counter()

    def show(self, name):
        import torch
        torch.cuda.synchronize()
        now = time.perf_counter()
        print(f"{name} {(now - self.mark) * 1e3:.1f}", flush=True)
        self.mark = time.perf_counter()


class Decoder:
    """A decoder with one key-value cache, of which a batch of b uses the first b rows."""

    def __init__(self, rows):
        import torch
        self.torch = torch
        torch.manual_seed(5)
        make = {"device": "cuda", "dtype": torch.bfloat16}

        def weight(*shape):
            return torch.randn(*shape, **make) * 0.02
        self.token = torch.zeros(rows, dtype=torch.long, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.columns = torch.arange(CONTEXT, device="cuda")
        self.embed = weight(VOCAB, HIDDEN)
        self.layers = [{"q": weight(HIDDEN, HEADS * DIM), "k": weight(HIDDEN, KV_HEADS * DIM),
                        "v": weight(HIDDEN, KV_HEADS * DIM),
                        "o": weight(HEADS * DIM, HIDDEN), "gate": weight(HIDDEN, INNER),
                        "up": weight(HIDDEN, INNER),
                        "down": weight(INNER, HIDDEN), "norm": 1 + weight(HIDDEN), "norm2": 1
                        + weight(HIDDEN)} for _ in range(LAYERS)]
        self.cache = [torch.zeros(2, rows, KV_HEADS, CONTEXT, DIM, **make) for _ in range(LAYERS)]

    def norm(self, x, w):
        return x * self.torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * w

    def step(self, b):
        torch = self.torch
        x, mask = self.embed[self.token[:b]], (self.columns <= self.position)[None, None, None]
        for w, cache in zip(self.layers, self.cache):
            h = self.norm(x, w["norm"])
            q = (h @ w["q"]).view(b, HEADS, 1, DIM)
            for i, name in enumerate("kv"):
                cache[i, :b].index_copy_(2, self.position, (h @ w[name]).view(b, KV_HEADS, 1, DIM))
            k, v = (cache[i, :b].repeat_interleave(HEADS // KV_HEADS, 1) for i in range(2))
            scores = (q @ k.transpose(2, 3) * DIM ** -0.5).float().masked_fill(~mask, -1e30)
            a = torch.softmax(scores, -1).to(q.dtype) @ v
            x = x + a.reshape(b, HEADS * DIM) @ w["o"]
            h = self.norm(x, w["norm2"])
            x = x + (torch.nn.functional.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]
        logits = x @ self.embed.t()
        self.token[:b].copy_(logits.argmax(-1))
        self.position.add_(1)
        return logits

    def warm_up(self, batches):
        torch, stream = self.torch, self.torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for b in batches:
                self.step(b)
        torch.cuda.synchronize()
        self.position.zero_()
        for c in self.cache:
            c.zero_()


def digest(torch, replay, token, position, logits):
    """Returns a digest of the logits of some steps from a fixed start."""
    position.zero_()
    token.fill_(7)
    found = hashlib.sha256()
    for _ in range(4):
        replay()
        torch.cuda.synchronize()
        found.update(logits.cpu().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def batches(count):
    return list(range(count, 0, -1))


def native(count):
    count = int(count)
    import torch
    d, clock = Decoder(count), Clock()
    clock.show("model")
    d.warm_up(batches(count))
    graphs, pool = {}, None
    for b in batches(count):
        graphs[b] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[b], pool=pool):
            d.step(b)
        pool = pool or graphs[b].pool()
    for g in graphs.values():
        g.replay()
    clock.show("native_ready")


def python_shown():
    """Prints at the end of the process the milliseconds of each step of all saves besides the
    seals.
    """
    import atexit
    from foundry import _file, _torch, capture, cudagraph, placed
    spent = {}

    def timed(owner, name, shown=None):
        real, shown = getattr(owner, name), shown or name

        def run(*args, **options):
            began = time.perf_counter()
            try:
                return real(*args, **options)
            finally:
                spent[shown] = spent.get(shown, 0) + (time.perf_counter() - began) * 1e3
        setattr(owner, name, run)
    for each in ((_torch, "synchronize"), (_torch, "empty_cache"), (placed, "_find_random"),
                 (placed, "seal", "placed.seal"), (capture.Capture, "seal"), (placed, "torch_of"),
                 (_file, "store_for"), (_file.File, "write"),
                 (cudagraph.CUDAGraph, "_description")):
        timed(*each)
    atexit.register(lambda: print("# python", *(f"{k} {v:.1f}" for k, v in spent.items()),
                                  file=sys.stderr))


def phases_shown():
    from foundry import capture
    python_shown()
    real = capture.Capture.seal

    def seal(self, *args, **options):
        began = time.perf_counter()
        s = real(self, *args, **options)
        print("#", f"seal {(time.perf_counter() - began) * 1e3:.0f}",
              *(f"{name} {getattr(s, name):.0f}" for name in (
            "graphs_ms", "kernels_ms", "content_ms", "commit_ms", "graphs", "nodes",
            "content_bytes", "unchanged_bytes", "zero_bytes",
            "scratch_bytes")), file=sys.stderr)
        return s
    capture.Capture.seal = seal


def save(how, count, folder):
    """how: "turn", each saved when it was captured; "each", one by one when all were captured;
    "together", by save_graphs()."""
    count = int(count)
    import foundry as fdry
    import torch
    phases_shown()
    fdry.set_allocation_region(BASE, "64GB")
    d = Decoder(count)
    d.warm_up(batches(count))
    clock, made, spent = Clock(), {}, 0.0

    def saved(b):
        began = time.perf_counter()
        g, logits = made[b]
        g.save(os.path.join(folder, f"{b}.json"),
               {"logits": logits, "token": d.token, "position": d.position})
        return time.perf_counter() - began
    for b in batches(count):
        g = fdry.CUDAGraph()
        with fdry.graph(g, pool=made[count][0].pool() if made else None):
            logits = d.step(b)
        made[b] = g, logits
        if how == "turn":
            spent += saved(b)
    if how == "each":
        spent = sum(saved(b) for b in made)
    if how == "together":
        clock.show("captured")
        fdry.save_graphs({os.path.join(folder, f"{b}.json"): (g,
                                                              {"logits": logits, "token": d.token,
                                                               "position": d.position})
                          for b, (g, logits) in made.items()})
        clock.show("saved")
    else:
        print(f"saved {spent * 1e3:.1f}")
    clock.show("last")
    fdry.pack_fatbins_to_folder(folder)
    clock.show("packed")
    fdry.save_graph_manifest(folder)
    with open(os.path.join(folder, "digests"), "w", encoding="ascii") as f:
        for b in (1, count // 2, count):
            f.write(f"{b} {digest(torch, made[b][0].replay, d.token, d.position, made[b][1])}\n")


def known(folder):
    with open(os.path.join(folder, "digests"), encoding="ascii") as f:
        return {int(b): found for b, found in map(str.split, f)}


def shown(images):
    """Prints the phases of the first and the last load, in milliseconds."""
    images = list(images)
    for img in images[:1] + images[1:][-1:]:
        r = img.report
        print("# load", *(f"{k} {v:.1f}" for k, v in vars(r() if callable(r) else r).items() if v),
              file=sys.stderr)


def finished(pending):
    """Yields each graph of the token after replaying it as soon as it is built."""
    import foundry as fdry
    for i in range(len(pending)):
        found = fdry.CUDAGraph.finish_one_graph_load(pending, i)
        found[0].replay()
        yield found


def load(made, count, folder):
    """made: "model", the process makes the same weights; "builds", the same, with
    start_graph_builds() and all graphs built before a replay; "each", replayed when it is built;
    "nothing", the image brings the weights.
    """
    count = int(count)
    import foundry as fdry
    import torch
    torch.cuda.init()
    fdry.set_allocation_region(BASE, "64GB")
    d = Decoder(count) if made != "nothing" else None
    clock = Clock()
    fdry.load_cuda_modules_and_libraries(folder)
    clock.show("pack")
    start = time.perf_counter()
    paths = {b: os.path.join(folder, f"{b}.json") for b in batches(count)}
    if made == "builds":
        found = dict(
            zip(paths, fdry.CUDAGraph.finish_graph_loads(
                fdry.CUDAGraph.start_graph_builds(list(paths.values())))))
    elif made == "each":
        found = dict(zip(paths, finished(fdry.CUDAGraph.start_graph_builds(list(paths.values())))))
    else:
        found = {b: fdry.CUDAGraph.load(path) for b, path in paths.items()}
    clock.show("load")
    for pair in found.values() if made != "each" else ():
        pair.graph.replay()
    clock.show("launch")
    print(f"ready {(time.perf_counter() - start) * 1e3:.1f}")
    for pair in found.values():
        pair.graph.replay()
    clock.show("again")
    shown(p.image for p in fdry.region.current("figures").images.values())
    for b, want in known(folder).items():
        g, out = found[b]
        is_ = digest(torch, g.replay, d.token if d else out["token"], d.position if d
                     else out["position"], out["logits"])
        if is_ != want:
            sys.exit(f"batch {b}: {is_}, and {want} where it was captured")
    print("bits 1")


def image(count, folder, build=""):
    """Loads the same image by foundry.load(), as a program without such files does. build: builds
    all graphs before the first replay.
    """
    count = int(count)
    import json
    import foundry
    import torch
    torch.zeros(1).cuda()
    with open(os.path.join(folder, "1.json"), encoding="ascii") as f:
        ident = json.load(f)["image"]
    store = foundry.Store(os.path.join(folder, "foundry-store"))
    clock, start = Clock(), time.perf_counter()
    img = foundry.load(ident, store=store, build=bool(build))
    if len(img.graphs()) != count:
        sys.exit("the image has not all graphs; save them by \"together\"")
    clock.show("load")
    stream = torch.cuda.current_stream()
    for key in img.graphs():
        img.launch(key, stream)
    clock.show("launch")
    print(f"ready {(time.perf_counter() - start) * 1e3:.1f}")
    for key in img.graphs():
        img.launch(key, stream)
    clock.show("again")
    shown([img])


def part(*args):
    """Runs a part and returns its figures."""
    log = {"FOUNDRY_LOG": "debug"} if args[0] == "save" else {}
    done = subprocess.run([sys.executable, os.path.abspath(__file__), *map(str, args)],
                          capture_output=True, text=True, check=False, timeout=400,
                          env={**os.environ, **log})
    for line in done.stderr.splitlines():
        if line.startswith(("#", "foundry: debug: seal of")):
            print("   ", line, flush=True)
    if done.returncode:
        print(f"{args}: status {done.returncode}\n{done.stdout[-500:]}{done.stderr[-1500:]}",
              flush=True)
        return {}
    return {name: float(value) for name, value in map(str.split, done.stdout.splitlines())}


def table(count, base, rows):
    """Prints the times of each way, beside those of native warm-up and capture, and of
    foundry.load() up to the last first launch.
    """
    print(f"{count} graphs; native warm-up and capture {base.get('native_ready', 0):.0f} ms")
    whole = median(rows, "foundry.load", "ready")
    for name in dict.fromkeys(name for name, _ in rows):
        taken = [figures for each, figures in rows if each == name]
        readies = [figures["ready"] for figures in taken if "ready" in figures]
        ready, beside = median(rows, name, "ready"), ""
        if ready and base:
            beside = f"  native/{name.split()[0]} {base['native_ready'] / ready:.1f}"
        if ready and whole:
            beside += (f"  beside foundry.load {ready / whole:.2f} "
                       f"({min(readies):.0f} to {max(readies):.0f} ms)")
        print(f"  {name:28}", " ".join(f"{k} {median(rows, name, k):.0f}" for k in taken[0]
                                       if k != "bits"), beside, flush=True)


def median(rows, name, figure):
    taken = sorted(figures[figure] for each, figures in rows if each == name and figure in figures)
    return taken[len(taken) // 2] if taken else None


def whole(counts="8", ways="turn,each,together", rounds="1"):
    parts.need()
    results, how = [], ways.split(",")
    for count in map(int, counts.split(",")):
        base, rows = part("native", count), []
        for way in how:
            with tempfile.TemporaryDirectory() as folder:
                saves = part("save", way, count, folder)
                rows.append((f"save {way}", saves))
                results.append("saved" in saves)
                for _ in range(int(rounds) if saves else 0):
                    for made in ("model", "builds", "each", "nothing"):
                        rows.append((f"load {way} {made}", part("load", made, count, folder)))
                        results.append("bits" in rows[-1][1])
                    if way == how[-1]:
                        rows.append(("foundry.load", part("image", count, folder)))
                        rows.append(("foundry.load, build=True",
                                     part("image", count, folder, "build")))
        table(count, base, rows)
    parts.finish(results)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {f.__name__: f for f in (native, save, load, image, whole)}[sys.argv[1]](*sys.argv[2:])
    else:
        whole()
