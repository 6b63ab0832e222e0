# SPDX-License-Identifier: Apache-2.0
"""python -m foundry doctor: try out what works here, each step in a process of its own."""
import difflib
import json
import os
import platform
import subprocess
import sys

from . import _lib
from ._lib import Error, lib
from .activate import environment, interposer
from .store import Store
from .settings import check_variables, variables

# Other code may print in these processes, too, so the line with the result begins with this.
_RESULT = "doctor: "
_PREFIX = "FOUNDRY_"

# The first step of every load. Prints the device's name.
_LOAD = """
import sys
import foundry
try:
    with foundry.Device() as device:
        print("doctor: " + device.caps["name"])
except foundry.Error as e:
    sys.exit(str(e))
"""

# argv: first (import foundry before CUDA is opened) or late. Prints one JSON object.
_CAPTURE = """
import sys
if sys.argv[1] == "first":
    import foundry
import ctypes
import json
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as e:
    sys.exit(str(e))
import foundry
try:
    foundry.Capture().end()
except foundry.Error as e:
    sys.exit(str(e))
if not hasattr(ctypes.CDLL("libcuda.so"), "fdry_hook_table"):
    sys.exit("libcuda.so is the driver's, not the interposer's")
version, count, major, minor = (ctypes.c_int() for _ in range(4))
total = ctypes.c_size_t()
cuda.cuDriverGetVersion(ctypes.byref(version))
cuda.cuDeviceGetCount(ctypes.byref(count))
devices = []
for i in range(count.value):
    name = ctypes.create_string_buffer(200)
    cuda.cuDeviceGetName(name, 200, i)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), i)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, i)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, i)
    devices.append(f"{name.value.decode()}, compute capability {major.value}.{minor.value}, "
                   f"{total.value / 2**30:.1f} GiB")
mapped = [line.split(None, 5)[-1].strip() for line in open("/proc/self/maps")
          if "/libcuda.so" in line]
drivers = [path for path in dict.fromkeys(mapped)
           if not hasattr(ctypes.CDLL(path), "fdry_hook_table")]
print("doctor: " + json.dumps({"driver": drivers, "version": version.value, "devices": devices}))
"""

_TORCH = """
import torch
import foundry._torch
foundry._torch.module()
print(f"doctor: {torch.__version__}, built for CUDA {torch.version.cuda}, " +
      ("CUDA works" if torch.cuda.is_available() else "finds no GPU"))
"""

# argv: the name of an engine's package, and its variable. Prints one JSON list.
_ENGINE = """
import importlib
import json
import sys
doctor = importlib.import_module(f"foundry.{sys.argv[1]}.doctor")
found = []
doctor.report(lambda *what: found.append(what), sys.argv[2])
print("doctor: " + json.dumps(found))
"""


def _child(code, *args, env=None):
    """Run Python code. Return whether it succeeded, and its result, or the line with the reason."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    env = dict(os.environ if env is None else env)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [package, env.get("PYTHONPATH")]))
    try:
        done = subprocess.run([sys.executable, "-c", code, *args], env=env, capture_output=True,
                              text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return False, "it did not end within two minutes"
    said = [line.removeprefix(_RESULT) for line in done.stdout.splitlines()
            if line.startswith(_RESULT)]
    if done.returncode or not said:
        said = (done.stderr or done.stdout).strip().splitlines()
        return False, said[-1] if said else f"it ended with status {done.returncode}"
    return True, said[-1]


def _ways():
    """Each way to put the interposer in place: its name, and how a program starts with it."""
    folder = os.path.dirname(interposer())
    path = os.pathsep.join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))
    return (("import foundry first", "first", dict(os.environ)),
            ("python -m foundry run", "late", environment()),
            ("LD_LIBRARY_PATH", "late", {**os.environ, "LD_LIBRARY_PATH": path}))


def _software():
    """The software driver of this package; it is used only if it is named."""
    path = os.path.join(os.path.dirname(os.path.dirname(interposer())), "sim", "libcuda.so.1")
    if os.path.exists(path):
        yield "software driver", True, f"{path}, for FOUNDRY_DRIVER if there is no GPU"


def _store():
    try:
        Store(readonly=True).close()
    except Error as e:
        return None if e.name == "FDRY_E_NOSTORE" else False, str(e)
    return True, os.environ.get("FOUNDRY_STORE", "the default one") + " opens"


def _misspelt(known):
    """Each variable FOUNDRY_... that is set and does not exist. It fails if it is like another one;
    else it may belong to other software.
    """
    names = [name[len(_PREFIX):] for name in known if name.startswith(_PREFIX)]
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in known:
            like = difflib.get_close_matches(name[len(_PREFIX):], names, n=1, cutoff=0.75)
            meant = f" (did you mean {_PREFIX}{like[0]}?)" if like else ""
            yield name, False if like else None, f"no variable of Foundry has this name{meant}"


def _environment():
    """Each environment variable of Foundry that is set, and whether its value is valid."""
    yield from _misspelt({v.name for v in variables()})
    for v in variables():
        if v.name in os.environ:
            try:
                check_variables(v.name)
                yield v.name, True, os.environ[v.name]
            except Error as e:
                yield v.name, False, str(e)


def checks():
    """Yield (name, works, text); works is None for parts that are not needed."""
    yield "python", True, f"{platform.python_version()}, {sys.executable}"
    if _lib.missing:
        yield "foundry", False, _lib.missing
        return  # all other checks need it
    yield "foundry", True, f"{lib.fdry_version().decode()}, {_lib.path()}"
    yield from _environment()
    loads, load_text = _child(_LOAD)
    yield "load", loads, f"works, on {load_text}" if loads else load_text
    try:
        ways = _ways()
        yield "interposer", True, interposer()
        yield from _software()
    except (Error, ValueError) as e:
        yield "interposer", False, str(e)
        ways = ()
    facts = None
    for name, order, env in ways:
        works, said = _child(_CAPTURE, order, env=env)
        facts = json.loads(said) if works else facts
        yield f"capture: {name}", works, "begins" if works else said
    if facts:
        major, minor = facts["version"] // 1000, facts["version"] % 1000 // 10
        yield "driver", True, f"{', '.join(facts['driver'])}, CUDA {major}.{minor}"
        for i, device in enumerate(facts["devices"]):
            yield f"device {i}", True, device
    else:
        yield "driver", False, "not examined, since no capture begins" if loads else load_text
        yield "device 0", False, "not examined, since no capture begins"
    yield ("store", *_store())
    works, said = _child(_TORCH, env=ways[1][2] if ways else None)
    if not works:
        said += " (only needed to capture PyTorch)"
    yield "torch", True if works else None, said
    for name, ref in (("vllm", os.environ.get("FOUNDRY_VLLM", "0")),
                      ("sglang", os.environ.get("FOUNDRY_SGLANG", "0"))):
        works, said = _child(_ENGINE, name, ref)
        yield from json.loads(said) if works else [(name, None, said)]


_STATUS = {True: "ok", False: "FAIL", None: "no"}


def _report_json():
    """Print the results as one JSON document. Returns whether no check failed."""
    found = [{"name": name, "status": _STATUS[works].lower(), "text": text}
             for name, works, text in checks()]
    good = all(check["status"] != "fail" for check in found)
    print(json.dumps({"ok": good, "checks": found}, indent="\t"))
    return good


def doctor(as_json=False):
    """Print all checks. Returns whether images can be captured here."""
    if as_json:
        return _report_json()
    good = True
    for name, works, text in checks():
        good = good and works is not False
        print(f"{_STATUS[works]:<5} {name:<31} {text}", flush=True)
    return good
