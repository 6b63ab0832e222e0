# SPDX-License-Identifier: Apache-2.0
"""Random numbers of PyTorch's graphs: find the state of generators in captures, and supply it to
loaded graphs.

Each generator of torch has a seed and an offset. Before torch replays a graph, it writes both to
device memory that the graph's kernels read. Python cannot query these addresses. So a replay that
launches nothing makes torch write numbers that occur nowhere else. A search of the memory that the
kernels' arguments point to then finds them. This works with every layout that torch has had.
"""
import contextlib
import ctypes
import os
import sys
import threading
import warnings

from . import _lib
from ._lib import lib

DEFAULT = "default"  # the name of torch's default generator of the capture's device
_WRAP = (1 << 64) - 1


class Names:
    """Names for generators; an object has the same name throughout a capture."""

    def __init__(self):
        self._others = []

    def of(self, torch, device, generators=()):
        """{name: generator} of torch's default generators and of `generators`.

        generators: a sequence or {name: generator}. A generator counts with its present state
        object: if that is replaced later, the generator is not the one that a graph used.
        """
        torch.cuda.init()
        found = {DEFAULT if i == device else f"{DEFAULT}{i}": g
                 for i, g in enumerate(torch.cuda.default_generators)}
        found.update(generators if hasattr(generators, "items")
                     else {self._name(g): g for g in generators})
        return {name: g.graphsafe_get_state() if hasattr(g, "graphsafe_get_state") else g
                for name, g in found.items()}

    def _name(self, generator):
        for i, known in enumerate(self._others):
            if known is generator:
                return f"generator{i}"
        self._others.append(generator)
        return f"generator{len(self._others) - 1}"


def slots(capture, key):
    """[(address, value)] of the words that the nodes of a graph point to: arguments of kernels,
    copies and memsets. Addresses are rounded down to multiples of 8.
    """
    count, capacity = ctypes.c_size_t(), 1024
    while True:
        found = (_lib.RngSlot * capacity)()
        lib.fdry_capture_rng_slots(capture, key, found, capacity, count)
        if count.value <= capacity:
            return [(slot.addr, slot.value) for slot in found[:count.value]]
        capacity = count.value


def _replay_held(capture, graph):
    """Let torch do everything around a replay, without the launch."""
    lib.fdry_capture_hold(capture, 1)
    try:
        graph.replay()
    finally:
        lib.fdry_capture_hold(capture, 0)


def _bits(count):
    """A random number of so many bits, at most 64; secrets would import hashlib and more."""
    return int.from_bytes(os.urandom(8), "little") >> 64 - count


def _probe(capture, key, graph, generators):
    """Make one replay without a launch, with states that occur nowhere else.

    Returns {name: (increment, seeds, offsets)} of the generators that advance, with the addresses
    at which their seeds and offsets were seen.
    """
    states = {}
    for name, generator in generators.items():
        states[name] = (_bits(61) | 1 << 61, 4 * (_bits(57) | 1 << 57))
        generator.manual_seed(states[name][0])
        generator.set_offset(states[name][1])
    _replay_held(capture, graph)
    moved = {name: (g.get_offset() - states[name][1]) & _WRAP for name, g in generators.items()}
    moved = {name: by for name, by in moved.items() if by}
    words = slots(capture, key) if moved else []
    return {name: (by,
                   *({addr for addr, value in words if value == state} for state in states[name]))
            for name, by in moved.items()}


def recognise(capture, key, graph, generators):
    """Find the generators that graph `key` of a capture uses, and declare them to the capture.

    Returns {name: (increment, address of the seed, address of the offset)}. capture: the Handle of
    one that has the graph. graph: torch's, captured and instantiated. generators: {name:
    torch.Generator} of all that it may use, as Names.of() returned them before its capture; their
    states do not change. If the graph uses numbers whose place cannot be found, the graph is
    marked, and the seal is refused.
    """
    kept = {name: g.get_state() for name, g in generators.items()}
    try:
        first = _probe(capture, key, graph, generators)
        if not first:
            return {}
        lib.fdry_capture_rng(capture, key)
        second = _probe(capture, key, graph, generators)
    finally:
        for name, generator in generators.items():
            generator.set_state(kept[name])
    found = {}
    for name, (by, *places) in first.items():
        again = second.get(name, (0, set(), set()))
        both = [sorted(a & b) for a, b in zip(places, again[1:])]
        if again[0] != by or [len(b) for b in both] != [1, 1]:
            warnings.warn(
                f"graph {key} draws from generator '{_lib.shown(name)}', whose state was not "
                "recognised, so it cannot be sealed: "
                          f"increments {by} and {again[0]}, seeds at "
                          f"{[hex(a) for a in both[0]]}, offsets at "
                          f"{[hex(a) for a in both[1]]}", RuntimeWarning, stacklevel=2)
            return {}
        found[name] = (by, both[0][0], both[1][0])
    for name, (by, seed, offset) in found.items():
        lib.fdry_capture_rng_use(capture, key,
                                 ctypes.byref(_lib.RngUse(_lib.text(name), seed, offset, by)))
    return found


class Source:
    """The source of random numbers of a loaded image's graphs: torch's generators or the image's
    state.
    """

    def __init__(self, handle, device):
        self._handle, self._device = handle, device
        self._lock, self._moves = threading.RLock(), False
        self._draws = {}  # key -> [(position of the generator, increment)]
        self._bound = {}  # name -> a generator, or None for the image's own state
        name = ctypes.c_char_p()
        self.names = []
        for i in range(lib.fdry_image_rng_count(handle)):
            lib.fdry_image_rng(handle, i, name)
            self.names.append(_lib.foreign(name.value))

    def draws(self, key):
        """[(position of the generator, increment)] of graph `key`."""
        if key not in self._draws:
            raw, found = _lib.RngUse(), []
            while True:
                try:
                    lib.fdry_image_rng_use(self._handle, key, len(found), ctypes.byref(raw))
                except _lib.Error as e:
                    if e.name != "FDRY_E_NOKEY" or key not in self._keys():
                        raise
                    break
                found.append((self.names.index(_lib.foreign(raw.generator)), raw.increment))
            self._draws[key] = found
        return self._draws[key]

    def _keys(self):
        key, found = ctypes.c_uint64(), set()
        for i in range(lib.fdry_image_graph_count(self._handle)):
            lib.fdry_image_graph(self._handle, i, key, None, None)
            found.add(key.value)
        return found

    def bind(self, name, generator):
        _lib.text(name)
        if name not in self.names:
            raise KeyError(f"the image has no generator '{_lib.shown(name)}'; it has {self.names}")
        self._bound[name] = generator

    def bound(self, name):
        """The generator whose state is used; None for the image's own state."""
        if name in self._bound:
            return self._bound[name]
        torch = sys.modules.get("torch")
        if name != DEFAULT or torch is None or not torch.cuda.is_initialized():
            return None
        return torch.cuda.default_generators[self._device]

    def get(self, name):
        """(seed, offset)."""
        generator = self.bound(name)
        if generator is not None:
            return generator.initial_seed() & _WRAP, generator.get_offset() & _WRAP
        raw = _lib.RngState()
        lib.fdry_image_rng_state(self._handle, _lib.named(name), ctypes.byref(raw))
        return raw.seed, raw.offset

    def set(self, name, seed, offset=0):
        generator = self.bound(name)
        if generator is not None:
            generator.manual_seed(seed)
            generator.set_offset(offset)
        else:
            seed = _lib.fit(ctypes.c_int64 if seed < 0 else ctypes.c_uint64, seed) & _WRAP
            lib.fdry_image_rng_set_state(self._handle, _lib.named(name),
                                         ctypes.byref(_lib.RngState(seed, offset)))

    def _move(self, name, before, after):
        """Advance a generator from one offset to another, unless its offset was changed in between.
        """
        generator = self.bound(name)
        if generator is None:
            lib.fdry_image_rng_advance(self._handle, _lib.text(name), (after - before) & _WRAP)
        elif generator.get_offset() & _WRAP == before:
            generator.set_offset(after)

    def launch(self, key, stream):
        draws = self.draws(key) if self.names else []
        if all(self.bound(self.names[i]) is None for i, _ in draws):
            lib.fdry_image_launch(self._handle, key, stream)
            return
        with self._lock:
            self._launch_from(key, stream, draws)

    @contextlib.contextmanager
    def _moving(self):
        """Change offsets inside of the block. A signal handler may launch inside of another launch
        of its thread, but not between the read of an offset and its change.
        """
        if self._moves:
            raise _lib.Error(_lib.STATE, "this thread's launch around this one changes the offset "
                             "of a generator now, and a signal handler cannot wait for that")
        try:
            self._moves = True
            yield
        finally:
            self._moves = False

    def _launch_from(self, key, stream, draws):
        """Launch with numbers that no other launch uses: reserve them first, and return them if the
        launch fails.
        """
        states, moves = (_lib.RngState * len(self.names))(), []
        with self._moving():
            for i, by in draws:
                seed, offset = self.get(self.names[i])
                states[i] = _lib.RngState(seed, offset)
                moves.append((self.names[i], offset, (offset + by) & _WRAP))
                self._move(*moves[-1])
        try:
            lib.fdry_image_launch_rng(self._handle, key, stream, states, len(states))
        except _lib.Error:
            with self._moving():
                for name, before, after in reversed(moves):
                    self._move(name, after, before)
            raise
