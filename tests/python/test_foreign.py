# SPDX-License-Identifier: Apache-2.0
"""Tests of names from outside: they are kept exactly, and printed without characters that control a
terminal.
"""
import tempfile
import unittest

import suite
import foundry
from foundry import _lib
from foundry.tensor import Tensor

ATTACK = b"t\x1b[2J\nfact \xff\xc2\x9b31m\xe2\x80\xae gr\xc3\xbc\xc3\x9f"
SHOWN = "t\\x1b[2J\\nfact \\xff\\u009b31m\\u202e gr\u00fc\u00df"


class Foreign(unittest.TestCase):
    def test_bytes_come_back(self):
        name = _lib.foreign(ATTACK)
        self.assertEqual(_lib.named(name), ATTACK)
        self.assertEqual(_lib.shown(name), SHOWN)
        self.assertEqual(_lib.shown("plain \\ 'text'"), "plain \\ 'text'")

    def test_names_of_callers_are_checked(self):
        for name in ("a\0b", "\ud800"):
            with self.assertRaises(ValueError):
                _lib.named(name)
        with self.assertRaises(TypeError):
            _lib.named(7)

    def test_a_tensor_shows_its_name(self):
        raw = _lib.Tensor(name=ATTACK, addr=4096, dtype=0, use=0, rank=1)
        raw.shape[0] = raw.stride[0] = 1
        tensor = Tensor(None, raw)
        self.assertEqual(_lib.named(tensor.name), ATTACK)
        self.assertIn(SHOWN, repr(tensor))
        self.assertTrue(repr(tensor).isprintable())

    def test_messages_are_text(self):
        self.assertEqual(str(foundry.Error(-1, "a\x1b[31m\n")), "a\\x1b[31m\\n")
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(foundry.Error) as caught:
            foundry.Store(folder + "/no\x1b[31m\nstore\u202e")
        self.assertIn("no\\x1b[31m\\nstore\\u202e", str(caught.exception))
        self.assertTrue(str(caught.exception).isprintable())


if __name__ == "__main__":
    suite.main()
