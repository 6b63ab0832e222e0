# SPDX-License-Identifier: Apache-2.0
"""Tests of devices and their pools from Python, on the software driver."""
import ctypes
import os
import threading
import unittest

import suite

BUILD = os.environ.get("BUILD", "build")
os.environ["FOUNDRY_DRIVER"] = os.path.join(BUILD, "foundry", "sim", "libcuda.so.1")
os.environ["CUDA_CACHE_DISABLE"] = "1"

import foundry  # pylint: disable=wrong-import-position
from foundry import telemetry  # pylint: disable=wrong-import-position


class Devices(unittest.TestCase):
    def setUp(self):
        self.dev = foundry.Device()
        self.addCleanup(self.dev.close)

    def fails(self, name, text, call, *args):
        with self.assertRaisesRegex(foundry.Error, text) as caught:
            call(*args)
        self.assertEqual(caught.exception.name, name)

    def test_caps(self):
        self.assertEqual((self.dev.caps["cc_major"], self.dev.caps["ordinal"]), (9, 0))
        self.assertGreater(self.dev.caps["memory"], 1 << 30)
        self.assertTrue(self.dev.caps["name"])
        self.fails("FDRY_E_NOGPU", "there is no device 7; this process sees 1", foundry.Device, 7)
        self.dev.warm_up()

    def test_freed_memory_is_reused(self):
        for kind in ("device", "pinned"):
            addr = self.dev.get(1000, "none", kind)
            self.assertEqual(self.dev.pool(kind)["used"], 1024)
            self.dev.put(addr, "none", kind)
            self.assertEqual(self.dev.pool(kind)["cached"], 1024)
            self.fails("FDRY_E_STALE", "returned before", self.dev.put, addr, "none", kind)
            self.assertEqual(self.dev.get(1000, "none", kind), addr)
            self.dev.put(addr, None, kind)
            self.dev.set_limit(0, kind)
            self.assertEqual(self.dev.pool(kind)["cached"], 0)

    def test_pinned_memory_is_the_hosts_at_once(self):
        lib, hold = ctypes.CDLL(os.environ["FOUNDRY_DRIVER"]), threading.Event()
        wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: hold.wait())
        self.addCleanup(hold.set)
        addr = self.dev.get(1000, kind="pinned")
        self.dev.warm_up()
        self.assertEqual(lib.cuLaunchHostFunc(None, wait, None), 0)
        self.dev.put(addr, kind="pinned")  # after the stream's work
        self.assertNotEqual(self.dev.get(1000, kind="pinned"), addr)
        self.assertEqual(self.dev.get(1000, 0, "pinned"), addr)
        hold.set()
        self.assertEqual(lib.cuCtxSynchronize(), 0)

    def test_syncs(self):
        for kind in ("stream", "event", "timer"):
            what = self.dev.get_sync(kind)
            self.dev.put_sync(what, kind)
            self.assertEqual((self.dev.syncs(kind)["kept"], self.dev.syncs(kind)["limit"]),
                             (1, 128))
            self.fails("FDRY_E_STALE", "returned before", self.dev.put_sync, what, kind)
        self.dev.clean_up()
        self.assertEqual(self.dev.syncs("stream")["kept"], 0)

    def test_buffers_by_handle(self):
        handle = self.dev.new(8)
        self.dev.write(handle, b"abcdefgh")
        self.assertEqual(self.dev.read(handle, 4, 2), b"cdef")
        self.assertEqual(self.dev.view(handle)[1], 8)
        self.assertEqual(telemetry.snapshot()["foundry_resident_buffers"], 1)
        self.fails("FDRY_E_RANGE", "do not fit", self.dev.read, handle, 9)
        self.dev.write(handle, memoryview(b"0123456789")[1::3], 1)
        self.assertEqual(self.dev.read(handle, 8), b"a147efgh")
        self.dev.write(handle, b"xy", 6, "none")
        self.assertEqual(self.dev.read(handle, 3, 5, "none"), b"fxy")
        for data in (5, "text", [1, 2]):  # bytes() would make other bytes of these, or none
            self.assertRaises(TypeError, self.dev.write, handle, data)
        self.dev.free(handle)
        self.fails("FDRY_E_STALE", "was freed", self.dev.view, handle)
        self.fails("FDRY_E_NOKEY", "ever had the handle", self.dev.view, 12345 << 32 | 99)

    def test_unknown_kinds(self):
        for call in (lambda kind: self.dev.get(8, kind=kind),
                     lambda kind: self.dev.put(8, kind=kind), self.dev.pool,
                     lambda kind: self.dev.set_limit(8, kind)):
            self.assertRaisesRegex(ValueError, "kind must be one of device, pinned, not 'host'",
                                   call, "host")
        for call in (self.dev.get_sync, lambda kind: self.dev.put_sync(8, kind), self.dev.syncs):
            self.assertRaisesRegex(ValueError,
                                   "kind must be one of stream, event, timer, not 'streams'",
                                   call, "streams")

    def test_closed(self):
        self.dev.close()
        self.dev.close()
        with self.assertRaisesRegex(ValueError, "the device is closed"):
            self.dev.warm_up()


if __name__ == "__main__":
    suite.main()
