# SPDX-License-Identifier: Apache-2.0
"""This version loads images that version 0.1 wrote (tests/golden/store-0.1), and they give the same
numbers.

The test copies the golden files first, because opening a store writes to it.
"""
import ctypes
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import suite
from test_generators import N as DRAWN, SEED, drawn
from test_roundtrip import N

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "store-0.1")
STAND_IN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_in")
# The golden kernels are machine code for the software driver on this kind of processor.
RUNS = platform.machine() == "x86_64"
IMAGES = {
    "adder": "dceffc9cc5356242ea0514a8f69e162a1db7652d3dd456fc9db10c5129b72034",
    "draws-capture": "46a9d12e72ae",
    "draws-eager": "5b57e4712306",
    "external": "210aca9f26f10497984641bf28ba88755b1d3b0020b7797588a42a251d7f92cc",
    "host": "71c0c4df1d94f3b83d5d18c9b1a01ec396e36e5da703373f4210a72105bd586e",
    "room": "697bfff26d418a12db5e1600e392fa925c2685dde82129de36d07083ce106546",
}

SAVED = """\
import foundry as fdry
import torch

fdry.set_allocation_region(0x500000000000, "1GB")
a = torch.full((100, 100), 5.0)
b = torch.full((100, 100), 3.0)
graph, (c, same) = fdry.CUDAGraph.load("graph.json")
graph.replay()
print(set(c.tolist()), set(same.tolist()), c.shape)
"""


class Golden(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "golden")
        shutil.copytree(GOLDEN, self.folder)
        self.store = os.path.join(self.folder, "store")

    def sums(self, img, addend):
        img.write("a", struct.pack(f"{N}f", *(3.0 + i for i in range(N))))
        img.launch(7)
        self.assertEqual(list(struct.unpack(f"{N}f", img.read("c"))),
                         [3.0 + i + addend(i) for i in range(N)])

    def check_images(self, store):
        import foundry
        if not RUNS:
            return
        with foundry.load("adder", store=store, poison=True) as img:
            self.assertEqual(img.fact("model"), "adder")
            self.sums(img, float)
        with foundry.load("external", store=store) as img:
            with self.assertRaisesRegex(foundry.Error, "not recorded: an older version"):
                img.check("b")
            img.write("b", struct.pack(f"{N}f", *([10.0] * N)))
            self.sums(img, lambda i: 10.0)
        with foundry.load("room", store=store, externals={"kv": 16 << 20}) as img:
            self.assertEqual(img["kv"].shape, (4 << 20,))
            img.filled("kv")
            self.sums(img, float)
        with foundry.load("host", store=store) as img:
            self.sums(img, float)
        for layout in ("eager", "capture"):
            with foundry.load("draws-" + layout, store=store, poison=True) as img:
                self.check_draws(img)

    def check_draws(self, img):
        other = iter(range(0, 400, 4))
        at = 0
        for key in (1, 2, 3, 1, 3):
            img.launch(key)
            self.assertEqual(self.numbers(img, "a"), drawn(SEED, at))
            if key == 3:
                self.assertEqual(self.numbers(img, "b"), drawn(SEED, next(other)))
            at += 8 if key == 1 else 4

    def numbers(self, img, name):
        return list((ctypes.c_uint64 * DRAWN).from_buffer(img.read(name)))

    def test_store(self):
        import foundry
        self.assertTrue(foundry.verify(self.store))
        with foundry.Store(self.store) as store:
            self.assertEqual(store.limit, 64 << 20)
            for ref, ident in IMAGES.items():
                self.assertTrue(store.describe(ref).startswith(store.describe(ident)), ref)
            self.assertEqual([ref for ref, _, _ in store.evict(1, dry_run=True).images
                              if ref == "adder"], [])
            self.check_images(store)

    @unittest.skipUnless(RUNS, "no GPU for which the golden kernels were made")
    def test_unchecked(self):
        """Version 0.1 wrote no fingerprints: a load compares nothing and reports that."""
        import foundry
        counter = "foundry_loads_unchecked_total"
        with foundry.Store(self.store) as store:
            before = foundry.telemetry.snapshot()[counter]
            for nth, ref in enumerate(("adder", "room", "host"), 1):
                with foundry.load(ref, store=store, verify=True) as img:
                    report = img.report()
                self.assertGreater(report.content_bytes, 0, ref)
                self.assertGreaterEqual(report.verified_bytes, report.content_bytes, ref)
                self.assertEqual(report.checked_bytes, 0, ref)
                self.assertEqual(foundry.telemetry.snapshot()[counter], before + nth, ref)
                self.assertIn(f"{counter} {before + nth}\n", foundry.telemetry.text())

    def test_pack(self):
        import foundry
        path = os.path.join(self.folder, "new")
        with foundry.Store(path, create=True) as store:
            done = store.import_(os.path.join(self.folder, "images.pack"))
            self.assertEqual(sorted(ref for _, ref, _ in done.images), sorted(IMAGES))
            for ident, ref, _ in done.images:
                self.assertTrue(ident.startswith(IMAGES[ref]), ref)
            self.check_images(store)
        self.assertTrue(foundry.verify(path))

    @unittest.skipUnless(RUNS, "no GPU for which the golden kernels were made")
    def test_saved_graph(self):
        env = {k: v for k, v in os.environ.items() if k != "FOUNDRY_STORE"}
        env.update(HOME=self.folder, XDG_CACHE_HOME="")
        env["PYTHONPATH"] = os.pathsep.join([STAND_IN, env.get("PYTHONPATH", "")])
        done = subprocess.run([sys.executable, "-c", SAVED], cwd=os.path.join(self.folder, "saved"),
                              env=env, timeout=100, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(done.stdout.strip(), "{8.0} {5.0} (100, 100)")


if __name__ == "__main__":
    suite.main()
