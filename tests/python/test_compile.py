# SPDX-License-Identifier: Apache-2.0
"""Tests foundry.compile() on the software driver.

A small array library takes torch's place; every script is a process of its own.
"""
import os
import shutil
import textwrap

import suite
from torch_scripts import HERE, Folder

# x + weight + bias, in a dict; `kind` selects what a graph cannot repeat.
MODEL = """\
import array, collections, dataclasses, random, sys, warnings
import foundry
import torch
torch.cuda.init()
Pair = collections.namedtuple("Pair", "first second")
@dataclasses.dataclass
class Result:
    sums: object
    pair: Pair
    word: str = "yes"
class Net(torch.nn.Module):
    def __init__(self, kind=""):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((100,), 2.0))
        self.register_buffer("bias", torch.full((100,), 0.5))
        self.kind, self.calls = kind, 0
    def forward(self, x, y=None, scale=1.0):
        z = x + self.weight
        if y is not None:
            z = z + y["add"][0]
        return getattr(self, self.kind, self.plain)(x, z, scale)
    def plain(self, x, z, scale):
        sums = z + self.bias
        return Result(sums, Pair(z, [sums, None, 7]))
    def branch(self, x, z, scale):
        return z if z.item() > 0 else x
    def random(self, x, z, scale):
        return z.mul_(random.random())
    def counter(self, x, z, scale):
        self.calls += 1
        return z
    def argument(self, x, z, scale):
        return x.mul_(2.0)
    def parameter(self, x, z, scale):
        self.weight.mul_(2.0)
        return z
    def buffer(self, x, z, scale):
        self.bias.mul_(2.0)
        return z + self.bias
    def unknown(self, x, z, scale):
        return {"z": z, "more": object()}
    def hidden(self, x, z, scale):
        vars(self).setdefault("state", []) or self.state.append(torch.full((100,), 0.0))
        self.state[0].copy_(self.state[0] + x)
        return self.state[0] + x
    def changed(self, x, z, scale):
        return x + vars(self).setdefault("twice", self.weight + self.weight)
def made(kind=""):
    return Net(kind).eval()
def full(value, n=100):
    return torch.full((n,), value)
def host(value, n=100):
    return memoryview(array.array("f", [value] * n))
def values(tensor):
    found = set(tensor.tolist())
    assert len(found) == 1, found
    return found.pop()
def said(call):
    with warnings.catch_warnings(record=True) as found, torch.no_grad():
        warnings.simplefilter("always")
        result = call()
    return result, [str(w.message) for w in found]
def begin(model, *examples, ref="net", **how):
    fast, found = said(lambda: foundry.compile(model, list(examples) or full(1.0), ref=ref,
                                               store="store", **how))
    assert not found, found
    return fast
def fails(says, call):
    try:
        call()
    except foundry.Error as e:
        assert says in str(e), e
    else:
        raise AssertionError(says)
"""


class Script(Folder):
    """A test whose scripts begin with MODEL."""

    def setUp(self):
        super().setUp()
        # Torch is an installed package, whose functions count by its version.
        site = self.path("site-packages")
        os.makedirs(os.path.join(site, "torch-2.11.0.dist-info"))
        shutil.copy(os.path.join(HERE, "stand_in", "torch.py"), site)
        with open(os.path.join(site, "torch-2.11.0.dist-info", "METADATA"), "w",
                  encoding="ascii") as f:
            f.write("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n")

    def go(self, text, *words):
        begin = f"import sys; sys.path.insert(0, 'site-packages'); sys.argv[1:] = {list(words)}\n"
        return self.script(begin + MODEL + textwrap.dedent(text))

    def both(self, text):
        """Runs a script twice; its first process captures, its second loads."""
        return [self.go(text, "captured"), self.go(text, "loaded")]


class Compile(Script):
    def test_captured_then_loaded(self):
        found = self.both("""
            fast = begin(made())
            assert (fast.image is None) == ("captured" in sys.argv), fast
            assert sys.argv[1] in repr(fast), repr(fast)
            page = fast._repr_html_()
            assert sys.argv[1] in page and "x float32[100]" in page, page
            page = fast.start.identity._repr_html_()
            assert "<td" in page and next(iter(fast.start.identity.facts)) in page, page
            result, found = said(lambda: fast(full(3.0)))
            again, more = said(lambda: fast(x=full(5.0)))
            assert not found + more and isinstance(result, Result), found
            assert result.word == "yes" and type(result.pair) is Pair, result
            assert result.pair.second[1:] == [None, 7] and result.pair.second[0] is result.sums
            print(values(result.sums), values(result.pair.first), values(again.sums))
            """)
        self.assertEqual(found, ["5.5 5.0 7.5"] * 2)

    def test_several_shapes_and_other_arguments(self):
        found = self.both("""
            examples = [full(1.0), full(1.0, 64), {"x": full(1.0), "y": {"add": [full(1.0)]}}]
            model = made()
            model.weight.data = full(2.0, 100)
            del examples[1]
            fast = begin(model, *examples)
            (a, b), found = said(lambda: (fast(full(1.0)),
                                          fast(full(1.0), {"add": [full(10.0)]})))
            assert not found, found
            print(values(a.sums), values(b.sums))
            c, found = said(lambda: [fast(full(1.0), scale=2.0) for _ in range(3)])
            assert len(found) == 1 and "no graph was captured for x float32[100], scale 2.0" in (
                found[0]), found
            assert [values(r.sums) for r in c] == [3.5] * 3
            d, found = said(lambda: fast(full(1.0), None, 1.0))  # what the defaults are
            assert not found and values(d.sums) == 3.5
            """)
        self.assertEqual(found, ["3.5 13.5"] * 2)

    def test_parameters_by_reference(self):
        self.both("""
            model = made()
            fast = begin(model)
            with torch.no_grad():
                assert values(fast(full(1.0)).sums) == 3.5
                model.weight.fill_(10.0)
                model.bias.fill_(1.0)
                assert values(fast(full(1.0)).sums) == values(model(full(1.0)).sums) == 12.0
                fast.close()
                assert values(model(full(1.0)).sums) == 12.0
            r, found = said(lambda: fast(full(1.0)))
            assert values(r.sums) == 12.0 and "it was closed" in found[0], found
            """)
        # Other parameters than at the capture: the graph is compared with the model once.
        self.go("""
            model = made()
            model.weight.fill_(7.0)
            fast = begin(model)
            assert fast.image and fast.calls[0].unverified
            r, found = said(lambda: fast(full(1.0)))
            assert values(r.sums) == 8.5 and not found and not fast.calls[0].unverified
            """)

    def test_parameters_in_the_image(self):
        text = """
            model = made()
            model.weight.fill_(float(sys.argv[2]))
            fast = begin(model, parameters="image")
            assert sys.argv[1] in repr(fast), (fast, fast.start)
            with torch.no_grad():
                assert values(fast(full(1.0)).sums) == float(sys.argv[2]) + 1.5
                model.weight.fill_(30.0)
                assert values(fast(full(1.0)).sums) == 31.5
            """
        for how, weight in (("captured", "2"), ("loaded", "2"), ("captured", "4"), ("loaded", "2"),
                            ("loaded", "4")):
            self.go(text, how, weight)

    def test_values_that_were_computed_from_parameters(self):
        self.go("""
            fast = begin(made("changed"))
            with torch.no_grad():
                assert values(fast(full(1.0))) == 5.0
            """)
        self.go("""
            model = made("changed")
            model.weight.fill_(3.0)
            fast = begin(model)
            r, found = said(lambda: fast(full(1.0)))
            assert fast.image and values(r) == 7.0 and len(found) == 1, (fast, found)
            assert "with the present parameters its graph gives other results" in found[0], found
            """)

    def test_buffers_that_the_forward_changes(self):
        self.assertEqual(self.both("""
            model = made("buffer")
            fast = begin(model)
            with torch.no_grad():
                found = [values(fast(full(1.0))) for _ in range(3)]
            print(found, values(model.bias))
            """), ["[4.0, 5.0, 7.0] 4.0"] * 2)
        self.go("""
            fast, found = said(lambda: foundry.compile(made("buffer"), full(1.0), ref="b",
                                                       store="store", parameters="image"))
            assert "changes the buffer 'bias'; parameters='reference' permits" in found[0], found
            with torch.no_grad():
                assert values(fast(full(1.0))) == 4.0
            """)

    def test_models_that_no_graph_can_repeat_run_natively(self):
        self.go("""
            for kind, reason, value in (
                    ("branch", "waits for the GPU", 3.0), ("counter", "attribute Net.calls", 3.0),
                    ("random", "random numbers on the host", None),
                    ("argument", "changes an argument", 2.0),
                    ("parameter", "changes the parameter 'weight'", None),
                    ("unknown", "'more' is a builtins.object", None),
                    ("hidden", "differs from the model's own", None)):
                model = made(kind)
                fast, found = said(lambda: foundry.compile(model, full(1.0), ref=kind,
                                                           store="store"))
                assert len(found) == 1 and reason in found[0], (kind, found)
                assert reason in fast.reason
                r, found = said(lambda: fast(full(1.0)))
                assert not found and (value is None or values(r) == value), (kind, found)
                assert "native: " in repr(fast) and fast.start is None
                assert "native" in fast._repr_html_() and "<td" in fast._repr_html_()
            assert model.calls == 0
            """)

    def test_hooks_and_replaced_parameters(self):
        self.go("""
            model = made()
            model._forward_hooks[0] = print
            fast, found = said(lambda: foundry.compile(model, full(1.0), ref="net", store="store"))
            assert "a Net of the model has a hook" in found[0], found
            """)
        self.go("""
            for change in (lambda m: setattr(m, "weight", torch.nn.Parameter(full(9.0))),
                           lambda m: setattr(m.weight, "data", full(9.0)),
                           lambda m: m._forward_hooks.update({0: print})):
                model = made()
                fast = begin(model, ref=f"net{id(change)}")
                change(model)
                r, found = said(lambda: fast(full(1.0)))
                assert len(found) == 1 and "was replaced after compile()" in found[0], found
                assert values(r.sums) == values(model(full(1.0)).sums)
            """)

    def test_watchers_of_all_calls(self):
        self.go("""
            from types import SimpleNamespace as Space
            hooks = Space(module=Space(_global_forward_hooks={0: print}))
            early = Space(module=Space(_global_forward_pre_hooks={0: print}))
            forward = Space(forward_ad=Space(_current_level=0))
            model = made()
            fast = begin(model)
            for owner, name, watcher, why in (
                    (torch.nn, "modules", hooks, "a hook of all modules"),
                    (torch.nn, "modules", early, "a hook of all modules"),
                    (torch, "autograd", forward, "forward-mode differentiation")):
                fast._said.clear()
                setattr(owner, name, watcher)
                r, found = said(lambda: fast(full(1.0)))
                late, at_once = said(lambda: foundry.compile(made(), full(1.0), ref="late",
                                                             store="store"))
                delattr(owner, name)
                assert len(found) == 1 and f"{why} would miss" in found[0], found
                assert values(r.sums) == values(model(full(1.0)).sums)
                assert len(at_once) == 1 and f"{why} would miss" in late.reason, late.reason
                r, found = said(lambda: fast(full(1.0)))
                assert not found, found
            """)

    def test_training_and_autograd_are_refused(self):
        self.go("""
            model = made()
            model.training = True
            fails("a Net of the model is in training mode", lambda: begin(model))
            model.eval()
            fast = begin(model)
            fails("autograd would record this call", lambda: fast(full(1.0)))
            model.training = True
            fails("is in training mode", lambda: fast(full(1.0)))
            """)

    def test_views(self):
        self.both("""
            fast = begin(made(), outputs="view")
            with torch.no_grad():
                a = fast(full(1.0)).sums
                assert values(a) == 3.5
                b = fast(full(2.0)).sums
                assert values(b) == values(a) == 4.5 and a.data_ptr() == b.data_ptr()
            if fast.image:
                del a, b
                fast.close()
            """)

    def test_another_model_is_captured_again(self):
        self.go("begin(made())")
        self.go("""
            fast = begin(made(), full(1.0), {"x": full(1.0), "scale": 3.0})
            assert fast.image is None and fast.start.unused[0].field == "compile.inputs"
            """)
        self.go("""
            class Net(Net):
                def plain(self, x, z, scale):
                    return x
            fast = begin(made())
            assert fast.image is None and fast.start.unused, fast.start
            assert values(fast.model(full(1.0))) == 1.0
            with torch.no_grad():
                result = fast(full(1.0))
            assert values(result) == 1.0
            """)
        self.go("""
            fast = begin(made(), ref="other", facts={"revision": 7})
            assert fast.image is None
            fails("revision", lambda: begin(made(), ref="other", facts={"revision": 8},
                                            strict=True))
            """)

    def test_a_loaded_image_is_called(self):
        self.go("""
            begin(made(), full(1.0), {"x": full(1.0), "y": {"add": [full(1.0)]}},
                  parameters="image")
            """)
        self.go("""
            image = foundry.load("net", store="store")
            found = image(host(3.0))
            assert values(found["sums"]) == 5.5 and found["word"] == "yes", found
            assert type(found["pair"]) is tuple and found["pair"][1][1:] == [None, 7], found
            assert values(image(x=host(4.0))["sums"]) == 6.5 and values(found["sums"]) == 5.5
            assert values(image(host(4.0), **{"y.add.0": host(10.0)})["sums"]) == 16.5
            for args, kwargs in (((), {}), ((host(1.0, 50),), {}), ((host(1.0),), {"z": 1}),
                                 ((host(1.0),), {"x": host(1.0)})):
                try:
                    image(*args, **kwargs)
                except TypeError as e:
                    assert "no graph of the image takes these arguments" in str(e), e
                else:
                    raise AssertionError((args, kwargs))
            """)

    def test_an_image_is_called_with_one_tensor_twice(self):
        self.go("""
            class Two(Net):
                def forward(self, a, b):
                    return a + b if a is b else a + self.weight
            one = full(1.0)
            begin(Two().eval(), (one, one), ref="same", parameters="image")
            begin(Two().eval(), (full(1.0), full(1.0)), ref="two", parameters="image")
            """)
        self.go("""
            def fails(says, *args, **kwargs):
                try:
                    image(*args, **kwargs)
                except TypeError as e:
                    assert says in str(e), e
                else:
                    raise AssertionError(says)
            a, b = host(4.0), host(5.0)
            image = foundry.load("same", store="store")
            assert values(image(a, a)) == values(image(a=a, b=a)) == 8.0
            fails("'b' must be the same tensor as 'a'", a, b)
            fails("its inputs are ['a', 'b']", a)
            image.close()
            image = foundry.load("two", store="store")
            assert values(image(a, b)) == 6.0
            fails("'a' and 'b' are the same tensor, and were two in the capture", a, b=a)
            """)

    def test_a_plain_image_is_called(self):
        self.go("""
            with foundry.Capture(name="sum") as capture:
                a, b = full(1.0), full(2.0)
                with capture.graph(1):
                    c = a + b
                for name, tensor, use in (("b", b, "input"), ("a", a, "input"), ("c", c, "output")):
                    capture.tensor(name, tensor, use=use)
                capture.seal("store", "sum")
                with capture.graph(2):
                    d = a + c
                capture.seal("store", "two")
            """)
        self.go("""
            image = foundry.load("sum", store="store")
            assert values(image(a=host(5.0), b=host(6.0))) == 11.0
            for error, call in (("have no order", lambda: image(host(1.0), host(2.0))),
                                ("has 2 graphs", lambda: foundry.load("two", store="store")())):
                if "2" in error:
                    image.close()
                try:
                    call()
                except TypeError as e:
                    assert error in str(e), e
                else:
                    raise AssertionError(error)
            """)

    def test_many_models_in_one_process(self):
        self.assertEqual(*self.both("""
            models = [made() for _ in range(24)]  # some names share a base
            for i, model in enumerate(models):
                model.weight.fill_(float(i))
            fasts = [begin(model, ref=f"net{i}") for i, model in enumerate(models)]
            with torch.no_grad():
                print([values(fast(full(1.0)).sums) for fast in fasts])
            """))

    def test_a_graph_that_cannot_be_sealed_is_not_used(self):
        self.go("""
            class Net(Net):
                def plain(self, x, z, scale):
                    return z + self.extra
            model = Net().eval()
            model.extra = full(5.0)  # no buffer, so its memory lies outside of the image
            fast, found = said(lambda: foundry.compile(model, full(1.0), ref="net", store="store"))
            assert len(found) == 1 and "outside the capture's region" in fast.reason, found
            with torch.no_grad():
                assert values(fast(full(1.0))) == 8.0
                model.extra = full(9.0)
                assert values(fast(full(1.0))) == 12.0
            """)

    def test_a_forward_that_is_compiled(self):
        self.both("""
            model = made()
            model.forward = fast = begin(model)
            r, found = said(lambda: values(model(full(1.0)).sums))
            assert (r, found) == (3.5, []), (r, found)
            r, found = said(lambda: model(full(1.0), scale=2.0))
            assert values(r.sums) == 3.5 and "no graph was captured" in found[0], found
            model.weight.fill_(4.0)
            with torch.no_grad():
                assert values(model(full(1.0)).sums) == 5.5
            try:
                foundry.compile(model, full(1.0), ref="again", store="store")
            except ValueError as e:
                assert "forward() is what compile() returned before" in str(e), e
            else:
                raise AssertionError("compiled twice")
            fast.close()
            assert values(said(lambda: model(full(1.0)))[0].sums) == 5.5
            """)
        self.go("""
            model = made()
            model.weight.fill_(8.0)
            model.forward = fast = begin(model)  # the first call compares it with the model
            assert fast.image and fast.calls[0].unverified
            assert said(lambda: values(model(full(1.0)).sums)) == (9.5, [])
            """)

    def test_close_beside_a_call(self):
        self.both("""
            import threading
            fast = begin(made())
            inside, go = threading.Event(), threading.Event()
            launch = fast.calls[0].launch
            def held(stream):
                inside.set()
                assert go.wait(20)
                launch(stream)
            fast.calls[0].launch = held
            x, found = full(1.0), []
            def run(function):
                torch._driver.call("cuCtxSetCurrent", torch._driver.ctx)
                function()
            def call():
                with torch.no_grad():
                    found.append(values(fast(x).sums))
            caller, closer = (threading.Thread(target=run, args=[f]) for f in (call, fast.close))
            caller.start()
            assert inside.wait(20)
            closer.start()
            closer.join(0.3)
            assert closer.is_alive()  # it waits for the call
            go.set()
            caller.join()
            closer.join()
            assert found == [3.5] and fast.image is None, found
            """)
        self.both("""
            fast = begin(made(), ref="found")
            find = fast._find
            def late(*args):  # close() comes between the search for a graph and its launch
                found = find(*args)
                fast.close()
                return found
            fast._find = late
            r, found = said(lambda: fast(full(1.0)))
            assert values(r.sums) == 3.5 and "it was closed" in found[0], found
            """)

    def test_close_beside_a_native_call(self):
        """It reads parameters in the image's memory, so close() waits; a call that begins while
        close() moves them waits, too.
        """
        self.both("""
            import threading
            model = made()
            fast = begin(model)
            inside, go, plain = threading.Event(), threading.Event(), model.plain
            def held(x, z, scale):
                inside.set()
                assert go.wait(20)
                return plain(x, z, scale)
            type(model).plain = staticmethod(held)
            moving, moved, unload = threading.Event(), threading.Event(), fast._unload
            def unloading():
                moving.set()
                assert moved.wait(20)
                unload()
            fast._unload = unloading
            found, x = [], full(1.0)
            warnings.simplefilter("ignore")
            def run(function):
                torch._driver.call("cuCtxSetCurrent", torch._driver.ctx)
                function()
            def call():
                with torch.no_grad():
                    found.append(values(fast(x, scale=2.0).sums))
            def thread(function):
                made = threading.Thread(target=run, args=[function])
                made.start()
                return made
            caller = thread(call)
            assert inside.wait(20)
            closer = thread(fast.close)
            closer.join(0.3)
            assert closer.is_alive() and not moving.is_set()
            go.set()
            caller.join()
            if "loaded" in sys.argv:
                assert moving.wait(20)
                late = thread(call)
                late.join(0.3)
                assert late.is_alive() and len(found) == 1, found
                moved.set()
                late.join()
            closer.join()
            assert set(found) == {3.5} and fast.image is None, found
            """)

    def test_calls_that_a_launch_would_miss(self):
        self.go("""
            fast, levels = begin(made()), [1, None]
            torch._C._len_torch_dispatch_stack = lambda: 1
            r, found = said(lambda: fast(full(1.0)))
            assert values(r.sums) == 3.5 and "a mode of torch's dispatcher" in found[0], found
            del torch._C._len_torch_dispatch_stack
            torch._C._functorch = types = type(sys)("functorch")
            types.maybe_current_level = lambda: levels[0]
            r, found = said(lambda: fast(full(1.0)))
            assert values(r.sums) == 3.5 and "a transform of torch.func" in found[0], found
            del levels[0]
            assert said(lambda: values(fast(full(1.0)).sums)) == (3.5, [])
            """)

    def test_changes_that_equality_does_not_see(self):
        """A zero of another sign, and a parameter that became a view which conjugates."""
        self.both("""
            model = made()
            model.shift = 0.0
            fast = begin(model)
            model.shift = 0.0 * 2
            assert said(lambda: values(fast(full(1.0)).sums)) == (3.5, [])
            model.shift = -0.0
            found = said(lambda: fast(full(1.0)))[1]
            assert "the attribute Net.shift was changed" in found[0], found
            model.shift = 0.0
            assert said(lambda: values(fast(full(1.0)).sums)) == (3.5, [])
            model.weight.is_conj = lambda: True
            found = said(lambda: fast(full(1.0)))[1]
            assert "a parameter, a module or a hook was replaced" in found[0], found
            """)

    def test_sparse_and_nested_tensors(self):
        self.go("""
            class Sparse(torch.Tensor):
                pass
            torch.Tensor.layout = property(lambda t: t.kind)
            torch.Tensor.kind = torch.strided
            model, x, y = made(), full(1.0), full(1.0)
            fast = begin(model, x)
            x.kind, y.is_nested = "torch.sparse_coo", True
            for given in x, y:
                fast._said.clear()
                r, found = said(lambda: fast(given))
                assert "argument x is a sparse or nested tensor" in found[0], found
                assert values(r.sums) == 3.5
            model.bias.kind = "torch.sparse_csr"
            fast, found = said(lambda: foundry.compile(model, full(1.0), ref="s", store="store"))
            assert "buffer 'bias' is torch.sparse_csr" in found[0], found
            """)

    def test_defaults_that_a_decorator_changes(self):
        self.both("""
            import functools
            def doubled(forward):
                @functools.wraps(forward)
                def changed(self, x, **kwargs):
                    return forward(self, x, **{"scale": 2.0, **kwargs})
                return changed
            class Net(Net):
                @doubled
                def forward(self, x, scale=1.0):
                    return x.clone().mul_(scale)
            fast = begin(Net().eval())
            assert said(lambda: values(fast(x=full(3.0)))) == (6.0, [])
            r, found = said(lambda: values(fast(full(3.0), scale=1.0)))
            assert r == 3.0 and "no graph was captured" in found[0], (r, found)
            class Claims(Net):
                def forward(self, x, scale=2.0):
                    return x.clone().mul_(scale)
                forward.__signature__ = __import__("inspect").signature(lambda x, scale=1.0: 0)
            fast = begin(Claims().eval(), ref="claims")
            r, found = said(lambda: values(fast(full(3.0), scale=1.0)))
            assert r == 3.0 and len(found) == 1, (r, found)
            """)
        self.go("""
            def decorator(forward):  # as torch.no_grad() is
                def call(*args, **kwargs):
                    return forward(*args, **kwargs)
                call.__wrapped__ = forward
                return call
            import types
            decorator = types.FunctionType(decorator.__code__, {"__name__": "torch.utils.x"})
            class Net(Net):
                forward = decorator(Net.forward)
            fast = begin(Net().eval())
            assert said(lambda: values(fast(x=full(3.0), scale=1.0).sums)) == (5.5, [])
            """)

    def test_inference_mode_at_the_start(self):
        self.both("""
            make, starts, model, x = torch.empty, [], made(), full(1.0)
            def empty(*args, **kwargs):
                made = make(*args, **kwargs)
                assert not starts or not made.is_inference(), "a tensor of inference mode"
                return made
            torch.empty = empty
            starts.append(1)
            with torch.inference_mode():
                fast = begin(model, x)
                starts.clear()
                assert said(lambda: values(fast(full(1.0)).sums)) == (3.5, [])
            """)

    def test_attributes_that_change(self):
        self.both("""
            class Net(Net):
                rate = 1.0
                def forward(self, x):
                    return x.clone().mul_(self.factor * self.rate)
            def check(*names):
                model = Net().eval()
                model.factor, model.note = 2.0, "a note"
                fast = begin(model, ref=f"{names[0][0]}/{len(names)}")
                for name, value, want, n in names:
                    fast._said.clear()
                    setattr(model, name, value)
                    r, found = said(lambda: values(fast(full(1.0))))
                    assert r == want and len(found) == n, (name, r, found)
                    assert not n or f"attribute Net.{name} was changed" in found[0], found
            check(("factor", 3.0, 3.0, 1), ("factor", 2.0, 2.0, 0))
            check(("rate", 3.0, 6.0, 1))  # hides the class's
            check(("factor", float("2"), 2.0, 0), ("cached", 1, 2.0, 0), ("cached", 2, 2.0, 1))
            check(("note", "another", 2.0, 1))
            """)

    def test_freed_tensors_are_not_in_the_image(self):
        self.go("""
            import ctypes
            fast = begin(made())
            pool, freed = fast._kept.pool.pool.id, 0
            for segment in torch.cuda.memory_snapshot():
                for block in segment["blocks"]:
                    if segment["segment_pool_id"] == pool and block["state"] == "inactive":
                        found = ctypes.create_string_buffer(block["size"])
                        torch._driver.call("cuMemcpyDtoH_v2", found,
                                           ctypes.c_uint64(block["address"]),
                                           ctypes.c_size_t(block["size"]))
                        assert not any(found.raw), hex(block["address"])
                        freed += block["size"]
            assert freed
            """)

    def test_a_failed_seal_ends_its_capture(self):
        self.go("""
            class Other(Net):
                def plain(self, x, z, scale):
                    return z + self.extra
            model = Other().eval()
            model.extra = full(5.0)
            fast, found = said(lambda: foundry.compile(model, full(1.0), ref="net", store="store"))
            assert "outside the capture's region" in fast.reason, found
            assert begin(made(), ref="next").image is None
            """)

    def test_random_numbers_of_several_models(self):
        self.assertEqual(*self.both("""
            class Net(Net):
                def plain(self, x, z, scale):
                    return z, torch.rand(40)
            generator, = torch.cuda.default_generators = (torch.Generator(),)
            old = torch.cuda.CUDAGraph()  # the state of its generator lies outside of all regions
            old.register_generator_state(generator)
            models = [Net().eval() for _ in range(2)]
            fasts = [begin(model, ref=f"net{i}") for i, model in enumerate(models)]
            def numbers(calls):
                generator.manual_seed(5)
                return [call(full(1.0))[1] for call in calls], generator.get_state()
            one, two = models
            with torch.no_grad():
                want, state = numbers([one, two, one, one, two])
                for calls in ([fasts[0], fasts[1], fasts[0], one, fasts[1]], fasts * 2 + fasts[1:]):
                    got, after = numbers(calls)
                    assert all(map(torch.equal, want, got)) and after == state, (after, state)
            generator.manual_seed(6)
            print(*(fast.start.captured for fast in fasts), file=open("how" + sys.argv[1], "w"))
            print(state, len(set(map(bytes, (t._bytes() for t in want)))))
            """))

    def test_a_method_of_a_model(self):
        self.both("""
            model = made()
            fast = begin(model.forward)
            fails("autograd would record this call", lambda: fast(full(1.0)))
            with torch.no_grad():
                assert values(fast(full(1.0)).sums) == 3.5
                model.weight.data = full(7.0)
                with warnings.catch_warnings(record=True) as found:
                    assert values(fast(full(1.0)).sums) == 8.5 and len(found) == 1
            """)

    def test_changes_that_keep_the_address_of_a_parameter(self):
        self.go("""
            model = made()
            fast = begin(model)
            model.weight.data = model.weight.data[0:50]
            r, found = said(lambda: fast(full(1.0)))
            assert len(found) == 1 and "was replaced after compile()" in found[0], found
            """)

    def test_the_same_tensor_twice(self):
        self.both("""
            class Net(Net):
                def forward(self, a, b):
                    return a + b if a is b else a + self.weight
            fast = begin(Net().eval(), (full(1.0), full(1.0)))
            a = full(3.0)
            assert said(lambda: values(fast(a, full(3.0)))) == (5.0, [])
            r, found = said(lambda: values(fast(a, a)))
            assert r == 6.0 and "b the same tensor as a" in found[0], (r, found)
            one = full(1.0)
            fast = begin(Net().eval(), (one, one), ref="same")
            assert said(lambda: values(fast(a, a))) == (6.0, [])
            r, found = said(lambda: values(fast(a, full(3.0))))
            assert r == 5.0 and len(found) == 1, (r, found)
            """)

    def test_results_whose_bits_are_to_be_negated(self):
        self.both("""
            class Net(Net):
                def plain(self, x, z, scale):
                    z.negated = True  # as of x.conj().imag
                    return z
            fast = begin(Net().eval())
            with torch.no_grad():
                assert values(fast(full(1.0)).resolve_neg()) == -3.0
            """)
        self.go("""
            model = made()
            model.bias.negated = True
            fast, found = said(lambda: foundry.compile(model, full(1.0), ref="n", store="store"))
            assert "'bias' is a view that conjugates or negates" in found[0], found
            """)

    def test_results_that_differ_from_call_to_call(self):
        self.go("""
            import itertools
            COUNT = itertools.count()
            class Net(Net):
                def plain(self, x, z, scale):
                    return z, next(COUNT)
            fast, found = said(lambda: foundry.compile(Net().eval(), full(1.0), ref="net",
                                                       store="store"))
            assert "returns other values or another structure each time" in found[0], found
            """)

    def test_objects_that_their_constructor_does_not_make(self):
        self.go("""
            @dataclasses.dataclass
            class Added:
                sums: object
                rate: float = dataclasses.field(default=1.0, init=False)
            class Net(Net):
                def forward(self, x):
                    r = Added(x.sums + self.weight)
                    r.rate = x.rate
                    return r
            x = Added(full(1.0))
            x.rate = 2.0
            fast, found = said(lambda: foundry.compile(Net().eval(), x, ref="net", store="store"))
            assert "'x' is a __main__.Added" in found[0], found
            class Out(Net):
                def forward(self, x):
                    r = Result(x + self.weight, None)
                    r.more = x
                    return r
            fast, found = said(lambda: foundry.compile(Out().eval(), full(1.0), ref="out",
                                                       store="store"))
            assert "__main__.Result" in found[0], found
            """)

    def test_settings_of_backends(self):
        self.go("""
            from types import SimpleNamespace as Names
            torch.backends = Names(cudnn=Names(enabled=True, allow_tf32=True),
                                   cuda=Names(matmul=Names(allow_tf32=False),
                                              math_sdp_enabled=lambda: True))
            fast = begin(made())
            assert said(lambda: values(fast(full(1.0)).sums)) == (3.5, [])
            torch.backends.cudnn.allow_tf32 = False
            r, found = said(lambda: fast(full(1.0)))
            assert "setting of torch differs" in found[0], found
            torch.backends.cudnn.allow_tf32 = True
            torch.backends.cuda.math_sdp_enabled = lambda: False
            fast._said.clear()
            r, found = said(lambda: fast(full(1.0)))
            assert "setting of torch differs" in found[0], found
            """)

    def test_parameters_in_overlapping_storages(self):
        self.go("""
            model = made()
            model.register_buffer("part", torch.Tensor(model.weight.data_ptr() + 40, (10,),
                                                       keep=lambda: None))
            fast, found = said(lambda: foundry.compile(model, full(1.0), ref="net", store="store"))
            assert "share memory in two storages" in found[0], found
            model = made()
            model.part = model.weight[0:10]
            fast, found = said(lambda: foundry.compile(model, full(1.0), ref="net", store="store"))
            assert "attribute Net.part shares memory" in found[0], found
            """)

    def test_wrong_arguments(self):
        self.go("""
            for error, how in ((ValueError, {"parameters": "x"}), (ValueError, {"outputs": "x"}),
                               (ValueError, {"warmup": 1}), (TypeError, {"nothing": 1})):
                try:
                    begin(made(), **how)
                except error:
                    continue
                raise AssertionError(how)
            try:
                foundry.compile(made(), [], ref="net", store="store")
            except ValueError as e:
                assert "example inputs" in str(e), e
            """)


if __name__ == "__main__":
    suite.main()
