# SPDX-License-Identifier: Apache-2.0
"""Tests the API of Documentation/api/torch-graphs.rst with PyTorch on a GPU: its quick starts, and
its other promises.

    torch_graphs.py [--limit SECONDS]

Every script is a process of its own. A part that fails prints the reason, and the others still run.
"""
import concurrent.futures
import functools
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
from test_torch_graphs import CAPTURE, LOAD, PREALLOCATED  # noqa: E402

# The functions that the document leaves to its reader, and a matrix product, which needs a library.
PLAIN = """\
class MyModel:
    def __call__(self, a, b):
        import torch
        return torch.relu(a @ b) + a
"""
PARAMETERS = """\
import foundry  # before anything of torch
import torch.nn
class MyModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.one, self.two = torch.nn.Linear(100, 200), torch.nn.Linear(200, 100)
        for p in self.parameters():
            p.requires_grad_(False)
    def forward(self, a, b):
        return torch.softmax(self.two(torch.relu(self.one(a * 0.01))), -1) + b
"""
SAVED = """
torch.cuda.synchronize()
torch.save(result.cpu(), 'captured.pt')
"""
# Writes eager results for other values, before the saving script ends.
EAGER = """
fdry.stop_allocation_region()
for v in (2.0, 5.0, -7.0):
    torch.save(model(torch.full((100, 100), v, device=device), input_b).cpu(), f'eager{v}.pt')
"""
CHECKED = """
import sys
for v in (5.0, -7.0, 2.0):
    input_a.fill_(v)
    graph.replay()
    torch.cuda.synchronize()
    want = torch.load(f'eager{v}.pt').cpu()
    if not torch.equal(output_tensor.cpu(), want):
        by = (output_tensor.cpu() - want).abs().max().item()
        sys.exit(f'{v}: differs by {by} of {want.abs().max().item()}')
"""
BASE = """import foundry as fdry
import torch
BASE = 0x500000000000
fdry.set_allocation_region(BASE, '4GB')
"""
TIMES = int(os.environ.get("FOUNDRY_STARTS", "24"))  # number of processes that try the base
UNTIL = parts.deadline()


class Failed(Exception):
    pass


def run(folder, text, name="script"):
    env = dict(os.environ, PYTHONPATH=os.path.join(parts.ROOT, "api", "python"), HOME=folder)
    for gone in ("FOUNDRY_STORE", "XDG_CACHE_HOME"):
        env.pop(gone, None)
    try:
        return subprocess.run([sys.executable, "-c", text], cwd=folder, env=env,
                              capture_output=True, text=True, check=False,
                              timeout=max(0.1, min(60, UNTIL - time.monotonic())))
    except subprocess.TimeoutExpired:
        raise Failed(f"{name}: took more than 60 s, or the limit is reached") from None


def ran(folder, text, name="script"):
    """Runs the script, which must succeed. It runs again if Linux placed a library at the region's
    addresses.
    """
    for _ in range(4):
        done = run(folder, text, name)
        if not done.returncode:
            return done.stdout.strip()
        if "is taken" not in done.stderr:
            break
    raise Failed(f"{name}: status {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-3000:]}")


def quick_start(folder, model):
    """Runs both scripts unchanged, then compares other values with those of the eager model."""
    ran(folder, model + CAPTURE + SAVED + EAGER, "capture")
    ran(folder, LOAD, "load")
    ran(folder, LOAD + CHECKED, "load and check")


def plain(folder):
    quick_start(folder, PLAIN)


def parameters(folder):
    quick_start(folder, PARAMETERS)
    # Tensors made afterwards do not use memory of the image.
    more = ("others = [torch.full(s, -1.0) "
            "for s in [(100, 100)] * 60 + [(1 << 18,)] * 6 + [(3 << 20,)] * 3]\n")
    ran(folder, LOAD + more + CHECKED + "assert all((t == -1).all() for t in others)",
        "load, allocate, check")


def without_replay(folder):
    ran(folder, PARAMETERS + CAPTURE.replace("graph.replay()", "") + EAGER, "capture")
    ran(folder, LOAD + CHECKED, "load and check")


def preallocation(folder):
    capture = (CAPTURE.replace("0x7f0000000000", "0x500000000000").replace("1GB", "16GB")
               .replace("graph.json", "model.json"))
    ran(folder, PARAMETERS + capture + SAVED, "capture")
    ran(folder, PREALLOCATED + "import torch\ntorch.cuda.synchronize()\nassert "
                               "torch.equal(outputs.cpu(), torch.load('captured.pt').cpu())",
        "preallocated load")


SAVE_TWO = BASE + """
a, b = torch.ones(100, 100, device='cuda'), torch.full((100, 100), 2.0, device='cuda')
w = torch.full((300, 100), 4.0, device='cuda')
graphs = []
for i in range(3):
    extra = torch.full((100, 100), 10.0 ** i, device='cuda')
    g = fdry.CUDAGraph()
    with fdry.graph(g, pool=graphs[0][0].pool() if graphs and i == 2 else None):
        c = a + b + w[:100] + extra
        d = [c * 2, (c - 1,)]
    g.save(f'{i}.json', (c, d))
    graphs.append((g, c, d, extra))
"""
LOAD_TWO = """
found = [fdry.CUDAGraph.load(f'{i}.json') for i in range(3)] if one_by_one else \
    fdry.CUDAGraph.finish_graph_loads(fdry.CUDAGraph.start_graph_builds([f'{i}.json' for i in
           range(3)]))
for i, (g, (c, d)) in enumerate(found):
    g.replay()
    torch.cuda.synchronize()
    want = first + 2 + 4 + 10.0 ** i
    assert type(d) is list and type(d[1]) is tuple
    assert (c == want).all() and (d[0] == 2 * want).all() and (d[1][0] == want - 1).all(), (i, c[0,
           0].item(), want)
"""


def several(folder):
    ran(folder, SAVE_TWO, "save three")
    for one_by_one in (True, False):
        made = "a, first = torch.full((100, 100), 30.0, device='cuda'), 30.0\n"
        ran(folder, BASE + f"one_by_one = {one_by_one}\n" + made + LOAD_TWO,
            f"load three, one by one: {one_by_one}")
        ran(folder, BASE + f"one_by_one, first = {one_by_one}, 1.0\n" + LOAD_TWO,
            f"nothing made before, one by one: {one_by_one}")


SAVE_CHANGED = BASE + """
a, w = torch.ones(100, 100, device='cuda'), torch.full((100, 100), 2.0, device='cuda')
made = []
for i in range(3):
    g = fdry.CUDAGraph()
    with fdry.graph(g):
        c = a + w
    made.append((g, c))
made[0][0].save('0.json', made[0][1])
w.mul_(3.0)
made[1][0].save('1.json', made[1][1])
w.add_(1.0)
fdry.save_graphs({'2.json': made[2], '3.json': made[0]})
"""


def changed(folder):
    """Checks that changes by kernels between two saves, without a replay, are in the second image.
    """
    ran(folder, SAVE_CHANGED, "save, change, save")
    for i, w in enumerate((2.0, 6.0, 7.0, 7.0)):
        ran(folder, BASE
            + f"g, c = fdry.CUDAGraph.load('{i}.json')\ng.replay()\ntorch.cuda.synchronize()\n"
            f"assert (c == {1.0 + w}).all(), c[0, 0].item()\n", f"load {i}.json alone")


def differences(folder):
    ran(folder, SAVE_TWO, "save three")
    for made, says in (("torch.ones(3 << 20, device='cuda')", "allocation 0 of this process"),
                       ("torch.ones(200, 100, device='cuda')", "has 80384 bytes at 0x500000000000"),
                       ("torch.ones(100, 100, device='cuda'), torch.ones(1000, device='cuda')",
                        "has 4096 bytes at")):
        text = (BASE + f"own = [{made}]\ntry:\n    fdry.CUDAGraph.load('0.json')\nexcept "
                       f"fdry.Error as e:\n    print(e.name, e)\n")
        said = ran(folder, text, made)
        if not said.startswith("FDRY_E_LAYOUT") or says not in said:
            raise Failed(f"{made}: '{said}' does not say '{says}'")


def states(folder):
    """Tests handles, pools, dumps, a capture that fails midway, and a capture after reset."""
    ran(folder, BASE + """
a = torch.ones(100, 100, device='cuda')
g, s = fdry.CUDAGraph(keep_graph=True), torch.cuda.Stream()
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s):
    a + a
    g.capture_begin(pool=fdry.graph_pool_handle(), capture_error_mode='thread_local')
    b = a + a
    g.capture_end()
torch.cuda.synchronize()
assert g.raw_cuda_graph() > 0 and g.pool()
g.instantiate()
raw = g.raw_cuda_graph_exec()
g.save('kept', b)
assert g.raw_cuda_graph_exec() == raw, 'save() made another exec'
try:
    g.debug_dump('dump')
    print('dumped', __import__('os').path.exists('dump'))
except Exception as e:
    print('debug_dump:', type(e).__name__, e)
g.reset()
try:
    g.replay()
    raise SystemExit('a reset graph was replayed')
except fdry.Error as e:
    assert e.name == 'FDRY_E_STATE'
try:
    with fdry.graph(g):
        c = a + a
        raise KeyError('midway')
except KeyError:
    pass
with fdry.graph(g):
    c = a + a + a
g.replay()
torch.cuda.synchronize()
assert (c == 3).all()
g.save('again', c)
""", "states")
    ran(folder, BASE + """
a = torch.full((100, 100), 5.0, device='cuda')
g, b = fdry.CUDAGraph.load('again')
g.instantiate(), g.replay(), torch.cuda.synchronize()
assert (b == 15).all()
g.reset()
with fdry.graph(g):
    c = a * 2
g.replay(), torch.cuda.synchronize()
assert (c == 10).all()
""", "load, reset, capture")


def random(folder):
    """Checks that a graph that draws random numbers is saved exactly or refused by name."""
    said = ran(folder, BASE + """
g = fdry.CUDAGraph()
with fdry.graph(g):
    x = torch.rand(100, device='cuda')
try:
    g.save('r.json', x)
    print('saved')
except fdry.Error as e:
    print(e.name, e)
""", "random")
    print(f"  a graph that draws random numbers: {said}")
    if not said.startswith(("saved", "FDRY_E_REFUSED")):
        raise Failed(said)


def rate(folder):
    """Prints how often the README's base is free in a new process."""
    text = "import foundry as fdry\nimport torch\n" \
        "torch.cuda.init()\ntorch.zeros(1, device='cuda')\n" \
        "fdry.set_allocation_region(0x7f0000000000, '1GB')\n"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: run(folder, text, "base"), range(TIMES)))
    taken = [d for d in done if d.returncode]
    print(f"  base 0x7f0000000000 of 1 GiB: free in {TIMES - len(taken)} of {TIMES} processes")
    for d in taken[:3]:
        print("   ", d.stderr.strip().splitlines()[-1][:300])
    if any("is taken" not in d.stderr and "TAKEN" not in d.stderr
           and "0x7f0000000000" not in d.stderr for d in taken):
        raise Failed(taken[0].stderr[-1500:])


PARTS = (several, changed, rate, parameters, differences, plain, states, without_replay,
         preallocation, random)


def one(part):
    """Runs a part, prints its result, and returns whether it succeeded."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            part(folder)
            said = "ok"
        except Exception as e:
            said = f"FAILED: {e}"
    print(f"{part.__name__:16} {time.monotonic() - began:6.1f} s  {said}", flush=True)
    return said == "ok"


def main():
    if subprocess.run([sys.executable, "-c",
                       "import torch, sys; sys.exit(not torch.cuda.is_available())"],
                      capture_output=True,
                      check=False).returncode:
        parts.skip("no GPU, or no PyTorch that sees it")
    parts.finish(parts.side_by_side(*([functools.partial(one, part)] for part in PARTS)))


if __name__ == "__main__":
    main()
