# SPDX-License-Identifier: Apache-2.0
"""Content that changes in the store's file after it was verified, then loaded on a GPU.

One process captures a copy of 1 MiB of noise, and seals it. Another one damages the noise in the
store in one of several ways, and loads: a bit or several are flipped, bytes are moved, swapped or
set to zero. The record of verified objects stays valid, so no load hashes the content. Each load
must be refused, or repaired from a pack in the store, and give the bytes that were sealed. Some
loads compare at the first launch. FLIPS_CASES sets the number of cases. tests/long/flips.c has
many more, on the software driver; FOUNDRY_DRIVER runs these on it, too.
"""
import collections
import ctypes
import importlib
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import NON_BLOCKING, PTR, U64, SIZE, Bytes, call, context_set  # noqa: E402

CASES = int(os.environ.get("FLIPS_CASES", "400"))
BYTES = 1 << 20
SECTOR = 512
CHANGED_AT = 72  # of the record's time, see store/format.h
NOISE = random.Random(1).randbytes(BYTES)


def memory():
    """Return the address of BYTES of device memory."""
    addr = U64()
    call("cuMemAlloc_v2", ctypes.byref(addr), SIZE(BYTES))
    return addr


def capture(folder):
    """Seal the copy of NOISE, and write a pack beside the store."""
    import foundry
    with foundry.Capture(name="flips") as cap:
        context_set()
        noise, copy, stream, graph = memory(), memory(), PTR(), PTR()
        call("cuMemcpyHtoD_v2", noise, NOISE, SIZE(BYTES))
        call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        call("cuStreamBeginCapture_v2", stream, 2)
        call("cuMemcpyDtoDAsync_v2", copy, noise, SIZE(BYTES), stream)
        call("cuStreamEndCapture", stream, ctypes.byref(graph))
        cap.add_graph(1, graph.value, name="copy")
        cap.tensor("noise", Bytes(noise.value, BYTES), use="const")
        cap.tensor("copy", Bytes(copy.value, BYTES), use="output")
        cap.seal(os.path.join(folder, "store"), "flips")
    with open(os.path.join(folder, "pack"), "wb") as f:
        subprocess.run([os.path.join(parts.BUILD, "foundry-store"), "-s",
                        os.path.join(folder, "store"), "export", "flips"], stdout=f, check=True)


class Store:
    """The files of a store whose content is verified."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "store")
        self._pack, self._place = os.path.join(folder, "pack"), os.path.join(self.path, "packs")
        os.makedirs(self._place, exist_ok=True)
        assert load(self, False) == "right"  # which verifies the content
        self.refresh()

    def refresh(self):
        """Find the noise in the file, and read the record of verified objects."""
        with open(os.path.join(self.path, "verified"), "rb") as f:
            self._record = bytearray(f.read())
        with open(os.path.join(self.path, "data.mdb"), "rb") as f:
            self._at = f.read().find(NOISE)
        assert self._at >= 0, "the noise is not in the store"

    def write(self, data):
        """Put bytes in place of the noise, which stays verified."""
        path = os.path.join(self.path, "data.mdb")
        with open(path, "r+b") as f:
            f.seek(self._at)
            f.write(data)
        self._record[CHANGED_AT:CHANGED_AT + 8] = struct.pack("<Q", os.stat(path).st_ctime_ns)
        with open(os.path.join(self.path, "verified"), "r+b") as f:
            f.write(self._record)

    def pack(self, there):
        place = os.path.join(self._place, "one")
        if os.path.exists(place):
            os.remove(place)
        if there:
            os.link(self._pack, place)


def damaged(rng):
    """Return (how, bytes, which may equal NOISE)."""
    data = bytearray(NOISE)
    at, other = (rng.randrange(BYTES // SECTOR) * SECTOR for _ in range(2))
    how = rng.choice(("a bit", "a bit", "bits", "zeros", "moved", "swapped"))
    if how in ("a bit", "bits"):
        for _ in range(1 if how == "a bit" else rng.randrange(2, 9)):
            data[rng.randrange(BYTES)] ^= 1 << rng.randrange(8)
    elif how == "zeros":
        data[at:at + SECTOR] = bytes(SECTOR)
    elif how == "moved":
        data[at + 1:] = NOISE[at:-1]
    else:
        data[at:at + SECTOR], data[other:other + SECTOR] = (
            NOISE[other:other + SECTOR], NOISE[at:at + SECTOR])
    return how, bytes(data)


def load(store, late):
    """Load, launch, and compare the copy. Returns "right", or "refused" if the library says so.
    late: compare the content at the first launch.
    """
    import foundry
    try:
        with foundry.load("flips", store=store.path, check_at_launch=late) as img:
            img.launch(1)
            found = bytes(img.read("copy"))
    except foundry.Error as e:
        assert e.name == "FDRY_E_CORRUPT", e
        return "refused"
    assert found == NOISE, "a load gave other bytes"
    return "right"


def loads(folder):
    importlib.import_module("foundry")  # which finds the driver
    context_set()
    store, ends = Store(folder), collections.Counter()
    for case in range(CASES):
        rng = random.Random(case)
        how, data = damaged(rng)
        late, pack = rng.random() < 0.25, rng.random() < 0.125
        store.pack(pack)
        store.write(data)
        end = load(store, late)
        expected = "right" if pack or data == NOISE else "refused"
        assert end == expected, f"case {case}: {how}, late: {late}, pack: {pack}: {end}"
        ends["equal" if data == NOISE else "repaired" if pack else end] += 1
        if pack:
            store.refresh()
        else:
            store.write(NOISE)
        if case % 8 == 0:
            assert load(store, late) == "right"
    print(f"{CASES} cases: {dict(ends)}", flush=True)
    assert ends["refused"] and ends["repaired"]


def whole():
    if "FOUNDRY_DRIVER" not in os.environ:
        parts.need()
    with tempfile.TemporaryDirectory() as folder:
        captured = parts.run("capture", folder)
        return [captured, captured and parts.run("loads", folder, limit=300)]


if __name__ == "__main__":
    parts.main((capture, loads), whole)
