# SPDX-License-Identifier: Apache-2.0
"""Tests each of PyTorch's allocators: one process captures with it, another one loads with the
default allocator.

Its own caching allocator; expandable segments (addresses reserved, memory mapped); the backend
cudaMallocAsync (memory in the order of a stream); pools of the program's own (torch.cuda.MemPool),
for weights and for graphs, of which two share one. Outputs must equal those of eager PyTorch, bit
for bit, and two captures must have the same memory. (Their ids may differ, since the gaps in
PyTorch's kernel arguments hold leftovers of the stack.)
"""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
ALLOCATORS = {"native": "", "expandable": "expandable_segments:True",
              "async": "backend:cudaMallocAsync", "pools": ""}
SIZES = (1, 3, 16)
WIDTH, LAYERS = 512, 6


def weights():
    import torch
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    return [torch.randn(WIDTH, WIDTH, device="cuda") / WIDTH ** 0.5 for _ in range(LAYERS)]


def step(layers, x, state):
    """Computes a few layers with a state that every step changes, and temporaries of many sizes."""
    import torch
    for w in layers:
        h = torch.nn.functional.layer_norm(x, (WIDTH,))
        h = torch.nn.functional.silu(h @ w)
        x = x + h * torch.softmax(h, dim=-1)
    state.mul_(0.5).add_(x.sum(dim=0))
    return torch.cat([x, state.unsqueeze(0)]), x.argmax(dim=-1)


def churn():
    """Does other work of a program: allocates memory of many sizes on two streams and frees it in
    another order.
    """
    import torch
    side = torch.cuda.Stream()
    keep = []
    for i in range(60):
        t = torch.full(((i * 7919) % 300000 + 1,), float(i), device="cuda")
        if i % 3:
            keep.append(t)
        if i % 10 == 9:
            with torch.cuda.stream(side):
                side.wait_stream(torch.cuda.current_stream())
                u = t * 2
                t.record_stream(side)
                keep.append(u)
            # otherwise the side stream's speed would decide when PyTorch reuses recorded memory
            torch.cuda.synchronize()
            del keep[: len(keep) // 2]
    torch.cuda.synchronize()
    del keep
    torch.cuda.empty_cache()


def capture(store, ref):
    import contextlib
    import foundry
    import torch
    with foundry.Capture() as cap:
        own = [torch.cuda.MemPool() for _ in range(3)] if ref == "pools" else None
        with torch.cuda.use_mem_pool(own[0]) if own else contextlib.nullcontext():
            layers = weights()
        churn()
        x = torch.zeros(max(SIZES), WIDTH, device="cuda")
        state = torch.zeros(WIDTH, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for n in SIZES:
                step(layers, x[:n], state)
        torch.cuda.synchronize()
        print(torch.cuda.get_allocator_backend(), os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
              "reserved", torch.cuda.memory_reserved(), "allocated", torch.cuda.memory_allocated())
        assert torch.cuda.memory_allocated() >= LAYERS * WIDTH * WIDTH * 4
        keep = []
        for i, n in enumerate(SIZES):
            pool = own[1 + i // 2].id if own else None
            with cap.graph(n, name=f"step-{n}", stream=stream, pool=pool):
                out, best = step(layers, x[:n], state)
            cap.tensor(f"out/{n}", out, use="output")
            cap.tensor(f"best/{n}", best, use="output")
            keep.append((out, best))
        state.zero_()
        torch.cuda.synchronize()
        cap.tensor("x", x)
        cap.tensor("state", state, use="state")
        sealed = cap.seal(store, ref)
        print("sealed", sealed.id, sealed.nodes, "nodes", sealed.kernels, "kernels",
              hex(x.data_ptr()), [hex(t.data_ptr()) for pair in keep for t in pair],
              sealed.content_bytes, "content", sealed.scratch_bytes, "scratch", sealed.zero_bytes,
              "zero", flush=True)


def load(store, ref):
    import foundry
    img = foundry.load(ref, store=store, poison=True)
    import torch
    layers = weights()
    x = torch.from_dlpack(img["x"])
    mine = torch.zeros(WIDTH, device="cuda")
    for turn in range(4):
        for n in SIZES:
            x.copy_(torch.linspace(-2, 3 + turn, x.numel(), device="cuda").reshape(x.shape))
            out, best = torch.from_dlpack(img[f"out/{n}"]), torch.from_dlpack(img[f"best/{n}"])
            out.fill_(float("nan"))
            torch.cuda.synchronize()
            img.launch(n, torch.cuda.current_stream())
            want, want_best = step(layers, x[:n].clone(), mine)
            assert torch.equal(out, want), f"batch {n}, turn {turn}: other numbers"
            assert torch.equal(best, want_best), f"batch {n}, turn {turn}: another choice"
            del out, best
    del x
    img.close()


def run(what, store, ref, conf=""):
    env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf)
    done = subprocess.run([sys.executable, os.path.abspath(__file__), what, store, ref], env=env,
                          stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    memory = [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("sealed ")]
    return done.returncode == 0, memory


def whole():
    parts.need()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        for name, conf in ALLOCATORS.items():
            first, second = run("capture", store, name, conf), run("capture", store, name, conf)
            results += [first[0], second[0], run("load", store, name)[0], bool(first[1])
                        and first[1] == second[1]]
            print(name, "captured, captured again, loaded, the same memory:", results[-4:],
                  flush=True)
    return results


if __name__ == "__main__":
    parts.main((capture, load), whole)
