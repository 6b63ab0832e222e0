# SPDX-License-Identifier: Apache-2.0
"""Tests of the texts that a user of the package reads: messages use Python's names of functions and
arguments, and repr() describes objects.
"""
import contextlib
import ctypes
import gc
import glob
import inspect
import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import suite
import foundry
import test_closing
from foundry import _lib, telemetry, words

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD", "build")
# Functions that only C has, and functions whose messages no user of the package sees.
FOR_C = re.compile(
    r"fdry_(cudagraph|graphpool|stream|telemetry|error|last|log|version|dtype|start)(_|$)")
INNER = {"fdry_capture_allocs", "fdry_capture_rng_slots", "fdry_capture_graph_remove",
         "fdry_capture_graph_fixed", "fdry_capture_graph_skip", "fdry_capture_hold",
         "fdry_capture_seal_fd",
         "fdry_device_launch_cooperative", "fdry_image_rng_use", "fdry_image_graph_count",
         "fdry_image_tensor_count", "fdry_image_rng_count", "fdry_image_rng_advance",
         "fdry_image_rng_seed", "fdry_image_stop_set", "fdry_kernels_count", "fdry_scalars_count",
         "fdry_scalars_dtype", "fdry_slots_capture_end", "fdry_slots_has", "fdry_sync_count",
         "fdry_resident_count"}


def strings(path):
    """Returns the string literals of a C file, with adjacent ones joined."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for found in re.finditer(r'fdry_(?:fail|fail_at|vfail)\([^;]*?;', text, re.DOTALL):
        yield "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', found[0]))


class Words(unittest.TestCase):
    def test_functions_have_names_in_python(self):
        for name in _lib.SIGNATURES:
            if FOR_C.match(name) or name in INNER:
                continue
            with self.subTest(name):
                owner, _, rest = (words.function(name) or "").partition(".")
                found = getattr(foundry, owner, None) or getattr(foundry.tensor, owner, None)
                self.assertTrue(found, f"foundry/words.py says that it is {owner} in Python")
                if (rest and (owner, rest) != ("Device", "caps")
                    and (owner, rest) != ("DeviceScalar", "addr")):
                    self.assertTrue(hasattr(found, rest),
                                    f"foundry/words.py says that it is {owner}.{rest} in Python")

    def test_messages_of_the_library_use_these_names(self):
        checked = 0
        for folder in ("api", "arch", "graph", "hook", "image", "image/capture", "image/seal",
                       "lib", "mm", "run", "store"):
            for path in sorted(glob.glob(os.path.join(ROOT, folder, "*.c"))):
                if re.match(r"(cudagraph|graphpool)", os.path.basename(path)):
                    continue
                for text in strings(path):
                    checked += 1
                    self.assertNotRegex(words.python(text), r"\bfdry_|\bFDRY_(?!E_)",
                                        os.path.relpath(path, ROOT))
        self.assertGreater(checked, 400)

    def test_a_message(self):
        self.assertEqual(
            words.python("the image has no tensor named 'x'; fdry_image_describe() lists them"),
                         "the image has no tensor named 'x'; Store.describe() lists them")
        self.assertEqual(words.python("leave fdry_load_opts.externals out"), "leave externals out")

    def test_libraries_that_are_missing(self):
        needed = subprocess.run(["readelf", "-d", _lib.path()], capture_output=True, text=True,
                                check=True).stdout
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", needed))
        self.assertEqual(needed - set(words.PACKAGES),
                         {n for n in needed
                          if re.match(r"lib(c|m|dl|pthread|rt|gcc_s|asan|ubsan|tsan)\.so|ld-linux",
                                      n)})
        why = "liblmdb.so.0: cannot open shared object file: No such file or directory"
        self.assertRegex(words.not_loaded("/x/libfoundry.so.0.2", why),
                         "needs liblmdb.so.0, .*apt install liblmdb0")
        why = "libfoundry.so.0.2: cannot open shared object file"
        self.assertIn("FOUNDRY_LIBRARY", words.not_loaded("libfoundry.so.0.2", why))

    def test_without_them_each_command_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = os.path.join(folder, "libfoundry.so.0.2")
            with open(_lib.path(), "rb") as f, open(broken, "wb") as to:
                to.write(f.read().replace(b"liblmdb.so.0\0", b"liblmdx.so.0\0"))
            for args, code, says in ((["-m", "foundry", "doctor"], 1,
                                      r"FAIL +foundry +\S* needs liblmdx.so.0"),
                                     (["-m", "foundry", "--version"], 1, "needs liblmdx.so.0"),
                                     (["-m", "foundry", "run", "-c", "0"], 1, "needs liblmdx.so.0"),
                                     (["-c", "import foundry"], 1,
                                      "ImportError: .* needs liblmdx.so.0")):
                done = subprocess.run([sys.executable, *args],
                                      env={**os.environ, "FOUNDRY_LIBRARY": broken},
                                      capture_output=True, text=True, check=False, timeout=60)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertRegex(done.stdout + done.stderr, says)
                if "-m" in args:
                    self.assertNotIn("Traceback", done.stderr)

    def test_version(self):
        done = subprocess.run([sys.executable, "-m", "foundry", "--version"], capture_output=True,
                              text=True, check=True, timeout=60)
        self.assertEqual(done.stdout, f"foundry {foundry.__version__}\n")

    def test_without_a_driver_the_software_driver_is_named(self):
        done = subprocess.run([sys.executable, "-c", "import foundry; foundry.Device()"],
                              capture_output=True, text=True, check=False, timeout=60,
                              env={**{k: v for k, v in os.environ.items() if k != "FOUNDRY_DRIVER"},
                                   "CUDA_VISIBLE_DEVICES": ""})
        self.assertRegex(done.stderr,
                         "FOUNDRY_DRIVER=.*/foundry/sim/libcuda.so.1, the software driver")
        self.assertNotIn("interposer", done.stderr)


class Objects(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        test_closing.Closing.setUpClass()
        cls.closing = test_closing.Closing()

    @classmethod
    def tearDownClass(cls):
        test_closing.Closing.tearDownClass()

    def plain(self, each):
        self.assertNotRegex(repr(each), r"object at 0x|^<foundry\.", type(each).__name__)

    def test_objects_have_a_repr(self):
        for name, make in self.closing.makers().items():
            subject = make()
            self.plain(subject)
            self.assertNotIn("closed", repr(subject))
            with contextlib.suppress(RuntimeError):
                subject.close()
            with unittest.mock.patch.object(_lib.Function, "__call__",
                                            side_effect=AssertionError("it calls the library")):
                self.plain(subject)
            if name != "Image":
                self.assertIn("closed", repr(subject))
            del subject
            gc.collect()
        with foundry.Store(test_closing.Closing.store) as store, self.closing.load(
            ) as image, foundry.Kernels() as kernels, foundry.Slots() as slots:
            slots.profile()
            code = foundry.Code(self.closing.code, name="vectors")
            for each in (store.requirements("vecadd"), store.gc(dry_run=True),
                         store.evict(1 << 40, dry_run=True), image.report(), image["a"], code,
                         store.export("vecadd", test_closing.Closing.pack + "3"),
                         kernels.function(code, "nothing"), slots.stats(), slots.stats().total,
                         kernels.stats(), kernels.target(), foundry.CUDAGraph(),
                         foundry.variables()[0], foundry.verify(test_closing.Closing.store),
                         foundry.repair(store=test_closing.Closing.store, dry_run=True)):
                self.plain(each)
            image.close()
            self.plain(foundry.load_or_capture("vecadd", store=store, strict=True))
        gc.collect()

    def test_every_class_has_a_repr(self):
        for name in foundry.__all__:
            cls = getattr(foundry, name)
            if isinstance(cls, type) and not issubclass(cls, (tuple, Exception)):
                self.assertIsNot(cls.__repr__, object.__repr__, name)

    def test_messages_name_wrong_arguments(self):
        named = wrong = 0
        for cls, make in self.closing.makers().items():
            owner = getattr(foundry, cls)
            for name in [n for n in dir(owner) if not n.startswith("_")
                         and callable(inspect.getattr_static(owner, n)) and n not in SKIPPED]:
                signature = inspect.signature(inspect.getattr_static(owner, name))
                for parameter in [p for p in signature.parameters.values()
                                  if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
                                  and p.name not in ("self", "progress", "callback", "how",
                                                     "generators", "generator")]:
                    with self.subTest(f"{cls}.{name}", parameter=parameter.name):
                        subject = make()
                        given = {p.name: self.closing.value(cls, p.name, subject)
                                 for p in signature.parameters.values()
                                 if p.default is p.empty and p.name not in ("self", "how")}
                        given[parameter.name] = Odd()
                        try:
                            getattr(subject, name)(**given)
                        except (TypeError, ValueError, foundry.Error) as e:
                            self.assertNotIsInstance(e, ctypes.ArgumentError)
                            wrong += 1
                            named += parameter.name in str(e)
                        except Exception as e:  # pylint: disable=broad-exception-caught
                            self.fail(f"{type(e).__name__}: {e}")
                        given.clear()
                        with contextlib.suppress(RuntimeError):
                            subject.close()
                        del subject
                        gc.collect()
        self.assertGreater(wrong, 60)
        self.assertGreater(named, wrong * 2 // 3)

    def test_the_name_is_that_of_the_method(self):
        with self.closing.load() as image, foundry.Slots() as slots:
            for says, call in (("key: '1'", lambda: image.launch("1")),
                               ("key: 1.0", lambda: image.launch(1.0)),
                               ("key: '1'", lambda: slots.replay("1")),
                               ("key: -1 is out of range", lambda: image.build(-1)),
                               ("keys: '1'", lambda: image.kernel_times("1")),
                               ("keys: -1 is out of range", lambda: image.kernel_times(-1)),
                               ("name: 7", lambda: image.read(7)),
                               ("device: 'x'", lambda: foundry.Slots(device="x")),
                               ("order: 'x'", lambda: self.closing.load(order=["x"])),
                               ("nbytes: None", lambda: image.copy("a", 0, None)),
                               ("src: 'x'", lambda: image.copy("a", "x", 4)),
                               ("stream", lambda: image.launch(1, stream="x"))):
                with self.subTest(says), self.assertRaisesRegex((TypeError, ValueError), says):
                    call()


class Odd:
    """A value that no parameter accepts."""


# Functions that accept any value, or that have no parameters.
SKIPPED = {"close", "end", "adopt", "settle"}


class Stub(unittest.TestCase):
    def test_telemetry(self):
        import ast
        with open(os.path.join(os.path.dirname(telemetry.__file__), "telemetry.pyi"),
                  encoding="utf-8") as f:
            stubbed = {n.name: [a.arg for a in n.args.args] for n in ast.parse(f.read()).body
                       if isinstance(n, ast.FunctionDef)}
        has = {name: list(inspect.signature(each).parameters)
               for name, each in vars(telemetry).items()
               if inspect.isfunction(each) and not name.startswith("_")}
        self.assertEqual(stubbed, has)


if __name__ == "__main__":
    suite.main()
