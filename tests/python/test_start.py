# SPDX-License-Identifier: Apache-2.0
"""Tests of load_or_capture() from Python, on the software driver; each start is a process of its
own.
"""
import os
import sys
import tempfile
import unittest

import suite
from test_roundtrip import N, Array, Driver


class Broken(Exception):
    pass


def build(capture):
    """Captures c = a + b; the function that a program passes to load_or_capture()."""
    cuda = Driver()
    if "outside" in sys.argv:
        capture.pause()
    a = cuda.alloc([0.0] * N)
    if "outside" in sys.argv:
        capture.resume()
    b, c = cuda.alloc([float(i) for i in range(N)]), cuda.alloc([0.0] * N)
    if "broken" in sys.argv:
        raise Broken("on purpose")
    capture.add_graph(7, cuda.graph(a, b, c), name="add")
    if "outside" not in sys.argv:
        capture.tensor("a", Array(a, N))
    capture.tensor("c", Array(c, N), use="output")
    return {"a": a}


def start(store, *words):
    import foundry
    facts = {"revision": next((w[1:] for w in words if w[0] == "r"), "1")}
    how = foundry.load_or_capture(["none", "adder"] if "two" in words else "adder", capture=build,
                                  facts=facts, store=store, seal_as="adder", wait=0)
    if how.image:
        with how.image as image:
            image.write("a", bytes(4 * N))
            image.launch(7)
            assert memoryview(image.read("c")).cast("f")[5] == 5.0
        assert how.value is None and not how.captured
        return f"loaded {how.id[:8]} {len(how.unused)}"
    assert how.captured and how.value["a"]
    assert str(how).startswith("captured 'adder' in "), str(how)
    said = [(u.name, u.error, u.field, u.wanted, u.found) for u in how.unused]
    if how.seal_error:
        assert how.seal_error.name == "FDRY_E_REFUSED" and how.id == "" and "not sealed" in str(how)
        how.capture.end()
        return f"unsealed {said}"
    assert how.capture is None
    return f"captured {how.id[:8]} {said}"


def child(*args):
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    return suite.child(__file__, *args, env=env).strip().splitlines()[-1]


class Starts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.store = os.path.join(self.folder.name, "store")

    def tearDown(self):
        self.folder.cleanup()

    def test_captured_once_then_loaded(self):
        first = child(self.store)
        self.assertRegex(first, r"^captured \w{8} \[\('adder', 'FDRY_E_NOENT', '', '', ''\)\]$")
        self.assertEqual(child(self.store), f"loaded {first.split()[1]} 0")
        self.assertEqual(child(self.store, "two"), f"loaded {first.split()[1]} 1")

    def test_says_which_field_differs(self):
        child(self.store)
        second = child(self.store, "r2", "two")
        self.assertIn("('adder', 'FDRY_E_IDENTITY', 'revision', '2', '1')", second)
        self.assertEqual(child(self.store, "r2"), f"loaded {second.split()[1]} 0")

    def test_strict(self):
        import foundry
        with self.assertRaises(foundry.Error) as e:
            foundry.load_or_capture("adder", strict=True, store=self.store)
        self.assertEqual(e.exception.name, "FDRY_E_NOSTORE")
        child(self.store)
        with self.assertRaises(foundry.Error) as e:
            foundry.load_or_capture("adder", strict=True, store=self.store, facts={"revision": 3})
        self.assertEqual(e.exception.name, "FDRY_E_IDENTITY")
        how = foundry.load_or_capture("adder", strict=True, store=self.store, facts={"revision": 1})
        self.assertIsNone(how.seal_error)
        how.image.close()

    def test_exceptions_of_the_function_are_raised(self):
        self.assertEqual(child(self.store, "broken"), "Broken on purpose")
        self.assertTrue(child(self.store).startswith("captured "))

    def test_exceptions_of_progress_are_raised(self):
        import foundry

        def fails(*_):
            raise Broken
        child(self.store)
        with self.assertRaises(Broken):
            foundry.load_or_capture("adder", strict=True, store=self.store, facts={"revision": 1},
                                    progress=fails)
        foundry.load_or_capture("adder", strict=True, store=self.store, facts={"revision": 1},
                                wait=float("inf")).image.close()

    def test_a_failed_seal_is_reported(self):
        self.assertTrue(child(self.store, "outside").startswith("unsealed "))

    def test_no_function(self):
        import foundry
        with self.assertRaises(foundry.Error) as e:
            foundry.load_or_capture("adder", store=self.store)
        self.assertEqual(e.exception.name, "FDRY_E_OPTS")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        try:
            print(start(*sys.argv[2:]))
        except Broken as e:
            print("Broken", e)
    else:
        suite.main()
