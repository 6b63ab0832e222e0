# SPDX-License-Identifier: Apache-2.0
"""Tests host memory in the copies of PyTorch's graphs, captured in one process and loaded in
another.

A pinned input that is rewritten before each replay, an output read back, a pinned constant, state
that is copied to the host and back, registered and pageable memory by cuMemcpyAsync, rows by
cuMemcpy2DAsync. Undeclared host memory is refused.
"""
import ctypes
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import PTR, SIZE, U64, call, current_stream  # noqa: E402
N = 4096


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""
    _fields_ = [(n, SIZE) for n in (
        "srcXInBytes", "srcY", "srcMemoryType", "srcHost", "srcDevice", "srcArray", "srcPitch",
        "dstXInBytes", "dstY", "dstMemoryType", "dstHost", "dstDevice", "dstArray", "dstPitch",
        "WidthInBytes", "Height")]


def copy_async(dst, src, nbytes):
    call("cuMemcpyAsync", U64(dst), U64(src), SIZE(nbytes), current_stream())


def rows_async(dst, src, pitch, width, height):
    """Copies rows of host memory to the device, one after the other."""
    p = Copy2D(srcMemoryType=1, srcHost=src, srcPitch=pitch, dstMemoryType=2, dstDevice=dst,
               dstPitch=width, WidthInBytes=width, Height=height)
    call("cuMemcpy2DAsync_v2", ctypes.byref(p), current_stream())


class Work:
    """Buffers and graphs of the capturing process."""

    def __init__(self):
        import torch
        pinned = {"pin_memory": True}
        self.inp = torch.zeros(N, **pinned)
        self.out = torch.full((N,), 99.0, **pinned)
        self.table = torch.arange(N, dtype=torch.float32).pin_memory()
        self.state = torch.full((N,), 2.0, **pinned)
        self.half = torch.zeros(N, dtype=torch.float16, **pinned)
        self.plain = torch.linspace(0, 1, N)
        self.registered = torch.zeros(64, 100)
        call("cuMemHostRegister_v2", PTR(self.registered.data_ptr()), SIZE(64 * 400), 0)
        self.x, self.y = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
        self.rows = torch.zeros(64, 10, device="cuda")

    def affine(self):
        self.x.copy_(self.inp, non_blocking=True)
        self.y.copy_(self.table, non_blocking=True)
        self.out.copy_(self.x * 2 + self.y, non_blocking=True)

    def count(self):
        self.x.copy_(self.state, non_blocking=True)
        self.x += 1
        self.state.copy_(self.x, non_blocking=True)

    def convert(self):
        self.x.copy_(self.half, non_blocking=True)
        self.y.copy_(self.x.sqrt())

    def unified(self):
        copy_async(self.x.data_ptr(), self.plain.data_ptr(), 4 * N)
        self.y.copy_(self.x * 3)

    def strided(self):
        rows_async(self.rows.data_ptr(), self.registered.data_ptr() + 40, 400, 40, 64)
        self.rows += 1


GRAPHS = ("affine", "count", "convert", "unified", "strided")


def capture(store):
    import foundry
    import torch
    with foundry.Capture() as cap:
        work, stream = Work(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for name in GRAPHS:
                getattr(work, name)()
        torch.cuda.synchronize()
        work.state.fill_(2.0)
        work.inp.fill_(-1.0)
        for key, name in enumerate(GRAPHS):
            with cap.graph(key, name=name, stream=stream):
                getattr(work, name)()
        try:
            cap.seal(store, "refused")
        except foundry.Error as e:
            assert e.name == "FDRY_E_REFUSED", e
            assert "is pinned host memory that no single host tensor holds" in str(e), e
            print("refused:", e)
        else:
            raise AssertionError("undeclared host memory was sealed")
        for name, use in (("inp", "input"), ("out", "output"), ("table", "const"),
                          ("state", "state"), ("half", "input"),
                          ("plain", "const"), ("registered", "input"), ("y", "output"),
                          ("rows", "output")):
            cap.tensor(name, getattr(work, name), use=use)
        assert work.inp.is_pinned() and not work.plain.is_pinned()
        sealed = cap.seal(store, "host")
        print("sealed", sealed.id, sealed.nodes, "nodes")


def load(store):
    import foundry
    img = foundry.load("host", store=store, poison=True)
    print(foundry.Store(store).describe("host"))
    import torch
    stream = torch.cuda.Stream()

    def launch(key):
        img.launch(key, stream)
        img.synchronize(stream)

    views = {t.name: torch.from_dlpack(t) for t in img.tensors()}
    assert views["inp"].device.type == "cpu" and views["inp"].is_pinned() and views[
        "plain"].is_pinned()
    assert torch.equal(views["table"], torch.arange(N, dtype=torch.float32))
    assert torch.equal(views["state"], torch.full((N,), 2.0))
    assert torch.equal(views["plain"], torch.linspace(0, 1, N))
    try:
        launch(0)
    except foundry.Error as e:
        assert e.name == "FDRY_E_UNBOUND", e
    else:
        raise AssertionError("inputs that nobody filled were used")
    img.filled()
    for i in range(5):
        views["inp"].copy_(torch.randn(N))
        launch(0)
        want = (views["inp"].cuda() * 2 + torch.arange(N, dtype=torch.float32, device="cuda")).cpu()
        assert torch.equal(views["out"], want), i
    for i in range(3):
        launch(1)
        assert torch.equal(views["state"], torch.full((N,), 3.0 + i)), i
    img.restore(stream)
    assert torch.equal(views["state"], torch.full((N,), 2.0))
    views["half"].copy_(torch.rand(N))
    launch(2)
    assert torch.equal(views["y"].cpu(), views["half"].cuda().float().sqrt().cpu())
    launch(3)
    assert torch.equal(views["y"].cpu(), (views["plain"].cuda() * 3).cpu())
    numbers = img["registered"].numpy()
    numbers[:] = torch.rand(64, 100).numpy()
    launch(4)
    assert torch.equal(views["rows"].cpu(), torch.from_numpy(numbers)[:, 10:20] + 1)
    img.write("inp", views["table"].numpy().tobytes(), stream)
    img.launch(0, stream)
    read = torch.frombuffer(img.read("out", stream), dtype=torch.float32)
    assert torch.equal(read, 3 * torch.arange(N, dtype=torch.float32))
    # Asynchronous and on the GPU's side: a device tensor straight into the pinned input.
    img.copy("inp", views["y"].data_ptr(), 4 * N, stream)
    launch(0)
    assert torch.equal(views["inp"], views["y"].cpu())
    refresh(img, stream, views)
    print("every number is right")


def refresh(img, stream, views):
    """Makes updates faster than launches: each launch sees its own, in host memory and on the
    device.
    """
    import torch
    log, times = torch.zeros(300, N, device="cuda"), []
    numbers = torch.zeros(N)
    with torch.cuda.stream(stream):
        for i in range(len(log)):
            numbers.fill_(float(i))
            begin = time.perf_counter()
            img.write("inp", numbers.numpy(), stream, wait=False)
            times.append(time.perf_counter() - begin)
            img.launch(0, stream)
            log[i].copy_(views["out"], non_blocking=True)
    torch.cuda.synchronize()
    want = 2 * torch.arange(len(log), dtype=torch.float32)[:, None]
    want = want + torch.arange(N, dtype=torch.float32)
    assert torch.equal(log.cpu(), want)
    print(f"note: 16 KiB into host memory in the stream's order: "
          f"{sorted(times)[len(times) // 2] * 1e6:.0f} us a call")
    times.clear()
    with torch.cuda.stream(stream):
        for i in range(len(log)):
            numbers.fill_(float(i))
            begin = time.perf_counter()
            img.write("y", numbers.numpy(), stream, wait=False)
            times.append(time.perf_counter() - begin)
            log[i].copy_(views["y"])
    torch.cuda.synchronize()
    assert torch.equal(
        log.cpu(), torch.arange(len(log), dtype=torch.float32)[:, None].expand(-1, N))
    print(f"note: 16 KiB into device memory in the stream's order: "
          f"{sorted(times)[len(times) // 2] * 1e6:.0f} us a call")


def whole():
    parts.need()
    with tempfile.TemporaryDirectory() as folder:
        return [parts.run(f.__name__, os.path.join(folder, "store")) for f in PARTS]


PARTS = (capture, load)

if __name__ == "__main__":
    parts.main(PARTS, whole)
