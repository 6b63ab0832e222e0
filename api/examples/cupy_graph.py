# SPDX-License-Identifier: Apache-2.0
"""Captures work of CuPy in the first run; later runs load it and need no kernel compiler.

    cupy_graph.py [--store STORE]
"""
import argparse
import sys

import foundry  # before cupy


def build(capture):
    """Captures y = exp(x) * 2 + x."""
    import cupy
    x, y = cupy.zeros(1 << 16, cupy.float32), cupy.zeros(1 << 16, cupy.float32)
    work = cupy.ElementwiseKernel("float32 x", "float32 y", "y = expf(x) * 2 + x", "work")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        work(x, y)
        stream.synchronize()
        stream.begin_capture()
        work(x, y)
        graph = stream.end_capture()
    capture.add_graph(1, graph.graph)
    capture.tensor("x", x)
    capture.tensor("y", y, use="output")
    return x, y, graph


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--store", help="a store's folder (the default store otherwise)")
    args = p.parse_args()
    try:
        import cupy
        cupy.cuda.runtime.getDeviceCount()
    except (ImportError, RuntimeError):
        sys.exit("no GPU, or none with cupy")
    start = foundry.load_or_capture("examples/cupy", capture=build, store=args.store)
    print(start)
    if start.captured:
        return
    image = start.image
    given = cupy.random.default_rng(1).standard_normal(1 << 16, cupy.float32)
    image.write("x", given)
    image.launch(1)
    image.synchronize()
    assert cupy.allclose(cupy.from_dlpack(image["y"]), cupy.exp(given) * 2 + given)
    print("equal")


if __name__ == "__main__":
    main()
