# SPDX-License-Identifier: Apache-2.0
"""Tests of numbers in device memory and of decode states from Python, on the software driver."""
import unittest

import suite
import foundry


class Scalars(unittest.TestCase):
    def test_every_type_comes_back(self):
        for dtype, value in (("bool", True), ("int8", -3), ("uint8", 250), ("int16", -300),
                             ("uint16", 65535), ("int32", -70000), ("uint32", 4000000000),
                             ("int64", -5 << 40), ("uint64", (1 << 64) - 1), ("float16", 0.5),
                             ("float32", 1.5), ("float64", 0.1), ("bfloat16", 0x3F80)):
            with self.subTest(dtype), foundry.DeviceScalar(dtype, value) as s:
                self.assertEqual(s.read(), value)
                self.assertEqual(s.dtype, dtype)
                self.assertEqual(s.addr % 8, 0)

    def test_updates(self):
        with foundry.DeviceScalar("float32") as s:
            addr = s.addr
            self.assertEqual(s.read(), 0)
            for i in range(100):
                s.update(i / 4)
            self.assertEqual(s.read(), 99 / 4)
            self.assertEqual(s.addr, addr)
            with foundry.DeviceScalar("float32", 7, addr=addr) as same:
                self.assertEqual(s.read(), 7)
                same.update(8)
            self.assertEqual(s.read(), 8)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "complex128"):
            foundry.DeviceScalar("complex128")
        with self.assertRaisesRegex(foundry.Error, "no device 9") as caught:
            foundry.DeviceScalar("int32", device=9)
        self.assertEqual(caught.exception.name, "FDRY_E_NOGPU")
        with self.assertRaises(foundry.Error) as caught:
            foundry.DeviceScalar("int32", driver="/nonexistent/libcuda.so.1")
        self.assertEqual(caught.exception.name, "FDRY_E_NODRIVER")
        s = foundry.DeviceScalar("uint8", 5)
        with self.assertRaisesRegex(OverflowError, "uint8"):
            s.update(300)
        self.assertEqual(s.read(), 5)
        s.close()
        s.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            s.update(1)

    def test_decode_state(self):
        with foundry.DecodeState() as d:
            self.assertEqual((d.token, d.position, d.length, d.from_device), (0, 0, 1, False))
            with foundry.DeviceScalar("int32", addr=d.length_addr, value=1) as length:
                for step in range(20):
                    d.set(token=100 + step, step=step)
                    self.assertEqual(length.read(), step + 1)
            self.assertEqual((d.token, d.position, d.length), (119, 19, 20))
            d.from_device = True
            self.assertTrue(d.from_device)
            with self.assertRaisesRegex(foundry.Error, "too far"):
                d.set(0, (1 << 31) - 1)
            with self.assertRaises(OverflowError):
                d.set(-1, 0)
            self.assertEqual(d.token, 119)


if __name__ == "__main__":
    suite.main()
