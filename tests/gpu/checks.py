# SPDX-License-Identifier: Apache-2.0
"""Compares external weights with their bytes at the seal, and content at the first launch, on a
GPU. Differences must be found; the cost is printed.

One process captures a chain of matrix products. Its weights, MIB in all, are external constants,
and a quarter as much is content. Others load the image, fill the weights, check them, change one
bit of each, and launch.
"""
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import Bytes  # noqa: E402

MIB = 4096
EXTERNAL = 8
WIDTH = int((MIB * 2**20 / EXTERNAL / 2) ** 0.5) // 256 * 256


def weight(torch, i, out=None):
    """The same numbers in every process: from integers, on the GPU, some rows at a time."""
    if out is None:
        out = torch.empty(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)
    for row in range(0, WIDTH, 256):
        made = torch.arange(row * WIDTH, (row + 256) * WIDTH, device="cuda", dtype=torch.int32)
        made = made.mul_(2654435 + 2 * i).bitwise_and_(0xFFFF).view(256, WIDTH)
        out[row:row + 256] = made.to(torch.bfloat16).sub_(32768).mul_(2.0 ** -22)
    return out


def median(values):
    return statistics.median(values), min(values), max(values)


def shown(name, values, unit="ms"):
    print(f"{name:36s} {median(values)[0]:10.3f} {unit} ({min(values):.3f} to {max(values):.3f})")


def seals(torch, cap, folder):
    """Milliseconds of seals of which nothing changed since the one before."""
    took = []
    for _ in range(4):
        torch.cuda.synchronize()
        began = time.perf_counter()
        cap.seal(os.path.join(folder, "store"), "checks")
        took.append(1e3 * (time.perf_counter() - began))
    return took


def capture(folder, use):
    """Seal with the weights under this use: only constants have their fingerprints recorded."""
    import foundry
    import torch
    with foundry.Capture(name="checks") as cap, torch.no_grad():
        weights = [weight(torch, i) for i in range(EXTERNAL)]
        inside = [weight(torch, 50 + i) for i in range(EXTERNAL // 4)]
        x = torch.zeros(16, WIDTH, device="cuda", dtype=torch.bfloat16)
        side = torch.cuda.Stream()

        def step():
            y = x
            for w in weights + inside:
                y = (y @ w).clamp_(-4, 4)
            return y
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            step()
        side.synchronize()
        torch.cuda.empty_cache()
        with cap.graph(1, stream=side):
            out = step()
        cap.tensor("x", x, use="input")
        cap.tensor("out", out, use="output")
        for i, w in enumerate(weights):
            cap.tensor(f"w{i}", w, use=use, external=True)
        for i, w in enumerate(inside):
            cap.tensor(f"c{i}", w, use="const")
        with torch.cuda.stream(side):
            x.copy_(torch.linspace(-1, 1, x.numel(), device="cuda").view(x.shape))
            torch.save(step().clone().cpu(), os.path.join(folder, "wanted"))
            x.zero_()
        torch.cuda.synchronize()
        first = time.perf_counter()
        cap.seal(os.path.join(folder, "store"), "checks")
        print(f"first seal, weights are {use}: {1e3 * (time.perf_counter() - first):.1f} ms")
        shown(f"seal again, weights are {use}", seals(torch, cap, folder))


def fill(torch, img):
    for i in range(EXTERNAL):
        weight(torch, i, torch.from_dlpack(img[f"w{i}"]))
    torch.cuda.synchronize()
    img.filled()


def out_check(torch, img, folder):
    x = torch.linspace(-1, 1, 16 * WIDTH, device="cuda").view(16, WIDTH).to(torch.bfloat16)
    img.write("x", x)
    img.launch(1)
    got = torch.frombuffer(img.read("out"), dtype=torch.bfloat16).view(16, WIDTH)
    assert torch.equal(got, torch.load(os.path.join(folder, "wanted"))), "other numbers"


def refused(foundry, call, words):
    try:
        call()
    except foundry.Error as e:
        assert words in str(e), f"'{words}' is not in: {e}"
    else:
        raise AssertionError(f"not refused: {words}")


def externals(folder):
    import foundry
    import torch
    with foundry.load("checks", store=os.path.join(folder, "store")) as img:
        refused(foundry, img.check, "has no content yet")
        fill(torch, img)
        took = []
        for _ in range(7):
            done = img.check()
            took.append(done.ms)
        assert done.tensors == EXTERNAL and done.differ == done.skipped == 0
        shown(f"check of {done.bytes / 1e9:.2f} GB", took)
        print(f"{'':36s} {done.bytes / min(took) / 1e6:10.1f} GB/s")
        refused(foundry, lambda: img.check("x"), "not external")
        for i in range(EXTERNAL):
            bits = torch.from_dlpack(img[f"w{i}"]).view(torch.int16).view(-1)
            at = (i * 7919 * 104729) % bits.numel()
            bits[at] ^= 1 << i
            torch.cuda.synchronize()
            refused(foundry, img.check, f"'w{i}' has other bytes than at the seal (1 of 8")
            bits[at] ^= 1 << i
            torch.cuda.synchronize()
            assert img.check(f"w{i}").tensors == 1
            del bits
        out_check(torch, img, folder)


def launch_ms(torch, img):
    torch.cuda.synchronize()
    began = time.perf_counter()
    img.launch(1)
    took = 1e3 * (time.perf_counter() - began)
    torch.cuda.synchronize()
    return took


def late(folder):
    """Loads that compare at once, and loads that compare at the first launch, in turn."""
    import foundry
    import torch
    torch.zeros(1, device="cuda")
    took = {False: ([], [], [], []), True: ([], [], [], [])}
    for turn in range(8):
        how = bool(turn % 2)
        began = time.perf_counter()
        with foundry.load("checks", store=os.path.join(folder, "store"), check_at_launch=how,
                          build=True) as img:
            load = 1e3 * (time.perf_counter() - began)
            assert (img.report().checked_bytes == 0) == how
            fill(torch, img)
            first = launch_ms(torch, img)
            report = img.report()
            assert report.checked_bytes >= EXTERNAL // 4 * 2 * WIDTH * WIDTH
            later = median([launch_ms(torch, img) for _ in range(200)])[0]
            assert img.report().check_ms == report.check_ms
            if turn > 1:
                for values, value in zip(took[how], (load, first, report.check_ms, later)):
                    values.append(value)
            if turn < 2:
                out_check(torch, img, folder)
    for how, name in ((False, "compared by the load"), (True, "compared by the first launch")):
        print(f"--- {name}")
        for i, what in enumerate(("load", "first launch", "comparison", "later launches")):
            shown(what, took[how][i])


def differs(folder):
    """Memory that changes between the load and the first launch."""
    import foundry
    import torch
    with foundry.load("checks", store=os.path.join(folder, "store"), check_at_launch=True) as img:
        fill(torch, img)
        addr = img["c1"].addr + 12345
        view = torch.as_tensor(Bytes(addr, 1), device="cuda")
        view[0] ^= 4
        torch.cuda.synchronize()
        for call in (lambda: img.launch(1), lambda: img.read("out"), img.check_content, img.check):
            refused(foundry, call, "tensor 'c1'")
        img.wait()
        img.restore()
        out_check(torch, img, folder)
        view[0] ^= 4  # it is the program's from now on
        img.launch(1)
        img.synchronize()


def whole():
    parts.need("numpy")
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        return [parts.run("capture", b, "state", limit=200),
                parts.run("capture", a, "const", limit=200),
                parts.run("externals", a, limit=100), parts.run("late", a, limit=100),
                parts.run("differs", a, limit=100)]


if __name__ == "__main__":
    parts.main([capture, externals, late, differs], whole)
