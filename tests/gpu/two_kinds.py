# SPDX-License-Identifier: Apache-2.0
"""Carries an image from one GPU to another, and compares what it computes there.

    two_kinds.py seal FOLDER    seals small programs and writes FOLDER/two_kinds.pack, with the
                                outputs for two sets of inputs and the digests of a self-test
    two_kinds.py load FILE      imports the pack, and prints for each program whether the load was
                                accepted or refused (why), and the digests of its outputs

Without arguments, both run on the GPU of this machine.
"""
import concurrent.futures
import hashlib
import io
import os
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import workloads  # noqa: E402

PROGRAMS = ("cuBLAS, bf16 product", "cuBLAS, fp32 product with TF32", "cuFFT, 3D fp64",
            "attention, FLASH_ATTENTION", "attention, CUDNN_ATTENTION", "sort and top-k",
            "random numbers of many distributions", "transformers.mamba",
            "torchvision.squeezenet1_1", "training with AdamW, fused", "Triton, softmax")
PACK = "two_kinds.pack"


def device():
    import torch
    p = torch.cuda.get_device_properties(0)
    return f"{p.name}, sm_{p.major}{p.minor}, {p.multi_processor_count} SMs"


def one(number, folder):
    """Captures a program and writes its pack: that of the store, with its inputs and outputs."""
    import foundry
    import torch
    from programs import base, PROGRAMS as ALL
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    name = PROGRAMS[int(number)]
    store = os.path.join(folder, "store" + number)
    with foundry.Capture(name=name, pinned=ALL[name].pinned) as cap:
        work, step = workloads.prepared(name, "cuda")
        stream = torch.cuda.Stream()
        workloads.warm_up(work, step, stream)
        with cap.graph(1, stream=stream) as graph:
            result = step()
        outputs = base.flat(result)
        for kind, tensors in (("input", work.inputs.items()), ("output", enumerate(outputs)),
                              ("state", enumerate(work.state))):
            for key, tensor in tensors:
                cap.tensor(f"{kind}.{key}", tensor.detach(), use=kind)
        cap.selftest()
        cap.seal(store, "program")
        os.mkdir(os.path.join(folder, number))
        workloads.reference(torch, os.path.join(folder, number), work, graph, outputs)
    with foundry.Store(store) as sealed:
        sealed.export(["program"], os.path.join(folder, number, "pack"))
    print(f"{name}: sealed on {device()}")


def seal(folder):
    parts.need()
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            good = list(pool.map(lambda i: parts.run("one", str(i), work, limit=100),
                                 range(len(PROGRAMS))))
        with tarfile.open(os.path.join(folder, PACK), "w:xz") as tar:
            for i in range(len(PROGRAMS)):
                if os.path.isdir(os.path.join(work, str(i))):
                    tar.add(os.path.join(work, str(i)), str(i))
    print(f"{PACK}: {os.path.getsize(os.path.join(folder, PACK))} bytes", flush=True)
    return good


def digests(folder):
    import pickle
    with open(os.path.join(folder, "want"), "rb") as f:
        _, rows, _, _ = pickle.load(f)
    return hashlib.sha256(b"".join(rows)).hexdigest()[:16]


def there(number, folder):
    """Loads a program, runs its self-test, and compares its outputs with those of the seal."""
    import foundry
    work = os.path.join(folder, number)
    store = os.path.join(work, "store")
    with foundry.Store(store, create=True) as s:
        s.import_(os.path.join(work, "pack"))
        facts = [line for line in s.describe("program").splitlines() if "fdry.gpu" in line]
    print(PROGRAMS[int(number)], "from", ", ".join(line.split(" = ")[-1] for line in facts))
    try:
        with foundry.load("program", store=store, poison=True) as img:
            test = img.selftest()
            found = workloads.differences(img, work)
    except foundry.Error as e:
        print(f"refused: {e.name}: {e}")
        return
    for text in test.differences + found:
        print("different:", text)
    print(f"accepted: {test.outputs} results of the self-test compared, "
          f"digest of the outputs at the seal {digests(work)}: "
          f"{'other bytes here' if found else 'equal here'}")
    assert not found and not test.differences


def load(pack):
    parts.need()
    print("on", device())
    with tempfile.TemporaryDirectory() as folder:
        with open(pack, "rb") as f, tarfile.open(fileobj=io.BytesIO(f.read())) as tar:
            tar.extractall(folder, filter="data")
        return [parts.run("there", str(i), folder) for i in range(len(PROGRAMS))
                if os.path.isdir(os.path.join(folder, str(i)))]


def whole():
    parts.need("triton", "transformers", "torchvision")
    with tempfile.TemporaryDirectory() as folder:
        return seal(folder) + load(os.path.join(folder, PACK))


if __name__ == "__main__":
    if sys.argv[1:2] in (["seal"], ["load"]):
        parts.finish({"seal": seal, "load": load}[sys.argv[1]](*sys.argv[2:]))
    parts.main((one, there), whole)
