# SPDX-License-Identifier: Apache-2.0
"""Starts a hundred processes that import torch and capture at their base; none may be refused.

Half of them have the default base, half a base by name. Every fourth runs without a limit on the
stack, which changes the addresses of libraries. FOUNDRY_STARTS sets another number of starts.
"""
import concurrent.futures
import os
import resource
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
STARTS = int(os.environ.get("FOUNDRY_STARTS", "100"))
AT_ONCE = 8


def start(name):
    import foundry
    import torch
    with foundry.Capture(name=name or None):
        x = torch.ones(1 << 20, device="cuda")
        assert x.sum().item() == 1 << 20
        base = foundry.base_for_name(name)
        assert base <= x.data_ptr() < base + (1 << 40), hex(x.data_ptr())


def no_stack_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))


def run(i):
    name = f"model-{i}/decode" if i % 2 else ""
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "start", name],
                          capture_output=True, text=True,
                          check=False, preexec_fn=no_stack_limit if i % 4 == 0 else None)
    if done.returncode:
        print(f"start {i} '{name}':", *(done.stdout + done.stderr).strip().splitlines()[-1:])
    return done.returncode == 0


def whole():
    parts.need()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(run, range(STARTS)))


if __name__ == "__main__":
    parts.main((start,), whole)
