# SPDX-License-Identifier: Apache-2.0
"""Functions that scripts of tests/gpu share: they put the package in place, skip scripts that this
machine cannot run, and run a script's parts in processes of their own.

Scripts import this module before foundry and torch; it imports neither.
"""
import importlib
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build"))
sys.path[:0] = [os.path.join(ROOT, *p) for p in (("api", "python"), ("api", "examples"))]
os.environ.setdefault("FOUNDRY_LIBRARY", os.path.join(BUILD, "libfoundry.so.0.2"))
errors = []  # a line for each part that failed, in order


def need(*modules, gpus=1):
    """Skips the script if torch sees fewer GPUs or a module is missing."""
    try:
        found = importlib.import_module("torch").cuda.device_count()
        for name in modules:
            importlib.import_module(name)
    except ImportError as e:
        skip(f"no GPU, or none with {e.name}")
    if found < gpus:
        skip("no GPU" if not found else f"no GPU but {found}; this needs {gpus}")


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def run(part, *args, limit=60, **env):
    """Runs this script again as `part` with arguments and prints the result. Returns whether it
    succeeded.
    """
    title = " ".join([part, *map(str, args)])
    began = time.monotonic()
    print(f"--- {title}", flush=True)
    with tempfile.TemporaryFile() as stderr:
        try:
            code = subprocess.run([sys.executable, os.path.abspath(sys.argv[0]), part,
                                   *map(str, args)], timeout=limit, check=False, stderr=stderr,
                                  env={**os.environ, **env}).returncode
        except subprocess.TimeoutExpired:
            code = f"nothing, after {limit} s"
        stderr.seek(0)
        said = stderr.read().decode(errors="replace")
    print(said, end="" if said.endswith("\n") else "\n" * bool(said))
    print(f"--- {title}: ended with {code}, {time.monotonic() - began:.1f} s", flush=True)
    if code != 0:
        lines = said.strip().splitlines() or [""]
        errors.append(f"first error: {part} ended with {code}: {lines[-1]}")
    return code == 0


def captured_then_loaded():
    """Runs the parts "capture" and "load" with a store of their own. Returns their results."""
    need()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        captured = run("capture", store)
        return [captured, captured and run("load", store)]


def finish(results):
    """Prints the result in the form that tests/run reads, then the first error of a part, and
    exits.
    """
    good = sum(bool(r) for r in results)
    print(f"{100 * good // len(results)}%: Checks: {len(results)}, Failures: "
          f"{len(results) - good}, Errors: 0")
    for line in errors[:1]:
        print(line, flush=True)
    sys.exit(good != len(results))


def main(functions, whole):
    """Calls the function of the part that the command line names, with the other arguments, or
    `whole`, whose results are the script's.
    """
    if len(sys.argv) > 1:
        {f.__name__: f for f in functions}[sys.argv[1]](*sys.argv[2:])
    else:
        finish(whole())
