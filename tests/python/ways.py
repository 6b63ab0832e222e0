# SPDX-License-Identifier: Apache-2.0
"""Every way to put the interposer in place, with the work done in every kind of process.

A payload module defines the captured work: work(store, ref) seals an image and writes its input and
output, as computed without an image, to files. The import of the payload loads libcuda, or the
library that a framework loads first. Other processes load the images and compare.
"""
import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))

PROGRAM = """\
import {0}
import {1}

if __name__ == "__main__":
    import ways
    ways.program({payload})
"""

# Each way in -> whether the program imports foundry before the module that loads libcuda.
WAYS = {"first": True, "preload": False, "path": False, "run": False, "run-m": False,
        "run-c": False}
PLACES = ("main", "spawn", "fork", "forkserver", "program")


def program(payload):
    """Returns the main program: argv has the kind of process that does the work, and its arguments.
    """
    import foundry
    place, store, ref = sys.argv[-3:]
    if place == "main":
        payload.work(store, ref)
    # a program that does not know Foundry and is no child of multiprocessing
    elif place == "program":
        if os.environ["WAY"] == "first":
            foundry.activate(children=True)
        late = os.path.join(os.environ["PROGRAMS"], "late.py")
        subprocess.run([sys.executable, late, "main", store, ref], check=True)
    else:
        worker = multiprocessing.get_context(place).Process(target=payload.work, args=(store, ref))
        worker.start()
        worker.join()
        if worker.exitcode:
            sys.exit(f"the worker ended with {worker.exitcode}")


def write_programs(folder, payload):
    """Writes first.py, which imports foundry first, and late.py, which imports it last."""
    for name, order in (("first", ("foundry", payload)), ("late", (payload, "foundry"))):
        with open(os.path.join(folder, name + ".py"), "w", encoding="ascii") as f:
            f.write(PROGRAM.format(*order, payload=payload))


def command(way, folder):
    """Returns the command and the environment that start the program in that way."""
    import foundry
    from foundry.activate import interposer
    env = dict(os.environ, WAY=way, PROGRAMS=folder)
    env["PYTHONPATH"] = os.pathsep.join([folder, HERE, env.get("PYTHONPATH", "")])
    run = [sys.executable, "-m", "foundry", "run"]
    late = os.path.join(folder, "late.py")
    if way == "path":
        env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None,
                                                        [os.path.dirname(interposer()),
                                                         env.get("LD_LIBRARY_PATH")]))
    return {"first": [sys.executable, os.path.join(folder, "first.py")],
            "preload": [sys.executable, late],
            "path": [sys.executable, late], "run": run + [late], "run-m": run + ["-m", "late"],
            "run-c": run + ["-c", "import runpy; runpy.run_module('late', run_name='__main__')"],
            }[way], foundry.environment(env) if way == "preload" else env


def capture(way, place, folder, store):
    """Runs one case and returns None, or the failure."""
    argv, env = command(way, folder)
    began = time.monotonic()
    try:
        done = subprocess.run([*argv, place, store, f"{way}/{place}"], env=env, capture_output=True,
                              text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "it hangs"
    print(f"{way}/{place}: {time.monotonic() - began:.1f} s", flush=True)
    return done.stdout + done.stderr if done.returncode else None


def saved(store, ref, what, data=None):
    """Reads the file beside the store with the input or output of `ref`, or writes it if `data` is
    given.
    """
    path = f"{store}.{ref.replace('/', '.')}.{what}"
    if data is not None:
        with open(path, "wb") as f:
            f.write(data)
        return data
    with open(path, "rb") as f:
        return f.read()


def load(store, refs):
    """Loads each image in a process of its own, launches it and compares bits. Returns the failures
    by ref.
    """
    import foundry
    assert "torch" not in sys.modules
    wrong = {}
    for ref in refs:
        try:
            with foundry.load(ref, store=store, poison=True) as img:
                img.write("x", saved(store, ref, "x"))
                img.launch(1)
                if bytes(img.read("y")) != saved(store, ref, "y"):
                    wrong[ref] = "other bits"
        except (foundry.Error, OSError) as e:
            wrong[ref] = str(e)
    return wrong


def matrix(payload, folder, cases, jobs=2):
    """Captures and loads every (way, place) of `cases`. Returns {(way, place): failure}."""
    store = os.path.join(folder, "store")
    write_programs(folder, payload)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        said = dict(zip(cases, pool.map(lambda c: capture(*c, folder, store), cases)))
    wrong = {case: text for case, text in said.items() if text}
    refs = {f"{way}/{place}": (way, place) for way, place in cases if (way, place) not in wrong}
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for ref, text in pool.apply(load, (store, list(refs))).items():
            wrong[refs[ref]] = text
    return wrong
