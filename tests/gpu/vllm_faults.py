#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM whose image cannot be used: each says why, and answers as plain vLLM does.

    python3 tests/gpu/vllm_faults.py

A plain and a first start run side by side. Then one start for each fault, side by side, each with a
copy of the store. The times say little.
"""
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import vllm_start

HERE = os.path.dirname(os.path.abspath(__file__))
# fault: (options of the start, what it changes before, what its line in the log says)
FAULTS = {
    "version": ([], {"VLLM_START_PRETEND": "vllm=0.25.0"},
                "because vllm is 0.25.0 here and 0.25.1 in the image"),
    "memory": ([], {"VLLM_START_PRETEND": "memory=1"}, "because memory is 1 here and "),
    "sequences": (["--seqs", "31"], {}, "because max_num_seqs is 31 here and 32 in the image"),
    "damaged": ([], {}, "because "),
    "collected": ([], {}, "there is no ref 'test' in the store"),
    "killed": ([], {"FOUNDRY_VLLM": "killed"},
               "because there is no ref 'killed' in the store"),
}


class Run:
    """A start in a process of its own."""

    def __init__(self, name, mode, folder, store, more=(), **variables):
        self.name, self.path = name, os.path.join(folder, name + ".log")
        pre = [] if mode == "plain" else ["-m", "foundry", "run"]
        with open(self.path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, *pre, os.path.join(HERE, "vllm_start.py"), "--mode", mode,
                 "--model", folder, "--kv", str(4 << 30), "--util", "0.1", "--caches",
                 os.path.join(folder, "caches"), *more], stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "VLLM_LOGGING_LEVEL": "DEBUG",
                     "FOUNDRY_STORE": os.path.join(folder, store), **variables})

    def log(self):
        with open(self.path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def kill_at(self, text):
        """Kill it when its log has a text."""
        while text not in self.log() and self.process.poll() is None:
            time.sleep(0.01)
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait() == -signal.SIGKILL

    def result(self):
        """What it printed last. Prints its line in vLLM's log."""
        status, lines = self.process.wait(), self.log().splitlines()
        for line in lines:
            if "Foundry: " in line and "; seconds:" in line:
                print(f"{self.name}: {line[line.index('Foundry: '):][:500]}", flush=True)
        last = next((line for line in lines if line.startswith('{"mode"')), "")
        print(f"{self.name}: status {status} {last[:200]}", flush=True)
        if not last:
            print("\n".join(line[:300] for line in lines[-40:]), flush=True)
        return json.loads(last) if last else {}


def answers(found):
    return [[found.get(asked, {}).get(kind) for kind in ("tokens", "logprobs")]
            for asked in ("greedy", "sampled", "alone")]


def damage(store):
    """Overwrite a few bytes of each object's pages."""
    path = os.path.join(store, "data.mdb")
    with open(path, "r+b") as f:
        for at in range(16384, os.path.getsize(path), 4096):
            f.seek(at)
            f.write(b"\xff" * 64)


def collect(folder, run):
    """Remove all images from the store when a start has found its own."""
    program = ("import foundry\n"
               "with foundry.Store() as store:\n"
               "    store.evict(size=1)\n"
               "    store.gc()\n")
    env = {**os.environ, "FOUNDRY_STORE": folder,
           "PYTHONPATH": os.pathsep.join([os.path.join(HERE, os.pardir, os.pardir, "api", "python"),
                                          os.environ.get("PYTHONPATH", "")])}
    while "Foundry: found" not in run.log() and run.process.poll() is None:
        time.sleep(0.005)
    subprocess.run([sys.executable, "-c", program], env=env, check=False)


def fault(name, folder):
    """One start with a fault. Returns (what it printed, whether its log says why)."""
    more, variables, says = FAULTS[name]
    store = "store-" + name
    shutil.copytree(os.path.join(folder, "store"), os.path.join(folder, store))
    if name == "damaged":
        damage(os.path.join(folder, store))
    good = True
    if name == "killed":
        first = Run("to be killed", "first", folder, store, more, **variables)
        good = first.kill_at("Capturing CUDA graphs")
    run = Run(name, "next", folder, store, more, **variables)
    if name == "collected":
        collect(os.path.join(folder, store), run)
    found, log = run.result(), run.log()
    said = [line for line in log.splitlines() if "Foundry: " in line and "; seconds:" in line]
    return found, good and len(said) == 1 and says in said[0]


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import parts
    parts.need()
    with tempfile.TemporaryDirectory() as folder:
        vllm_start.write_model(folder, vllm_start.QWEN3)
        first = Run("first", "first", folder, "store")
        plain = Run("plain", "plain", folder, "store")
        wanted, sealed = plain.result(), first.result()
        good = [bool(wanted), answers(sealed) == answers(wanted)]
        with concurrent.futures.ThreadPoolExecutor(len(FAULTS)) as pool:
            done = list(pool.map(lambda name: fault(name, folder), FAULTS))
    for name, (found, said) in zip(FAULTS, done):
        # Another number of sequences is another engine: its answers may differ.
        same = bool(found) if name == "sequences" else answers(found) == answers(wanted)
        print(f"{name:10} answers as plain vLLM: {'yes' if same else 'NO'}, says why: "
              f"{'yes' if said else 'NO'}", flush=True)
        good += [same, said]
    parts.finish(good)


if __name__ == "__main__":
    main()
