#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of `import foundry`, and its share in a start on the software driver.

    FOUNDRY_LIBRARY=build/libfoundry.so.0.2 PYTHONPATH=api/python tests/bench/imports.py

The start loads and launches the image of the example vecadd, and reads the result. Times are
milliseconds of processor time, the least of 20 processes. Byte code is cached, as after an
installation by pip.
"""
import os
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
START = """
import sys, time
times = [time.process_time()]
import foundry
times.append(time.process_time())
with foundry.load("vecadd", store=sys.argv[1]) as image:
    image.launch(1)
    image.read("out")
times.append(time.process_time())
print(*times)
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": os.path.join(folder, "code"),
               "FOUNDRY_DRIVER": os.path.join(BUILD, "foundry/sim/libcuda.so.1")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        store = os.path.join(folder, "store")
        subprocess.run([os.path.join(BUILD, "examples/vecadd"), "capture", "-s", store, "-m",
                        os.path.join(BUILD, "sim/kernels.cubin")], check=True, env=env,
                       capture_output=True)
        runs = []
        for _ in range(21):  # the first one writes the byte code
            out = subprocess.run([sys.executable, "-c", START, store], check=True, env=env,
                                 capture_output=True, text=True).stdout
            at = [0.0, *(1e3 * float(each) for each in out.split())]
            runs.append([b - a for a, b in zip(at, at[1:])] + [at[-1]])
    for name, values in zip(("Python itself", "import foundry", "load, launch, read", "all"),
                            zip(*runs[1:])):
        print(f"{name:20} {min(values):6.1f} ms")


main()
