# SPDX-License-Identifier: Apache-2.0
"""Tests of every way to put the interposer in place, in every kind of process, on the software
driver.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import suite
import ways
from foundry.activate import environment, interposer

SIM = os.path.join(os.environ.get("BUILD", "build"), "foundry", "sim")

# A process that was forked after CUDA started gets named errors and does not hang.
FORKED = """\
import os
import foundry
import payload_sim
capture = foundry.Capture()
cuda = payload_sim.Driver(payload_sim.CUDA)
addr = cuda.alloc([0.0] * payload_sim.N)
names = []
calls = [lambda: capture.fact("a", "b"), lambda: capture.offset, lambda: capture.pause(),
         foundry.Capture]
if INIT:
    capture.end()
    calls = [foundry.Capture]
pid = os.fork()
if pid:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for call in calls:
    try:
        call()
        names.append("worked")
    except foundry.Error as e:
        names.append(e.name)
try:
    cuda.alloc([0.0] * payload_sim.N)
except RuntimeError as e:
    names.append(str(e))
capture.end()
print(*names, flush=True)
os._exit(0)
"""


def python(*args, timeout=60, **variables):
    """Runs Python and returns its output and status."""
    env = {**os.environ, **variables}
    env["PYTHONPATH"] = os.pathsep.join([ways.HERE, env.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, *args], env=env, capture_output=True, text=True,
                          timeout=timeout, check=False)
    return done.stdout + done.stderr, done.returncode


class Activation(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.store = os.path.join(self.folder.name, "store")
        ways.write_programs(self.folder.name, "payload_sim")
        self.late = os.path.join(self.folder.name, "late.py")

    def tearDown(self):
        self.folder.cleanup()

    def test_every_way_in_every_place(self):
        cases = [(way, place) for way in ("first", "path", "run") for place in ways.PLACES]
        cases += [(way, "main") for way in ways.WAYS if (way, "main") not in cases]
        self.assertEqual(ways.matrix("payload_sim", self.folder.name, cases), {})

    def test_by_the_other_name(self):
        for way in ("first", "preload", "path"):
            argv, env = ways.command(way, self.folder.name)
            done = subprocess.run([*argv, "main", self.store, way],
                                  env={**env, "CUDA_NAME": "libcuda.so"},
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_libcuda_was_first(self):
        said = "libcuda.so.1 was loaded before the interposer"
        run = ("-m", "foundry", "run", self.late, "main", self.store, "x")
        late = (self.late, "main", self.store, "x")
        preload = environment({"LD_PRELOAD": os.path.join(SIM, "libcuda.so.1")})["LD_PRELOAD"]
        for text, status in (python(*late, LD_LIBRARY_PATH=SIM), python(*late, LD_PRELOAD=preload),
                             python(*run, LD_PRELOAD=os.path.join(SIM, "libcuda.so.1"))):
            self.assertEqual(status, 1, text)
            self.assertIn(said, text)

    def test_forked_too_late(self):
        for init, names in (("False", 4), ("True", 1)):
            text, status = python("-W", "ignore", "-c", f"INIT = {init}\n" + FORKED)
            self.assertEqual(status, 0, text)
            self.assertEqual(text.split(maxsplit=names),
                             ["FDRY_E_FORKED"] * names + ["cuMemAlloc_v2: 3\n"])


class Environment(unittest.TestCase):
    def test_named_libraries_stay_in_front(self):
        ours = f"{interposer()} {os.path.dirname(interposer())}/libcuda.so"
        self.assertEqual(environment({})["LD_PRELOAD"], ours)
        self.assertEqual(environment({"A": "b", "LD_PRELOAD": "/x.so:/y.so"}),
                         {"A": "b", "LD_PRELOAD": f"/x.so /y.so {ours}"})
        self.assertEqual(environment(environment({}))["LD_PRELOAD"], ours)

    def test_a_path_that_cannot_be_named(self):
        with tempfile.TemporaryDirectory(prefix="a blank") as folder:
            os.symlink(interposer(), os.path.join(folder, "libcuda.so.1"))
            with open(os.path.join(folder, "real"), "wb"):
                pass
            text, status = python("-m", "foundry", "run", "-c", "",
                                  FOUNDRY_HOOK=os.path.join(folder, "real"))
        self.assertEqual(status, 1)
        self.assertIn("which has a blank or colon", text)


class Run(unittest.TestCase):
    def test_the_program_is_the_main_one(self):
        what = ("import sys, os; print(__name__, sys.argv[1:], sys.flags.dev_mode, "
                "os.environ['FOUNDRY_LOG'])")
        for m in (["-m", "foundry"], ["-mfoundry"], ["-Bm", "foundry"]):
            text, status = python("-X", "dev", *m, "run", "--log=off", "-c", what, "-c", "--log=x")
            self.assertEqual((text, status), ("__main__ ['-c', '--log=x'] True off\n", 0))

    def test_run_exits_with_the_status_of_the_program(self):
        self.assertEqual(python("-m", "foundry", "run", "-c", "raise SystemExit(7)"), ("", 7))

    def test_the_driver(self):
        what = "import ctypes, sys; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        self.assertEqual(python("-m", "foundry", "run", "-c", what), ("0\n", 0))
        self.assertEqual(python("-m", "foundry", "run", "--driver", "/nowhere", "-c", what),
                         ("100\n", 0))

    def test_bad_commands(self):
        for args, said in (((), "usage"), (("walk",), "there is no command walk"),
                           (("run",), "needs a program"), (("run", "-m"), "needs a program"),
                           (("run", "--speed", "x.py"), "no option --speed"),
                           (("run", "--log"), "--log needs a value")):
            text, status = python("-m", "foundry", *args)
            self.assertEqual(status, 2, text)
            self.assertIn(said, text)
        for args in (("doctor", "--quick"), ("doctor", "--json", "x")):
            text, status = python("-m", "foundry", *args)
            self.assertEqual(status, 2, text)
            self.assertIn("doctor takes no arguments but --json", text)
        text, status = python("-m", "foundry", "run", "x.py", FOUNDRY_HOOK="/nowhere")
        self.assertEqual(status, 1)
        self.assertIn("the interposer is not there: /nowhere", text)


class Help(unittest.TestCase):
    def test_each_command_has_help(self):
        text, status = python("-m", "foundry", "--help")
        self.assertEqual(status, 0, text)
        self.assertIn("foundry-store", text)
        for args in (("doctor", "--help"), ("doctor", "-h"), ("run", "--help"), ("run", "-h")):
            self.assertEqual(python("-m", "foundry", *args), (text, 0))

    def test_the_program_gets_its_own_help(self):
        self.assertEqual(python("-m", "foundry", "run", "-c", "import sys; print(sys.argv[1:])",
                                "--help"), ("['--help']\n", 0))


class Doctor(unittest.TestCase):
    def said(self, status, **variables):
        with tempfile.TemporaryDirectory() as folder:
            text, got = python("-m", "foundry", "doctor",
                               **{"FOUNDRY_STORE": folder + "/none", **variables})
        self.assertEqual(got, status, text)
        lines = {line[6:38].strip(): (line[:6].strip(), line[38:]) for line in text.splitlines()}
        self.assertEqual(lines["python"][0], "ok")
        return lines

    def captures(self, lines):
        return {what for name, what in lines.items() if name.startswith("capture")}

    def test_doctor_finds_no_fault(self):
        lines = self.said(0)
        self.assertEqual(self.captures(lines), {("ok", "begins")})
        self.assertEqual(lines["load"], ("ok", "works, on Foundry software device"))
        self.assertEqual(lines["driver"][0], "ok")
        self.assertEqual(lines["driver"][1], f"{os.path.realpath(SIM)}/libcuda.so.1, CUDA 13.0")
        self.assertEqual(lines["device 0"][1],
                         "Foundry software device, compute capability 9.0, 8.0 GiB")
        self.assertEqual(lines["store"][0], "no")

    def test_json(self):
        with tempfile.TemporaryDirectory() as folder:
            text, status = python("-m", "foundry", "doctor", "--json",
                                  FOUNDRY_STORE=folder + "/none")
        self.assertEqual(status, 0, text)
        found = json.loads(text)
        self.assertIs(found["ok"], True)
        checks = {check["name"]: check for check in found["checks"]}
        self.assertEqual(checks["load"], {"name": "load", "status": "ok",
                                          "text": "works, on Foundry software device"})
        self.assertEqual(checks["store"]["status"], "no")

    def test_json_of_a_fault(self):
        text, status = python("-m", "foundry", "doctor", "--json", FOUNDRY_DRIVER="/nowhere")
        self.assertEqual(status, 1, text)
        found = json.loads(text)
        self.assertIs(found["ok"], False)
        self.assertIn("fail", {check["status"] for check in found["checks"]})

    def test_other_code_may_print_in_each_process(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="ascii") as f:
                f.write("import atexit\nprint('begun')\natexit.register(print, 'ended')\n")
            lines = self.said(0, PYTHONPATH=os.pathsep.join([folder, os.environ["PYTHONPATH"]]))
        self.assertEqual(self.captures(lines), {("ok", "begins")})
        self.assertEqual(lines["load"], ("ok", "works, on Foundry software device"))
        self.assertIn("not installed", lines["sglang"][1])

    def test_no_driver(self):
        lines = self.said(1, FOUNDRY_DRIVER="/nowhere/libcuda.so.1")
        for works, text in self.captures(lines):
            self.assertEqual(works, "FAIL")
            self.assertIn("no CUDA driver: /nowhere/libcuda.so.1 cannot be used", text)
        self.assertEqual(lines["load"][0], "FAIL")
        self.assertIn("no CUDA driver", lines["load"][1])
        self.assertEqual(lines["driver"], lines["load"])
        self.assertEqual(lines["device 0"][0], "FAIL")
        self.assertEqual(os.path.realpath(lines["software driver"][1].partition(",")[0]),
                         os.path.realpath(os.path.join(SIM, "libcuda.so.1")))

    def test_the_driver_comes_first(self):
        for works, text in self.captures(self.said(1,
                                                   LD_PRELOAD=os.path.join(SIM, "libcuda.so.1"))):
            self.assertEqual(works, "FAIL")
            self.assertIn("was loaded before the interposer", text)

    def test_no_interposer_and_no_store(self):
        lines = self.said(1, FOUNDRY_HOOK="/nowhere", FOUNDRY_STORE="")
        self.assertEqual(lines["interposer"][0], "FAIL")
        self.assertEqual(self.captures(lines), set())
        self.assertEqual(lines["store"][0], "FAIL")

    def test_no_driver_is_one_text(self):
        lines = self.said(1, FOUNDRY_DRIVER="/nowhere/libcuda.so.1")
        self.assertEqual(self.captures(lines), {lines["load"]})

    def test_no_driver_that_the_loader_finds(self):
        text, _ = python("-m", "foundry", "doctor", "--json", FOUNDRY_DRIVER="")
        checks = {check["name"]: check for check in json.loads(text)["checks"]}
        if checks["driver"]["status"] == "ok":
            self.skipTest("this machine has a driver")
        for name, check in checks.items():
            if name in ("load", "driver") or name.startswith("capture"):
                self.assertEqual(check["status"], "fail")
                self.assertIn("no CUDA driver: there is no libcuda.so.1 where the loader looks",
                              check["text"])
                self.assertEqual(check["text"], checks["load"]["text"])

    def test_unknown_variables(self):
        lines = self.said(1, FOUNDRY_STOR="x", FOUNDRY_VLM="x", FOUNDRY_VLLM_STRIC="1",
                          FOUNDRY_XYZZY="1")
        for name, meant in (("FOUNDRY_STOR", "STORE"), ("FOUNDRY_VLM", "VLLM"),
                            ("FOUNDRY_VLLM_STRIC", "VLLM_STRICT")):
            self.assertEqual(lines[name], ("FAIL", "no variable of Foundry has this name "
                                           f"(did you mean FOUNDRY_{meant}?)"))
        self.assertEqual(lines["FOUNDRY_XYZZY"], ("no", "no variable of Foundry has this name"))

    def test_a_reader_that_ends_early(self):
        done = subprocess.run(["bash", "-c", '"$0" -m foundry doctor | head -n 1; '
                               'echo "${PIPESTATUS[0]}"', sys.executable], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.stdout.splitlines()[-1], str(128 + signal.SIGPIPE))


if __name__ == "__main__":
    suite.main()
