# SPDX-License-Identifier: Apache-2.0
"""Explains the content of an image whose weights and caches are all external.

A decoder (api/examples/decode.py) is captured with its weights and caches as external tensors, with
and without torch.cuda.empty_cache() before the capture. Prints the content of the image by the
state of torch's block in which it lies, and by the line of Python that allocated the block; and the
library's own account of it. Every byte of content must be accounted for, and there may be no more
than BOUND.
"""
import argparse
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import Bytes  # noqa: E402

BLOCK = 4096
# The image keeps 68 KB: the token, the position, and small tensors that the model computes from its
# configuration. The smallest weight matrix has 2 MB, and so has a freed copy of it. The free blocks
# of torch that were kept once had 93 MB. The bound lies between.
BOUND = 512 << 10


def stored(torch, addr, size):
    """Returns the number of bytes from addr in pieces of BLOCK that are not zero."""
    t = torch.as_tensor(Bytes(addr, size), device="cuda")
    whole = size // BLOCK * BLOCK
    n = int(t[:whole].view(-1, BLOCK).any(dim=1).sum()) * BLOCK if whole else 0
    return n + (size - whole if whole < size and bool(t[whole:].any()) else 0)


def place(block):
    """Returns the innermost line of Python code outside of torch."""
    frames = [f for f in block.get("frames", []) if f["filename"].endswith(".py")]
    own = [f for f in frames if "/torch/" not in f["filename"]] or frames
    if not own:
        return "(no line of Python)"
    return f"{os.path.basename(own[0]['filename'])}:{own[0]['line']} {own[0]['name']}"


def parts_of(segments):
    """Returns [(addr, end, state, private, place)] of torch's blocks."""
    found = []
    for s in segments:
        at = s["address"]
        for b in s["blocks"]:
            private = any(s.get("segment_pool_id", (0, 0)))
            found.append((at, at + b["size"], b["state"], private, place(b)))
            at += b["size"]
    return sorted(found)


def account(torch, contents, blocks):
    """Returns {(state, private, place): [bytes, bytes that are not zero]} of the ranges `contents`.
    """
    sums = {}

    def add(key, addr, end):
        if addr < end:
            entry = sums.setdefault(key, [0, 0])
            entry[0] += end - addr
            entry[1] += stored(torch, addr, end - addr)
    for addr, size in contents:
        at, end = addr, addr + size
        for b in blocks:
            if b[1] <= at or b[0] >= end:
                continue
            add(("not torch's", False, ""), at, b[0])
            at = max(at, b[0])
            add(b[2:], at, min(b[1], end))
            at = min(b[1], end)
        add(("not torch's", False, ""), at, end)
    return sums


def check_bound(size):
    assert size <= BOUND, (f"{size} bytes of content, more than {BOUND}: weights and caches are "
                           "external, so the list above names what was kept")


def capture(empty, folder):
    import foundry
    import decode
    import torch
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python")
    with foundry.Capture() as cap:
        d = decode.Decoder(argparse.Namespace(batches=[1, 2, 4, 8], context=256, seed=0,
                                              compile=False))
        stream = torch.cuda.Stream()
        d.warm_up([8, 4, 2, 1], stream)
        if empty == "empty":
            torch.cuda.empty_cache()
        logits = {}
        for batch in (8, 4, 2, 1):
            with cap.graph(batch, stream=stream):
                logits[batch] = d.step(batch)
        cap.tensor("token", d.token, use="state")
        cap.tensor("position", d.position, use="state")
        for i in range(decode.LAYERS):
            cap.tensor(f"keys/{i}", d.keys[i], use="state", external=True)
            cap.tensor(f"values/{i}", d.values[i], use="state", external=True)
        for name, p in d.model.named_parameters():
            cap.tensor("weight/" + name, p, use="const", external=True)
        store = foundry.Store(os.path.join(folder, "store"), create=True)
        sealed = cap.seal(store, "external")
        text = store.describe("external")
        found = re.findall(r"^segment (0x[0-9a-f]+) (\d+) content", text, re.M)
        contents = [(int(addr, 16), int(size)) for addr, size in found]
        sums = account(torch, contents, parts_of(torch.cuda.memory_snapshot()))
    print(f"{empty}: content {sealed.content_bytes}, zero {sealed.zero_bytes}, "
          f"scratch {sealed.scratch_bytes}, external {sealed.external_bytes}")
    for (state, private, where), (size, dirty) in sorted(sums.items(), key=lambda e: -e[1][1]):
        print(f"  {dirty:12d} of {size:12d} {state}{' (pool of a graph)' if private else ''} "
              f"{where}")
    for line in text.splitlines():
        if line.startswith(("memory ", "content ")):
            print("  " + line)
    total = sum(dirty for _, dirty in sums.values())
    assert sum(size for size, _ in sums.values()) == sealed.content_bytes + sealed.zero_bytes
    # Zeros between bytes of one chunk are stored with them; the pieces here have other borders.
    pieces = BLOCK * (len(contents) + len(torch.cuda.memory_snapshot()) + 1000)
    assert total <= sealed.content_bytes + pieces, f"{total} bytes are not zero, and fewer are kept"
    check_bound(sealed.content_bytes)


def whole():
    parts.need("transformers")
    results = []
    for empty in ("empty", "kept"):
        with tempfile.TemporaryDirectory() as folder:
            results.append(parts.run("capture", empty, folder, limit=120))
    return results


if __name__ == "__main__":
    parts.main((capture,), whole)
