# SPDX-License-Identifier: Apache-2.0
"""Starts of a serving engine whose image cannot be used: each says why, and answers as the engine
does without Foundry. The scripts for vLLM and SGLang in tests/gpu share this.
"""
import concurrent.futures
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing

from engine_start import QWEN3, answers, write_model

HERE = os.path.dirname(os.path.abspath(__file__))
COLLECT = ("import foundry\n"
           "with foundry.Store() as store:\n"
           "    store.evict(size=1)\n"
           "    store.gc()\n")


@dataclasses.dataclass
class Engine:
    """What the starts need of an engine."""

    script: str              # the path of the script that starts it
    options: list            # of each start
    variables: dict          # of each start
    plug_in: str             # the variable that names the image
    capture: str             # what its log says when the capture begins
    asked: tuple             # the names of the answers that must be equal
    faults: typing.Dict      # fault: (options, variables, what its line in the log says)
    other: tuple             # faults whose answers may differ: it is another engine
    caches: str = None       # the folder of caches of an earlier start


class Run:
    """A start in a process group of its own."""

    def __init__(self, engine, name, mode, folder, store, more=(), **variables):
        self.name, self.path = name, os.path.join(folder, name + ".log")
        pre = [] if mode == "plain" else ["-m", "foundry", "run"]
        with open(self.path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, *pre, engine.script, "--mode", mode, "--model", folder,
                 "--caches", engine.caches or os.path.join(folder, "caches"), *engine.options,
                 *more],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **engine.variables,
                     "FOUNDRY_STORE": os.path.join(folder, store), **variables})

    def log(self):
        with open(self.path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def wait_for(self, text):
        """Wait until its log has a text, or it ends."""
        while text not in self.log() and self.process.poll() is None:
            time.sleep(0.01)

    def kill_at(self, text):
        """Kill it and its processes when its log has a text. Return whether that ended it."""
        self.wait_for(text)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait() == -signal.SIGKILL

    def said(self):
        """Return Foundry's lines with the seconds of a start."""
        return [line[line.index("Foundry: "):] for line in self.log().splitlines()
                if "Foundry: " in line and "; seconds:" in line]

    def result(self):
        """Return what it printed last. Prints its line in the engine's log."""
        status, lines = self.process.wait(), self.log().splitlines()
        for line in self.said():
            print(f"{self.name}: {line[:500]}", flush=True)
        last = next((line for line in lines if line.startswith('{"mode"')), "")
        print(f"{self.name}: status {status} {last[:200]}", flush=True)
        if not last:
            print("\n".join(line[:300] for line in lines[-40:]), flush=True)
        return json.loads(last) if last else {}


def damage(store):
    """Overwrite a few bytes of each object's pages."""
    path = os.path.join(store, "data.mdb")
    with open(path, "r+b") as f:
        for at in range(16384, os.path.getsize(path), 4096):
            f.seek(at)
            f.write(b"\xff" * 64)


def collect(folder, run):
    """Remove all images from the store when a start has found its own."""
    env = {**os.environ, "FOUNDRY_STORE": folder,
           "PYTHONPATH": os.pathsep.join([os.path.join(HERE, os.pardir, os.pardir, "api", "python"),
                                          os.environ.get("PYTHONPATH", "")])}
    run.wait_for("Foundry: found")
    subprocess.run([sys.executable, "-c", COLLECT], env=env, check=False)


def fault(engine, name, folder):
    """Do one start with a fault. Return (what it printed, whether its log says why)."""
    more, variables, says = engine.faults[name]
    store = "store-" + name
    shutil.copytree(os.path.join(folder, "store"), os.path.join(folder, store))
    if name == "damaged":
        damage(os.path.join(folder, store))
    good = True
    if name == "killed":
        variables = {**variables, engine.plug_in: "killed"}
        first = Run(engine, "to be killed", "first", folder, store, more, **variables)
        good = first.kill_at(engine.capture)
    run = Run(engine, name, "next", folder, store, more, **variables)
    if name == "collected":
        collect(os.path.join(folder, store), run)
    found, said = run.result(), run.said()
    return found, good and len(said) == 1 and says in said[0]


def starts(engine, names):
    """Do a plain and a first start side by side, then one start for each of the faults `names`,
    side by side, each with a copy of the store. Return what is as it should be, as a list.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, QWEN3)
        first = Run(engine, "first", "first", folder, "store")
        plain = Run(engine, "plain", "plain", folder, "store")
        wanted, sealed = plain.result(), first.result()
        good = [bool(wanted), answers(sealed, engine.asked) == answers(wanted, engine.asked)]
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            done = list(pool.map(lambda name: fault(engine, name, folder), names))
    for name, (found, said) in zip(names, done):
        same = bool(found) and (name in engine.other or answers(found, engine.asked) == answers(
            wanted, engine.asked))
        print(f"{name:10} answers as without Foundry: {'yes' if same else 'NO'}, says why: "
              f"{'yes' if said else 'NO'}", flush=True)
        good += [same, said]
    return good
