# SPDX-License-Identifier: Apache-2.0
"""Tests of self-tests in Python and on the command line, on the software driver."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import suite
import test_roundtrip

BUILD = os.environ.get("BUILD", "build")
N = test_roundtrip.N


def capture(store):
    import foundry
    with foundry.Capture() as cap:
        cuda = test_roundtrip.Driver()
        a, b, c = (cuda.alloc([float(i) for i in range(N)]) for _ in range(3))
        cap.add_graph(7, cuda.graph(a, b, c), name="add")
        for name, addr, use in (("a", a, "input"), ("b", b, "const"), ("c", c, "output")):
            cap.tensor(name, test_roundtrip.Array(addr, N), use=use)
        plain = cap.seal(store, "plain").id
        cap.selftest(seed=5)
        assert cap.seal(store, "tested").id != plain
        cap.selftest(0)
        assert cap.seal(store, "again").id == plain


class Selftest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.store = os.path.join(cls.folder.name, "store")
        suite.child(__file__, cls.store)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_python(self):
        import foundry
        with foundry.load("tested", store=self.store) as img:
            result = img.selftest()
            self.assertEqual((result.graphs, result.outputs, result.differ, result.differences),
                             (1, 1, 0, []))
            self.assertGreater(result.ms, 0)
        with foundry.load("plain", store=self.store) as img:
            with self.assertRaisesRegex(foundry.Error, "has no self-test"):
                img.selftest()

    def command(self, *args, status=0):
        done = subprocess.run([os.path.join(BUILD, "foundry-store"), "-s", self.store, *args],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout or done.stderr

    def test_command(self):
        self.assertEqual(self.command("selftest", "tested"),
                         "1 graph replayed, 1 result compared, 0 differ\n")
        self.assertEqual(json.loads(self.command("selftest", "--json", "tested")),
                         {"differences": [], "graphs": 1, "left_out": 0, "outputs": 1,
                          "unstable": 0, "differ": 0})
        self.assertIn("has no self-test", self.command("selftest", "plain", status=9))
        self.assertIn("selftest of graph 7: c ", self.command("show", "tested"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        capture(sys.argv[2])
    else:
        suite.main()
