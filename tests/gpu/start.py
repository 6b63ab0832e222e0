# SPDX-License-Identifier: Apache-2.0
"""Tests load_or_capture() with PyTorch on a GPU, and a cache whose size the loader chooses.

A first process captures; a second loads the image with a larger and with a smaller cache. A process
that wants another revision gets the name of the differing field and captures again; a strict one
fails. A process that imported torch first gets an error before its capture function runs.
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
D = 256               # floats in a row of the cache
ROWS = 64 * 1024  # of the cache in the capture: 64 MiB
ROOM = 16 << 30


def step(torch, cache, x, at, y):
    """Writes x into row `at` of the cache, and adds up that row and the first."""
    cache.index_copy_(0, at, x)
    y.copy_(cache.index_select(0, at) * 2 + cache[:1])


def build(capture):
    import torch
    cache = torch.zeros(ROWS, D, device="cuda")
    capture.tensor("cache", cache, use="state", external=True)
    capture.capacity("cache", ROOM)
    x, y = torch.zeros(1, D, device="cuda"), torch.zeros(1, D, device="cuda")
    at = torch.zeros(1, dtype=torch.int64, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step(torch, cache, x, at, y)
    torch.cuda.synchronize()
    with capture.graph(1, stream=stream):
        step(torch, cache, x, at, y)
    for name, tensor, use in (("x", x, "input"), ("at", at, "input"), ("y", y, "output")):
        capture.tensor(name, tensor, use=use)
    return cache


def check(image, rows):
    """The graph writes and reads rows of the cache up to the captured size, against which the index
    kernels check. Eager PyTorch uses all of it.
    """
    import torch
    cache = torch.from_dlpack(image["cache"])
    assert cache.shape == (rows, D), cache.shape
    cache.zero_()
    cache[0] = 3
    cache[rows - 1] = 5
    assert cache.sum().item() == (3 + 5) * D
    last = min(rows, ROWS) - 1
    for row in (1, last // 2, last):
        x = torch.randn(1, D, device="cuda")
        torch.from_dlpack(image["x"]).copy_(x)
        torch.from_dlpack(image["at"]).fill_(row)
        torch.cuda.synchronize()
        image.filled("cache")
        image.launch(1)
        image.synchronize()
        assert torch.equal(torch.from_dlpack(image["y"]), x * 2 + 3), row
        assert torch.equal(cache[row], x[0]), row
    del cache


def start(store, revision, rows=0):
    import foundry
    options = {"externals": {"cache": rows * D * 4}, "poison": True} if rows else {}
    return foundry.load_or_capture("start/test", capture=build, facts={"revision": revision},
                                   store=store, **options)


def first(store):
    how = start(store, "1")
    assert how.captured and not how.seal_error, str(how)
    assert how.value.shape == (ROWS, D)
    print(how)


def load(store, rows):
    import foundry
    how = start(store, "1", int(rows))
    assert how.image, str(how)
    needs = foundry.Store(store).requirements("start/test", externals={"cache": int(rows) * D * 4})
    assert how.image.report().mapped_bytes == needs.mapped_bytes
    check(how.image, int(rows))


def other(store):
    how = start(store, "2")
    assert how.captured and how.unused[0].field == "revision", str(how)
    assert (how.unused[0].wanted, how.unused[0].found) == ("2", "1")


def strict(store):
    import foundry
    try:
        foundry.load_or_capture("start/test", strict=True, store=store, facts={"revision": "3"})
    except foundry.Error as e:
        assert e.name == "FDRY_E_IDENTITY" and "revision '2' ('3' here)" in str(e), str(e)
        return
    raise AssertionError("it was loaded")


def late(store):
    import torch
    torch.zeros(1, device="cuda")
    import foundry
    try:
        foundry.load_or_capture("none/such", capture=lambda _: sys.exit("it ran"), store=store)
    except foundry.Error as e:
        assert e.name == "FDRY_E_LATE", str(e)
        return
    raise AssertionError("it was captured")


STEPS = [("first",), ("load", str(ROWS)), ("load", str(8 * ROWS)), ("load", str(ROWS // 4)),
         ("other",), ("strict",),
         ("late",)]


def whole():
    parts.need()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        return [parts.run(part, store, *args) for part, *args in STEPS]


if __name__ == "__main__":
    parts.main((first, load, other, strict, late), whole)
