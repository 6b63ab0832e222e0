# SPDX-License-Identifier: Apache-2.0
"""Measures the kernels of a small PyTorch model on a GPU, and compares their sum with a launch.

One process captures a chain of layers twice: as it is, and with a second branch beside it. Another
one loads the image and measures. For the chain, the sum of the times of its kernels must be between
0.5 and 3 times what a launch takes, by torch's events in this script; both are printed. The outputs
are compared before and after, and a page is written by foundry-store report --time.
"""
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

WIDTH, ROWS, LAYERS = 2048, 256, 12
CHAIN, FORK = 1, 2


def capture(folder):
    import foundry
    import torch
    with foundry.Capture(name="times") as cap, torch.no_grad():
        weights = [torch.full((WIDTH, WIDTH), 1 / WIDTH, device="cuda") for _ in range(LAYERS)]
        x = torch.ones(ROWS, WIDTH, device="cuda")
        side, beside = torch.cuda.Stream(), torch.cuda.Stream()

        def chain():
            y = x
            for w in weights:
                y = torch.relu(y @ w) + 1
            return y

        def fork():
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                z = chain()
            y = chain()
            torch.cuda.current_stream().wait_stream(beside)
            return y + z
        with torch.cuda.stream(side):
            fork()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        with cap.graph(CHAIN, stream=side):
            out = chain()
        with cap.graph(FORK, stream=side):
            both = fork()
        cap.tensor("x", x, use="input")
        cap.tensor("out", out, use="output")
        cap.tensor("both", both, use="output")
        for i, w in enumerate(weights):
            cap.tensor(f"w{i}", w, use="const", external=i == 0)
        cap.seal(os.path.join(folder, "store"), "times")


def launch_ms(torch, img, key):
    """The median of launches, each right behind another one, by torch's events."""
    took = []
    for _ in range(15):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        img.launch(key, torch.cuda.current_stream())
        begin.record()
        img.launch(key, torch.cuda.current_stream())
        end.record()
        torch.cuda.synchronize()
        took.append(begin.elapsed_time(end))
    return statistics.median(took)


def fill(torch, img):
    torch.from_dlpack(img["w0"]).fill_(1 / WIDTH)
    torch.cuda.synchronize()
    img.filled()


def outputs(img):
    for key in (CHAIN, FORK):
        img.launch(key)
    return [bytes(img.read(name)) for name in ("out", "both")]


def measure(folder):
    import foundry
    import torch
    with foundry.load("times", store=os.path.join(folder, "store")) as img:
        fill(torch, img)
        before = outputs(img)
        times = {t.key: t for t in img.kernel_times()}
        try:
            img.launch(CHAIN)
        except foundry.Error as e:
            assert "'w0'" in str(e), e
        else:
            raise AssertionError("a launch with an external tensor that was not filled")
        fill(torch, img)
        assert outputs(img) == before, "other outputs than before the measurement"
        for key, t in times.items():
            assert t.left_out is None, t.left_out
            launch, total = launch_ms(torch, img, key), sum(k.ms for k in t.kernels)
            print(f"graph {key}: {len(t.kernels)} kernels, sum {total:.4f} ms; nodes alone "
                  f"{t.alone_ms:.4f} ms; launch {t.launch_ms:.4f} ms, by torch {launch:.4f} ms; "
                  f"no node {1e3 * t.empty_ms:.2f} us")
            assert len(t.kernels) >= LAYERS and all(k.ms > 0 for k in t.kernels)
            assert 0.5 < total / t.alone_ms <= 1.05, "the sum is not that of the replay"
            assert 0.7 < t.launch_ms / launch < 1.4, "torch measures another time of a launch"
            if key == CHAIN:
                assert 0.5 < total / launch < 3, "the sum is not about the time of a launch"
        slowest = max(times[CHAIN].kernels, key=lambda k: k.ms)
        print(f"slowest: {slowest.name[:60]}, {1e3 * slowest.ms:.2f} us")


def report(folder):
    path = os.path.join(folder, "page.html")
    subprocess.run([os.path.join(parts.BUILD, "foundry-store"), "-s",
                    os.path.join(folder, "store"), "report", "times", "--time", "-o", path],
                   check=True)
    with open(path, encoding="utf-8") as f:
        page = f.read()
    rows = re.findall(r'<code>([^<]*)</code></td><td class="bar time">.*?<b>([0-9.]+) ms</b>', page)
    assert rows and all(float(ms) > 0 for _, ms in rows[:1]), rows
    for name, ms in rows[:3]:
        print(f"on the page: {name[:60]}, {ms} ms")


def whole():
    parts.need()
    with tempfile.TemporaryDirectory() as folder:
        return [parts.run(part, folder, limit=300) for part in ("capture", "measure", "report")]


if __name__ == "__main__":
    parts.main([capture, measure, report], whole)
