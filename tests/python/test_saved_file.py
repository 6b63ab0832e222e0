# SPDX-License-Identifier: Apache-2.0
"""Tests of files of saved graphs, and lists of them, with every kind of wrong content: the package
reads the file or raises an Error that names it.

test_saved_file.py ROUNDS: tests that many files with several wrong places, made at random from one
seed.
"""
import copy
import json
import os
import random
import sys
import tempfile
import unittest

import suite
import foundry
from foundry import _file, many

ROUNDS = int(sys.argv.pop(1)) if sys.argv[1:2] and sys.argv[1].isdigit() else 500
GRAPH = {"format": "foundry graph", "version": 1, "image": "a" * 64, "key": 3,
         "base": "0x4fda00000000",
         "outputs": {"tuple": [{"tensor": {"addr": 88, "dtype": "float32", "shape": [2, 3],
                                           "stride": [3, 1]}},
                               {"dict": [["k", {"value": 1}], [3, {"list": []}]]}, None]},
         "torch": [[1 << 40, 4096, [[1 << 40, 512]]]]}
LIST = {"format": "foundry graphs", "version": 1,
        "graphs": [{"file": "g.json", "image": "a" * 64, "key": 3}]}
ODD = (None, True, False, [], {}, "", -1, 0, 1.5, 1e308, float("nan"), float("inf"), 1 << 70,
       10 ** 300, "x", "\ud800", "\0", [[]], [1], {"a": 1},
       {"tensor": {}}, {"tensor": None}, "float32", {"value": []}, {"dict": [[[], None]]},
       {"dict": [[None, None]]}, {"list": None}, "0x", "0x" + "f" * 16,
       "../../etc/passwd", "/")


def places(value, path=()):
    """Yields the path of every value within a value."""
    if path:
        yield path
    found = ()
    if isinstance(value, (dict, list)):
        found = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in found:
        yield from places(each, path + (key,))


def changed(value, path, odd):
    """Returns a copy with another value at a place, or without the value if `odd` is Ellipsis."""
    value = copy.deepcopy(value)
    at = value
    for key in path[:-1]:
        at = at[key]
    if odd is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = copy.deepcopy(odd)
    return value


class SavedFiles(unittest.TestCase):
    def setUp(self):
        # The folder is in memory, because a disk may need a millisecond for each file.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(dir=memory)
        self.addCleanup(self.folder.cleanup)
        self.graph, self.list = (os.path.join(self.folder.name, name)
                                 for name in ("g.json", many.MANIFEST))

    def put(self, path, content):
        with open(path, "wb") as f:
            f.write(content if isinstance(content, bytes) else json.dumps(content).encode())

    def reads(self, path, read):
        """Returns whether the file is read; if it is not, checks that the Error names it."""
        try:
            read()
        except foundry.Error as e:
            self.assertIn(path, str(e))
            return False
        return True

    def graph_reads(self, content):
        self.put(self.graph, content)

        def read():
            file = _file.read(self.graph)
            _file.walk(file.outputs, _file.extent)
        with self.subTest(content=repr(content)[:300]):
            return self.reads(self.graph, read)
        return False

    def list_reads(self, content):
        self.put(self.list, content)
        with self.subTest(content=repr(content)[:300]):
            return self.reads(self.folder.name,
                              lambda: foundry.load_cuda_modules_and_libraries(self.folder.name))
        return False

    def test_correct_files_are_read(self):
        self.assertTrue(self.graph_reads(GRAPH))
        # reads the list up to its image, which no store has
        self.assertFalse(self.list_reads(LIST))
        self.assertTrue(self.list_reads({**LIST, "graphs": []}))

    def test_one_wrong_value(self):
        for path in places(GRAPH):
            for odd in (..., *ODD):
                self.graph_reads(changed(GRAPH, path, odd))
        self.put(self.graph, GRAPH)
        for path in places(LIST):
            for odd in (..., *ODD):
                self.list_reads(changed(LIST, path, odd))

    def test_no_object(self):
        for odd in ODD:
            self.assertFalse(self.graph_reads(odd))
            self.assertFalse(self.list_reads(odd))
        for raw in (b"", b"{", b"\xff\xfe", b"[" * 100000, b"9" * 10000, b'{"a":' * 1000,
                    json.dumps(GRAPH).encode()[:-1], bytes(100)):
            self.assertFalse(self.graph_reads(raw))
            self.assertFalse(self.list_reads(raw))

    def test_several_wrong_values(self):
        chance = random.Random(4)
        for _ in range(ROUNDS):
            value = GRAPH
            for _ in range(chance.randint(2, 4)):
                found = list(places(value))
                value = (changed(value, chance.choice(found), chance.choice((..., *ODD)))
                         if found else value)
            self.graph_reads(value)


if __name__ == "__main__":
    suite.main()
