# SPDX-License-Identifier: Apache-2.0
"""Runs each example in Python twice on a GPU: the first run captures, the second loads.

The examples themselves compare their results with the model's.
"""
import importlib.util
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

EXAMPLES = (("classify", "torchvision"), ("unet", "torch"), ("encode", "torch"),
            ("encode --compile", "torch"), ("cupy_graph", "cupy"))


def ran(example, how, store):
    """Runs an example. Returns whether it succeeded, and loaded or captured as `how` says."""
    name, *words = example.split()
    path = os.path.join(parts.ROOT, "api", "examples", f"{name}.py")
    began = time.monotonic()
    done = subprocess.run([sys.executable, path, *words, "--store", store], text=True, check=False,
                          capture_output=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.path.join(parts.ROOT, "api",
                                                                        "python")})
    good = done.returncode == 0 and how in done.stdout
    print(f"--- {example}: {how}, {time.monotonic() - began:.1f} s, "
          f"{'ok' if good else 'FAILED'}\n{done.stdout}{done.stderr}", flush=True)
    return good


def whole():
    parts.need()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for example, needs in EXAMPLES:
            if not importlib.util.find_spec(needs):
                print(f"--- {example}: without {needs}")
                continue
            store = os.path.join(folder, "store")
            results += [ran(example, how, store) for how in ("captured", "loaded")]
    return results


if __name__ == "__main__":
    parts.main((), whole)
