# SPDX-License-Identifier: Apache-2.0
"""Captures the calls of a model: warms it up, checks that a graph can repeat it, names its tensors.

A graph repeats the work of the GPU alone. So a model whose forward changes attributes, draws random
numbers on the host, changes its arguments or waits for the GPU is refused, with the reason. The
results of each graph are compared with those of the model before the image is sealed.
"""
import contextlib
import json
import random
import sys
import warnings

from . import _nest, _torch
from ._lib import Error
from ._nest import Refused

WARMUP = 3
_FACT = 4000  # bytes of a description in one fact; longer ones are cut into several
CALL = "compile.call."


@contextlib.contextmanager
def generator_aside(torch, device):
    """Inside the block, torch's default generator has a state with the same numbers that no graph
    has registered.

    Yields a generator with that state, or None. Torch allocates the device memory of a state when
    the first graph registers it, so that of another state may lie in the region of an older image.
    """
    generator = next(iter(torch.cuda.default_generators[device:device + 1]), None)
    if not hasattr(generator, "graphsafe_set_state"):
        yield None
        return
    before, own = generator.graphsafe_get_state(), generator.clone_state()
    generator.graphsafe_set_state(own)
    try:
        yield own
    finally:
        generator.graphsafe_set_state(before)


def replayer(torch, device, graph, own):
    """A function of a stream that launches torch's graph. own: the generator that it draws from, or
    None if it draws nothing.
    """
    if own is None:
        return lambda stream: graph.replay()
    generator = torch.cuda.default_generators[device]

    def replay(stream):
        own.set_state(generator.get_state())
        graph.replay()
        generator.set_offset(own.get_offset())
    return replay


class Pool:
    """A pool of torch's allocator, which has no block from before the capture began."""

    def __init__(self, torch, device):
        self._torch, self._device, self.pool = torch, device, torch.cuda.MemPool()

    def __enter__(self):
        self._torch._C._cuda_beginAllocateCurrentThreadToPool(self._device, self.pool.id)
        return self

    def __exit__(self, *_):
        self._torch._C._cuda_endAllocateToPool(self._device, self.pool.id)
        self._torch._C._cuda_releasePool(self._device, self.pool.id)

    def clear(self):
        """Set the pool's free blocks to zero, since the image holds whole segments."""
        _torch.zero_pools(self._torch, self._device, {tuple(self.pool.id)})


@contextlib.contextmanager
def random_kept(torch, device):
    """Restore the state of torch's generators after the block."""
    generators = torch.cuda.default_generators[device:device + 1]
    states = [g.get_state() for g in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states):
            generator.set_state(state)


def _host_random(torch):
    """The states of the generators on the host."""
    numpy = sys.modules.get("numpy")
    found = [random.getstate()]
    if numpy:
        found.append([repr(part) for part in numpy.random.get_state()])
    if hasattr(torch, "get_rng_state"):
        found.append(torch.get_rng_state().tolist())
    return found


@contextlib.contextmanager
def _no_waiting(torch):
    """Refuse work that waits for the GPU, before a capture would fail at it."""
    if not hasattr(torch.cuda, "set_sync_debug_mode"):
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls this mode a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    except RuntimeError as e:
        if "synchroniz" not in str(e):
            raise
        raise Refused("its forward waits for the GPU, as control flow that depends on data, "
                      ".item() and copies to the host do") from e
    finally:
        torch.cuda.set_sync_debug_mode(before)


def resolved(tensor):
    """A tensor whose memory has its elements, not elements to be conjugated or negated."""
    for resolve in ("resolve_conj", "resolve_neg"):
        tensor = getattr(tensor, resolve)() if hasattr(tensor, resolve) else tensor
    return tensor


def bits(torch, tensor):
    """The elements of a tensor as bytes."""
    return resolved(tensor).contiguous().reshape(-1).view(torch.uint8)


def differing(torch, one, other):
    """The number of the first tensor whose shape, type or bytes differ; None if all are equal."""
    for i, (a, b) in enumerate(zip(one, other)):
        if (a.dtype, tuple(a.shape)) != (b.dtype, tuple(b.shape)) or not torch.equal(
                bits(torch, a), bits(torch, b)):
            return i
    return None


def _same(tensors, others):
    """Whether these are the same objects in the same order."""
    return list(map(id, tensors)) == list(map(id, others))


def collected(torch, device, value):
    """(spec, tensors) of a model's result; each tensor once, in the order of its first place."""
    tensors, numbers = [], {}

    def leaf(tensor, name):
        check_tensor(torch, device, tensor, f"result {name}".rstrip())
        if id(tensor) not in numbers:
            numbers[id(tensor)] = len(tensors)
            tensors.append(tensor)
        return "leaf", numbers[id(tensor)]
    return _nest.spec(value, leaf), tensors


def check_tensor(torch, device, tensor, name):
    """Raise Refused unless a graph can read or write the tensor."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise Refused(f"{name} is a {type(tensor).__qualname__}, which is no plain tensor")
    if not _torch.strided(torch, tensor):
        raise Refused(f"{name} is a sparse or nested tensor ({tensor.layout}), which has no "
                      "strides")
    if tensor.device.type != "cuda" or tensor.device.index != device:
        raise Refused(f"{name} lies on {tensor.device}, not on cuda:{device}")
    more = [each for each in _nest.attributes(tensor) if not each.startswith("_dynamo_")]
    if more:
        raise Refused(f"{name} has the attribute '{more[0]}', which a graph does not know")
    if not tensor.numel():
        raise Refused(f"{name} has no elements")


class Call:
    """A captured call: its key, the names of its tensors in the image, and its graph.

    described: what the image states about it, as a dict for JSON. inputs, outputs: the tensors that
    the graph reads and writes; None: not made yet. launch: a function of a stream. unverified:
    whether the first call must be compared with the model.
    """

    def __init__(self, described, inputs, outputs, launch):
        self.described, self.inputs, self.outputs = described, inputs, outputs
        self.launch, self.unverified = launch, False
        self.signature = _nest.frozen(described["signature"])
        self.build = _nest.builder(_nest.frozen(described["result"]))


def state_call(capture, described):
    """State a call as facts of the image."""
    text = json.dumps(described, separators=(",", ":"))
    pieces = [text[i:i + _FACT] for i in range(0, len(text), _FACT)]
    for i, piece in enumerate(pieces):
        last = "" if i == len(pieces) - 1 else "+"
        capture.fact(f"{CALL}{described['key']}.{i}", piece + last)


def read_calls(image):
    """The calls that an image states, by key in ascending order; none if compile() did not make
    it.
    """
    found = []
    for key in sorted(image.graphs()):
        text, i = "+", 0
        while text.endswith("+"):
            try:
                text = text[:-1] + image.fact(f"{CALL}{key}.{i}")
            except Error as e:
                if e.name not in ("FDRY_E_NOKEY", "FDRY_E_NOENT"):
                    raise
                return found
            i += 1
        found.append(json.loads(text))
    return found


def describe(tensor, name):
    return [name, str(tensor.dtype).rpartition(".")[2], list(tensor.shape), list(tensor.stride())]


class Recorder:
    """Captures a model's calls into a Capture; the function that load_or_capture() calls.

    examples: [(args, kwargs, signature)]. calls: a list of Call, when it is done.
    """

    def __init__(self, compiled, examples):
        self.compiled, self.examples = compiled, examples
        self.torch, self.weights = compiled._torch, compiled._weights
        self.calls, self.kept, self.state, self.own = [], [], None, None

    def __call__(self, capture):
        torch, device = self.torch, self.compiled.device
        self.capture, self.stream = capture, torch.cuda.Stream()
        self.pool = Pool(torch, device)
        torch.cuda.synchronize()
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear:
            clear()
        with random_kept(torch, device), torch.no_grad(), self._stream_kept(), \
                generator_aside(torch, device) as self.own:
            with self.pool:
                self._generator()
                self._move()
            torch.cuda.synchronize()
            for key, example in enumerate(self.examples, 1):
                self._record(key, *example)
            torch.cuda.synchronize()
            self.pool.clear()
            self._name_weights()

    @contextlib.contextmanager
    def _stream_kept(self):
        """Restore the current stream after the block, also if a capture fails in it."""
        torch = self.torch
        before = torch.cuda.current_stream()
        try:
            yield
        except BaseException:
            if hasattr(torch.cuda, "set_stream"):
                torch.cuda.set_stream(before)
            if self.state is not None:
                torch.cuda.synchronize()
                self._restore()
            raise

    def _generator(self):
        """Let torch allocate the state of its generator for graphs here."""
        graph = self.torch.cuda.CUDAGraph()
        for generator in self.torch.cuda.default_generators[self.compiled.device:][:1]:
            graph.register_generator_state(generator)
        self.kept.append(graph)

    def _move(self):
        size = max(512, self.weights.nbytes)
        self.flat = self.torch.empty((size,), dtype=self.torch.uint8,
                                     device=f"cuda:{self.compiled.device}")
        self.flat.zero_()
        self.weights.move(self.flat)

    # --- one call ---

    def _record(self, key, args, kwargs, signature):
        torch, self.copies = self.torch, {}
        originals = self.compiled._described(args, kwargs)[1]
        with self.pool, torch.cuda.stream(self.stream):
            args, kwargs = _nest.mapped((args, kwargs), self._input)
        self.inputs, self.signature = [self.copies[id(t)] for t in originals], signature
        if not self._is_given(args, kwargs):
            raise Refused("an argument has a class whose objects cannot be made again")
        with self._aside():
            self.given = [t.clone() for t in self.inputs]
            self.state = [self.weights.bytes_of(s).clone() if s.kind == "buffer" else None
                          for s in self.weights.storages]
        native = self._warm_up(args, kwargs)
        result, outputs, graph = self._captured(key, args, kwargs)
        self._compare(graph, outputs, native)
        self.given = self.state = native = None
        described = self._named(key, signature, result, outputs)
        own = self.own if self.capture.rng_uses.get(key) else None
        self.calls.append(Call(described, self.inputs, outputs,
                               replayer(torch, self.compiled.device, graph, own)))
        state_call(self.capture, described)
        self.kept.append((args, kwargs, graph))

    @contextlib.contextmanager
    def _aside(self):
        """Make tensors outside of the region, on the stream of the capture."""
        self.capture.pause()
        try:
            with self.torch.cuda.stream(self.stream):
                yield
        finally:
            self.torch.cuda.synchronize()
            self.capture.resume()

    def _input(self, tensor, name):
        if id(tensor) in self.copies:
            return self.copies[id(tensor)]
        made = self.torch.empty_strided(tuple(tensor.shape), tuple(tensor.stride()),
                                        dtype=tensor.dtype, device=tensor.device)
        try:
            made.copy_(tensor.detach())
        except RuntimeError as e:
            raise Refused(f"argument {name} has elements that share memory") from e
        self.copies[id(tensor)] = made
        return made

    def _is_given(self, args, kwargs):
        """Whether the arguments are those of the example, with the graph's inputs in them."""
        found, tensors = self.compiled._described(args, kwargs)
        return found == self.signature and _same(tensors, self.inputs)

    def _call(self, args, kwargs):
        """Call the model: the spec and the tensors of its result."""
        made = collected(self.torch, self.compiled.device, self.compiled.model(*args, **kwargs))
        if not self._is_given(args, kwargs):
            raise Refused("its forward changes a container or an attribute of an argument")
        return made

    def _warm_up(self, args, kwargs):
        """Call the model some times. Returns copies of its last results."""
        torch = self.torch
        with self.pool, torch.cuda.stream(self.stream):
            for _ in range(self.compiled.warmup - 1):
                self._call(args, kwargs)
            self._restore()
            self.result, outputs = self._observed(args, kwargs)
        torch.cuda.synchronize()
        with self._aside():
            outputs = [t.clone() for t in outputs]
        if differing(torch, self.inputs, self.given) is not None:
            raise Refused("its forward changes an argument")
        self._restore()
        return outputs

    def _observed(self, args, kwargs):
        """Call the model, and check what a graph would not repeat."""
        weights, drawn = self.weights, _host_random(self.torch)
        attributes, versions = weights.attributes(), weights.versions()
        changes = [t._version for t in self.inputs]
        with random_kept(self.torch, self.compiled.device), _no_waiting(self.torch):
            result, outputs = self._call(args, kwargs)
        if _host_random(self.torch) != drawn:
            raise Refused("its forward draws random numbers on the host")
        name = weights.assigned(attributes)
        if name:
            raise Refused(f"its forward assigns the attribute {name}")
        if [t._version for t in self.inputs] != changes:
            raise Refused("its forward changes an argument")
        self._note_changes(versions)
        return result, outputs

    def _note_changes(self, versions):
        """Note which storages the forward has changed."""
        for before, each in zip(self.state, self.weights.storages):
            if before is not None and each.nbytes:
                each.constant &= bool(self.torch.equal(before, self.weights.bytes_of(each)))
        for name, each in self.weights.written(versions):
            each.constant = False
            if each.kind == "parameter":
                raise Refused(f"its forward changes the parameter '{name}'")
        changed = [s.name for s in self.weights.storages if not s.constant]
        if changed and self.compiled.parameters == "image":
            raise Refused(f"its forward changes the buffer '{changed[0]}'; "
                          "parameters='reference' permits that")

    def _restore(self):
        """Give the arguments and the buffers the bytes that they had before all calls."""
        for before, each in zip(self.state, self.weights.storages):
            if before is not None and each.nbytes:
                self.weights.bytes_of(each).copy_(before)
        for tensor, value in zip(self.inputs, self.given):
            tensor.copy_(value)

    def _captured(self, key, args, kwargs):
        """Capture one call: its result's spec, the tensors of the result, and torch's graph."""
        torch = self.torch
        cached = getattr(torch, "clear_autocast_cache", None)
        if cached:
            cached()
        try:
            with self.capture.graph(key, name=f"call/{key}", stream=self.stream) as graph:
                result, outputs = self._call(args, kwargs)
                own = {t.untyped_storage().data_ptr() for t in self.inputs}
                outputs = [t.clone() if self.weights.owns(t)
                           or t.untyped_storage().data_ptr() in own else t for t in outputs]
                outputs = [resolved(t) for t in outputs]
        except Refused:
            raise
        except Exception as e:
            line = (str(e).strip().splitlines() or [""])[0]
            raise Refused(f"torch cannot capture it: {type(e).__name__}: {line}") from e
        if result != self.result:
            raise Refused("its forward returns other values or another structure each time")
        made, found = collected(torch, self.compiled.device, _nest.builder(result)(outputs))
        if made != result or not _same(found, outputs):
            raise Refused("its results have a class whose objects cannot be made again")
        return result, outputs, graph

    def _compare(self, graph, outputs, native):
        """Raise Refused unless two replays give the bits that the model gave."""
        torch = self.torch
        if len(outputs) != len(native):
            raise Refused("its forward returns another number of tensors each time")
        for _ in range(2 if self.compiled.check else 0):
            self._restore()
            with random_kept(torch, self.compiled.device):
                graph.replay()
            torch.cuda.synchronize()
            number = differing(torch, outputs, native)
            if number is not None:
                raise Refused(f"result {number} of its graph differs from the model's own, as "
                              "results of a state outside its buffers or of unordered additions "
                              "do; check=False accepts that")
            if differing(torch, self.inputs, self.given) is not None:
                raise Refused("its forward changes an argument")
        self._restore()
        torch.cuda.synchronize()

    # --- names ---

    def _named(self, key, signature, result, outputs):
        """Name the tensors of a call; what the image states about it."""
        prefix = "" if len(self.examples) == 1 else f"{key}/"
        names = [prefix + name for name in self.compiled._names(signature)]
        inputs = [describe(t, name) for t, name in zip(self.inputs, names)]
        output = f"{prefix}output"
        while any(name.startswith(f"{output}.") for name in names):  # of an argument
            output += "_"
        results = [describe(t, f"{output}.{i}") for i, t in enumerate(outputs)]
        for tensors, described, use in ((self.inputs, inputs, "input"),
                                        (outputs, results, "output")):
            for tensor, (name, *_) in zip(tensors, described):
                self._name(name, tensor, use)
        return {"key": key, "signature": signature, "inputs": inputs, "result": result,
                "outputs": results}

    def _name(self, name, tensor, use, external=False):
        try:
            self.capture.tensor(name, tensor, use=use, external=external)
        except (TypeError, ValueError, Error) as e:
            raise Refused(f"'{name}' cannot be named: {e}") from e

    def _name_weights(self):
        """Name the storages of the model, and state where they begin."""
        external = self.compiled.parameters == "reference"
        for each in self.weights.storages:
            if each.nbytes:
                self._name(f"model/{each.name}", self.weights.bytes_of(each),
                           "const" if each.constant else "state", external)
        self.capture.fact("compile.memory", f"{self.flat.data_ptr():#x}")

