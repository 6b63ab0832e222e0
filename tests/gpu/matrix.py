# SPDX-License-Identifier: Apache-2.0
"""Tests two decoders captured in every way that programs use, each loaded in a process without
PyTorch.

Models of second_model.py, a mixture of experts among them; under each activation, with each of
PyTorch's allocators, in the main process and in a spawned worker. Each cell is a process that
captures and one that loads, with scratch poisoned. Tokens and logits of two batch sizes must equal,
bit for bit, those of eager PyTorch in a process without Foundry. Prints a line for each cell.
"""
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

PATHS = [os.path.join(parts.ROOT, *p) for p in (("api", "python"), ("api", "examples"),
                                                ("tests", "python"), ("tests", "gpu"))]
os.environ["PYTHONPATH"] = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])
# The imports of ways.py's programs; torch loads libcuda.
PAYLOAD = "import torch\nimport transformers\nfrom matrix import work\n"

FAMILIES = ("qwen3", "qwen3_moe")
# Name -> the setting that selects the allocator, and the allocator's own name.
ALLOCATORS = {"default": ("", "native"), "expandable": ("expandable_segments:True", "expandable"),
              "async": ("backend:cudaMallocAsync", "cudaMallocAsync")}
CELLS = [("first", "default", "main"), ("preload", "default", "main"), ("path", "default", "main"),
         ("run", "default", "main"),
         ("first", "expandable", "main"), ("first", "async", "main"), ("first", "default", "spawn"),
         ("run", "expandable", "spawn")]
TIMEOUT = 120


def work(store, ref):
    """The payload of ways.py: captures the model whose name `ref` begins with."""
    import gc
    import multiprocessing
    import foundry
    import second_model
    import torch
    with foundry.Capture() as cap:
        d = second_model.decoder_of(ref.split("/")[0])
        gc.freeze()
        stream = torch.cuda.Stream()
        batches = sorted(second_model.BATCHES, reverse=True)
        d.warm_up(batches, stream)
        torch.cuda.empty_cache()
        logits = {}
        for batch in batches:
            with cap.graph(batch, stream=stream):
                logits[batch] = d.step(batch)
        second_model.name_state(cap, d, logits)
        sealed = cap.seal(store, ref)
        backend = torch.cuda.get_allocator_backend()
        if backend == "native" and any(s["is_expandable"] for s in torch.cuda.memory_snapshot()):
            backend = "expandable"
        place = "spawn" if multiprocessing.parent_process() else "main"
        print("sealed", json.dumps({"id": sealed.id, "nodes": sealed.nodes,
                                    "kernels": sealed.kernels,
                                    "backend": backend, "place": place}), flush=True)


def native(family):
    """Returns eager results, {batch: digest}, and the number of distinct tokens."""
    import gc
    import second_model
    gc.freeze()
    results = second_model.decode_eagerly(family)
    distinct = {t for _, tokens in results.values() for step in tokens for t in step.tolist()}
    return {str(b): digest for b, (digest, _) in results.items()}, len(distinct)


def decode_image(img, batch, state):
    """Returns the digest of all tokens and logits, as decode.py computes it, using only the image.
    """
    import decode
    import second_model
    for t in state:
        img.write(t.name, bytes([0xff if t.name.startswith("logits/") else 0]) * t.nbytes)
    digest, rows = hashlib.sha256(), img["token"].shape[0]
    for row in decode.prompt_tokens(second_model.PROMPT, batch):
        img.write("token", b"".join(t.to_bytes(8, "little") for t in row + [0] * (rows - batch)))
        img.launch(batch)
    for step in range(second_model.STEPS):
        if step:
            img.launch(batch)
        digest.update(img.read("token")[:8 * batch])
        digest.update(img.read(f"logits/{batch}"))
    return digest.hexdigest()


def load(store, ref):
    import decode
    import foundry
    import second_model
    decode.VOCAB = second_model.VOCAB
    with foundry.load(ref, store=store, poison=True) as img:
        state = [t for t in img.tensors() if t.name != "token"]
        found = {str(batch): decode_image(img, batch, state) for batch in second_model.BATCHES}
    assert not {"torch", "transformers"} & set(sys.modules)
    return found


def run(argv, env, what):
    """Runs a process and returns its output line `what`. Fails with the end of its other output."""
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=TIMEOUT,
                          check=False)
    for line in done.stdout.splitlines():
        if line.startswith(what + " ") and not done.returncode:
            return json.loads(line[len(what):])
    raise RuntimeError(f"{what}: status {done.returncode}\n"
                       + "\n".join((done.stdout + done.stderr).splitlines()[-12:]))


def step(what, *args):
    return run([sys.executable, os.path.abspath(__file__), what, *args], os.environ, what)


def cell(folder, wants, family, way, allocator, place):
    """Captures and loads one cell. Returns its line, and whether all bits were equal."""
    import ways
    store, ref = os.path.join(folder, "store"), "/".join((family, way, allocator, place))
    argv, env = ways.command(way, folder)
    env["PYTORCH_CUDA_ALLOC_CONF"] = ALLOCATORS[allocator][0]
    name = f"{family:10s} {way:8s} {allocator:11s} {place:6s}"
    began = time.monotonic()
    try:
        sealed = run([*argv, place, store, ref], env, "sealed")
        captured = time.monotonic()
        found = step("load", store, ref)
        want, distinct = wants[family].result()
    except (RuntimeError, subprocess.TimeoutExpired) as e:
        return f"{name} FAILED: {e}", False
    if (sealed["backend"], sealed["place"]) != (ALLOCATORS[allocator][1], place):
        return (f"{name} FAILED: it was captured with {sealed['backend']} memory in "
                f"{sealed['place']}", False)
    good = found == want and distinct > 10
    return (f"{name} {sealed['nodes']:6d} {sealed['kernels']:8d} {captured - began:8.1f} "
            f"{time.monotonic() - captured:6.1f}  "
            f"{sealed['id'][:12]}  {'equal bits' if found == want else 'OTHER BITS'}, {distinct} "
            f"distinct tokens"), good


def main():
    parts.need("transformers")
    import foundry
    import ways
    jobs = max(1, min(6, len(os.sched_getaffinity(0)) // 2))
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "payload.py"), "w", encoding="ascii") as f:
            f.write(PAYLOAD)
        ways.write_programs(folder, "payload")
        foundry.Store(os.path.join(folder, "store"), create=True).close()
        print(f"{'model':10s} {'way':8s} {'allocator':11s} {'place':6s} {'nodes':>6s} "
              f"{'kernels':>8s} {'captured':>8s} {'loaded':>6s}  "
              "image (times: seconds of a process)", flush=True)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            wants = {family: pool.submit(step, "native", family) for family in FAMILIES}
            cells = [pool.submit(cell, folder, wants, family, *c) for c in CELLS
                     for family in FAMILIES]
            results = []
            for done in concurrent.futures.as_completed(cells):
                line, good = done.result()
                results.append(good)
                print(line, flush=True)
    parts.finish(results)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(sys.argv[1], json.dumps({"native": native, "load": load}[sys.argv[1]](*sys.argv[2:])))
    else:
        main()
