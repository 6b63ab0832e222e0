# SPDX-License-Identifier: Apache-2.0
"""Tests of PyTorch's generators on the software driver: a capture recognises them, and a loaded
image draws from them.

A small module stands in for torch: generators, and graphs that write their state to device memory
before a replay, in both ways that torch has had. A counter-based kernel draws; this test computes
the numbers that it must give.
"""
import ctypes
import faulthandler
import os
import signal
import sys
import tempfile
import types
import unittest
import warnings
from unittest import mock

import suite
from test_roundtrip import BUILD, Array, Driver

N = 32
WRAP = (1 << 64) - 1
SEED = 67280421310721


def drawn(seed, offset):
    """Computes the numbers of the kernel "draw" in tests/sim/kernels.c."""
    numbers = []
    for i in range(N):
        z = (seed + (offset * 1000003 + i + 1) * 0x9E3779B97F4A7C15) & WRAP
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & WRAP
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & WRAP
        numbers.append(z ^ z >> 31)
    return numbers


class DrawState(ctypes.Structure):
    """The state that torch passes to a kernel that draws."""
    _fields_ = [("seed", ctypes.c_uint64), ("offset", ctypes.c_uint64), ("within", ctypes.c_uint32),
                ("captured", ctypes.c_char)]


class Generator:
    """Stands in for torch.Generator, with the part that graphs use. Several may share a state."""

    def __init__(self, state=None):
        self.state = state or types.SimpleNamespace(seed=SEED, offset=0, pair=None)

    def graphsafe_get_state(self):
        return Generator(self.state)

    def manual_seed(self, seed):
        self.state.seed, self.state.offset = seed & WRAP, 0

    def initial_seed(self):
        return self.state.seed

    def get_offset(self):
        return self.state.offset

    def set_offset(self, offset):
        assert offset % 4 == 0
        self.state.offset = offset & WRAP

    def get_state(self):
        return self.state.seed, self.state.offset

    def set_state(self, state):
        self.state.seed, self.state.offset = state

    def draw(self):
        """Returns (seed, offset) for eager use."""
        self.state.offset = (self.state.offset + 4) & WRAP
        return self.state.seed, (self.state.offset - 4) & WRAP


class Torch:
    """Stands in for the module torch. layout: "eager", a pair of cells per generator, or "capture",
    a pair per generator and graph.
    """

    __version__ = "2.11.0"

    def __init__(self, cuda, layout):
        self.driver, self.layout = cuda, layout
        self.Generator = Generator
        self.cuda = types.SimpleNamespace(
            init=lambda: None, is_initialized=lambda: True, default_generators=(Generator(),),
            get_allocator_backend=lambda: "none",
            CUDAGraph=lambda keep_graph: Graph(self), graph=Capturing)

    def kernel(self):
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        with open(os.path.join(BUILD, "sim", "kernels.cubin"), "rb") as f:
            self.driver("cuModuleLoadData", ctypes.byref(module), f.read())
        self.driver("cuModuleGetFunction", ctypes.byref(kernel), module, b"draw")
        return kernel


class Graph:
    """Stands in for torch.cuda.CUDAGraph."""

    def __init__(self, torch):
        self.torch, self.driver = torch, torch.driver
        self.states = {}  # id -> [state, pair of cells, increment]
        self.stream, self.raw, self.exec = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.driver("cuStreamCreate", ctypes.byref(self.stream), 1)

    def register_generator_state(self, generator):
        s = generator.state
        if self.torch.layout == "eager":
            s.pair = s.pair or self.new_pair()
        self.states[id(s)] = [s, s.pair or self.new_pair(), 0]

    def new_pair(self):
        return self.driver.alloc_bytes(512), self.driver.alloc_bytes(512)

    def begin(self):
        self.register_generator_state(self.torch.cuda.default_generators[0])
        self.driver("cuStreamBeginCapture_v2", self.stream, 2)

    def end(self):
        self.driver("cuStreamEndCapture", self.stream, ctypes.byref(self.raw))

    def draw(self, kernel, out, generator):
        known = self.states[id(generator.state)]
        state = DrawState(*known[1], known[2], b"\1")
        known[2] += 4
        values = [ctypes.c_uint64(out), state, ctypes.c_int(N)]
        args = (ctypes.c_void_p * 3)(*(ctypes.addressof(v) for v in values))
        self.driver("cuLaunchKernel", kernel, 1, 1, 1, N, 1, 1, 0, self.stream, args, None)

    def raw_cuda_graph(self):
        return self.raw.value

    def pool(self):
        return 1

    def instantiate(self):
        self.driver("cuGraphInstantiateWithFlags", ctypes.byref(self.exec), self.raw,
                    ctypes.c_uint64(0))

    def replay(self):
        for s, pair, increment in self.states.values():
            if increment or self.torch.layout == "eager":
                for cell, value in zip(pair, (s.seed, s.offset)):
                    self.write(cell, value)
            s.offset = (s.offset + increment) & WRAP
        self.driver("cuGraphLaunch", self.exec, self.stream)

    def write(self, cell, value):
        self.driver("cuMemcpyHtoD_v2", ctypes.c_uint64(cell), ctypes.byref(ctypes.c_uint64(value)),
                    ctypes.c_size_t(8))


class BlindGraph(Graph):
    """Writes its state to the cells in a form that Foundry does not recognise."""

    def write(self, cell, value):
        super().write(cell, value ^ 5)


class Capturing:
    """Stands in for torch.cuda.graph."""

    def __init__(self, graph, pool=None, stream=None, capture_error_mode="global"):
        self.graph = graph

    def __enter__(self):
        self.graph.begin()

    def __exit__(self, *_):
        self.graph.end()


def capture(store, layout):
    """Captures four graphs. Graph 1 draws twice from the default generator, 2 once, 3 once from it
    and once from another, and 4 draws nothing.
    """
    import foundry
    with foundry.Capture() as cap:
        cuda = Driver()
        torch = sys.modules["torch"] = Torch(cuda, layout)
        default, other = torch.cuda.default_generators[0], Generator()
        default.manual_seed(77)
        default.set_offset(400)
        kernel = torch.kernel()
        outs = [cuda.alloc_bytes(8 * N) for _ in range(2)]
        for name, out in zip("ab", outs):
            array = Array(out, 2 * N)
            cap.tensor(name, array, use="output")
        if layout == "blind":
            return blind(cap, torch, kernel, outs[0], store)
        with cap.graph(1) as graph:
            graph.draw(kernel, outs[0], default)
            graph.draw(kernel, outs[1], default)
        with cap.graph(2) as graph:
            graph.draw(kernel, outs[0], default)
        with cap.graph(3, generators=iter([other])) as graph:
            graph.draw(kernel, outs[0], default)
            graph.draw(kernel, outs[1], other)
        with cap.graph(4, generators=[other]) as graph:
            cuda("cuMemsetD8Async", ctypes.c_uint64(outs[0]), ctypes.c_ubyte(0), ctypes.c_size_t(8),
                 graph.stream)
        assert {k: {g: d[0] for g, d in found.items()} for k, found in cap.rng_uses.items()} == {
            1: {"default": 8}, 2: {"default": 4}, 3: {"default": 4, "generator0": 4},
            4: {}}, cap.rng_uses
        shared = cap.rng_uses[1]["default"][1:] == cap.rng_uses[2]["default"][1:]
        assert shared == (layout == "eager"), cap.rng_uses
        assert (default.get_state(), other.get_state()) == ((77, 400), (SEED, 0))
        cap.seal(store, "draws")


def blind(cap, torch, kernel, out, store):
    import foundry
    torch.cuda.CUDAGraph = lambda keep_graph: BlindGraph(torch)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with cap.graph(1) as graph:
            graph.draw(kernel, out, torch.cuda.default_generators[0])
    assert len(said) == 1, said
    assert "'default', whose state was not recognised" in str(said[0].message), said
    assert cap.rng_uses == {1: {}}
    try:
        cap.seal(store, "draws")
    except foundry.Error as e:
        assert e.name == "FDRY_E_REFUSED" and "draws random numbers" in str(e), str(e)
    else:
        raise AssertionError("sealed")


class Generators(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.store = os.path.join(self.folder.name, "store")

    def load(self, layout):
        import foundry
        suite.child(__file__, self.store, layout)
        img = foundry.load("draws", store=self.store, poison=True)
        self.addCleanup(img.close)
        return img

    def numbers(self, img, name):
        return list((ctypes.c_uint64 * N).from_buffer(img.read(name)))

    def hundred(self, img, seed, draw_between=None):
        """Compares launches with the model and returns the offset that is reached."""
        at, other = 0, 0
        for i in range(100):
            key = 1 + i % 3
            img.launch(key)
            self.assertEqual(self.numbers(img, "a"), drawn(seed, at), i)
            if key == 1:
                self.assertEqual(self.numbers(img, "b"), drawn(seed, at + 4), i)
            if key == 3:
                self.assertEqual(self.numbers(img, "b"), drawn(SEED, other), i)
                other += 4
            at += 8 if key == 1 else 4
            if draw_between and i % 7 == 0:
                self.assertEqual(draw_between(), (seed, at))
                at += 4
        img.launch(4)
        return at

    def test_without_torch(self):
        for layout in ("eager", "capture"):
            with self.subTest(layout):
                img = self.load(layout)
                self.assertEqual(img.generators(), ["default", "generator0"])
                self.assertEqual(img.rng_state(), (SEED, 0))
                img.set_rng_state(1234)
                at = self.hundred(img, 1234)
                self.assertEqual(img.rng_state(), (1234, at))
                img.close()

    def test_state_is_kept(self):
        img = self.load("eager")
        img.set_rng_state(1 << 63 | 5, WRAP - 3)
        img.launch(1)
        self.assertEqual(self.numbers(img, "a"), drawn(1 << 63 | 5, WRAP - 3))
        self.assertEqual(self.numbers(img, "b"), drawn(1 << 63 | 5, 0))
        self.assertEqual(img.rng_state(), (1 << 63 | 5, 4))
        img.set_rng_state(-5)
        self.assertEqual(img.rng_state(), (WRAP - 4, 0))
        for seed in (WRAP + 1, -(1 << 63) - 1):
            with self.assertRaisesRegex(OverflowError, "out of range"):
                img.set_rng_state(seed)
        self.assertEqual(img.rng_state(), (WRAP - 4, 0))
        with self.assertRaises(KeyError):
            img.generator("nobody", None)

    def test_with_torch(self):
        img = self.load("capture")
        torch = Torch(None, "capture")
        default = torch.cuda.default_generators[0]
        sys.modules["torch"] = torch
        self.addCleanup(sys.modules.pop, "torch")
        default.manual_seed(99)
        at = self.hundred(img, 99, default.draw)
        self.assertEqual(default.get_state(), (99, at))
        self.assertEqual(img.rng_state(), (99, at))
        img.set_rng_state(3)
        self.assertEqual(default.get_state(), (3, 0))
        mine = Generator()
        mine.manual_seed(8)
        img.generator("generator0", mine)
        img.launch(3)
        self.assertEqual((self.numbers(img, "a"), self.numbers(img, "b")),
                         (drawn(3, 0), drawn(8, 0)))
        self.assertEqual((default.get_offset(), mine.get_offset()), (4, 4))
        img.generator("default", None)  # the image's own
        img.launch(2)
        self.assertEqual(self.numbers(img, "a"), drawn(SEED, 0))
        self.assertEqual(default.get_offset(), 4)

    def test_launches_by_a_signal_handler(self):
        """One during a launch has numbers of its own; one that would share them is refused."""
        import foundry
        from foundry import generators
        img, mine, errors = self.load("capture"), Generator(), []
        img.generator("default", mine)
        def launch(*_):
            try:
                img.launch(2)
            except foundry.Error as e:
                errors.append(e.name)
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, launch))
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        faulthandler.dump_traceback_later(60, exit=True)
        library, once = generators.lib, [signal.SIGALRM]
        def launching(*args):
            if once:
                signal.raise_signal(once.pop())
            library.fdry_image_launch_rng(*args)
        with mock.patch.object(generators, "lib", mock.Mock(
                wraps=library, fdry_image_launch_rng=launching)):
            img.launch(2)
        self.assertEqual((self.numbers(img, "a"), mine.get_offset(), errors),
                         (drawn(SEED, 0), 8, []))
        get = mine.get_offset
        def interrupted():
            del mine.get_offset
            signal.raise_signal(signal.SIGALRM)
            return get()
        mine.get_offset = interrupted
        img.launch(2)
        self.assertEqual((self.numbers(img, "a"), mine.get_offset(), errors),
                         (drawn(SEED, 8), 12, ["FDRY_E_STATE"]))

    def test_one_generator_under_two_names(self):
        import foundry
        img, mine = self.load("capture"), Generator()
        for name in img.generators():
            img.generator(name, mine)
        img.launch(3)
        self.assertEqual((self.numbers(img, "a"), self.numbers(img, "b"), mine.get_offset()),
                         (drawn(SEED, 0), drawn(SEED, 4), 8))
        sim = ctypes.CDLL(os.environ["FOUNDRY_DRIVER"])
        sim.fdry_sim_fail(b"cuGraphLaunch:1")
        with self.assertRaises(foundry.Error):
            img.launch(3)
        sim.fdry_sim_fail(None)
        self.assertEqual(mine.get_offset(), 8)

    def test_a_launch_that_fails_draws_nothing(self):
        import foundry
        img = self.load("capture")
        mine = Generator()
        img.generator("default", mine)
        sim = ctypes.CDLL(os.environ["FOUNDRY_DRIVER"])
        sim.fdry_sim_fail(b"cuGraphLaunch:1")
        with self.assertRaises(foundry.Error):
            img.launch(1)
        sim.fdry_sim_fail(None)
        self.assertEqual(mine.get_offset(), 0)
        with self.assertRaises(foundry.Error) as e:
            img.launch(9)
        self.assertEqual(e.exception.name, "FDRY_E_NOKEY")
        img.launch(1)
        self.assertEqual((self.numbers(img, "a"), mine.get_offset()), (drawn(SEED, 0), 8))

    def test_states_that_are_not_recognised_are_refused(self):
        suite.child(__file__, self.store, "blind")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        capture(sys.argv[2], sys.argv[3])
    else:
        suite.main()
