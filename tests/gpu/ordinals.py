# SPDX-License-Identifier: Apache-2.0
"""Two GPUs: what is captured on one loads on the other, and on its own, with the same id.

Each step is a process of its own. A machine with one GPU skips it.
"""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "api", "python"))
os.environ.setdefault("FOUNDRY_LIBRARY", os.path.join(os.environ.get("BUILD", os.path.join(ROOT, "build")),
                                                      "libfoundry.so.0"))
N = 512


def reference(x):
    for i in range(4):
        x = (x @ x.t()).relu() / (i + 2) + x.sin()
        x = x / (x.abs().max() + 1)
    return x


def capture(store, device):
    import foundry
    import torch
    torch.cuda.set_device(device)
    with foundry.Capture(name=f"gpu{device}", device=device) as cap:
        x = torch.zeros(N, N, device=f"cuda:{device}")
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            reference(x)
        torch.cuda.synchronize()
        with torch.no_grad(), cap.graph(1, stream=stream):
            y = reference(x)
        cap.tensor("x", x)
        cap.tensor("y", y, use="output")
        print("id", cap.seal(store, f"gpu{device}").id)


def check(image, device):
    """A graph's numbers are eager PyTorch's on the same device, bit for bit."""
    import torch
    with torch.cuda.device(device), torch.no_grad():
        x = torch.randn(N, N, device=f"cuda:{device}")
        torch.from_dlpack(image["x"]).copy_(x)
        torch.cuda.synchronize()
        image.launch(1)
        image.synchronize()
        y = torch.from_dlpack(image["y"])
        assert y.device.index == device, y.device
        assert torch.equal(y, reference(x)), f"other numbers on GPU {device}"


def load(store, captured, device):
    import foundry
    import torch
    torch.zeros(1, device=f"cuda:{1 - device}")  # the other GPU's context is current
    with foundry.load(f"gpu{captured}", store=store, device=device, poison=True) as image:
        check(image, device)


def both(store, swapped):
    import foundry
    with foundry.load("gpu0", store=store, device=swapped) as one:
        with foundry.load("gpu1", store=store, device=1 - swapped) as two:
            for _ in range(3):
                check(one, swapped)
                check(two, 1 - swapped)


def run(*args):
    done = subprocess.run([sys.executable, os.path.abspath(__file__), *map(str, args)], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        print(*args, "failed:", *(done.stdout + done.stderr).strip().splitlines()[-3:], sep="\n  ")
    return done.returncode == 0


def main():
    try:
        import torch
        gpus = torch.cuda.device_count()
    except ImportError:
        gpus = 0
    if gpus < 2:
        print(f"SKIP: no GPU, or only {gpus}, with PyTorch; this needs two")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        results = [run("capture", store, 0), run("capture", store, 1)]
        results += [run("load", store, captured, device) for captured in (0, 1) for device in (0, 1)]
        results += [run("both", store, 0), run("both", store, 1)]
    print(f"{100 * results.count(True) // len(results)}%: Checks: {len(results)}, Failures: {results.count(False)}, "
          "Errors: 0")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"capture": capture, "load": load, "both": both}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main()
