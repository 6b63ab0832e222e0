# SPDX-License-Identifier: Apache-2.0
"""Tests two GPUs: an image captured on either one loads on both, with the same memory.

Each step is a process of its own: captures on either device beside tensors on the other; each
image on each device; two images in one process, one on each device, launched at once; streams
of the wrong device, refused; a process that sees only the second GPU; loads and unloads in
turn, which leave nothing behind. A machine with one GPU skips it.
"""
import os
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
N = 512


def reference(x):
    for i in range(4):
        x = (x @ x.t()).relu() / (i + 2) + x.sin()
        x = x / (x.abs().max() + 1)
    return x


def capture(store, ref, name, device):
    """Captures on a device while memory of the other one is in use. Prints the values that must not
    depend on the device.
    """
    import foundry
    import torch
    other = 1 - int(device)
    torch.cuda.set_device(int(device))
    with foundry.Capture(name=name, device=int(device)) as cap:
        beside = torch.full((1 << 20,), 7.0, device=f"cuda:{other}")
        x = torch.zeros(N, N, device=f"cuda:{device}")
        base = foundry.base_for_name(name)
        assert base <= x.data_ptr() < base + (1 << 40), hex(x.data_ptr())
        assert not base <= beside.data_ptr() < base + (1 << 40), hex(beside.data_ptr())
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            reference(x)
        torch.cuda.synchronize()
        with torch.no_grad(), cap.graph(1, stream=stream):
            y = reference(x)
        cap.tensor("x", x)
        cap.tensor("y", y, use="output")
        sealed = cap.seal(store, ref)
        assert beside.eq(7).all().item()
        print("sealed", hex(x.data_ptr()), hex(y.data_ptr()), sealed.nodes, sealed.kernels,
              sealed.content_bytes,
              sealed.scratch_bytes)


def start(image, device):
    """Writes a new input, launches, and returns the result of eager PyTorch on the same device."""
    import torch
    with torch.cuda.device(device), torch.no_grad():
        x = torch.randn(N, N, device=f"cuda:{device}")
        torch.from_dlpack(image["x"]).copy_(x)
        want = reference(x)
        torch.cuda.synchronize()
        image.launch(1)
        return want


def finish(image, device, want):
    import torch
    image.synchronize()
    y = torch.from_dlpack(image["y"])
    assert y.device.index == device, y.device
    assert torch.equal(y, want), f"other numbers on GPU {device}"


def refused(image, device):
    """Checks that a stream of another device is refused by name, and that the image still works."""
    import foundry
    import torch
    try:
        image.launch(1, torch.cuda.Stream(device=1 - device))
    except foundry.Error as e:
        assert e.name == "FDRY_E_INVAL" and f"device {1 - device}" in str(e), str(e)
    else:
        raise AssertionError("a stream of another device was taken")
    assert torch.cuda.current_device() == 0


def load(store, ref, device):
    import foundry
    import torch
    device = int(device)
    torch.zeros(1, device=f"cuda:{1 - device}")  # the other GPU's context is current
    with foundry.load(ref, store=store, device=device, poison=True) as image:
        finish(image, device, start(image, device))
        refused(image, device)
        finish(image, device, start(image, device))


def both(store, swapped):
    """Launches two images, each on a device of its own: in turn, concurrently, and from two
    threads.
    """
    import foundry
    at = (int(swapped), 1 - int(swapped))
    with foundry.load("gpu0", store=store, device=at[0]) as one, \
            foundry.load("gpu1", store=store, device=at[1]) as two:
        images = (one, two)
        for _ in range(3):
            wants = [start(image, device) for image, device in zip(images, at)]
            for image, device, want in zip(images, at, wants):
                finish(image, device, want)
        wrong = []

        def worker(image, device):
            try:
                for _ in range(10):
                    finish(image, device, start(image, device))
            except Exception as e:  # of any kind: it is reported below
                wrong.append(repr(e))
        threads = [threading.Thread(target=worker, args=pair) for pair in zip(images, at)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong, wrong


def only(store, ref):
    """Loads an image captured on GPU 0 or 1 in a process that sees only the second GPU."""
    import foundry
    import torch
    assert torch.cuda.device_count() == 1
    with foundry.load(ref, store=store, poison=True) as image:
        finish(image, 0, start(image, 0))


def again(store):
    """Checks that loads and unloads on each device in turn leave no memory allocated."""
    import foundry
    import torch
    free = []
    for i in range(24):
        for device in (0, 1):
            with foundry.load("gpu0", store=store, device=device) as image:
                finish(image, device, start(image, device))
        torch.cuda.empty_cache()
        free.append([torch.cuda.mem_get_info(d)[0] for d in (0, 1)])
    assert free[-1] == free[3], [free[3], free[-1]]


def run(*args, **env):
    """Runs a part. Returns whether it succeeded, and its line "sealed"."""
    done = subprocess.run([sys.executable, os.path.abspath(__file__), *map(str, args)],
                          capture_output=True, text=True,
                          check=False, timeout=100, env={**os.environ, **env})
    if done.returncode:
        print(*args, "failed:", *(done.stdout + done.stderr).strip().splitlines()[-6:], sep="\n  ",
              flush=True)
    else:
        print(*args, "went well", flush=True)
    return done.returncode == 0, [line for line in done.stdout.splitlines()
                                  if line.startswith("sealed ")]


def whole():
    parts.need(gpus=2)
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        captures = [run("capture", store, ref, name, device)
                    for ref, name, device in (("gpu0", "gpu0", 0), ("gpu1", "gpu1", 1),
                                              ("same0", "same", 0), ("same1", "same", 1))]
        results = [good for good, _ in captures]
        results.append(bool(captures[2][1]) and captures[2][1] == captures[3][1])
        print("the same memory on each device:", captures[2][1], captures[3][1], flush=True)
        results += [run("load", store, ref, device)[0] for ref in ("gpu0", "gpu1")
                    for device in (0, 1)]
        results += [run("both", store, swapped)[0] for swapped in (0, 1)]
        results += [run("only", store, ref, CUDA_VISIBLE_DEVICES="1")[0]
                    for ref in ("gpu0", "gpu1")]
        return results + [run("again", store)[0]]


if __name__ == "__main__":
    parts.main((capture, load, both, only, again), whole)
