# SPDX-License-Identifier: Apache-2.0
"""Calls of an image: arguments by the names of its inputs, results by those of its outputs."""
import sys

from . import _nest, _record, _torch


class _Call:
    """A graph with the names of its inputs and outputs. build: makes the result of the outputs.
    ordered: whether the inputs have an order for positional arguments.
    """

    def __init__(self, key, inputs, outputs, build, ordered):
        self.key, self.inputs, self.outputs, self.build = key, inputs, outputs, build
        self.names, self.ordered = [_short(name, key) for name in inputs], ordered


def _short(name, key):
    """The name of an argument: compile() puts the key before it if there are several graphs."""
    return name[len(f"{key}/"):] if name.startswith(f"{key}/") else name


def _of_compile(described):
    return _Call(described["key"], [t[0] for t in described["inputs"]],
                 [t[0] for t in described["outputs"]],
                 _nest.builder(_nest.frozen(described["result"]), plain=True), True)


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
    return [_Call(keys[0], inputs, outputs, build, len(inputs) == 1)]


def _bound(call, args, kwargs):
    """{tensor's name: argument} of a call, or the reason why these are not its arguments."""
    if args and not call.ordered:
        return f"its inputs have no order; give them by name: {call.names}"
    given = {**dict(zip(call.names, args)), **kwargs}
    if len(given) != len(args) + len(kwargs) or given.keys() != set(call.names):
        return f"its inputs are {call.names}"
    return {name: given[short] for name, short in zip(call.inputs, call.names)}


def _fits(image, bound):
    return all(tuple(getattr(value, "shape", image[name].shape)) == image[name].shape
               for name, value in bound.items())


def call(image, args, kwargs):
    """Write the arguments, launch the graph that they fit, and return its results."""
    reasons = []
    for each in calls_of(image):
        bound = _bound(each, args, kwargs)
        if isinstance(bound, str):
            reasons.append(bound)
        elif not _fits(image, bound):
            reasons.append("the shapes are " + ", ".join(
                f"{name} {list(image[name].shape)}" for name in bound))
        else:
            return _run(image, each, bound)
    raise TypeError("no graph of the image takes these arguments: " + "; ".join(reasons))


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
