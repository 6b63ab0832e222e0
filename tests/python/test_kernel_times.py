# SPDX-License-Identifier: Apache-2.0
"""Tests of measured times in Python and on a page, on the software driver."""
import ctypes
import os
import subprocess
import sys
import tempfile
import unittest

import suite
import test_roundtrip

BUILD = os.environ.get("BUILD", "build")
N = test_roundtrip.N
PAGE = os.path.join("tests", "cli", "page.py")


def event_add(cuda, graph):
    """Adds nodes that record an event and wait for it."""
    event, record, wait = (ctypes.c_void_p() for _ in range(3))
    cuda("cuEventCreate", ctypes.byref(event), 2)
    into, none, one = ctypes.c_void_p(graph), ctypes.c_size_t(0), ctypes.c_size_t(1)
    cuda("cuGraphAddEventRecordNode", ctypes.byref(record), into, None, none, event)
    cuda("cuGraphAddEventWaitNode", ctypes.byref(wait), into, ctypes.byref(record), one, event)
    return graph


def capture(store):
    import foundry
    with foundry.Capture() as cap:
        cuda = test_roundtrip.Driver()
        a, b, c = (cuda.alloc([float(i) for i in range(N)]) for _ in range(3))
        cap.add_graph(7, cuda.graph(a, b, c), name="add")
        cap.add_graph(8, event_add(cuda, cuda.graph(a, b, c)), name="event")
        for name, addr, use in (("a", a, "input"), ("b", b, "const"), ("c", c, "output")):
            cap.tensor(name, test_roundtrip.Array(addr, N), use=use, external=name == "b")
        cap.seal(store, "timed")


class Times(unittest.TestCase):
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
        with foundry.load("timed", store=self.store) as img:
            one, other = img.kernel_times()
            self.assertEqual((one.key, one.name, one.left_out), (7, "add", None))
            kernel, = one.kernels
            self.assertEqual((kernel.node, kernel.kernel, kernel.name), (0, 0, "vecadd"))
            self.assertTrue(0 < kernel.ms <= one.alone_ms)
            self.assertTrue(one.launch_ms > 0 and one.empty_ms > 0)
            self.assertEqual((other.key, other.name, other.kernels), (8, "event", []))
            self.assertIn("it has an event", other.left_out)
            self.assertEqual([t.key for t in img.kernel_times(8, 7)], [8, 7])
            self.assertIn("vecadd", repr(one))
            with self.assertRaisesRegex(foundry.Error, "no graph with key 9"):
                img.kernel_times(9)

    def test_page(self):
        page = os.path.join(self.folder.name, "page.html")
        subprocess.run([os.path.join(BUILD, "foundry-store"), "-q", "-s", self.store, "report",
                        "timed", "--time", "-o", page], check=True)
        done = subprocess.run(
            [sys.executable, PAGE, page,
             r"re.search(r'vecadd\d+\.\d{4} ms100\.0 %1\d+\.\d{4} ms', text) and "
             r"re.search(r'Graph 7, add(\d+\.\d{4} ms){4}', text) and "
             r"'Graph 8, event not measured: it has an event' in text and "
             r"'The image has 1 external tensor. Nobody filled it' in text"],
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        capture(sys.argv[2])
    else:
        suite.main()
