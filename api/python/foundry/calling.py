# SPDX-License-Identifier: Apache-2.0
"""Calls of an image: arguments by the names of its inputs, results by those of its outputs."""
import sys

from . import _nest, _record, _torch


class _Call:
    """A graph with the names of its inputs and outputs. build: makes the result of the outputs.
    inputs: {argument's name: tensor's name}. names: of all arguments. same: {name of an argument:
    name of an earlier one that is the same tensor}; None if it does not matter, and arguments then
    have no order. constants: {name: part of the signature} of the arguments that are no tensors.
    """

    def __init__(self, key, inputs, outputs, build, same=None, constants=()):
        self.key, self.inputs, self.outputs, self.build = key, inputs, outputs, build
        self.constants = dict(constants)
        self.names, self.same = list(same or inputs), same
        if same is not None:
            self.same = {name: first for name, first in same.items() if first != name}


def _leaves(part, name):
    """[(name, part)] of the tensors and constants in a signature."""
    if part[0] in ("tensor", "same", "const"):
        return [(name, part)]
    return [leaf for key, each in zip(part[2], part[3]) for leaf in _leaves(each, f"{name}.{key}")]


def _of_compile(described):
    leaves = [leaf for name, part in described["signature"] for leaf in _leaves(part, name)]
    same = {name: part[1] if part[0] == "same" else name
            for name, part in leaves if part[0] != "const"}
    inputs = [t[0] for t in described["inputs"]]
    own = [name for name, first in same.items() if first == name]
    return _Call(described["key"], dict(zip(own, inputs)), [t[0] for t in described["outputs"]],
                 _nest.builder(_nest.frozen(described["result"]), plain=True), same,
                 [(name, part) for name, part in leaves if part[0] == "const"])


def calls_of(image):
    """The calls of an image. Raises TypeError if it has several graphs that compile() did not name.
    """
    found = [_of_compile(each) for each in _record.read_calls(image)]
    if found:
        return found
    keys = list(image.graphs())
    if len(keys) != 1:
        raise TypeError(f"the image has {len(keys)} graphs; write the inputs, and launch() one of "
                        f"{keys}")
    tensors = image.tensors()
    inputs, outputs = ([t.name for t in tensors if t.use == use] for use in ("input", "output"))

    def build(results):
        return results[0] if len(results) == 1 else dict(zip(outputs, results))
    return [_Call(keys[0], {name: name for name in inputs}, outputs, build)]


def _bound(call, args, kwargs):
    """{tensor's name: argument} of a call, or the reason why these are not its arguments."""
    if args and call.same is None and len(call.names) != 1:
        return f"its inputs have no order; give them by name: {call.names}"
    values = {name: kwargs[name] for name in call.constants.keys() - call.names if name in kwargs}
    for name, value in values.items():
        if not _is_constant(value, call.constants[name]):
            return f"'{name}' was {call.constants[name][2]} in the capture"
    kwargs = {name: value for name, value in kwargs.items() if name not in values}
    given = {**dict(zip(call.names, args)), **kwargs}
    if len(given) != len(args) + len(kwargs) or given.keys() != set(call.names):
        return f"its inputs are {call.names}"
    return _aliased(call, given) or {call.inputs[name]: given[name] for name in call.inputs}


def _is_constant(value, part):
    """Whether an argument is the constant of a signature."""
    try:
        return _nest.spec(value, lambda tensor, name: None) == _nest.frozen(part)
    except _nest.Refused:
        return False


def _aliased(call, given):
    """The reason why a call does not fit: two arguments are one tensor and were two in the capture,
    or the reverse. "" if there is none.
    """
    if call.same is None:
        return ""
    for name, first in call.same.items():
        if given[name] is not given[first]:
            return f"'{name}' must be the same tensor as '{first}', as it was in the capture"
    seen = {}
    for name in call.inputs:
        first = seen.setdefault(id(given[name]), name)
        if first != name:
            return (f"'{first}' and '{name}' are the same tensor, and were two in the capture; "
                    "pass a copy")
    return ""


def _fits(image, bound):
    return all(tuple(getattr(value, "shape", image[name].shape)) == image[name].shape
               for name, value in bound.items())


def _alike(image, bound):
    """Whether the arguments have the types and strides of the tensors, as far as they have any."""
    def is_alike(value, tensor):
        kind = str(getattr(value, "dtype", tensor.dtype)).rpartition(".")[2]
        stride = getattr(value, "stride", tuple)
        return (kind == tensor.dtype
                and getattr(value, "itemsize", tensor.itemsize) == tensor.itemsize
                and tuple(stride() if callable(stride) else stride) in ((), tensor.stride))
    return all(is_alike(value, image[name]) for name, value in bound.items())


def _only(image, fitting, given):
    """The one of [(_Call, {tensor's name: argument})] whose constants were all given, or whose
    types are those of the arguments. Raises TypeError if several are left.
    """
    for is_better in (lambda each, bound: each.constants.keys() <= given,
                      lambda each, bound: _alike(image, bound)):
        fitting = [each for each in fitting if is_better(*each)] or fitting
    if len(fitting) > 1:
        names = sorted(set().union(*(each.constants for each, _ in fitting)) - given)
        raise TypeError(f"graphs {[each.key for each, _ in fitting]} of the image take these "
                        "arguments; " + (f"give these by name, too: {names}" if names
                                         else "write the inputs, and launch() one"))
    return fitting[0]


def call(image, args, kwargs):
    """Write the arguments, launch the graph that they fit, and return its results."""
    reasons, fitting = [], []
    for each in calls_of(image):
        bound = _bound(each, args, kwargs)
        if isinstance(bound, str):
            reasons.append(bound)
        elif not _fits(image, bound):
            reasons.append("the shapes are " + ", ".join(
                f"{name} {list(image[name].shape)}" for name in bound))
        else:
            fitting.append((each, bound))
    if not fitting:
        raise TypeError("no graph of the image takes these arguments: " + "; ".join(reasons))
    return _run(image, *_only(image, fitting, kwargs.keys()))


def _run(image, each, bound):
    stream = _torch.stream(image.device) or None
    for name, value in bound.items():
        image.write(name, value, stream=stream, wait=False)
    image.launch(each.key, stream)
    results = [image[name] for name in each.outputs]
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        results = [_torch.view(result).clone() for result in results]
    return each.build(results)
