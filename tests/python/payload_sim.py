# SPDX-License-Identifier: Apache-2.0
"""A payload of ways.py for any driver: kernels of the software driver, by ctypes."""
import ctypes
import os
import struct

from ways import saved
from test_roundtrip import Array, Driver, N

# As in a framework, the import opens the driver, and the first use starts it.
CUDA = ctypes.CDLL(os.environ.get("CUDA_NAME", "libcuda.so.1"))


def work(store, ref):
    import foundry
    values = [float(len(ref) + i) for i in range(N)]
    with foundry.Capture() as cap:
        cuda = Driver(CUDA)
        x, b, y = (cuda.alloc(v) for v in ([0.0] * N, [0.5 * i for i in range(N)], [0.0] * N))
        cap.add_graph(1, cuda.graph(x, b, y))
        cap.tensor("x", Array(x, N), use="input")
        cap.tensor("y", Array(y, N), use="output")
        cap.seal(store, ref)
    saved(store, ref, "x", struct.pack(f"{N}f", *values))
    saved(store, ref, "y", struct.pack(f"{N}f", *(v + 0.5 * i for i, v in enumerate(values))))
