# SPDX-License-Identifier: Apache-2.0
"""Tests of the facts about values that other values, decorators, kernels and modules hold."""
import json
import os
import sys
import tempfile
import textwrap

import suite
import foundry
import test_identity
from test_identity import changed, found, module, python


class Held(test_identity.Facts):
    """Tests that no change of a value inside of another one is missed."""

    def test_values_whose_names_become_equal(self):
        partials = ("import functools\ndef f(n): return n\nP = functools.partial\nclass C:\n"
                    " a = staticmethod(P(f, 1))\n b = staticmethod(P(f, X))\n"
                    " c = staticmethod(P(f, Y))\ndef build(c): return C.b(), C.c()")
        getters = ("import operator\nclass C:\n a = property(operator.attrgetter('f1'))\n"
                   " b = property(operator.attrgetter('fX'))\n"
                   " c = property(operator.attrgetter('fY'))\ndef build(c): return C()")
        # keys of facts have ASCII letters only
        greek = "α, β, γ = 1, X, Y\ndef build(c): return α, β, γ"
        fields = ("class O: pass\no = O(); o.α, o.β, o.γ = 1, X, Y\n"
                  "def build(c): return o.α, o.β, o.γ")
        lists = ("class L(list): pass\nα, β, γ = L([1]), L([X]), L([Y])\n"
                 "def build(c): return α, β, γ")
        for source in (partials, getters, greek, fields, lists):
            with self.subTest(source):
                one, two = (found(source.replace("X", x).replace("Y", y)) for x, y in ("12", "21"))
                self.assertNotEqual(one.facts["py.all"], two.facts["py.all"])
                self.assertEqual(one.not_compared, [])

    def test_sets_have_no_order(self):
        source = """
            import contextlib, functools
            def one(): yield 1
            def two(): yield 2
            def three(): yield 3
            made = [one, two, three]
            caches = {functools.lru_cache(f) for f in made}
            contexts = {contextlib.contextmanager(f) for f in made}
            def build(c): return caches, contexts
            """
        # the addresses of functions are their hashes
        said = [(found(source).facts["py.all"], [object() for _ in range(i * 37)])
                for i in range(20)]
        self.assertEqual(len({each for each, _ in said}), 1)

    def test_everything_that_a_value_holds(self):
        for source in (
                "class P(property):\n def __get__(s, o, t=None): return 2\n"
                "class C:\n @P\n def k(s): return 1\ndef build(c): return C().k",
                "import functools\nclass P(functools.partial):\n def __call__(s): return 2\n"
                "p = P(int, 4)\ndef build(c): return p",
                "import functools\np = functools.partial(int, 4)\np.k = 2\n"
                "def build(c): return p",
                "import functools\np = functools.partial(int, 4)\np.k = 2\nL = [p]\n"
                "def build(c): return L",
                "import functools\n@functools.lru_cache()\ndef f(): return 1\nf.k = 2\n"
                "def build(c): return f.k",
                "import contextvars\nP = contextvars.ContextVar('P', default='2')\n"
                "def build(c): return P.get()",
                "import contextvars\nP = contextvars.ContextVar('P', default=1)\nP.set(2)\n"
                "def build(c): return P.get()",
                "import weakref\nclass A: pass\na = A(); a.k = 2\nR = weakref.ref(a)\n"
                "def build(c): return R().k",
                "import collections\nQ = collections.deque([1], maxlen=2)\ndef build(c): return Q",
                "M = memoryview(bytes(6)).cast('B', (2, 6 // 2))\ndef build(c): return M",
                "import enum\nclass K(enum.Enum):\n A = 1\n @property\n"
                " def _scale(s): return 2\ndef build(c): return K.A._scale",
                "import enum, types\nclass K(enum.Enum):\n A = 1\n @types.DynamicClassAttribute\n"
                " def scale(s): return 2\ndef build(c): return K.A.scale",
                "import enum\nclass K(enum.Enum):\n A = 1\n @classmethod\n"
                " def _missing_(cls, v): return 2\ndef build(c): return K(5)",
                "import enum\nclass K(enum.Enum):\n A = 1\nK.A.k = 2\ndef build(c): return K.A.k",
                "import enum\nclass K(enum.Enum):\n A = 1\nK.A.k = 2\nk = [K.A]\n"
                "def build(c): return k"):
            with self.subTest(source):
                one, two = found(source), found(source.replace("2", "3"))
                self.assertNotEqual(one.facts["py.all"], two.facts["py.all"])
                self.assertEqual(one.not_compared, [])
        for source in (
                "import itertools\nit = itertools.repeat(2)\ndef build(c): return next(it)",
                "import threading\nit = threading.local()\ndef build(c): return it.k",
                "import weakref\nit = weakref.WeakValueDictionary()\ndef build(c): return it[0]",
                "class it(bytearray): pass\nit = [it(b'1')]\ndef build(c): return it"):
            with self.subTest(source):
                self.assertRegex(found(source).not_compared[0].name, r"^program.it(\.0)?$")

    def test_hooks_of_modules(self):
        module("""
            __version__ = "1.5"
            class Module:
                def __init__(self):
                    self._parameters, self._buffers, self._modules = {}, {}, {}
                    self._forward_hooks, self._forward_pre_hooks = {}, {}
            """, "fake_package", "/elsewhere/site-packages/fake_package.py")
        source = """
            from fake_package import Module
            model = Module()
            model.NAME[7] = lambda x: x * 2
            def build(c): return model
            """
        for name in ("_forward_hooks", "_forward_pre_hooks"):
            hooked = source.replace("NAME", name)
            self.differs(hooked, hooked.replace("x * 2", "x * 3"), "py.code.program.lambda")
            self.same(hooked, hooked.replace("[7]", "[8]"))
            self.assertNotEqual(found(hooked).facts,
                                found(source.replace("model.NAME", "{}")).facts)

    def test_settings_that_decorators_and_kernels_hold(self):
        module("""
            import functools, socket
            __version__ = "1.5"
            class autocast:
                def __init__(self, dtype): self.dtype = dtype
                def __call__(self, f):
                    @functools.wraps(f)
                    def decorated(*args):
                        with self: return f(*args)
                    return decorated
            def wrap(f, **more):
                def inner(*args, f=f): return f(*args)
                inner.more = more
                return inner
            def around(f, socket=socket.socket):
                def inner(): return f(), held
                held = socket()
                held.close()
                return inner
            class jit:
                def __init__(self, fn, warps=4, constants=None):
                    self.fn, self.warps, self.constants, self.hash = fn, warps, constants, None
                    self.device_caches = {}
                    self.listed = socket.socket()
                    self.listed.close()
                def __call__(self): return self.fn()
            """, "fake_package", "/elsewhere/site-packages/fake_package.py")
        head = textwrap.dedent("""
            import contextlib, functools, re
            from fake_package import around, autocast, jit, wrap
            class scaled(contextlib.ContextDecorator):
                def __init__(self, k): self.k = k
                def __enter__(self): pass
                def __exit__(self, *args): pass
            class F:
                def __init__(self, k): self.k = k
                def __call__(self): return self.k
            def f(): return 1
            """)
        for made, *keys in (
                ("scaled(2)(f)", "py.value.contextlib.ContextDecorator.__call__.inner.self.k"),
                ("autocast('2')(f)", "py.code.program.build"),
                ("wrap(F(2))", "py.value.fake_package.wrap.inner.f.k"),
                ("wrap(f, warps=2)", "py.code.program.build"),
                ("jit(f, warps=2)", "py.code.program.build"),
                ("jit(f, constants={'BLOCK': 2})", "py.code.program.build"),
                ("jit(f, constants=F(2))", "py.value.fake_package.jit.constants.k"),
                ("[wrap(f, warps=n) for n in (1, 2, 3 - 2)]", "py.value.program.it"),
                ("re.compile('2').match", "py.code.program.build"),
                ("range(2).__getitem__", "py.code.program.build"),
                ("F(2).__call__.__call__", "py.code.program.build")):
            with self.subTest(made):
                source = head + "it = " + made + "\ndef build(c): return it"
                said = changed(source, source.replace(made, made.replace("2", "3")))
                self.assertEqual(said, keys)
                self.assertEqual([name for name, _ in found(source).not_compared],
                                 ["fake_package.jit.listed"] * ("jit" in made))
        source = head + "it = around(f)\ndef build(c): return it"
        self.assertEqual(found(source).not_compared,
                         [("fake_package.around.inner.held", "an object of socket.socket")])
        made = module(head + "it = jit(f)\ndef build(c): return it")
        fresh = foundry.identify(made.build).facts
        made.it.hash, made.it.device_caches[0] = "0123", made.it.listed
        made.it.binder = lambda: 1
        self.assertEqual(foundry.identify(made.build).facts, fresh)

    def test_modules_inside_of_modules_that_are_handed_on(self):
        inner = "def f(): return 1"
        source = """
            import helping
            def run(m): return m.inner.f()
            def build(c): return run(helping)
            """
        module("", "helping").inner = module(inner, "helping.inner")
        old = found(source).facts
        sys.modules["helping"].inner = module(inner.replace("1", "2"), "helping.inner")
        self.assertNotEqual(found(source).facts, old)
        made = module("def __getattr__(name): return 1", "helping")
        source = "import helping\ndef build(c): return helping.any"
        self.assertIn("py.code.helping.__getattr__", found(source).facts)
        self.assertNotIn("py.code.helping.__getattr__",
                         found("import helping\nf = lambda: 1\ndef build(c): return f").facts)
        del made.__getattr__

    def test_values_that_were_bound_after_a_lazy_import(self):
        files = {"conf.py": "import os\nSCALE, LAYERS = 1, 2\nSCALE = 1\nDTYPE = 'f16'\n"
                            "SIZES = {'k': [1, 2]}\nHOME = os.getcwd()\ndef f(): return 1\n",
                 "parts/__init__.py": "", "parts/conf.py": "SCALE: int = -1\n",
                 "program.py": "def build(c):\n from conf import DTYPE, SIZES, f\n"
                               "def other(c):\n import conf, parts.conf\n"
                               " return conf.DTYPE, conf.HOME, parts.conf.SCALE\n"
                               "def third(c):\n from parts import conf\n return conf.SCALE\n"}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                    f.write(text)
            said = json.loads(python("""if True:
                import foundry, json, program
                def differ(name, **bound):
                    f = getattr(program, name)
                    old = foundry.identify(f)
                    for module, name, value in bound.values():
                        then = getattr(module, name)
                        setattr(module, name, value)
                        new = foundry.identify(f)
                        setattr(module, name, then)
                        yield [key for key in new.facts if new.facts[key] != old.facts.get(key)]
                first = [foundry.identify(f).facts for f in (program.build, program.third)]
                import conf, parts.conf
                assert first == [foundry.identify(f).facts for f in (program.build, program.third)]
                print(json.dumps([*differ("build", a=(conf, "DTYPE", "f32"),
                                          b=(conf, "SIZES", {"k": [1, 3]}), c=(conf, "LAYERS", 3)),
                                  *differ("other", a=(conf, "DTYPE", "f32"),
                                          b=(parts.conf, "SCALE", 1)),
                                  *differ("third", a=(parts.conf, "SCALE", 1)),
                                  foundry.identify(program.build).not_compared,
                                  foundry.identify(program.other).not_compared]))
                """, PYTHONPATH=folder))
            dtype, sizes, scale = (["py.value." + name, "py.all"]
                                   for name in ("conf.DTYPE", "conf.SIZES", "parts.conf.SCALE"))
            computed = "its module computes it"
            self.assertEqual(said, [dtype, sizes, [], dtype, scale, scale, [],
                                    [["conf.HOME", computed], ["conf.SCALE", computed]]])

    def test_settings_of_torch(self):
        with tempfile.TemporaryDirectory() as folder:
            site = os.path.join(folder, "site-packages")
            os.makedirs(os.path.join(site, "torch-2.0.dist-info"))
            with open(os.path.join(site, "torch.py"), "w", encoding="utf-8") as f:
                f.write(textwrap.dedent("""
                    import types
                    precision = ["highest"]
                    def get_float32_matmul_precision(): return precision[0]
                    matmul = types.SimpleNamespace(allow_tf32=False)
                    backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=matmul))
                    """))
            said = json.loads(python("""if True:
                import foundry, json
                def build(c): import torch
                def facts(): return foundry.identify(build).facts
                found = [facts()]
                import torch
                found.append(facts())
                torch.precision[0] = "high"
                found.append(facts())
                torch.matmul.allow_tf32 = True
                print(json.dumps([*(each["py.torch"] for each in (*found, facts())),
                                  found[0] == found[1], "py.torch" in
                                  foundry.identify(lambda c: 1).facts]))
                """, PYTHONPATH=site))
            self.assertEqual(said, ["defaults", "defaults", "get_float32_matmul_precision high",
                                    "get_float32_matmul_precision high, cuda.matmul.allow_tf32 "
                                    "True", True, False])


if __name__ == "__main__":
    suite.main()
