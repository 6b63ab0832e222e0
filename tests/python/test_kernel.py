# SPDX-License-Identifier: Apache-2.0
"""Tests of kernels without graphs, from Python, on the software driver."""
import ctypes
import os
import struct
import subprocess
import sys
import tempfile
import types
import unittest

BUILD = os.environ.get("BUILD", "build")
SIM = os.path.join(BUILD, "foundry", "sim", "libcuda.so.1")
os.environ["FOUNDRY_DRIVER"] = SIM
os.environ["CUDA_CACHE_DISABLE"] = "1"
os.environ["FOUNDRY_NVRTC"] = os.path.join(BUILD, "sim", "libnvrtc.so")

import suite  # noqa: E402
import foundry  # noqa: E402
from foundry import telemetry  # noqa: E402

CUDA = "#pragma object kernels\n"
N = 32
COOPERATIVE = 'foundry_launches_total{of="cooperative"}'
# The program of another process; it prints how often it compiled.
OTHER = """
import foundry, sys
with foundry.Store(sys.argv[1], create=True) as store, foundry.Kernels(store) as kernels:
    with open(sys.argv[2], encoding="ascii") as f:
        kernels.function(f.read(), "vecadd")
    print(kernels.stats().ptx_compilations, kernels.stats().store_hits)
"""
# The program of a process whose device lacks cooperative launches; it prints the error of one.
UNABLE = """
import foundry, sys
with foundry.Kernels() as kernels, open(sys.argv[1], "rb") as f:
    nothing = kernels.function(f.read(), "nothing")
    nothing.launch(2, 64)
    try:
        nothing.launch(2, 64, cooperative=True)
    except foundry.Error as error:
        print(error.name, error)
"""


def ptx():
    with open(os.path.join(BUILD, "sim", "kernels.ptx"), encoding="ascii") as f:
        return f.read()


class Buffer:
    """N floats in device memory, with the attributes by which kernels accept arrays: torch's by
    default, otherwise CuPy's.
    """

    def __init__(self, device, values, how="data_ptr"):
        self.dev, self.handle = device, device.new(4 * N)
        device.write(self.handle, struct.pack(f"{N}f", *values))
        self.addr = device.view(self.handle)[0]
        if how == "data_ptr":
            self.data_ptr, self.device = lambda: self.addr, types.SimpleNamespace(type="cuda")
        else:
            self.__cuda_array_interface__ = {"data": (self.addr, False)}

    def values(self):
        return list(struct.unpack(f"{N}f", self.dev.read(self.handle, 4 * N)))


def captured(stream, call):
    """Returns how many nodes a capture of `stream` has after call()."""
    driver, graph, count = ctypes.CDLL(SIM), ctypes.c_void_p(), ctypes.c_size_t()
    results = [driver.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 2)]
    call()
    results += [driver.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)),
                driver.cuGraphGetNodes(graph, None, ctypes.byref(count)),
                driver.cuGraphDestroy(graph)]
    assert not any(results), results
    return count.value


def other(*arguments):
    done = subprocess.run([sys.executable, "-c", OTHER, *arguments], capture_output=True, text=True,
                          check=True)
    return done.stdout.split()


class KernelTests(unittest.TestCase):
    def test_functions_run(self):
        driver = ctypes.CDLL(SIM)
        address = ctypes.c_uint64()
        with foundry.Kernels() as kernels:
            scale = kernels.function(ptx(), "scale", name="kernels.ptx")
            context = ctypes.c_void_p()
            self.assertEqual(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
            self.assertEqual(driver.cuCtxSetCurrent(context), 0)
            self.assertEqual(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * N)), 0)
            numbers = (ctypes.c_float * N)(*range(N))
            self.assertEqual(driver.cuMemcpyHtoD_v2(address, numbers, ctypes.c_size_t(4 * N)), 0)
            scale.launch(1, (N, 1), [address, ctypes.c_float(3), N.to_bytes(4, "little")])
            self.assertEqual(driver.cuCtxSynchronize(), 0)
            self.assertEqual(driver.cuMemcpyDtoH_v2(numbers, address, ctypes.c_size_t(4 * N)), 0)
            self.assertEqual(list(numbers), [3.0 * i for i in range(N)])

    def test_arguments_and_streams_of_every_kind(self):
        numbers = [float(i) for i in range(N)]
        with foundry.Kernels() as kernels, foundry.Device() as device:
            vecadd, stream = kernels.function(ptx(), "vecadd"), device.get_sync("stream")
            before = telemetry.snapshot()[COOPERATIVE]
            streams = [None, 0, stream, types.SimpleNamespace(cuda_stream=stream),
                       types.SimpleNamespace(ptr=stream)]
            for where in streams:
                for cooperative in (False, True):
                    a, b = Buffer(device, numbers), Buffer(device, numbers, "interface")
                    c = Buffer(device, [0] * N)
                    vecadd.launch((1,), [N, 1, 1], (a, b, ctypes.c_uint64(c.addr), ctypes.c_int(N)),
                                  stream=where, cooperative=cooperative)
                    device.read(c.handle, 0, stream=stream)
                    self.assertEqual(c.values(), [2 * n for n in numbers])
            self.assertEqual(telemetry.snapshot()[COOPERATIVE] - before, len(streams))
            nothing = kernels.function(ptx(), "nothing")
            for where in streams[2:]:
                self.assertEqual(captured(stream,
                                          lambda where=where: nothing.launch(1, 1, stream=where)),
                                 1)
            device.put_sync(stream)

    def test_structures_and_bytes(self):
        class Mixed(ctypes.Structure):
            _fields_ = [("d", ctypes.c_double), ("s", ctypes.c_short)]

        with foundry.Kernels() as kernels, foundry.Device() as device:
            out = device.new(9 * 8)
            kernels.function(ptx(), "odd").launch(1, 1, [
                ctypes.c_char(1), ctypes.c_short(-2), bytes((3, 4, 5)),
                ctypes.c_longlong(-(1 << 40)), Mixed(0.5, -7), b"\xfe",
                ctypes.c_void_p(device.view(out)[0]), ctypes.c_float(1.25), b"\x09"])
            self.assertEqual(struct.unpack("9d", device.read(out, 72)),
                             (1, -2, 543, -(1 << 40), 0.5, -7, 254, 1.25, 9))

    def test_a_launch_refuses_wrong_arguments(self):
        with foundry.Kernels() as kernels:
            scale, nothing = kernels.function(ptx(), "scale"), kernels.function(ptx(), "nothing")
            x, by, n = ctypes.c_uint64(), ctypes.c_float(1), ctypes.c_int(0)
            for cooperative in (False, True):
                with self.assertRaisesRegex(foundry.Error,
                                            "'scale' takes 3 arguments and 1 were given"):
                    scale.launch(1, 1, [x], cooperative=cooperative)
                with self.assertRaisesRegex(foundry.Error,
                                            "argument 2 of the kernel 'scale' has 4 bytes and 8 "
                                            "were given"):
                    scale.launch(1, 1, [x, by, ctypes.c_int64(0)], cooperative=cooperative)
            for number in (3.0, 3, True):
                with self.assertRaisesRegex(TypeError, "ctypes number"):
                    scale.launch(1, 1, [x, number, n])
            for what in (None, "text", ctypes.c_int, [x]):
                with self.assertRaisesRegex(TypeError, "cannot be an argument"):
                    scale.launch(1, 1, [x, by, what])
            host = types.SimpleNamespace(data_ptr=lambda: 64,
                                         device=types.SimpleNamespace(type="cpu"),
                                         is_pinned=lambda: False)
            with self.assertRaisesRegex(TypeError, "host memory"):
                scale.launch(1, 1, [host, by, n])
            host.is_pinned = lambda: True
            scale.launch(1, 1, [host, by, n])
            # C would read these as other numbers: 2**32 + 1 as 1, and 0 as 1.
            for shape in (0, -1, 1 << 32, (1 << 32) + 1, (1, 0), (1, 1, 1, 1), ()):
                for grid, block, what in ((shape, 1, "grid"), (1, shape, "block")):
                    with self.assertRaisesRegex(ValueError,
                                                f"{what} is .*one to three numbers from 1 to "
                                                "4294967295"):
                        nothing.launch(grid, block)
            for shared in (-1, 1 << 32):
                with self.assertRaisesRegex(ValueError, "shared: "):
                    nothing.launch(1, 1, shared=shared)
            said = "1073741824 blocks of 64 threads: device 0 holds"
            with self.assertRaisesRegex(foundry.Error, said) as caught:
                nothing.launch(1 << 30, 64, cooperative=True)
            self.assertEqual(caught.exception.name, "FDRY_E_UNABLE")

    def test_a_device_that_cannot_launch_cooperatively(self):
        done = subprocess.run([sys.executable, "-c", UNABLE,
                               os.path.join(BUILD, "sim", "kernels.cubin")], check=True, text=True,
                              capture_output=True, env={**os.environ, "FDRY_SIM_CC": "5.2"})
        self.assertRegex(done.stdout,
                         "FDRY_E_UNABLE .*compute capability 5.2, cooperative launch 0")

    def test_functions_end_with_their_cache(self):
        with foundry.Kernels() as kernels:
            gone, other_gone = kernels.function(ptx(), "nothing"), kernels.function(ptx(), "fill")
            kernels.clear()
            again = [kernels.function(ptx(), name) for name in ("fill", "nothing")]
            # as if the driver had returned the same handle for another kernel
            other_gone.handle = again[1].handle
            for function in (gone, other_gone):
                with self.assertRaisesRegex(foundry.Error,
                                            "was cleared; request the function again") as caught:
                    function.launch(1, 1)
                self.assertEqual(caught.exception.name, "FDRY_E_NOKEY")
            again[1].launch(1, 1)
        with self.assertRaisesRegex(ValueError, "closed"):
            again[1].launch(1, 1)

    def test_keys_and_counters(self):
        with foundry.Kernels() as kernels:
            code = foundry.Code(CUDA, source=True, options=["-DX=1"], name="mine.cu")
            first = kernels.function(code, "vecadd")
            self.assertEqual(kernels.find(kernels.key(code), "vecadd").handle, first.handle)
            self.assertEqual(kernels.function(CUDA, "vecadd", source=True,
                                              options=["-DX=1"]).handle, first.handle)
            self.assertEqual(kernels.function(CUDA, "vecadd", source=True, options="-DX=1").handle,
                             first.handle)
            kernels.load(ptx())
            self.assertEqual(len(kernels), 2)
            stats = kernels.stats()
            self.assertEqual((stats.source_compilations, stats.source_hits, stats.misses),
                             (1, 2, 2))
            kernels.reset_stats()
            self.assertEqual(kernels.stats().hits, 0)
            kernels.clear()
            self.assertEqual(len(kernels), 0)
            with self.assertRaises(foundry.Error) as caught:
                kernels.find(kernels.key(code), "vecadd")
            self.assertEqual(caught.exception.name, "FDRY_E_NOKEY")
            with self.assertRaises(TypeError):
                kernels.function(code, "vecadd", name="other")

    def test_errors(self):
        with foundry.Kernels() as kernels:
            self.assertEqual(kernels.log(), "")
            with self.assertRaisesRegex(foundry.Error, "'bad.cu'.*syntax error"):
                kernels.function("syntax error\n" * 100, "x", source=True, name="bad.cu")
            self.assertEqual(kernels.log().count("\n"), 100)
            with self.assertRaisesRegex(foundry.Error, "PTX version 99.0"):
                kernels.load(".version 99.0\n.target sm_90\n")
            self.assertEqual(kernels.target(), ("sm_90", "sm_90a", 90, 13000, 90))
        with self.assertRaises(ValueError):
            kernels.stats()
        kernels.close()

    def test_prepared(self):
        with foundry.Kernels() as kernels:
            kernels.prepare([(foundry.Code(ptx()), "vecadd"), foundry.Code(CUDA, source=True)],
                            threads=2)
            kernels.wait()
            self.assertEqual(len(kernels), 2)

    def test_another_process_finds_it_in_the_store(self):
        with tempfile.TemporaryDirectory() as folder:
            store, file = os.path.join(folder, "store"), os.path.join(folder, "kernels.ptx")
            with open(file, "w", encoding="ascii") as f:
                f.write(ptx())
            self.assertEqual(other(store, file), ["1", "0"])
            self.assertEqual(other(store, file), ["0", "1"])


if __name__ == "__main__":
    suite.main()
