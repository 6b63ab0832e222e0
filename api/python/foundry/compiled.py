# SPDX-License-Identifier: Apache-2.0
"""Models whose calls are graphs of an image: foundry.compile()."""
import contextlib
import hashlib
import threading
import types
import warnings
import weakref

from . import _lib, _modes, _nest, _record, _torch
from ._lib import Error
from ._nest import Refused
from ._weights import Weights, aligned, extent, typed
from .capture import base_for_name
from .identity import NOT_COMPARED, identify
from .start import load_or_capture
from .tensor import Tensor

_FACT_MAX = 4000
_REGION, _BASES = 160 << 30, 8
_RULES = "2"  # of what a capture refuses: images of older rules may give other results
_PARAMETERS, _OUTPUTS = ("reference", "image"), ("copy", "view")
# Settings of torch.compile() that choose kernels.
_INDUCTOR = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "freezing",
             "coordinate_descent_tuning", "epilogue_fusion", "shape_padding", "triton.cudagraphs",
             "emulate_precision_casts", "layout_optimization")


def _inner(model):
    """(the model that torch.compile() was given, the names of its wrappers)."""
    wrappers = []
    while True:
        inner = vars(model).get("_modules", {}).get("_orig_mod") if hasattr(
            model, "__dict__") else None
        inner = inner if inner is not None else getattr(model, "_torchdynamo_orig_callable", None)
        if inner is None:
            return model, wrappers
        how = getattr(getattr(model, "dynamo_ctx", model), "compiler_config", None) or {}
        wrappers.append(" ".join([type(model).__name__,
                                  *(f"{k}={how[k]!r}" for k in _INDUCTOR if k in how)]))
        model = inner


def _examples(given):
    """[(args, kwargs)] of example_inputs."""
    def one(each):
        if isinstance(each, dict):
            return (), each
        return (tuple(each), {}) if isinstance(each, tuple) else ((each,), {})
    found = [one(each) for each in (given if isinstance(given, list) else [given])]
    if not found:
        raise ValueError("compile() needs example inputs: a tuple, a dict, or a list of them")
    return found


class _Natives:
    """The threads that run the model itself, which reads parameters that close() moves."""

    def __init__(self):
        self._changed, self._depth, self._closing = threading.Condition(), {}, None

    def __enter__(self):
        me = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: self._closing in (None, me) or me in self._depth)
            self._depth[me] = self._depth.get(me, 0) + 1

    def __exit__(self, *_):
        me = threading.get_ident()
        with self._changed:
            self._depth[me] -= 1
            if not self._depth[me]:
                self._depth.pop(me, None)
                self._changed.notify_all()

    @contextlib.contextmanager
    def none(self):
        """Wait until no other thread runs the model, and let none begin inside of the block.
        Refused inside of another such block of this thread, as in a signal handler, and inside of a
        call for which another thread waits here.
        """
        me = threading.get_ident()
        with self._changed:
            if self._closing == me or self._closing is not None and me in self._depth:
                raise Refused("the thread is inside of another close(), or of a call that one "
                              "waits for")
            self._changed.wait_for(lambda: self._closing is None)
            self._closing = me
            self._changed.wait_for(lambda: not self._depth.keys() - {me})
        try:
            yield
        finally:
            with self._changed:
                self._closing = None
                self._changed.notify_all()


class Compiled:
    """A model whose captured calls launch graphs; compile() returns it. Call it like the model.

    model: the model. reason: why no call uses a graph, else "". start: the Start that loaded or
    captured the graphs, or None if nothing could be captured. ref: the name of the image. device:
    the ordinal of the GPU. parameters, outputs: as for compile().
    """

    def __init__(self, model, ref, parameters, outputs, how):
        self.model, self.ref, self.parameters, self.outputs = model, ref, parameters, outputs
        self.warmup, self.check = how
        self._torch = _torch.module()
        self._inner, self._wrappers = _inner(model)
        self._forward = getattr(model, "forward", None)
        self._signature = _nest.Signature(self._bound_by())
        owner = getattr(self._inner, "__self__", None)  # of a method
        self._module = owner if hasattr(owner, "named_modules") else self._inner
        self._said, self._known = set(), {}
        self._lock, self._inside, self._natives = threading.RLock(), False, _Natives()
        self._done = self._stream = self._image = self._kept = self.start = None
        self._weights, self.device, self.reason, self.calls = None, None, "", []
        self._dtypes = {}

    def _bound_by(self):
        """The function that binds the arguments of a call: forward(), of a module that has torch's
        own __call__().
        """
        inner = self._inner
        module = getattr(getattr(self._torch, "nn", None), "Module", type(None))
        if isinstance(inner, Compiled) or isinstance(vars(inner).get("forward") if hasattr(
                inner, "__dict__") else None, Compiled):
            raise ValueError("the model's forward() is what compile() returned before; pass the "
                             "model as it was, or delete its attribute 'forward' first")
        if isinstance(inner, module) and type(inner).__call__ is module.__call__:
            return inner.forward
        return inner

    def __repr__(self):
        count = len(self.calls)
        how = (f"native: {self.reason}" if self.reason else
               f"{count} call{'s' * (count != 1)}, " + ("loaded" if self._image else "captured"))
        return f"<Compiled {type(self._inner).__name__} as '{self.ref}': {how}>"

    def _repr_html_(self):
        from . import _show
        return _show.compiled(self, [(call.described["key"],
                                      ", ".join(_said(*part) for part in call.signature),
                                      len(call.described["outputs"])) for call in self.calls])

    @property
    def image(self):
        """The loaded Image, or None if this process captured it."""
        return self._image

    # --- finding the graph of a call ---

    def _leaf(self, tensor, name):
        """A tensor's part of the signature, by which a call finds its graph."""
        _record.check_tensor(self._torch, self.device, tensor, f"argument {name}")
        dtype = tensor.dtype
        if dtype not in self._dtypes:
            self._dtypes[dtype] = str(dtype)
        return "tensor", self._dtypes[dtype], tuple(tensor.shape), tuple(tensor.stride())

    def _described(self, args, kwargs):
        """(signature, tensors) of a call."""
        tensors, first, names = [], {}, set()

        def leaf(tensor, name):
            if name in names:
                raise Refused(f"two arguments have the name '{name}'")
            names.add(name)
            if first.setdefault(id(tensor), name) != name:
                return "same", first[id(tensor)]  # forward() may ask `a is b`
            tensors.append(tensor)
            return self._leaf(tensor, name)
        bound = self._signature.bind(args, kwargs)
        return tuple((name, _nest.spec(value, leaf, name))
                     for name, value in bound.items()), tensors

    def _names(self, signature):
        """The names of the tensors of a call, in order."""
        found = []

        def walk(part, name):
            if part[0] == "tensor":
                found.append(name)
            elif part[0] not in ("const", "same"):
                for key, each in zip(part[2], part[3]):
                    walk(each, f"{name}.{key}")
        for name, part in signature:
            walk(part, name)
        return found

    def _refuse_training(self):
        module = self._weights.trains()
        if module:
            raise Error(_lib.STATE, f"a {module} of the model is in training mode, which graphs "
                        "of compile() do not do; call model.eval()")

    def _refuse_autograd(self, tensors):
        if self._torch.is_grad_enabled() and (self._weights.wants_grad()
                                              or any(t.requires_grad for t in tensors)):
            raise Error(_lib.STATE, "autograd would record this call, which a graph cannot; call "
                        "it under torch.no_grad() or torch.inference_mode()")

    def _find(self, args, kwargs):
        """(Call, tensors) of a call; Refused says why there is none."""
        if self.reason:
            raise Refused(self.reason)
        self._refuse_training()
        changed = self._weights.changed()
        if changed:
            raise Refused(f"{changed} after compile()")
        if self._torch.cuda.is_current_stream_capturing():
            raise Refused("the stream captures a graph of its own")
        watched = _modes.watched(self._torch)
        if watched:
            raise Refused(f"{watched} would miss the call of a graph")
        mode = self._modes.changed()
        if mode:
            raise Refused(f"the setting of torch differs from that of compile(): {mode}")
        signature, tensors = self._described(args, kwargs)
        call = self._known.get(signature)
        if call is None:
            raise Refused("no graph was captured for "
                          + (", ".join(_said(*part) for part in signature) or "no arguments"))
        return call, tensors

    def __call__(self, *args, **kwargs):
        try:
            call, tensors = self._find(args, kwargs)
            self._refuse_autograd(tensors)
            with self._alone(), self._torch.no_grad():
                if self._known.get(call.signature) is not call:  # close() came first
                    raise Refused(self.reason or "its graph differs from the model")
                if not call.unverified or self._verified(call, tensors, args, kwargs):
                    return call.build(self._run(call, tensors))
        except Refused as e:
            self._say(f"the model runs without a graph: {e}")
        return self._native(*args, **kwargs)

    @contextlib.contextmanager
    def _alone(self):
        """Hold the lock. Refused if this thread holds it: a signal handler calls during a call, or
        the model calls itself while its first results are compared.
        """
        with self._lock:
            if self._inside:
                raise Refused("the thread is inside of a call that uses a graph")
            try:
                self._inside = True
                yield
            finally:
                self._inside = False

    def _native(self, *args, **kwargs):
        """Run the model itself. After `model.forward = foundry.compile(model, ...)`, that is its
        own forward().
        """
        with self._natives:
            if getattr(self.model, "forward", None) is self:
                return self._forward(*args, **kwargs)
            return self.model(*args, **kwargs)

    def _say(self, reason):
        """Warn once for each reason."""
        if reason not in self._said:
            self._said.add(reason)
            warnings.warn(f"'{self.ref}': {reason}", stacklevel=3)

    def _run(self, call, tensors):
        """Launch a call's graph. Returns its results."""
        if call.inputs is None:  # the first use of a loaded graph
            with _torch.inference(False):
                call.inputs, call.outputs = (self._views(self._image, call.described[part])
                                             for part in ("inputs", "outputs"))
        stream = self._torch.cuda.current_stream(self.device)
        if self._stream not in (None, stream.cuda_stream):
            stream.wait_event(self._done)
        for own, given in zip(call.inputs, tensors):
            own.copy_(given)
        call.launch(stream)
        outputs = (list(call.outputs) if self.outputs == "view"
                   else [t.clone() for t in call.outputs])
        self._done.record(stream)
        self._stream = stream.cuda_stream
        return outputs

    def _verified(self, call, tensors, args, kwargs):
        """Compare a call's graph with the model, once, because the parameters are not those of the
        capture. If the results differ, the call has no graph any more.
        """
        torch, weights = self._torch, self._weights
        state = [(weights.bytes_of(s), weights.bytes_of(s).clone()) for s in weights.storages
                 if s.kind == "buffer" and s.nbytes]
        try:
            with _record.random_kept(torch, self.device):
                want = _record.collected(torch, self.device, self._native(*args, **kwargs))[1]
            self._restore(state)
            with _record.random_kept(torch, self.device):
                got = self._run(call, tensors)
        finally:
            self._restore(state)
        call.unverified = False
        if len(want) == len(got) and _record.differing(torch, got, want) is None:
            return True
        del self._known[call.signature]
        self._say("with the present parameters its graph gives other results than the model; the "
                  "capture kept values that were computed from the parameters")
        return False

    @staticmethod
    def _restore(state):
        for now, before in state:
            now.copy_(before)

    # --- starting ---

    def _begin(self, examples, facts, store, options):
        """Load the image, or capture and seal it. No tensor is made in torch's inference mode,
        since the graphs' tensors serve calls outside of it.
        """
        mode = getattr(self._torch, "inference_mode", None)
        with mode(False) if mode else contextlib.nullcontext(), self._torch.no_grad():
            self._prepare(examples, facts, store, options)

    def _prepare(self, examples, facts, store, options):
        torch = self._torch
        try:
            self._weights = Weights(torch, self._module)
        except Refused as e:
            self.reason = str(e)
            return
        self._weights.caller = weakref.ref(self)
        self.device = (torch.cuda.current_device() if self._weights.device is None
                       else self._weights.device)
        self._refuse_training()
        self._modes = _modes.Modes(torch)
        self._done = torch.cuda.Event()
        try:
            watched = _modes.watched(self._torch)
            if watched:
                raise Refused(f"{watched} would miss the calls of graphs")
            hooked = self._weights.hooked()
            if hooked:
                raise Refused(f"a {hooked} of the model has a hook, which a graph does not call")
            found = [(args, kwargs, self._described(args, kwargs)[0]) for args, kwargs in examples]
            self._start(found, facts, store, options)
        except Refused as e:
            self.reason = str(e)
            self._weights.note()

    def _facts(self, examples, given):
        """The facts that an image must have."""
        found = identify(self._inner, given)
        found.not_compared = [each for each in found.not_compared
                              if each.why != "the parameters of a module"]
        shapes = "; ".join(repr(signature) for _, _, signature in examples)
        facts = {**found.facts, "compile.parameters": self.parameters,
                 "compile.model": self._weights.fact(), "compile.modes": str(self._modes),
                 "compile.inputs": _short(shapes), "compile.rules": _RULES}
        if self._wrappers:
            facts["compile.wrapper"] = _short(" of ".join(self._wrappers))
        if self.parameters == "image":
            facts["compile.digest"] = self._weights.digest()
        return found, {**facts, **{k: str(v) for k, v in (given or {}).items()}}

    def _start(self, examples, given, store, options):
        found, facts = self._facts(examples, given)
        recorder = _record.Recorder(self, examples)

        def capture(into):
            recorder(into)
            missing = "; ".join(f"{name}: {why}" for name, why in found.not_compared)
            if missing:
                into.fact(NOT_COMPARED, missing.encode()[:_FACT_MAX].decode(errors="ignore"))
        options = {"size": self._size(), **options}
        self.start = self._elsewhere(lambda **base: load_or_capture(
            self.ref, capture=capture, facts=facts, store=store, device=self.device,
            identity="manual", **{**base, **options}))
        self.start.identity = found
        if self.start.image:
            self._place(self.start.image)
        else:
            self.calls, self._kept = recorder.calls, recorder
            if self.start.capture:  # of a failed seal; its memory stays valid
                self.start.capture.end()
            self._refuse_unsealed(self.start.seal_error)
        self._known = {call.signature: call for call in self.calls}
        self._weights.note()

    def _refuse_unsealed(self, error):
        """Refuse graphs that no image can hold: they may read memory that nothing keeps."""
        if error and error.name == "FDRY_E_REFUSED":
            self.calls = []
            raise Refused(str(error))

    def _size(self):
        """Bytes of addresses: fewer than lie between the bases of most names, so that a process can
        have many models.
        """
        return _REGION if 4 * self._weights.nbytes < _REGION else 0

    def _elsewhere(self, begin):
        """Call begin(), again with another base if the name's base is in use in this process."""
        for i in range(_BASES):
            try:
                return begin(**({"base": base_for_name(f"{self.ref}+{i}")} if i else {}))
            except Error as e:
                if e.name != "FDRY_E_TAKEN" or i == _BASES - 1:
                    raise

    def _place(self, image):
        """Move the model into the memory of a loaded image, and make its calls."""
        torch, weights = self._torch, self._weights
        self._image = image
        base, same = int(image.fact("compile.memory"), 16), True
        if weights.nbytes:
            flat = self._bytes(base, weights.nbytes)
            weights.move(flat, copy=self.parameters == "reference")
        if self.parameters == "reference":
            image.filled()
            same = self._is_same(image)
        for described in _record.read_calls(image):
            call = _record.Call(described, None, None, _launcher(image, described["key"]))
            call.unverified = not same
            self.calls.append(call)
        torch.cuda.synchronize()

    def _is_same(self, image):
        """Whether the model's constants are those of the capture."""
        if not any(t.external and t.use == "const" and t.nbytes for t in image.tensors()):
            return True
        try:
            image.check(stream=self._torch.cuda.current_stream(self.device))
        except Error as e:
            if e.name not in ("FDRY_E_CORRUPT", "FDRY_E_STATE"):
                raise
            return False
        return True

    def _bytes(self, addr, nbytes):
        """Memory of the image as a tensor of bytes."""
        return _torch.view(Tensor.at(self._image, addr, "uint8", (nbytes,), (1,)))

    def _views(self, image, described):
        found = []
        for name, dtype, shape, stride in described:
            like = types.SimpleNamespace(dtype=getattr(self._torch, dtype), shape=tuple(shape),
                                         stride=tuple(stride))
            nbytes = extent(like.shape, like.stride, like.dtype.itemsize)
            found.append(typed(self._torch, self._bytes(image[name].addr, nbytes), 0, like))
        return found

    def close(self):
        """Move the model's parameters to memory of torch, and unload the image. Calls that have
        begun end first; later ones run natively.
        """
        try:
            with self._alone():
                self.reason = self.reason or "it was closed"
                for call in self.calls:  # a thread that waits for the lock may hold it
                    call.inputs = call.outputs = ()
                self.calls, self._known = [], {}
            with self._natives.none():  # without the lock, for which their own calls may wait
                if self._image is not None:
                    self._unload()
        except Refused as e:
            raise Error(_lib.STATE, f"close() would wait for itself: {e}") from None

    def _unload(self):
        torch = self._torch
        torch.cuda.synchronize()
        if self._weights.nbytes:
            self._weights.move(torch.empty((aligned(self._weights.nbytes),), dtype=torch.uint8,
                                           device=f"cuda:{self.device}"))
        torch.cuda.synchronize()
        self._image.close()
        self._image = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _said(name, part):
    """An argument in words, for messages."""
    if part[0] == "tensor":
        return f"{name} {part[1].rpartition('.')[2]}{list(part[2])}"
    if part[0] == "const":
        return f"{name} {part[2]}"
    if part[0] == "same":
        return f"{name} the same tensor as {part[1]}"
    return ", ".join(_said(f"{name}.{key}", each) for key, each in zip(part[2], part[3]))


def _launcher(image, key):
    return lambda stream: image.launch(key, stream)


def _short(text):
    """A fact's value: the text, or its beginning and its digest."""
    if len(text) <= _FACT_MAX // 4:
        return text
    return f"{text[:_FACT_MAX // 4]}... {hashlib.sha256(text.encode()).hexdigest()}"


def compile(model, example_inputs, *, ref, store=None, facts=None, parameters="reference",
            outputs="copy", warmup=3, check=True, **options):
    """A callable that computes what `model` computes, by graphs that are loaded or captured.

        model = torchvision.models.resnet18().cuda().eval()
        fast = foundry.compile(model, (torch.zeros(8, 3, 224, 224, device="cuda"),), ref="resnet")
        with torch.no_grad():
            y = fast(x)

    The first process captures one graph for each example and seals them; a later one loads them,
    and runs nothing of the model. A call uses a graph if it has the shapes, strides, types and
    other arguments of an example. Any other call runs the model itself, and a warning says so once.

    example_inputs: a tuple of positional arguments, a dict of keyword arguments, one tensor, or a
    list of these, one for each graph. Arguments and results may be tensors in lists, tuples, dicts,
    named tuples and dataclasses; other arguments count by their value.

    parameters: "reference": the parameters stay those of the model. They move into memory that the
    graphs read, so a change of a parameter in its place has its effect in the next call. "image":
    the image holds their bytes, and is loaded if a fingerprint of the model's equals theirs.
    outputs: "copy": results are new tensors. "view": they are memory of the image, which the next
    call overwrites.

    ref: the name of the image. store: a Store or a path, which is created if it does not exist
    (None: the default store). facts: {key: value} that the image must have; a new image states
    them. Options: strict=True: never capture; raise the reason why no image can be used. wait:
    seconds to wait for another process that captures the same (600; 0: do not wait). build=True: a
    load builds every graph at once, not before its first launch. progress=True: draw a bar.
    load_or_capture() and load() describe the others.

    warmup: how often the model runs before a capture, at least twice. check: compare each new graph
    with the model, and capture nothing if a bit differs.

    If the model cannot be captured exactly, all calls run the model, and a warning says why. Raises
    Error FDRY_E_STATE in training mode, and for calls that autograd would record.
    """
    if parameters not in _PARAMETERS or outputs not in _OUTPUTS:
        raise ValueError(f"parameters must be one of {_PARAMETERS}, outputs one of {_OUTPUTS}, "
                         f"not {parameters!r} and {outputs!r}")
    if warmup < 2:
        raise ValueError(f"warmup must be 2 at least, not {warmup}")
    made = Compiled(model, ref, parameters, outputs, (warmup, check))
    made._begin(_examples(example_inputs), facts, store, options)
    if made.reason:
        made._say(f"the model runs without a graph: {made.reason}")
    elif made.start.seal_error:
        made._say(f"it was captured for this process alone: {made.start.seal_error}")
    return made
