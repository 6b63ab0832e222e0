# SPDX-License-Identifier: Apache-2.0
"""Functions that scripts of tests/gpu share: they put the package in place, skip scripts that this
machine cannot run, and run a script's parts in processes of their own.

Scripts import this module before foundry and torch; it imports neither.
"""
import concurrent.futures
import importlib
import os
import subprocess
import sys
import tempfile
import threading
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


def deadline(seconds=110):
    """The time.monotonic() at which the script must have ended: after `seconds`, or after those
    that the option --limit names, which this removes from the command line.
    """
    if "--limit" in sys.argv:
        at = sys.argv.index("--limit")
        seconds = float(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    return time.monotonic() + seconds


def shown(title, command, until, needs="", **how):
    """Runs a command, and prints its lines after `title` as they come. Returns whether it succeeded
    and printed `needs`; at the time `until` it is killed. how: as for subprocess.Popen().
    """
    began, lines, late = time.monotonic(), [], []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", start_new_session=True, **how) as process:
        def stop():
            late.append(True)
            os.killpg(process.pid, 9)
        timer = threading.Timer(max(0.1, until - began), stop)
        timer.start()
        for line in process.stdout:
            lines.append(line.strip())
            print(f"{title}: {line}", end="", flush=True)
        code = process.wait()
        timer.cancel()
    good = code == 0 and needs in "\n".join(lines)
    why = "" if good else ", cut off" if late else f", FAILED with {code}"
    print(f"--- {title}: {time.monotonic() - began:.1f} s{why}", flush=True)
    if not good:
        errors.append(f"first error: {title}{why}: {lines[-1] if lines else ''}")
    return good


def side_by_side(*chains):
    """Runs functions without arguments: those of a chain one after the other, as long as they
    succeed, and the chains side by side. Returns a result for each function.
    """
    def ran(chain):
        found = []
        for function in chain:
            found.append((not found or found[-1]) and function())
        return found
    with concurrent.futures.ThreadPoolExecutor(len(chains)) as pool:
        return [each for found in pool.map(ran, chains) for each in found]


def part(until, *words, **env):
    """A function that runs this script again as a part with arguments, until a time at most."""
    words = list(map(str, words))
    command = [sys.executable, "-u", os.path.abspath(sys.argv[0]), *words]
    title = " ".join(word for word in words[:3] if not os.path.isabs(word))
    return lambda: shown(title, command, until, env={**os.environ, **env})


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
    if len(sys.argv) > 1 and sys.argv[1] != "--limit":
        {f.__name__: f for f in functions}[sys.argv[1]](*sys.argv[2:])
    else:
        finish(whole())
