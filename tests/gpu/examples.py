# SPDX-License-Identifier: Apache-2.0
"""Runs each example in Python twice on a GPU: the first run captures, the second loads.

    examples.py [--limit SECONDS]

Different examples run side by side. The examples themselves compare their results with the model's.
"""
import importlib.util
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

EXAMPLES = (("classify", "torchvision"), ("generate", "torch"), ("unet", "torch"),
            ("encode", "torch"), ("encode --compile", "torch"), ("cupy_graph", "cupy"))


def ran(example, how, folder, until):
    """A function that runs an example, which must have loaded or captured as `how` says."""
    name, *words = example.split()
    path = os.path.join(parts.ROOT, "api", "examples", f"{name}.py")
    env = {**os.environ, "FOUNDRY_STORE": os.path.join(folder, "-".join([name, *words])),
           "PYTHONPATH": os.path.join(parts.ROOT, "api", "python")}
    command = [sys.executable, "-u", path, *words]
    return lambda: parts.shown(f"{example}, {how}", command, until, needs=how, env=env)


def whole():
    until = parts.deadline()
    parts.need()
    chains = []
    with tempfile.TemporaryDirectory() as folder:
        for example, needs in EXAMPLES:
            if importlib.util.find_spec(needs):
                chains.append([ran(example, how, folder, until) for how in ("captured", "loaded")])
            else:
                print(f"--- {example}: without {needs}")
        return parts.side_by_side(*chains)


if __name__ == "__main__":
    parts.finish(whole())
