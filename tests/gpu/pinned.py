# SPDX-License-Identifier: Apache-2.0
"""Tests pinned memory of PyTorch that kernels read and write, in an image that another process
loads.

A Triton kernel adds two tensors in pinned memory into a third; a copy reads a pinned tensor that no
program declares. PyTorch pins memory by cudaHostAlloc() and, if PYTORCH_CUDA_ALLOC_CONF says so, by
cudaHostRegister() of memory from malloc(). Memory that was registered comes back at an address that
may be in use in the loading process, so that load may be tried in another process.
"""
import ctypes
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
N = 4096
REGISTER = "pinned_use_cuda_host_register:True,pinned_num_register_threads:1"

if sys.argv[1:2]:
    import foundry  # the interposer comes before all others
if sys.argv[1:2] == ["capture"]:
    import triton
    import triton.language as tl

    @triton.jit
    def add(a, b, c, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(c + at, tl.load(a + at, mask=at < n) + tl.load(b + at, mask=at < n), mask=at < n)


def capture(store):
    import torch
    with foundry.Capture(pinned=True) as cap:
        a, b = torch.rand(N).pin_memory(), torch.arange(N, dtype=torch.float32).pin_memory()
        c, idle = torch.zeros(N, pin_memory=True), torch.zeros(1 << 20, pin_memory=True)
        y = torch.zeros(N, device="cuda")
        stream = torch.cuda.Stream()

        def step():
            add[(N // 1024,)](a, b, c, N, BLOCK=1024)
            y.copy_(b, non_blocking=True)

        with torch.cuda.stream(stream):
            step()
        torch.cuda.synchronize()
        assert torch.equal(c, a + b) and idle.is_pinned()
        with cap.graph(1, stream=stream):
            step()
        cap.tensor("a", a, use="input")
        cap.tensor("c", c, use="output")
        cap.tensor("y", y, use="output")
        sealed = cap.seal(store, "pinned")
        print("sealed", sealed.id[:12], "pinned memory at", hex(a.data_ptr()), hex(b.data_ptr()))
        lines = [line for line in foundry.Store(store).describe("pinned").splitlines()
                 if line.startswith("pinned")]
        print(*lines, sep="\n", flush=True)
        kind = "registered" if "PYTORCH_CUDA_ALLOC_CONF" in os.environ else "allocated"
        assert len(lines) >= 3 and all(kind in line for line in lines[:3]), lines


def load(store):
    try:
        img = foundry.load("pinned", store=store, poison=True)
    except foundry.Error as e:
        assert e.name == "FDRY_E_TAKEN" and "PYTORCH_CUDA_ALLOC_CONF" in os.environ, e
        print("the addresses are in use in this process:", e)
        sys.exit(3)
    for turn in range(5):
        numbers = (ctypes.c_float * N)(*(turn + i / 2 for i in range(N)))
        img.write("a", bytes(numbers))
        img.launch(1)
        want = b"".join(ctypes.c_float(turn + i / 2 + i) for i in range(N))
        assert bytes(img.read("c")) == want, turn
        assert bytes(img.read("y")) == b"".join(ctypes.c_float(i) for i in range(N))
    assert "torch" not in sys.modules
    print("every number is right")


def both_ways(store):
    good = parts.run("capture", store)
    for _ in range(5):
        loaded = parts.run("load", store)
        if loaded:
            break
    return good and loaded


def whole():
    parts.need("triton")
    with tempfile.TemporaryDirectory() as folder:
        good = [both_ways(os.path.join(folder, "allocated"))]
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = REGISTER
        good.append(both_ways(os.path.join(folder, "registered")))
    return good


PARTS = (capture, load)

if __name__ == "__main__":
    parts.main(PARTS, whole)
