# SPDX-License-Identifier: Apache-2.0
"""Kernels without graphs, from Python, on the software driver."""
import ctypes
import os
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ.get("BUILD", "build")
SIM = os.path.join(BUILD, "foundry", "sim", "libcuda.so.1")
os.environ["FOUNDRY_DRIVER"] = SIM
os.environ["FOUNDRY_NVRTC"] = os.path.join(BUILD, "sim", "libnvrtc.so")

import suite  # noqa: E402
import foundry  # noqa: E402

CUDA = "#pragma object kernels\n"
N = 32
# Another process: prints how often it compiled.
OTHER = """
import foundry, sys
with foundry.Store(sys.argv[1], create=True) as store, foundry.Kernels(store) as kernels:
    with open(sys.argv[2], encoding="ascii") as f:
        kernels.get(f.read(), "vecadd")
    print(kernels.stats().ptx_compilations, kernels.stats().store_hits)
"""


def ptx():
    with open(os.path.join(BUILD, "sim", "kernels.ptx"), encoding="ascii") as f:
        return f.read()


def other(*arguments):
    done = subprocess.run([sys.executable, "-c", OTHER, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.split()


class KernelTests(unittest.TestCase):
    def test_functions_run(self):
        driver = ctypes.CDLL(SIM)
        address = ctypes.c_uint64()
        with foundry.Kernels() as kernels:
            scale = kernels.get(ptx(), "scale", name="kernels.ptx")
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
            with self.assertRaisesRegex(foundry.Error, "'scale' takes 3 arguments and 1 were given"):
                scale.launch(1, 1, [address])
            with self.assertRaisesRegex(TypeError, "ctypes number"):
                scale.launch(1, 1, [address, 3.0, N])
            with self.assertRaisesRegex(foundry.Error, "device 0 holds"):
                kernels.get(ptx(), "nothing").launch(1 << 30, 64, cooperative=True)

    def test_keys_and_counters(self):
        with foundry.Kernels() as kernels:
            code = foundry.Code(CUDA, source=True, options=["-DX=1"], name="mine.cu")
            first = kernels.get(code, "vecadd")
            self.assertEqual(kernels.find(kernels.key(code), "vecadd").handle, first.handle)
            self.assertEqual(kernels.get(CUDA, "vecadd", source=True, options=["-DX=1"]).handle, first.handle)
            kernels.load(ptx())
            self.assertEqual(len(kernels), 2)
            stats = kernels.stats()
            self.assertEqual((stats.source_compilations, stats.source_hits, stats.misses), (1, 1, 2))
            kernels.reset_stats()
            self.assertEqual(kernels.stats().hits, 0)
            kernels.clear()
            self.assertEqual(len(kernels), 0)
            with self.assertRaises(foundry.Error) as caught:
                kernels.find(kernels.key(code), "vecadd")
            self.assertEqual(caught.exception.name, "FDRY_E_NOKEY")
            with self.assertRaises(TypeError):
                kernels.get(code, "vecadd", name="other")

    def test_errors(self):
        with foundry.Kernels() as kernels:
            self.assertEqual(kernels.log(), "")
            with self.assertRaisesRegex(foundry.Error, "'bad.cu'.*syntax error"):
                kernels.get("syntax error\n" * 100, "x", source=True, name="bad.cu")
            self.assertEqual(kernels.log().count("\n"), 100)
            with self.assertRaisesRegex(foundry.Error, "PTX version 99.0"):
                kernels.load(".version 99.0\n.target sm_90\n")
            self.assertEqual(kernels.target(), ("sm_90", "sm_90a", 90, 13000, 90))
        with self.assertRaises(ValueError):
            kernels.stats()
        kernels.close()

    def test_prepared(self):
        with foundry.Kernels() as kernels:
            kernels.prepare([(foundry.Code(ptx()), "vecadd"), foundry.Code(CUDA, source=True)], threads=2)
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
