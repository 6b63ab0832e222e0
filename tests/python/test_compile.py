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


class Compile(Folder):
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

    def test_captured_then_loaded(self):
        found = self.both("""
            fast = begin(made())
            assert (fast.image is None) == ("captured" in sys.argv), fast
            assert sys.argv[1] in repr(fast), repr(fast)
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

    def test_what_no_graph_can_repeat_runs_natively(self):
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
