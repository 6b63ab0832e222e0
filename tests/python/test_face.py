# SPDX-License-Identifier: Apache-2.0
"""Tests of what programs expect of Python objects: images, stores and their parts as mappings."""
import contextlib
import html.parser
import io
import os
import pickle
import re
import subprocess
import sys
import unittest
import unittest.mock

import suite
import foundry
from foundry import _progress, _show, errors

BUILD = os.environ.get("BUILD", "build")
HERE = os.path.dirname(os.path.abspath(__file__))
# Seals twice, and prints the phases of each seal. sys.argv: the store.
SEAL = """
import sys, foundry, test_roundtrip
with foundry.Capture() as cap:
    cuda = test_roundtrip.Driver()
    a, b, c = (cuda.alloc([float(i) for i in range(test_roundtrip.N)]) for _ in range(3))
    cap.add_graph(7, cuda.graph(a, b, c))
    cap.tensor("a", test_roundtrip.Array(a, test_roundtrip.N))
    for name in ("first", "second"):
        found, last = [], 0.0
        def note(phase, done, total, ms):
            global last
            assert 0 <= done <= total and ms >= last, (phase, done, total, ms, last)
            last = ms
            found.append((phase, done == total))
            for call in (lambda: cap.offset, lambda: cap.fact("a", "b")):
                try:
                    call()
                except foundry.Error as e:
                    assert "waits for its progress function" in str(e), e
                else:
                    raise AssertionError("a call in a progress function")
        cap.seal(sys.argv[1], name, progress=note)
        print(name, *dict.fromkeys(phase for phase, done in found if done))
    def fails(*_):
        raise LookupError("from the function")
    try:
        cap.seal(sys.argv[1], "third", progress=fails)
    except LookupError as e:
        print("raised", e)
    cap.seal(sys.argv[1], "fourth")  # without a function again
"""


class Face(suite.Vecadd):
    def python(self, script, *args):
        # without site, whose packages may import anything
        done = subprocess.run([sys.executable, "-S", "-c", script, *args], capture_output=True,
                              text=True, check=False, timeout=120, cwd=HERE)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout.splitlines()


class Mappings(Face):
    def test_tensors(self):
        with self.load() as image:
            names = list(image)
            self.assertEqual(names, [t.name for t in image.tensors()])
            self.assertEqual(names, list(image.keys()))
            self.assertEqual((len(image), len(image.tensors)), (len(names), len(names)))
            self.assertIn("a", image)
            self.assertNotIn("nobody", image)
            self.assertNotIn(7, image)
            self.assertEqual(image["a"].addr, image.tensors["a"].addr)
            self.assertTrue(image)

    def test_graphs(self):
        with self.load() as image:
            self.assertEqual(image.graphs(), {key: g.name for key, g in image.graphs.items()})
            for key, graph in image.graphs.items():
                self.assertEqual((graph.key, key in image.graphs), (key, True))
                self.assertGreater(graph.nodes, 0)
                graph.build()
                graph.launch()
            self.assertEqual(image.report().graphs_built, len(image.graphs))
            self.assertNotIn(999, image.graphs)

    def test_facts(self):
        with self.load() as image, foundry.Store(self.store) as store:
            self.assertEqual(dict(image.facts), store.facts("vecadd"))
            self.assertEqual(image.facts["fdry.gpu.arch"], image.fact("fdry.gpu.arch"))
            self.assertEqual(list(image.facts), sorted(image.facts))
            self.assertIsNone(image.facts.get("nobody"))

    def test_keys_that_do_not_exist(self):
        with self.load() as image:
            for call, says in (
                    (lambda: image["outt"], r"no tensor named 'outt'; did you mean out"),
                    (lambda: image.graphs[12345], r"no graph 12345; it has 1"),
                    (lambda: image.facts["fdry.gpu.arc"], r"did you mean fdry.gpu.arch")):
                with self.assertRaisesRegex(foundry.Error, says) as raised:
                    call()
                self.assertEqual(raised.exception.name, "FDRY_E_NOKEY")
                self.assertIsInstance(raised.exception, KeyError)

    def test_closed(self):
        image = self.load()
        graphs, facts, tensors = image.graphs, image.facts, image.tensors
        image.close()
        for call in (lambda: len(graphs), lambda: facts["a"], lambda: list(tensors), graphs,
                     lambda: len(image), lambda: "a" in image):
            with self.assertRaisesRegex(ValueError, "the image is closed"):
                call()
        self.assertEqual(repr(graphs), "<Graphs of a closed image>")

    def test_refs(self):
        with foundry.Store(self.store) as store:
            (ref,) = [r for r in store.refs() if r.name == "vecadd"]
            with self.load() as image:
                self.assertEqual(ref.id, image.id)
            self.assertGreater(ref.used, 1_600_000_000)
            self.assertFalse(ref.pinned)
            store.tag("vecadd", "other/name")
            store.pin("other/name")
            self.assertEqual([(r.name, r.pinned) for r in store.refs()],
                             [("other/name", True), ("vecadd", False)])
            store.remove("other/name")
            self.assertEqual([r.name for r in store.refs()], ["vecadd"])
            with self.assertRaisesRegex(foundry.Error, "no ref 'other/name'"):
                store.remove("other/name")


class Errors(Face):
    def codes(self):
        """Returns {number: name} of all codes of the library."""
        path = os.path.join(HERE, "..", "..", "include", "foundry", "errcode.def")
        with open(path, encoding="utf-8") as f:
            return {int(code): name for code, name in
                    re.findall(r"^FDRY_ERRCODE\((\d+), (\w+),", f.read(), re.MULTILINE)}

    def test_every_code_has_a_class(self):
        codes = self.codes()
        self.assertEqual(set(codes), set(errors.BY_CODE))
        for code, name in codes.items():
            error = foundry.Error(-code, "text\n")
            with self.subTest(name):
                self.assertIs(type(error), errors.BY_CODE[code])
                self.assertEqual((error.code, error.name, str(error), error.args),
                                 (-code, "FDRY_E_" + name, "text\\n", ("text\\n",)))
                self.assertTrue(isinstance(error, RuntimeError) and error.errno > 0)
                again = pickle.loads(pickle.dumps(error))
                self.assertEqual((type(again), again.code, str(again), again.errno),
                                 (type(error), error.code, str(error), error.errno))
        self.assertIs(type(foundry.Error(-12345, "unknown")), foundry.Error)

    def test_classes_are_public(self):
        for cls in set(errors.BY_CODE.values()):
            self.assertIs(getattr(foundry, cls.__name__), cls)
            self.assertIn(cls.__name__, foundry.__all__)
            self.assertEqual(cls.__module__, "foundry")
            self.assertRegex(errors.__doc__, rf"\n +{cls.__name__} ")

    def test_exceptions_that_programs_catch(self):
        none = os.path.join(self.folder.name, "none")
        with self.load() as image:
            for builtin, blame, call in (
                    (KeyError, foundry.UsageError, lambda: image["nobody"]),
                    (KeyError, foundry.UsageError, lambda: image.launch(999)),
                    (FileNotFoundError, foundry.NotFoundError,
                     lambda: foundry.load("nobody", store=self.store)),
                    (FileNotFoundError, foundry.UsageError, lambda: foundry.Store(none)),
                    (ValueError, foundry.InvalidError,
                     lambda: foundry.Store(self.store).remove("a b")),
                    (RuntimeError, foundry.PlatformError, lambda: foundry.Device(5)),
                    (RuntimeError, foundry.MismatchError,
                     lambda: foundry.load("vecadd", store=self.store, facts={"a": "b"}))):
                for each in (builtin, blame, foundry.Error, RuntimeError):
                    with self.assertRaises(each):
                        call()


class Bars(Face):
    def drawn(self, tty):
        """Returns a file that a Bar draws to; a terminal if tty is true."""
        file = io.StringIO()
        file.isatty = lambda: tty
        return file

    def test_numbers(self):
        for number, text in ((0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_490_000, "1.5 MB"),
                             (99_600_000, "100 MB"), (999_600_000, "1.0 GB"),
                             (1.5e9, "1.5 GB"), (2e15, "2000 TB")):
            self.assertEqual(_progress.size(number), text)
        for seconds, text in ((0, "0:00"), (59.6, "1:00"), (65, "1:05"), (3661, "1:01:01")):
            self.assertEqual(_progress.clock(seconds), text)

    def test_a_line(self):
        bar = _progress.Bar("sealing x", file=self.drawn(True))
        bar.moved(500_000_000, 2_000_000_000)
        self.assertEqual(bar.text(10), "sealing x   25% [#####...............]  500 MB of 2.0 GB  "
                                       "50.0 MB/s  0:30 left")
        bar.moved(2_000_000_000, 2_000_000_000)
        self.assertEqual(bar.text(20), "sealing x  100% [####################]  2.0 GB of 2.0 GB  "
                                       "100 MB/s  20.0 s")
        bar = _progress.Bar("collecting", "objects", file=self.drawn(True))
        bar.moved(7, 0)
        self.assertEqual(bar.text(2), "collecting  7 objects  3 objects/s  2.0 s")

    def test_a_terminal_and_a_file(self):
        for tty in (True, False):
            file = self.drawn(tty)
            bar = _progress.Bar("work", file=file)
            for done in range(1000):
                bar.moved(done, 1000)
            bar.close()
            bar.moved(5, 1000)
            bar.close()
            text = file.getvalue()
            self.assertEqual((text.count("\n"), text.endswith("\n")), (1, True))
            self.assertEqual("\r" in text, tty)
            self.assertLess(len(text), 1000)

    def test_every_call_draws(self):
        pack = os.path.join(self.folder.name, "pack")
        with foundry.Store(self.store) as store:
            calls = {"exporting": lambda: store.export(None, pack, progress=True),
                     "importing": lambda: store.import_(pack, dry_run=True, progress=True),
                     "verifying": lambda: foundry.verify(self.store, progress=True),
                     "loading": lambda: self.load(progress=True).close()}
            for what, call in calls.items():
                with unittest.mock.patch.object(sys, "stderr", self.drawn(False)) as err:
                    call()
                with self.subTest(what):
                    (line,) = err.getvalue().splitlines()
                    self.assertRegex(line, rf"^{what}  100% \[#+\]  .* of .*  [\d.]+ s$")

    def test_a_seal(self):
        for code, says in (("cap.seal(store, 'name', progress=True)", "sealing name  100% "),
                           ("cap.seal(store, progress=False)", "")):
            done = subprocess.run(
                [sys.executable, "-c", SEAL.partition("    for name in")[0]
                 + f"    store = sys.argv[1]\n    {code}\n", os.path.join(self.folder.name, "b")],
                capture_output=True, text=True, check=False, timeout=60, cwd=HERE)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertEqual(done.stderr[:len(says) or None], says)

    def test_a_start(self):
        code = """
import sys, foundry, test_roundtrip
def build(cap):
    cuda = test_roundtrip.Driver()
    a, b, c = (cuda.alloc([1.0] * test_roundtrip.N) for _ in range(3))
    cap.add_graph(7, cuda.graph(a, b, c))
phases = []
for _ in range(2):
    start = foundry.load_or_capture("n", build, store=sys.argv[1], identity="manual",
                                    progress=lambda phase, *_: phases.append(phase))
    if start.image:
        start.image.close()
    print(start.captured, *dict.fromkeys(phases))
    phases.clear()
"""
        store = os.path.join(self.folder.name, "started")
        # one process captures, another one loads
        first = self.python(code.replace("range(2)", "range(1)"), store)
        self.assertEqual(first, ["True graphs slices content kernels commit"])
        self.assertRegex(self.python(code.replace("range(2)", "range(1)"), store)[0],
                         "^False manifest .*content")

    def test_tqdm(self):
        class Tqdm:
            """The parts of tqdm that the package uses."""
            made = []

            def __init__(self, desc=None, total=None, unit="it", unit_scale=False):
                self.desc, self.total, self.unit, self.n, self.open = desc, total, unit, 0, True
                self.made.append(self)

            def update(self, n=1):
                self.n += n

            def reset(self, total=None):
                self.n, self.total = 0, total

            def close(self):
                self.open = False

        pack = os.path.join(self.folder.name, "pack2")
        with foundry.Store(self.store) as store:
            size = store.export(None, pack, progress=Tqdm).bytes
            (bar,) = Tqdm.made
            self.assertEqual((bar.desc, bar.n, bar.total, bar.unit, bar.open),
                             ("exporting", size, size, "B", False))
            ours = Tqdm()
            store.export(None, pack, progress=ours)
            self.assertEqual((ours.n, ours.total, ours.open), (size, size, True))
            for wrong in (1.5, "x"):
                with self.assertRaisesRegex(TypeError, "progress: .* give True"):
                    store.export(None, pack, progress=wrong)


class Shown(Face):
    """repr() and the tables of notebooks."""

    @staticmethod
    def checked(text):
        """Returns the text of HTML whose tags are closed in their order."""
        class Reader(html.parser.HTMLParser):
            def __init__(self):
                super().__init__()
                self.open, self.found = [], []

            def handle_starttag(self, tag, _):
                self.open.append(tag)

            def handle_endtag(self, tag):
                assert self.open.pop() == tag, text

            def handle_data(self, data):
                self.found.append(data)

        reader = Reader()
        reader.feed(text)
        reader.close()
        assert not reader.open, text
        return " ".join(" ".join(reader.found).split())

    def test_every_object(self):
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(foundry.Store(self.store))
            start = foundry.load_or_capture("vecadd", store=store, strict=True)
            image = stack.enter_context(start.image)
            made = (foundry.Device(), foundry.Slots(), foundry.Kernels(),
                    foundry.DeviceScalar("int32"), foundry.DecodeState())
            found = [image, store, *map(stack.enter_context, made), start, image["a"],
                     image.graphs, image.graphs[1], image.tensors, image.facts, image.report(),
                     store.images()[0], store.requirements("vecadd"), foundry.verify(self.store)]
            for each in found:
                with self.subTest(type(each).__name__):
                    self.assertRegex(repr(each), rf"^<{type(each).__name__}\b.*>$")
                    self.assertNotIn(" object at 0x", repr(each))
                    self.assertTrue(self.checked(each._repr_html_()))
        for each in found[:7] + [image.graphs, image.facts]:
            self.assertIn("closed", self.checked(each._repr_html_()))

    def test_tables(self):
        with self.load() as image, foundry.Store(self.store) as store:
            text = self.checked(image._repr_html_())
            for part in (image.id, "Graphs key name nodes", "Tensors name dtype shape use",
                         "float32", "fdry.gpu.arch", image.facts["fdry.gpu.arch"]):
                self.assertIn(part, text)
            self.assertIn("vecadd " + image.id[:12], self.checked(store._repr_html_()))
            self.assertIn("2 tables", _show.table("<x>", (), [("1",), ("2",)]).replace(
                "&lt;x&gt;", "2 tables"))

    def test_images(self):
        with foundry.Store(self.store) as store:
            store.tag("vecadd", "again")
            (stored,) = store.images()
            self.assertEqual(stored.refs, ["again", "vecadd"])
            self.assertEqual(stored.facts, store.facts("vecadd"))
            self.assertEqual(stored.requirements.graphs, store.requirements("vecadd").graphs)
            self.assertEqual(stored.describe(), store.describe("vecadd"))
            self.assertFalse(stored.pinned)
            self.assertEqual(repr(stored), f"<StoredImage {stored.id[:12]}: again, vecadd>")
            with stored.load() as image:
                self.assertEqual(image.id, stored.id)
            store.remove("again")


class Logs(Face):
    SCRIPT = """
import logging, sys, foundry
class Lines(logging.Handler):
    def emit(self, record):
        found.append((record.name, record.levelname))
found, store = [], sys.argv[1]
logger = logging.getLogger("foundry")
logger.addHandler(Lines())
for level in (logging.WARNING, logging.DEBUG, logging.WARNING):
    logger.setLevel(level)
    with foundry.load("vecadd", store=store) as image:
        image.launch(1)
    print(len(found) > 0, sorted(set(found)))
    found.clear()
"""

    def test_levels(self):
        out = self.python(self.SCRIPT, self.store)
        self.assertEqual([out[0], out[2]], ["False []"] * 2)
        self.assertIn("('foundry', 'DEBUG')", out[1])

    ENGINE = """
import logging, sys, foundry
from foundry.engines import log
logging.basicConfig(stream=sys.stdout, format="root %(name)s")
engine = logging.getLogger("engine")
handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
engine.addHandler(handler)
engine.propagate = False
log.use(engine)
log.use(engine)
engine.setLevel(logging.INFO)
foundry.load("vecadd", store=sys.argv[1]).launch(1)
"""

    def test_an_engines_log_has_the_librarys_messages(self):
        out = self.python(self.ENGINE, self.store)
        self.assertEqual([line.partition(", ")[0].partition(" /")[0] for line in out],
                         ["INFO Foundry: driver"])

    def test_a_library_prints_nothing(self):
        for how, says in (("", "^$"),
                          ("import logging; logging.basicConfig(level='INFO')", ":foundry:")):
            done = subprocess.run(
                [sys.executable, "-c", f"{how}\nimport sys, foundry\n"
                 "foundry.load('vecadd', store=sys.argv[1]).launch(1)\n", self.store],
                capture_output=True, text=True, check=True, timeout=60)
            self.assertEqual(done.stdout, "")
            self.assertRegex(done.stderr, says)

    def test_the_variable_prints(self):
        done = subprocess.run(
            [sys.executable, "-c", "import sys, foundry\n"
             "foundry.load('vecadd', store=sys.argv[1]).launch(1)\n"
             "assert 'logging' not in sys.modules", self.store],
            capture_output=True, text=True, check=True, timeout=60,
            env={**os.environ, "FOUNDRY_LOG": "debug"})
        self.assertIn("foundry: debug: ", done.stderr)


class Imports(Face):
    # The modules that `import foundry` may import besides those of Python and ctypes, which differ
    # between versions of Python. Each more would be paid for by every process that imports
    # foundry. The second line: Python imports these with site.
    ALLOWED = {"_struct", "atexit", "struct", "types",
               "_collections_abc", "_stat", "genericpath", "os", "os.path", "posixpath", "stat",
               "foundry", "foundry._lib", "foundry._log", "foundry.activate", "foundry.errors"}

    def test_modules(self):
        out = self.python("import ctypes, sys; sys.path[:0] = sys.argv[1:]\n"
                          "before = set(sys.modules)\n"
                          "import foundry; print(*sorted(set(sys.modules) - before), sep='\\n')",
                          os.path.dirname(os.path.dirname(foundry.__file__)))
        self.assertIn("foundry._lib", out)
        self.assertEqual(set(), set(out) - self.ALLOWED)

    def test_modules_of_a_load(self):
        """A load imports nothing that takes long, unless it fails."""
        out = self.python("import sys, foundry; foundry.load('vecadd', store=sys.argv[1])\n"
                          "print(*sys.modules, sep='\\n')", self.store)
        self.assertIn("foundry.image", out)
        self.assertEqual(set(), set(out) & {"re", "typing", "secrets", "hashlib", "logging",
                                            "inspect", "difflib", "tempfile"})

    def test_every_name_can_be_imported(self):
        for name in foundry.__all__:
            self.assertIsNotNone(getattr(foundry, name))
        self.assertTrue(set(foundry.__all__) <= set(dir(foundry)))


class Seals(Face):
    def test_progress(self):
        out = self.python(SEAL, os.path.join(self.folder.name, "sealed"))
        phases = "graphs slices content kernels commit"
        self.assertEqual(out, [f"first {phases}", f"second {phases}", "raised from the function"])


if __name__ == "__main__":
    suite.main()
