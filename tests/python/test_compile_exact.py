# SPDX-License-Identifier: Apache-2.0
"""Tests that foundry.compile() gives the model's own results, or runs the model.

Each script captures in its first process and loads in its second.
"""
import suite
from test_compile import Script


class Weights(Script):
    def test_close_leaves_weights_that_the_program_replaced(self):
        self.both("""
            model = made()
            fast = begin(model)
            model.weight.data = full(7.0)
            model.bias.data = model.bias.data[0:50]  # a part of its own memory
            fast.close()
            assert values(model.weight) == 7.0, values(model.weight)
            assert values(model.bias) == 0.5 and model.bias.shape == (50,), model.bias.shape
            """)

    def test_close_leaves_weights_that_a_later_compile_moved(self):
        self.both("""
            model = made()
            one, two = begin(model), begin(model, ref="two")
            model.weight.fill_(5.0)
            one.close()
            assert values(model.weight) == 5.0, values(model.weight)
            assert said(lambda: values(two(full(1.0)).sums)) == (6.5, [])
            two.close()
            assert values(model.weight) == 5.0 and values(model.bias) == 0.5
            """)


class Constructors(Script):
    """Objects whose constructor computes, and so does not take tensors as they are."""

    def test_arguments(self):
        self.both("""
            @dataclasses.dataclass
            class Doubled:
                x: object
                y: object
                def __post_init__(self):
                    self.x = self.x + self.x
            @dataclasses.dataclass
            class Swapped(Doubled):
                def __post_init__(self):
                    self.x, self.y = self.y, self.x
            @dataclasses.dataclass
            class Counted(Doubled):
                count: int = 0
                def __post_init__(self):
                    self.count += 1
            @dataclasses.dataclass
            class Once(Doubled):
                given: dataclasses.InitVar[int] = 0
                def __post_init__(self, given):
                    assert given == 0
            @dataclasses.dataclass
            class Strict(Doubled):
                def __post_init__(self):
                    if len(made_of) > 1:
                        raise ValueError("made again")
                    made_of.append(self)
            class Net(Net):
                def forward(self, a):
                    return a.x + a.x + a.y
            for kind, want in (Doubled, 41.0), (Swapped, 12.0), (Counted, 21.0):
                example = kind(full(1.0), full(1.0))
                fast, found = said(lambda: foundry.compile(Net().eval(), example,
                                                           ref=kind.__name__, store="store"))
                assert "an argument has a class whose objects cannot be made again" in (
                    fast.reason), fast
                r, found = said(lambda: fast(kind(full(10.0), full(1.0))))
                assert values(r) == want, (kind, values(r))
            made_of = [0]
            fast, found = said(lambda: foundry.compile(Net().eval(), Strict(full(1.0), full(1.0)),
                                                       ref="strict", store="store"))
            assert "objects of Strict cannot be made again: made again" in fast.reason, fast
            fast = begin(Net().eval(), Once(full(1.0), full(1.0)), ref="once")
            assert said(lambda: values(fast(Once(full(10.0), full(1.0), 0)))) == (21.0, [])
            """)

    def test_results(self):
        self.both("""
            @dataclasses.dataclass
            class Doubled:
                x: object
                y: object
                def __post_init__(self):
                    self.x = self.x + self.x
            class Swapped(collections.namedtuple("Swapped", "x y")):
                __slots__ = ()
                def __new__(cls, x, y):
                    return super().__new__(cls, y, x)
            class Single(collections.namedtuple("Single", "x y")):
                __slots__ = ()
                def __new__(cls, x):
                    return super().__new__(cls, x, x)
            def check(kind, *names):
                class Model(Net):
                    def forward(self, x):
                        return kind(*(x + x, x + x + x)[:names.count("x") or 2])
                fast, found = said(lambda: foundry.compile(Model().eval(), full(1.0),
                                                           ref=kind.__name__, store="store"))
                assert "cannot be made again" in fast.reason, fast
                r, found = said(lambda: fast(full(10.0)))
                return type(r) is kind, values(r.x), values(r.y)
            assert check(Doubled) == (True, 40.0, 30.0)
            assert check(Swapped) == (True, 30.0, 20.0)
            assert check(Single, "x") == (True, 20.0, 20.0)
            """)

    def test_keyword_arguments_in_another_order(self):
        self.both("""
            class Net(Net):
                def forward(self, x, y):
                    return x + x + y
            fast = begin(Net().eval(), {"y": full(1.0), "x": full(1.0)})
            assert said(lambda: values(fast(full(10.0), full(1.0)))) == (21.0, [])
            assert said(lambda: values(fast(y=full(1.0), x=full(10.0)))) == (21.0, [])
            """)


class Containers(Script):
    def test_changes_of_an_argument(self):
        self.both("""
            class Model(Net):
                def forward(self, x, cache):
                    return self.change(x, cache) or x + x
            def put(x, cache):
                cache["k"] = x + x
            def put_once(x, cache):
                cache.setdefault("k", 7)
            def append(x, cache):
                cache["list"].append(1)
            def replace(x, cache):
                cache["y"] = x + cache["y"]
            def take(x, cache):
                cache.pop("y", None)
            for change in put, put_once, append, replace, take:
                model = Model().eval()
                model.change = change
                cache, want = ({"y": full(2.0), "list": []} for _ in range(2))
                fast, found = said(lambda: foundry.compile(
                    model, (full(1.0), {"y": full(2.0), "list": []}), ref=change.__name__,
                    store="store"))
                assert "changes a container" in fast.reason, (change, fast)
                with torch.no_grad():
                    assert values(fast(full(10.0), cache)) == 20.0
                    model(full(10.0), want)
                assert repr(cache.keys()) == repr(want.keys()), cache
            """)


class Deadlocks(Script):
    """Calls and close() inside of calls; in a script that ends after 60 seconds if they wait for
    themselves.
    """

    BEGIN = """
            import faulthandler, signal, threading
            faulthandler.dump_traceback_later(60, exit=True)
            warnings.simplefilter("ignore")
            def thread(function):
                def run():
                    torch._driver.call("cuCtxSetCurrent", torch._driver.ctx)
                    with torch.no_grad():
                        function()
                made = threading.Thread(target=run)
                made.start()
                return made
    """

    def test_close_beside_a_model_that_calls_itself(self):
        self.both(self.BEGIN + """
            ready, go, found = threading.Event(), threading.Event(), []
            class Halves(Net):
                def forward(self, x):
                    if x.shape[0] == 100:
                        return x + x
                    ready.set()
                    assert go.wait(20)
                    fails("close() would wait for itself", fast.close)
                    return [self(x[0:100]), self(x[100:200])]
            model = Halves().eval()
            model.forward = fast = begin(model)
            x = full(1.0, 200)
            caller = thread(lambda: found.extend(map(values, model(x))))
            assert ready.wait(20)
            closer = thread(fast.close)
            closer.join(0.3)
            assert closer.is_alive()  # it waits for the call
            go.set()
            caller.join()
            closer.join()
            assert found == [2.0, 2.0] and fast.image is None, found
            """)

    def test_first_results_of_a_model_that_calls_itself(self):
        self.both(self.BEGIN + """
            class Deep(Net):
                def forward(self, x, deep=False):
                    return self(x) + self.weight if deep else x + self.weight
            model = Deep().eval()
            model.weight.fill_(5.0 if "loaded" in sys.argv else 2.0)
            model.forward = fast = begin(model, {"x": full(1.0), "deep": True}, {"x": full(1.0)})
            weight = values(model.weight)
            with torch.no_grad():
                for deep in True, True, False:
                    assert values(model(full(1.0), deep=deep)) == 1.0 + weight * (1 + deep)
            assert not any(call.unverified for call in fast.calls) and len(fast._known) == 2
            """)

    def test_calls_and_close_in_a_signal_handler(self):
        self.both(self.BEGIN + """
            fast, said, found = begin(made()), [], []
            def handler(*_):
                with torch.no_grad():
                    found.append(values(fast(full(1.0)).sums))
                fails("close() would wait for itself", fast.close)
            signal.signal(signal.SIGALRM, handler)
            launch = fast.calls[0].launch
            def interrupted(stream):
                signal.raise_signal(signal.SIGALRM)
                launch(stream)
            fast.calls[0].launch = interrupted
            with torch.no_grad():
                assert values(fast(full(2.0)).sums) == 4.5 and found == [3.5], found
            unload = fast._unload
            def interrupted():
                signal.raise_signal(signal.SIGALRM)
                unload()
            fast._unload = interrupted
            fast.close()
            assert found == [3.5] * (2 if "loaded" in sys.argv else 1), found
            """)


class Arguments(Script):
    """Arguments that are alike in what a graph is chosen by, but not for the model."""

    def test_keys_that_give_one_name(self):
        self.both("""
            class Net(Net):
                def forward(self, x):
                    return x[1] + x["1"] if 1 in x else x["a.b"] + x["a"]["b"]
            z = full(1.0)
            for i, example in enumerate(({1: z, "1": z}, {"a.b": z, "a": {"b": z}})):
                fast, found = said(lambda: foundry.compile(Net().eval(), (example,), ref=f"n{i}",
                                                           store="store"))
                assert "two arguments have the name 'x." in fast.reason, fast
                given = [{1: full(10.0), "1": z}, {"a.b": full(10.0), "a": {"b": z}}][i]
                assert values(said(lambda: fast(given))[0]) == 11.0
            """)

    def test_flags_and_enumerations(self):
        self.both("""
            import enum
            class Flag(enum.IntFlag):
                A = 1
            class Kind(enum.Enum):
                A, B = "a", object()
            class Net(Net):
                def forward(self, x, kind):
                    return x + x if kind in (Flag(8), Kind.A) else x + x + x
            fast = begin(Net().eval(), *((full(1.0), kind) for kind in (Flag(8), Kind.A, Kind.B)))
            for kind, want in (Flag(8), 20.0), (Kind.A, 20.0), (Kind.B, 30.0):
                assert said(lambda: values(fast(full(10.0), kind))) == (want, []), kind
            r, found = said(lambda: fast(full(10.0), Flag(16)))
            assert values(r) == 30.0 and "no graph was captured" in found[0], found
            """)

    def test_attributes_beside_the_elements(self):
        self.both("""
            class Named(collections.namedtuple("Named", "x")):
                pass
            @dataclasses.dataclass
            class Fields(dict):
                x: object
                mask: object = None
                def __post_init__(self):
                    self["x"] = self.x
            class Net(Net):
                def forward(self, a):
                    x = a if isinstance(a, torch.Tensor) else a["x"] if isinstance(
                        a, dict) else a.x
                    scale = getattr(a, "scale", None) or getattr(a, "mask", None)
                    return x + x + x if scale else x + x
            kept = []  # a graph must not be freed in the capture of another
            kinds = [lambda x: x, Named, Fields, lambda x: collections.OrderedDict(x=x)]
            for i, kind in enumerate(kinds):
                fast = begin(Net().eval(), (kind(full(1.0)),), ref=f"n{i}")
                kept.append(fast)
                for name in (None, "scale", "mask", "_dynamo_dynamic_indices"):
                    fast._said.clear()
                    given = kind(full(10.0))
                    if name:
                        setattr(given, name, 2)
                    r, found = said(lambda: fast(given))
                    assert values(r) == (30.0 if name in ("scale", "mask") else 20.0), (i, name)
                    native = name in ("scale", "mask") or name and i
                    assert len(found) == bool(native), (i, name, found)
                given = kind(full(1.0))
                given.scale = 2
                fast, found = said(lambda: foundry.compile(Net().eval(), (given,), ref=f"m{i}",
                                                           store="store"))
                why = "which has more than its elements" if i else "has the attribute 'scale'"
                assert why in fast.reason, (i, fast)
                assert values(said(lambda: fast(given))[0]) == 3.0, (i, fast)
            fast = begin(Net().eval(), (Fields(full(1.0)),), ref="n2")
            given = Fields(full(10.0))
            given["more"] = 1
            r, found = said(lambda: fast(given))
            assert values(r) == 20.0 and len(found) == 1, found
            class Out(Net):
                def forward(self, x):
                    r = x + x
                    r.scale = 3
                    return r
            fast, found = said(lambda: foundry.compile(Out().eval(), full(1.0), ref="out",
                                                       store="store"))
            assert "result has the attribute 'scale'" in fast.reason, fast
            assert said(lambda: fast(full(10.0)))[0].scale == 3
            """)

    def test_order_of_keyword_arguments(self):
        self.both("""
            class Net(Net):
                def forward(self, *, scale=1, x, **more):
                    first, *_ = more.values()
                    return first + first + x
            fast = begin(Net().eval(), {"x": full(1.0), "b": full(1.0), "a": full(1.0)})
            a, b, x = full(10.0), full(3.0), full(1.0)
            assert said(lambda: values(fast(b=b, x=x, a=a))) == (7.0, [])
            r, found = said(lambda: values(fast(x=x, a=a, b=b)))
            assert r == 21.0 and "no graph was captured" in found[0], (r, found)
            """)

    def test_names_of_arguments_by_position(self):
        self.both("""
            class Net(Net):
                def forward(self, x, /, **more):
                    return x + more["x"] if "x" in more else x + x
            fast = begin(Net().eval())
            assert said(lambda: values(fast(full(10.0)))) == (20.0, [])
            r, found = said(lambda: fast(full(10.0), x=full(2.0)))
            assert values(r) == 12.0 and "'x' is given by name" in found[0], found
            for args, kwargs in ((), {"x": full(1.0)}), ((full(1.0),) * 2, {}):
                try:
                    said(lambda: fast(*args, **kwargs))
                except TypeError as e:
                    assert "forward() " in str(e), e  # the model's own
                else:
                    raise AssertionError(kwargs)
            """)

    def test_an_argument_with_the_name_of_results(self):
        self.both("""
            class Net(Net):
                def forward(self, x, output):
                    return x + output[0]
            fast = begin(Net().eval(), (full(1.0), [full(1.0)]), parameters="image")
            assert said(lambda: values(fast(full(10.0), [full(1.0)]))) == (11.0, [])
            if fast.image:
                fast.close()
                image = foundry.load("net", store="store")
                assert values(image(host(10.0), host(1.0))) == 11.0
            """)


class Images(Script):
    """Calls of an image with several graphs, and images that are not loaded."""

    def test_an_image_of_older_rules(self):
        self.both("""
            from foundry import compiled
            if "captured" in sys.argv:
                compiled._RULES = "1"
            fast = begin(made())
            assert fast.image is None, fast
            """)

    BEGIN = """
            def fails(says, *args, **kwargs):
                try:
                    image(*args, **kwargs)
                except TypeError as e:
                    assert says in str(e), e
                else:
                    raise AssertionError((args, kwargs))
            image, x = foundry.load("net", store="store"), host(10.0)
    """

    def test_graphs_that_differ_in_a_constant(self):
        self.go("""
            class Net(Net):
                def forward(self, x, flag=False, more=(None,)):
                    return x + x if flag else x + x + x
            begin(Net().eval(), full(1.0), {"x": full(1.0), "flag": True},
                  {"x": full(1.0), "more": ["a"]}, parameters="image")
            """)
        self.go(self.BEGIN + """
            for i in range(2):
                assert values(image(x)) == values(image(x, **{"more.0": "a"})) == 30.0
                assert values(image(x, flag=True)) == values(image(x=x, flag=True)) == 20.0
            fails("'flag' was True in the capture", x, flag=False)
            fails("no graph of the image takes these", x, flag=x)
            fails("no graph of the image takes these", x, flag=True, **{"more.0": "a"})
            """)

    def test_several_graphs_fit(self):
        self.go("""
            class Net(Net):
                def forward(self, x, kind):
                    return x + x if kind == "two" else x + x + x
            begin(Net().eval(), (full(1.0), "two"), (full(1.0), "three"), parameters="image")
            """)
        self.go(self.BEGIN + """
            fails("graphs [1, 2] of the image take these arguments; give these by name, too: "
                  "['kind']", x)
            assert [values(image(x, kind=kind)) for kind in ("two", "three")] == [20.0, 30.0]
            """)

    def test_graphs_that_differ_in_a_type(self):
        self.go("""
            class Net(Net):
                def forward(self, x):
                    return x + x if x.dtype is torch.float32 else x.clone()
            begin(Net().eval(), torch.empty((100,), torch.uint8).zero_(), full(1.0),
                  parameters="image")
            """)
        self.go(self.BEGIN + """
            assert values(image(x)) == values(image(image["2/x"])) == 20.0
            assert image(memoryview(bytes([7] * 100)))._bytes() == bytes([7] * 100)
            """)


if __name__ == "__main__":
    suite.main()
