# SPDX-License-Identifier: Apache-2.0
"""Tests of foundry.Slots on the software driver: replay by key, threads, profiling, errors."""
import ctypes
import os
import threading
import unittest

import suite

BUILD = os.environ.get("BUILD", "build")
SIM = os.path.abspath(os.path.join(BUILD, "foundry", "sim", "libcuda.so.1"))
os.environ["FOUNDRY_DRIVER"] = SIM

import foundry

STEP = 6364136223846793005


class Gpu:
    """Graphs that increment a number, made with the driver by ctypes."""

    def __init__(self):
        self.lib = ctypes.CDLL(SIM)
        self.ctx, self.module, self.kernel, self.stream = (ctypes.c_void_p() for _ in range(4))
        self.x = ctypes.c_uint64()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.ctx), 0)
        self.use()
        with open(os.path.join(BUILD, "sim", "kernels.cubin"), "rb") as f:
            self("cuModuleLoadData", ctypes.byref(self.module), f.read())
        self("cuModuleGetFunction", ctypes.byref(self.kernel), self.module, b"step")
        self("cuStreamCreate", ctypes.byref(self.stream), 1)
        self("cuMemAlloc_v2", ctypes.byref(self.x), ctypes.c_size_t(1024))
        self("cuMemsetD8_v2", self.x, 0, ctypes.c_size_t(1024))
        self("cuCtxSynchronize")

    def __call__(self, name, *args):
        result = getattr(self.lib, name)(*args)
        if result:
            raise RuntimeError(f"{name}: {result}")

    def use(self):
        self("cuCtxSetCurrent", self.ctx)

    def begin(self):
        self("cuStreamBeginCapture_v2", self.stream, 2)

    def step(self, i, salt):
        values = [ctypes.c_uint64(self.x.value + 8 * i), ctypes.c_uint64(salt), ctypes.c_uint32(0)]
        args = (ctypes.c_void_p * 3)(*(ctypes.addressof(v) for v in values))
        self("cuLaunchKernel", self.kernel, 1, 1, 1, 1, 1, 1, 0, self.stream, args, None)

    def graph(self, i, salt):
        graph = ctypes.c_void_p()
        self.begin()
        self.step(i, salt)
        self("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        return graph.value

    def number(self, i):
        value = ctypes.c_uint64()
        self("cuStreamSynchronize", self.stream)
        self("cuMemcpyDtoH_v2", ctypes.byref(value), ctypes.c_uint64(self.x.value + 8 * i),
             ctypes.c_size_t(8))
        return value.value


class Exec:
    """Has the method by which a CUDAGraph returns its executable graph."""

    def __init__(self, gpu, graph):
        self.gpu, self.exec = gpu, ctypes.c_void_p()
        gpu("cuGraphInstantiateWithFlags", ctypes.byref(self.exec), ctypes.c_void_p(graph),
            ctypes.c_uint64(0))

    def raw_cuda_graph_exec(self):
        return self.exec.value


def stepped(salts):
    x = 0
    for salt in salts:
        x = (x * STEP + salt) % 2**64
    return x


class SlotTable(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gpu = Gpu()

    def setUp(self):
        self.gpu.use()
        self.slots = foundry.Slots()
        self.addCleanup(self.slots.close)
        self.gpu("cuMemsetD8_v2", self.gpu.x, 0, ctypes.c_size_t(1024))
        self.gpu("cuCtxSynchronize")

    def test_replay_by_key(self):
        s, stream = self.slots, self.gpu.stream.value
        self.assertFalse(s.replay(8, stream))
        s.install_graph(8, self.gpu.graph(0, 3))
        s.install(2**64 - 1, Exec(self.gpu, self.gpu.graph(1, 5)))
        for _ in range(100):
            self.assertTrue(s.replay(8, stream))
        self.assertTrue(s.replay(2**64 - 1, stream))
        self.assertEqual(self.gpu.number(0), stepped([3] * 100))
        self.assertEqual(self.gpu.number(1), stepped([5]))
        self.assertEqual((s.keys(), len(s), 8 in s, 9 in s), ([8, 2**64 - 1], 2, True, False))
        s.install_graph(8, self.gpu.graph(2, 7))
        self.assertTrue(s.replay(8, stream))
        self.assertEqual(self.gpu.number(2), 7)
        self.assertEqual(self.gpu.number(0), stepped([3] * 100))
        s.invalidate(8)
        self.assertFalse(s.replay(8, stream))
        s.invalidate()
        self.assertEqual(s.keys(), [])

    def test_capture_ended_into_a_slot(self):
        s = self.slots
        with self.assertRaisesRegex(foundry.Error, "is not capturing") as raised:
            s.capture_end(1, self.gpu.stream.value)
        self.assertEqual(raised.exception.name, "FDRY_E_STATE")
        self.gpu.begin()
        self.gpu.step(0, 9)
        s.capture_end(1, self.gpu.stream.value)
        self.assertTrue(s.replay(1, self.gpu.stream.value))
        self.assertEqual(self.gpu.number(0), 9)

    def test_profile(self):
        s, calls = foundry.Slots(upload="always", sync=True), []
        self.addCleanup(s.close)
        with self.assertRaisesRegex(foundry.Error, "not timed"):
            s.stats()
        s.install_graph(4, self.gpu.graph(0, 3))
        s.profile(every=3, callback=calls.append)
        for _ in range(10):
            s.replay(4, self.gpu.stream.value)
        self.assertEqual([(c.key, c.nr) for c in calls], [(4, 3), (4, 6), (4, 9)])
        self.assertGreaterEqual(calls[0].total_ns,
                                calls[0].upload_ns + calls[0].launch_ns + calls[0].sync_ns)
        times = s.stats()
        self.assertEqual([p.calls for p in (times.upload, times.launch, times.sync, times.total)],
                         [10] * 4)
        self.assertLessEqual(times.launch.p50_ns, times.launch.p99_ns)
        s.reset_stats()
        self.assertEqual(s.stats().total.calls, 0)
        s.profile_stop()
        with self.assertRaisesRegex(foundry.Error, "not timed"):
            s.stats()

    def test_threads(self):
        found, stop, failed = [0] * 4, threading.Event(), []

        def replays(i):
            stream = ctypes.c_void_p()
            try:
                self.gpu.use()
                self.gpu("cuStreamCreate", ctypes.byref(stream), 1)
                while not stop.is_set():
                    found[i] += self.slots.replay(i % 2, stream.value)
                self.gpu("cuStreamSynchronize", stream)
            except Exception as e:  # the test's thread reports it
                failed.append(e)

        workers = [threading.Thread(target=replays, args=(i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        for i in range(60):
            self.slots.install_graph(i % 2, self.gpu.graph(i, 1))
            if i % 5 == 4:
                self.slots.invalidate(i % 2)
        stop.set()
        for worker in workers:
            worker.join()
        self.assertEqual(failed, [])
        self.gpu("cuCtxSynchronize")
        self.assertEqual(sum(found), sum(self.launches(self.gpu.number(i)) for i in range(60)))

    @staticmethod
    def launches(value):
        n, x = 0, 0
        while x != value:
            n, x = n + 1, (x * STEP + 1) % 2**64
            assert n < 10**6
        return n

    def test_wrong_arguments(self):
        for options, says in (({"upload": "never"},
                               "upload must be one of None, 'first', 'always', not 'never'"),
                              ({"sync": "first"},
                               "sync must be one of None, False, True, not 'first'")):
            with self.assertRaisesRegex(ValueError, says):
                foundry.Slots(**options)
        with self.assertRaises(TypeError):
            self.slots.install_image(1, object(), 1)
        with self.assertRaisesRegex(foundry.Error, "no device 7"):
            foundry.Slots(device=7)
        with self.assertRaises(foundry.Error):
            self.slots.install(1, 0)


if __name__ == "__main__":
    suite.main()
