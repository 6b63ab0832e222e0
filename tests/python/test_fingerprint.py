# SPDX-License-Identifier: Apache-2.0
"""Fingerprints as Documentation/format/fingerprint.rst specifies them, from its text alone.

This is a second implementation, which must give the test vectors of that page. The unit test
lib_fingerprint compares the library with the same vectors.
"""
import os
import re
import struct
import unittest

import suite

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "Documentation",
                    "format", "fingerprint.rst")
K1, K2 = 0xf3a5d617, 0xed5b6bf3
WORD, LOW = (1 << 64) - 1, (1 << 32) - 1
BLOCK, ROW, LANES = 1 << 16, 4096, 256
LANE, FIRST = (0x6a09e667f3bcc908, 0xbb67ae8584caa73b), (0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1)


def mix(v):
    for k in (K1, K2):
        v = (v & LOW) * k + (v >> 32)
    return v


def pair(value, other):
    s = (mix(value[0]) + value[1]) & WORD
    return s ^ other[0], ((mix(value[1]) + s) & WORD) ^ other[1]


def end(value, count):
    return pair(pair((value[0] ^ count, value[1]), (0, 0)), (0, 0))


def block(data):
    """Return the value of at most 64 KiB."""
    lanes = [LANE] * LANES
    padded = data + bytes(-len(data) % ROW)
    for number, (x, y) in enumerate(struct.iter_unpack("<2Q", padded)):
        a, b = lanes[number % LANES]
        lanes[number % LANES] = (mix(a ^ x) + y) & WORD, (mix(b ^ y) + x) & WORD
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = list(map(pair, lanes[:half], lanes[half:]))
    return end(lanes[0], len(data))


def fingerprint(data):
    """Return a and b of bytes."""
    value = FIRST
    for at in range(0, len(data), BLOCK):
        value = pair(value, block(data[at:at + BLOCK]))
    return end(value, len(data))


class Vectors(unittest.TestCase):
    def test_the_text_gives_the_vectors_of_the_page(self):
        with open(PAGE, encoding="utf-8") as f:
            rows = re.findall("^([0-9]+) +" + " +".join(4 * ["([0-9a-f]{16})"]) + "$", f.read(),
                              re.MULTILINE)
        self.assertEqual(len(rows), 13)
        for size, *words in rows:
            pattern = bytes((i * 2654435761 & LOW) >> 24 for i in range(int(size)))
            for data, expected in ((pattern, words[:2]), (bytes(int(size)), words[2:])):
                with self.subTest(size=size, data=data[:2]):
                    self.assertEqual([f"{word:016x}" for word in fingerprint(data)], expected)


if __name__ == "__main__":
    suite.main()
