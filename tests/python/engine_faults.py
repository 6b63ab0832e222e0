# SPDX-License-Identifier: Apache-2.0
"""Starts of a serving engine whose image cannot be used: each says why, and answers as the engine
does without Foundry. The scripts for vLLM and SGLang in tests/gpu share this.
"""
import concurrent.futures
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import typing

import engine_start
from engine_start import QWEN3, answers, model_in, write_model

HERE = os.path.dirname(os.path.abspath(__file__))
COLLECT = ("import foundry\n"
           "with foundry.Store() as store:\n"
           "    store.evict(size=1)\n"
           "    store.gc()\n")


@dataclasses.dataclass
class Engine:
    """An engine, as the starts need it."""

    script: str              # the path of the script that starts it
    options: list            # of each start
    variables: dict          # of each start
    plug_in: str             # the variable that names the image
    capture: str             # what its log says when the capture begins
    asked: tuple             # the names of the answers that must be equal
    faults: typing.Dict      # fault: (options, variables, what its line in the log says)
    other: tuple             # faults that make another engine, whose answers may differ
    caches: str = None       # the folder of caches of an earlier start


def begin(engine, limit, name, mode, folder, store, more=(), gate=None, **variables):
    """Begin a start, as engine_start.begin() does."""
    return engine_start.begin(
        engine.script, limit, name, mode, folder, "--model", model_in(folder), *engine.options,
        *more, gate=gate, store=store, caches=engine.caches, **{**engine.variables, **variables})


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


class Fault:
    """One start with a fault. It imports beside the others, and begins its engine when there is an
    image. After a killed first start there is none, so that one does not wait.
    """

    def __init__(self, engine, name, folder, limit):
        self.more, self.variables, self.says = engine.faults[name]
        self.engine, self.name, self.folder, self.limit = engine, name, folder, limit
        self.killed = None
        if name == "killed":
            self.variables = {**self.variables, engine.plug_in: "killed"}
            self.killed = self.begin("to be killed", "first", None)
        self.run = self.begin(name, "next", True)
        # Another engine may answer otherwise, so it has a plain start of its own.
        self.plain = begin(engine, limit, "plain " + name, "plain", folder, "store", self.more,
                           **self.variables) if name in engine.other else None

    def begin(self, title, mode, gate):
        return begin(self.engine, self.limit, title, mode, self.folder, "store-" + self.name,
                     self.more, gate, **self.variables)

    def finish(self):
        """Return (what it printed, what a plain start of its own printed or None, whether its log
        says why).
        """
        store = os.path.join(self.folder, "store-" + self.name)
        good = True
        if self.killed:
            good = self.killed.kill_at(self.engine.capture)
        else:
            shutil.copytree(os.path.join(self.folder, "store"), store, dirs_exist_ok=True)
        if self.name == "damaged":
            damage(store)
        self.run.open()
        if self.name == "collected":
            collect(store, self.run)
        found, said = self.run.result(), self.run.said()
        plain = self.plain.result() if self.plain else None
        return found, plain, good and len(said) == 1 and self.says in said[0]


def starts(engine, names, limit):
    """Do a plain and a first start, and one start for each of the faults `names`, each with a copy
    of the store. All import side by side. Return what is as it should be, as a list.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, QWEN3)
        first = begin(engine, limit, "first", "first", folder, "store")
        plain = begin(engine, limit, "plain", "plain", folder, "store")
        faults = [Fault(engine, name, folder, limit) for name in names]
        every = [first, plain, *filter(None, (
            each for one in faults for each in (one.run, one.killed, one.plain)))]
        try:
            with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
                early = [pool.submit(one.finish) for one in faults if one.killed]
                sealed, wanted = first.result(), plain.result()
                good = [bool(wanted), answers(sealed, engine.asked) == answers(
                    wanted, engine.asked)]
                late = [pool.submit(one.finish) for one in faults if not one.killed]
                done = {one.name: each.result() for one, each in zip(
                    [f for f in faults if f.killed] + [f for f in faults if not f.killed],
                    early + late)}
        finally:
            for one in every:
                one.kill()
    for name in names:
        found, own, said = done[name]
        same = bool(found) and answers(found, engine.asked) == answers(
            wanted if own is None else own, engine.asked)
        print(f"{name:10} answers as without Foundry: {'yes' if same else 'NO'}, says why: "
              f"{'yes' if said else 'NO'}", flush=True)
        good += [same, said]
    return good
