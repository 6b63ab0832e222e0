# SPDX-License-Identifier: Apache-2.0
"""Tests graphs of PyTorch on a GPU, each captured in one process and checked in another.

A graph with a fork and a join, one with programmatic edges, memset and copies, a Triton kernel, one
that reads host memory (refused), one that reads memory from before the capture (refused). draws.py
tests graphs that draw random numbers.
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
N = 4096


def reference(name, x):
    """Computes each graph's result in eager PyTorch."""
    import torch
    if name == "fork":
        a, b = torch.sin(x), torch.cos(x)
        for _ in range(20):
            a = a * 1.01 + 0.5
            b = b * 0.99 - 0.25
        return a * b + x
    if name == "linear":
        w = torch.arange(N * 64, device="cuda", dtype=torch.float32).reshape(N, 64).sin()
        for _ in range(3):
            x = (x.reshape(64, 64) @ w.reshape(64, N)).relu()[:, :64].contiguous().reshape(N)
            x = x / (x.abs().max() + 1)
        return x
    if name == "copies":
        y = torch.zeros_like(x)
        y[: N // 2].copy_(x[N // 2:])
        z = torch.empty_like(x)
        z.fill_(3.0)
        return torch.cat([y, z, x.clone()])
    if name == "triton":
        return triton_double(x)
    raise ValueError(name)


def triton_double(x):
    import torch
    import triton_kernels
    y = torch.empty_like(x)
    triton_kernels.double[(N // 256,)](x, y, N, BLOCK=256)
    return y


TRITON_SOURCE = '''
import triton
import triton.language as tl


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n) + 1, mask=i < n)
'''


def fork_in_capture(x):
    """The fork of `reference`, on two streams."""
    import torch
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(main)
    a = torch.sin(x)
    for _ in range(20):
        a = a * 1.01 + 0.5
    with torch.cuda.stream(side):
        b = torch.cos(x)
        for _ in range(20):
            b = b * 0.99 - 0.25
    main.wait_stream(side)
    return a * b + x


NAMES = ("fork", "linear", "copies", "triton")


def capture(store):
    import foundry
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    with foundry.Capture() as cap:
        x = torch.zeros(N, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for name in NAMES:
                reference(name, x)
        torch.cuda.synchronize()
        keep = []
        for key, name in enumerate(NAMES):
            with cap.graph(key, name=name, stream=stream):
                y = fork_in_capture(x) if name == "fork" else reference(name, x)
            cap.tensor(f"y/{name}", y, use="output")
            keep.append(y)
        cap.tensor("x", x)
        sealed = cap.seal(store, "graphs")
        print("sealed", sealed.id, sealed.nodes, "nodes", sealed.kernels, "kernels",
              sealed.kernels_whole, "whole")


def load(store):
    import foundry
    img = foundry.load("graphs", store=store, poison=True)
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    x = torch.linspace(-3, 5, N, device="cuda")
    views = {name: torch.from_dlpack(img[f"y/{name}"]) for name in NAMES}
    torch.from_dlpack(img["x"]).copy_(x)
    bad = []
    for key, name in enumerate(NAMES):
        views[name].fill_(float("nan"))
        torch.cuda.synchronize()
        img.launch(key, torch.cuda.current_stream())
        want = reference(name, x)
        if not torch.equal(views[name], want.reshape(views[name].shape)):
            bad.append(name)
    views.clear()
    img.close()
    assert not bad, f"wrong: {bad}"


def refused(store):
    import foundry
    import torch

    bases = iter(range(0x300000000000, 0x400000000000, 1 << 40))

    def refuse(say, prepare, run):
        # Torch's cache keeps memory of an ended capture, so each capture needs a base of its own.
        with foundry.Capture(base=next(bases)) as cap:
            data = prepare(cap)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                run(data)
            torch.cuda.synchronize()
            with cap.graph(1, stream=stream):
                kept = run(data)
            try:
                cap.seal(store, "refused")
            except foundry.Error as e:
                assert e.name == "FDRY_E_REFUSED" and say in str(e), str(e)
                print("refused:", e)
            else:
                raise AssertionError(f"not refused: {say}")
            del kept

    def native(cap):
        cap.pause()
        x = torch.ones(64 << 20, device="cuda")  # a segment of its own, outside the region
        cap.resume()
        return x

    refuse("host memory", lambda cap: (torch.zeros(N).pin_memory(), torch.zeros(N, device="cuda")),
           lambda t: t[1].copy_(t[0], non_blocking=True))
    refuse("outside the capture's region", native, lambda x: x + 1)
    try:
        foundry.load("refused", store=store)
    except foundry.Error as e:
        assert e.name == "FDRY_E_NOENT", e.name
    else:
        raise AssertionError("a refused image is in the store")


def whole():
    parts.need()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "triton_kernels.py"), "w", encoding="ascii") as f:
            f.write(TRITON_SOURCE)
        path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
        return [parts.run(f.__name__, os.path.join(folder, "store"), limit=120, PYTHONPATH=path)
                for f in PARTS]


PARTS = (capture, load, refused)

if __name__ == "__main__":
    parts.main(PARTS, whole)
