# SPDX-License-Identifier: Apache-2.0
"""Tests of the identity that ties an image to the program that captured it: the facts that
identify() finds, and their use in load_or_capture().
"""
import functools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest
import warnings

import suite
import foundry

HERE = os.path.dirname(os.path.abspath(__file__))
# Python uses cached byte code if a source has the same second and length, even if its text differs.
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}

# A program like those of users, on the software driver.
MODEL = '''
from test_roundtrip import N, Array, Driver

SCALE = 2


def weights():
    """The weights."""
    return [float(SCALE * i) for i in range(N)]


def build(capture):
    cuda = Driver()
    a, b, c = cuda.alloc([0.0] * N), cuda.alloc(weights()), cuda.alloc([0.0] * N)
    capture.add_graph(7, cuda.graph(a, b, c), name="add")
    capture.tensor("a", Array(a, N))
    NAMED
    capture.tensor("c", Array(c, N), use="output")
'''
CONST = MODEL.replace("NAMED", 'capture.tensor("b", Array(b, N), use="const")')
EXTERNAL = MODEL.replace("NAMED", 'capture.tensor("b", Array(b, N), use="const", external=True)')
MODEL = MODEL.replace("NAMED", "")

# Values and code of many kinds, whose digests must not depend on the process.
MIXED = '''
import argparse, collections, dataclasses, enum, functools, logging, re, sys, types
from pathlib import Path
LOG = logging.getLogger("mixed")
WORDS = {"a", "b", "c", ("d", 1), frozenset({"x", "y"})}
TABLE = {"one": [1, 2.5, -0.0], "two": (None, True, 3j, b"x"), "self": {}}
TABLE["self"] = TABLE
QUEUE = collections.deque([1, collections.OrderedDict(a=1), collections.defaultdict(list, b=[2])])
SPACE = types.SimpleNamespace(hidden=4, path=Path("x/y"))
PATTERN = re.compile("a+", re.I)
class Kind(enum.Enum):
    ONE = 1
    TWO = "two"
@dataclasses.dataclass
class Config:
    hidden: int = 4
    kind: Kind = Kind.ONE
class Block:
    size = 3
    def __init__(self, config):
        self.config, self.next = config, self
    def forward(self, x):
        if x in {"p", "q", "r"}:
            return [y for y in WORDS if y in TABLE]
        return lambda z: z + self.size
    @property
    def kind(self):
        return self.config.kind
    @staticmethod
    def of(n):
        return [Block(Config(n)) for _ in range(n)]
BLOCK = Block(Config(8))
def helper(x, *, by=2):
    return Block.of(x)[0].forward(QUEUE), PATTERN, SPACE, by
@functools.lru_cache(maxsize=None)
def cached(x):
    return helper(x)
def build(capture, batch=8):
    IMPORTS
    LOG.info("build")
    return cached(batch), BLOCK.kind, sys.argv
'''


class Array:
    """Stands in for a framework's tensor."""

    def __init__(self, shape, typestr="<f4", addr=4096):
        self.__cuda_array_interface__ = {"data": (addr, False), "typestr": typestr, "shape": shape,
                                         "version": 3}


def module(source, name="program", file=None):
    """Makes a module of source text, as if it had been imported."""
    made = types.ModuleType(name)
    made.__file__ = file or f"/elsewhere/{name}.py"
    sys.modules[name] = made
    exec(compile(textwrap.dedent(source), made.__file__, "exec"), vars(made))
    return made


def found(source, name="program"):
    return foundry.identify(module(source, name).build)


def changed(old, new):
    """Returns the keys of the facts that differ, without the digest of all, in the order in which
    they are compared.
    """
    old, new = (found(source).facts for source in (old, new))
    return [key for key in {**new, **old} if old.get(key) != new.get(key) and key != "py.all"]


class Facts(unittest.TestCase):
    """Compares the facts of two programs."""

    def differs(self, old, new, *keys):
        self.assertEqual(changed(old, new), list(keys))
        self.assertNotEqual(found(old).facts["py.all"], found(new).facts["py.all"])

    def same(self, old, new):
        self.assertEqual(found(old).facts, found(new).facts)


class Found(Facts):
    """Tests which parts of a program identify() covers and which it does not."""

    def test_code(self):
        source = ("def helper(x):\n    return x + 1\n"
                  "def build(c):\n    return [helper(i) for i in range(3)]\n")
        self.differs(source, source.replace("range(3)", "range(4)"), "py.code.program.build")
        self.differs(source, source.replace("x + 1", "x + 2"), "py.code.program.helper")
        self.differs(source, source.replace("x + 1", "x - 1"), "py.code.program.helper")
        self.differs(source, source.replace("x + 1", "x.a + 1"), "py.code.program.helper")
        self.same(source, source + "def unused():\n    pass\n")

    def test_text_that_does_not_run(self):
        source = ("class A:\n    def f(self):\n        self.x = 1\n        self.y = 2\n"
                  "def build(c):\n    class B:\n        z = 1\n    return A, B\n")
        self.same(source, f"'''Documentation.'''\n# comment\n{chr(10) * 300}{source}")
        self.same(source, source.replace("def f(self):",
                                         "def f(self):  # why\n        '''What it does.'''\n\n"))
        self.same(source, source.replace("class B:",
                                         "class B:\n        '''What it is.'''\n        # why\n"))
        self.same(source, source.replace("z = 1", "z    =   1"))

    def test_values(self):
        for old, new, key in (
                ("X = 1\ndef build(c): return X", "X = 2\ndef build(c): return X",
                 "py.value.program.X"),
                ("X = 1\ndef build(c): return X", "X = True\ndef build(c): return X",
                 "py.value.program.X"),
                ("X = 0.0\ndef build(c): return X", "X = -0.0\ndef build(c): return X",
                 "py.value.program.X"),
                ("X = [1, {'a': 2}]\ndef build(c): return X",
                 "X = [1, {'a': 3}]\ndef build(c): return X", "py.value.program.X"),
                ("def build(c, n=1): pass", "def build(c, n=2): pass", "py.value.program.build.n"),
                ("def build(c, *, n=1): pass", "def build(c, *, n=2): pass",
                 "py.value.program.build.n"),
                ("def make(n):\n def build(c): return n\n return build\nbuild = make(1)",
                 "def make(n):\n def build(c): return n\n return build\nbuild = make(2)",
                 "py.value.program.make.build.n"),
                ("class C:\n K = 1\ndef build(c): return C()",
                 "class C:\n K = 2\ndef build(c): return C()", "py.value.program.C.K")):
            with self.subTest(old):
                self.differs(old, new, key)

    def test_objects_part_by_part(self):
        source = ("class Config:\n def __init__(s, n): s.hidden, s.dtype = n, 'f16'\nconfig = "
                  "Config(4)\n"
                  "def build(c): return config.hidden")
        self.differs(source, source.replace("Config(4)", "Config(8)"),
                     "py.value.program.config.hidden")
        self.differs(source, source.replace("f16", "f32"), "py.value.program.config.dtype",
                     "py.code.program.Config.__init__")

    def test_values_that_names_are_bound_to(self):
        source = ("import operator\nclass A:\n def f(s): return 1\nclass B(A): pass\ndef one(): "
                  "return 1\ndef two(): return 1\n"
                  "f, act = one, operator.add\ndef build(c): return f(), act(1, 2), B().f()")
        self.differs(source, source.replace("f, act = one", "f, act = two"),
                     "py.code.program.build", "py.code.program.two", "py.code.program.one")
        self.differs("f = ','.join\ndef build(c): return f", "f = ';'.join\ndef build(c): return f",
                     "py.code.program.build")
        self.differs(source, source.replace("operator.add", "operator.sub"),
                     "py.code.program.build")
        self.differs(source, source.replace("f(s): return 1", "f(s): return 2"),
                     "py.code.program.A.f")
        self.differs(source, source.replace("B(A): pass", "B(A):\n def f(s): return 1"),
                     "py.code.program.B", "py.code.program.B.f")

    def test_decorators_and_wrappers(self):
        for head in ("import functools\n@functools.lru_cache()\n",
                     "import contextlib\n@contextlib.contextmanager\n",
                     "import functools\n@functools.singledispatch\n",
                     "class Kernel:\n def __init__(s, f): s.f = f\n@Kernel\n",
                     "import functools\ndef deco(f):\n @functools.wraps(f)\n def w(*a): return "
                     "f(*a)\n return w\n@deco\n"):
            with self.subTest(head):
                source = head + "def inner(x):\n    yield x + 1\ndef build(c): return inner(1)"
                self.assertRegex(" ".join(changed(source, source.replace("x + 1", "x + 2"))),
                                 r"^py\.code\.program\.inner(@2)?$")

    def test_other_callables(self):
        source = ("import functools\ndef run(c, n): return n\nclass Engine:\n def __init__(s): "
                  "s.size = 3\n def capture(s, c): return s.size\n"
                  " def __call__(s, c): return 1\n")
        for made, key in (("functools.partial(run, n=4)", "py.value.capture.n"),
                          ("Engine().capture", "py.value.capture.self.size"),
                          ("Engine()", "py.value.capture.size"),
                          ("lambda c: run(c, 4)", "py.code.program.lambda")):
            with self.subTest(made):
                old = source + "build = " + made
                new = old.replace("n=4", "n=5").replace("size = 3", "size = 5")
                self.differs(old, new.replace("(c, 4)", "(c, 5)"), key,
                             *(["py.code.program.Engine.__init__"] if "Engine" in made else []))
        run = module(source).run
        self.assertNotEqual(foundry.identify(run).facts["py.all"],
                            foundry.identify(functools.partial(run)).facts["py.all"])

    def test_modules_that_are_named(self):
        helper = module("K = 1\ndef f(): return K\ndef g(): return 2", "helping")
        old = found("import helping\ndef build(c): return helping.f()").facts
        self.assertIn("py.code.helping.f", old)
        self.assertNotIn("py.code.helping.g", old)
        helper.K = 2
        new = found("import helping\ndef build(c): return helping.f()").facts
        self.assertEqual((old.pop("py.value.helping.K"), new.pop("py.value.helping.K")), ("1", "2"))

    def test_modules_that_two_functions_use(self):
        inner = module("def f(): return 1\ndef g(): return 2", "helping_inner")
        inner.outer = module("import helping_inner as inner", "helping_outer")  # a circle
        source = ("import helping_outer as outer\ndef first(): return outer.inner.f()\ndef "
                  "second(): return outer.inner.g()\n"
                  "def build(c): return first(), second()")
        self.assertEqual({key for key in found(source).facts if "helping" in key},
                         {"py.code.helping_inner.f", "py.code.helping_inner.g"})

    def test_modules_that_are_handed_on(self):
        module("K = 1\ndef f(): return K\ndef g(): return 2", "helping")
        head = "import helping\ndef run(m): return m.f()\n"
        for source in (head + "def build(c): return run(helping)",
                       head + "TABLE = {'m': helping}\ndef build(c): return run(TABLE['m'])",
                       head + "def make():\n import helping\n def build(c): return run(helping)\n "
                              "return build\nbuild = make()",
                       head + "import types\nall = types.SimpleNamespace(m=helping)\ndef build(c): "
                              "return run(all.m)"):
            facts = found(source).facts
            self.assertEqual({key for key in facts if "helping" in key},
                             {"py.code.helping.f", "py.code.helping.g", "py.value.helping.K"},
                             source)

    def test_a_large_value_is_looked_at_once(self):
        source = ("TABLE = list(range(15000))\n"
                  + "".join(f"def f{i}(): return TABLE\n" for i in range(30)))
        source += "def build(c): return " + ", ".join(f"f{i}()" for i in range(30))
        self.assertEqual(found(source).not_compared, [])

    def test_shapes(self):
        def facts(*args, **kwargs):
            return foundry.identify(functools.partial(lambda c, x: x, x=Array(*args, **kwargs)))
        old = facts((8, 64))
        self.assertEqual(old.facts["py.value.capture.x"], "<f4 (8, 64)")
        self.assertIn(("capture.x", "the elements of an array"), old.not_compared)
        self.assertEqual(old.facts, facts((8, 64), addr=8192).facts)
        self.assertNotEqual(old.facts, facts((16, 64)).facts)
        self.assertNotEqual(old.facts, facts((8, 64), "<f2").facts)

    def test_modules_of_torch(self):
        source = """
            class Tensor:
                def __init__(self, *shape): self.shape, self.dtype = shape, "float32"
            class Module:
                def __init__(self, n):
                    self._parameters, self._buffers = {"w": Tensor(n, 4)}, {}
                    self._modules, self.n = {}, 1
            model = Module(8)
            model._modules["child"] = Module(2)
            def build(c): return model
            """
        self.assertIn(("program.model", "the parameters of a module"), found(source).not_compared)
        self.assertIn(("program.model.child", "the parameters of a module"),
                      found(source).not_compared)
        self.differs(source, source.replace("Module(2)", "Module(3)"), "py.value.program.model")

    def test_functions_and_values_that_packages_make(self):
        package = """
            import functools, threading
            __version__ = "1.5"
            class no_grad:
                def __call__(self, f):
                    @functools.wraps(f)
                    def inner(*args): return f(*args)
                    return inner
            class Kernel:
                def __init__(self, fn):
                    self.fn, self.calls = fn, {}
                    self.line, self.configs = fn.__code__.co_firstlineno, [Config(2)]
                def __call__(self): return self.fn()
            class Config:
                def __init__(self, n): self.hidden, self._parts = n, [n, {"n": n}]
            class Engine(Config):
                def __init__(self, n): super().__init__(n); self.lock = threading.Lock()
            """
        module(package, "fake_package", "/elsewhere/site-packages/fake_package.py")
        source = """
            from fake_package import Config, Engine, Kernel, no_grad
            config, engine = Config(4), Engine(5)
            @Kernel
            def kernel(): return 1
            @no_grad()
            def build(c): return kernel(), 2, config, engine
            """
        self.assertEqual(found(source).facts["py.package.fake-package"], "1.5")
        self.assertEqual([each for each in found(source).not_compared],
                         [("program.engine", "an object of fake_package.Engine")])
        self.differs(source, source.replace("return 1", "return 3"), "py.code.program.kernel")
        self.same(source, "\n\n" + source)
        self.differs(source, source.replace(", 2,", ", 3,"), "py.code.program.build")
        self.differs(source, source.replace("Config(4)", "Config(6)"), "py.value.program.config")

    def test_values_that_are_listed(self):
        source = """
            import ctypes, logging, socket, threading
            f, lib, s = open("/dev/null"), ctypes.CDLL(None), socket.socket()
            lock, log = threading.Lock(), logging.getLogger()
            f.close(); s.close()
            big = list(range(100000))
            config = {"a": 1, "where": s}
            def build(c):
                import no_such_module
                lock, log
                return f, lib, s, big, config, open("weights")
            """
        listed = dict(found(source).not_compared)
        self.assertEqual(listed, {"program.f": "an open file",
                                  "program.lib": "code or data of a C library",
                                  "program.s": "an object of socket.socket",
                                  "program.config.where": "an object of socket.socket",
                                  "program.big": "it is too large",
                                  "program.build": "what it reads from files: open",
                                  "no_such_module": "a module that is not installed here"})
        self.differs(source, source.replace('"a": 1', '"a": 2'), "py.value.program.config")

    def test_no_code_of_the_program_runs(self):
        source = """
            class Trap:
                def __getattr__(self, name): raise SystemExit(name)
                def __eq__(self, other): raise SystemExit
                def __hash__(self): raise SystemExit
                __iter__ = __repr__ = __str__ = __len__ = __bool__ = __int__ = __hash__
                __class__ = property(__hash__)
                value = property(__hash__)
            class Numbers(dict):
                __iter__ = items = keys = Trap.__hash__
            trap, weights = Trap(), Numbers(a=1)
            def build(c): return trap.value, weights
            """
        self.differs(source, source.replace("a=1", "a=2"), "py.value.program.weights")

    def test_odd_objects_are_listed(self):
        source = """
            import functools
            class Node:
                def __init__(self, next): self.next = next
            node, nodes, deep = None, [], []
            for _ in range(300): node = Node(node)
            for _ in range(100000): deep = [deep]
            round = functools.partial(print)
            round.__setstate__((round, (), {}, {}))
            def wrap(f):
                def inner(c): return f(c)
                return inner
            def build(c): return node
            for _ in range(2000): build = wrap(build)
            def other(c): return deep, node
            """
        self.assertEqual(dict(foundry.identify(module(source).other).not_compared),
                         {"program.deep": "it is too large"})
        self.assertEqual(foundry.identify(module(source).build).not_compared, [])
        self.assertEqual(dict(foundry.identify(module(source).round).not_compared),
                         {"capture": "RecursionError when it was looked at"})

    def test_facts_hold_no_secrets(self):
        said = str(found("TOKEN = 'hunter2'\ndef build(c, key=b'hunter2'): return TOKEN"))
        self.assertIn("py.value.program.TOKEN", said)
        self.assertNotIn("hunter2", said)

    def test_many_functions_share_a_fact(self):
        source = "".join(f"def f{i}(): return {i}\n" for i in range(400))
        source += "def build(c): return " + ", ".join(f"f{i}()" for i in range(400))
        self.assertLess(len(found(source).facts), 300)
        self.differs(source, source.replace("return 399\n", "return 1\n"), "py.more")
        self.differs(source, source.replace("return 5\n", "return 1\n"), "py.code.program.f5")

    def test_facts_and_manual(self):
        build = module("X = 1\ndef build(c): return X").build
        self.assertEqual(foundry.identify(build,
                                          {"py.value.program.X": "any",
                                           "rank": 3}).facts["py.value.program.X"], "any")
        self.assertEqual(foundry.identify(build, {"rank": 3}).facts["rank"], "3")
        self.assertEqual(foundry.identify(build, {"rank": 3}, automatic=False).facts, {"rank": "3"})
        self.assertEqual(foundry.identify(None, {"rank": 3}).facts, {"rank": "3"})

    def test_equal_in_every_process(self):
        with tempfile.TemporaryDirectory() as folder:
            said = []
            for place, seed, first in (("one", "1", ""), ("two", "2", ""),
                                       ("three", "3", "import later, late.inner")):
                os.makedirs(os.path.join(folder, place, "late"))
                imports = "import late.inner; from later import X"
                for name, source in (("mixed.py", MIXED.replace("IMPORTS", imports)),
                                     ("later.py", "X = 1\n"), ("late/__init__.py", ""),
                                     ("late/inner.py", "from . import other\n"),
                                     ("late/other.py", "Y = 2\n")):
                    with open(os.path.join(folder, place, name), "w", encoding="utf-8") as f:
                        f.write(source)
                said.append(python(
                    f"{first}\nimport foundry, mixed, sys; print(foundry.identify(mixed.build)); "
                                   "assert bool(sys.argv[1:]) == ('late' in sys.modules)",
                    *first.split()[:1],
                                   PYTHONHASHSEED=seed, PYTHONPATH=os.path.join(folder, place)))
            self.assertEqual(len(set(said)), 1, "\n".join(said))
            for name in ("mixed.Block.forward", "later", "late", "late.inner", "late.other"):
                self.assertIn(f"py.code.{name} = ", said[0])

    def test_modules_that_were_edited_after_they_were_imported(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "edited.py")
            with open(path, "w", encoding="utf-8") as f:
                f.write("X = 1\n")
            said = python(
                "import foundry, sys\ndef build(c): import edited\nold = "
                "foundry.identify(build)\nimport edited\n"
                          "assert foundry.identify(build).facts == old.facts\n"
                          "open(edited.__file__, 'w').write('X = 22\\n')\nnew = "
                          "foundry.identify(build)\n"
                          "print(new.facts['py.code.edited'], new.facts['py.value.edited.X'])",
                PYTHONPATH=folder)
            self.assertRegex(said, "^[0-9a-f]{16}-edited 1$")

    def test_modules_that_were_edited_before_the_first_identity(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "edited.py")
            with open(path, "w", encoding="utf-8") as f:
                f.write("X = 1\n")
            said = python(
                "import foundry, edited, time\n"
                "def build(c): import edited\n"
                "time.sleep(0.1)\n"  # times of files have ticks of up to 10 ms
                "open(edited.__file__, 'w').write('X = 22\\n')\n"
                "new = foundry.identify(build)\n"
                "print(new.facts['py.code.edited'], new.facts['py.value.edited.X'])",
                PYTHONPATH=folder)
            self.assertRegex(said, "^[0-9a-f]{16}-edited 1$")

    def test_packages(self):
        with tempfile.TemporaryDirectory() as folder:
            site = os.path.join(folder, "site-packages")

            def install(version):
                for name, files in (("fake_engine",
                                     {"__init__.py": "from ._c import run\n",
                                      "_c.py": f"def run(): return '{version}'\n"}),
                                    ("torch", {"__init__.py": "raise SystemExit('imported')\n",
                                               "version.py": "cuda: Optional[str] = '13.0'\n"}),
                                    ("provided", {"__init__.py": ""}),
                                    (f"torch-{version}.dist-info", {}),
                                    (f"fake_engine-{version}.dist-info", {}),
                                    ("nvidia_cudnn_cu13-9.1.dist-info", {}),
                                    ("another_name-7.dist-info",
                                     {"RECORD": "provided/__init__.py,,\n"})):
                    os.makedirs(os.path.join(site, name), exist_ok=True)
                    for file, text in files.items():
                        with open(os.path.join(site, name, file), "w", encoding="utf-8") as f:
                            f.write(text)

            def facts():
                return json.loads(
                    python("import foundry, json\nfrom fake_engine import run\ndef build(c):\n "
                           "import provided, torch\n return run()\n"
                                         "print(json.dumps(foundry.identify(build).facts))",
                           PYTHONPATH=site))
            install("1.0")
            old = facts()
            packages = {k: v for k, v in old.items() if k.startswith("py.package.")}
            self.assertEqual(packages, {"py.package.another-name": "7",
                                        "py.package.fake-engine": "1.0", "py.package.torch": "1.0",
                                        "py.package.torch.cuda": "13.0",
                                        "py.package.nvidia-cudnn-cu13": "9.1"})
            for name in ("torch", "fake_engine"):
                os.rename(os.path.join(site, f"{name}-1.0.dist-info"),
                          os.path.join(site, f"{name}-2.0.dist-info"))
            new = facts()
            self.assertEqual({k for k in new if new[k] != old[k]},
                             {"py.package.torch", "py.package.fake-engine"})


def python(code, *args, **env):
    env["PYTHONPATH"] = os.pathsep.join([env.get("PYTHONPATH", ""), *sys.path])
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True,
                          check=False, env={**os.environ, **NO_BYTECODE, **env})
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout.strip()


def start(store, options):
    """Starts the program once and returns its result as JSON."""
    import model
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            how = foundry.load_or_capture("m", capture=model.build, store=store, wait=0, **options)
        except foundry.Error as e:
            return {"error": e.name, "why": str(e)}
    said = {"captured": how.captured, "id": how.id, "text": str(how), "warning": how.warning,
            "warned": [str(w.message) for w in warned],
            "unused": [(u.error, u.field, u.why) for u in how.unused]}
    if how.image:
        how.image.close()
    return said


class Starts(unittest.TestCase):
    """The program that captured an image uses it, and no other program does."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.store = os.path.join(self.folder.name, "store")

    def start(self, source, **options):
        with open(os.path.join(self.folder.name, "model.py"), "w", encoding="utf-8") as f:
            f.write(source)
        return json.loads(
            python(f"import sys; sys.path.insert(0, {HERE!r})\nimport json, test_identity as t\n"
                                 f"print(json.dumps(t.start({self.store!r}, {options!r})))",
                   PYTHONPATH=self.folder.name))

    def load(self, source, **options):
        """Does the same in this process, which captures nothing."""
        module(source, "model")
        return start(self.store, options)

    def show(self, *words):
        done = subprocess.run([os.path.join(os.environ.get("BUILD", "build"), "foundry-store"),
                               "-s", self.store, *words],
                              capture_output=True, text=True, check=True)
        return done.stdout

    def test_yesterdays_image(self):
        first = self.start(MODEL)
        self.assertTrue(first["captured"])
        self.assertIn("compared: ", first["text"])
        commented = MODEL.replace("def build", "# a comment\ndef build")
        self.assertFalse(self.load(commented)["captured"])
        second = self.start(MODEL.replace("SCALE * i", "SCALE + i"))
        self.assertTrue(second["captured"])
        self.assertEqual(second["unused"][0][:2], ["FDRY_E_IDENTITY", "py.code.model.weights"])
        self.assertIn("the code of model.weights has changed", second["unused"][0][2])
        third = self.start(MODEL.replace("SCALE = 2", "SCALE = 3"))
        self.assertEqual(third["unused"][0][1], "py.value.model.SCALE")
        self.assertEqual(self.load(MODEL)["id"], first["id"])
        self.assertRegex(self.show("show", first["id"]),
                         r"fact py\.code\.model\.build = [0-9a-f]{16}\n(.*\n)*fact "
                         r"py\.value\.model\.SCALE = 2")
        strict = self.load(MODEL.replace("SCALE = 2", "SCALE = 4"), strict=True)
        self.assertEqual(strict["error"], "FDRY_E_IDENTITY")

    def test_parameters_that_no_fact_covers(self):
        first = self.start(CONST)
        self.assertTrue(first["captured"])
        said = ("the image holds parameters as content (1 tensor, 4000 bytes), "
                "and no fact identifies them")
        for how in (first, self.load(CONST)):
            self.assertIn(said, how["warning"])
            self.assertIn(f"warning: {said}", how["text"])
            self.assertIn(said, how["warned"][0])
        refused = self.load(CONST, strict=True)
        self.assertEqual(refused["error"], "FDRY_E_IDENTITY")
        self.assertIn(said, refused["why"])
        self.assertEqual(self.load(CONST, strict=True, facts={"rank": 0})["error"],
                         "FDRY_E_IDENTITY")
        covered = self.start(CONST, facts={"model_revision": "7"})
        self.assertTrue(covered["captured"])
        self.assertEqual((covered["warning"], covered["warned"], covered["unused"][0][1]),
                         ("", [], "model_revision"))
        self.assertEqual(self.load(CONST, strict=True, facts={"model_revision": "7"})["id"],
                         covered["id"])

    def test_parameters_from_outside_need_no_fact(self):
        self.assertEqual(self.start(EXTERNAL)["warned"], [])
        self.assertEqual(self.load(EXTERNAL, strict=True)["warned"], [])

    def test_facts_alone(self):
        first = self.start(CONST, identity="manual", facts={"rank": 1})
        self.assertEqual((first["captured"], first["warned"]), (True, []))
        self.assertNotIn("fact py.", self.show("show", "m"))
        again = self.load(CONST.replace("SCALE = 2", "SCALE = 3"), identity="manual",
                          facts={"rank": 1})
        self.assertEqual((again["captured"], again["id"]), (False, first["id"]))
        found = self.load(CONST, facts={"rank": 1, "revision": 1}, strict=True)
        self.assertEqual(found["error"], "FDRY_E_IDENTITY")
        found = self.load(CONST, facts={"rank": 1}, strict=True)
        self.assertIn("the image does not state which code captured it", found["why"])
        self.assertIn("identity='manual'", found["why"])
        with self.assertRaises(ValueError):
            foundry.load_or_capture("m", identity="none", store=self.store)


if __name__ == "__main__":
    suite.main()
