# SPDX-License-Identifier: Apache-2.0
"""SGLang's breakable graphs of prefill: graphs of segments of the model, with a call of attention
between two of them.

SGLang has one such graph for each number of tokens. A replay launches the segments in turn, and
calls attention after each but the last one, with tensors that segments write and read. A later
start makes these calls with tensors at the same addresses.
"""
import dataclasses
import functools
import inspect

from ..engines import graphs
from ..engines.session import Unfit

BACKENDS = ("disabled", "breakable")  # that images support


@dataclasses.dataclass(frozen=True)
class Segment:
    """The key of a segment of the graph for `prefill` tokens."""

    prefill: int
    segment: int


@dataclasses.dataclass(frozen=True)
class Call:
    """The key of the call after a segment."""

    prefill: int
    call: int


@dataclasses.dataclass(frozen=True)
class Output:
    """The key of what the graph for `prefill` tokens returns."""

    prefill: int


def shapes(runner):
    """Return {tokens: SGLang's key} of the graphs of a PrefillCudaGraphRunner."""
    from sglang.srt.model_executor.runner.shape_key import ShapeKey
    return {size: ShapeKey(size=size) for size in runner.capture_num_tokens}


def _attention():
    """Return the one function that a replay may call. It keeps nothing between two calls."""
    from sglang.srt.layers.radix_attention import unified_attention_with_output
    return unified_attention_with_output


def _arguments(call):
    """Return what a call that SGLang has captured passes to attention, and what that returned."""
    held = inspect.getclosurevars(call).nonlocals
    if held.get("captured_inner") is not _attention():
        raise Unfit("a graph of prefill calls another function than attention")
    return (held["captured_args"], sorted(held["captured_kwargs"].items()),
            held["captured_output"])


def captured(runner):
    """Return ({key: graph}, {key: value}) of what SGLang has captured: the segments, and the calls
    and outputs.
    """
    wanted, backend = shapes(runner), runner.backend
    if set(wanted.values()) != set(backend._graphs):
        raise Unfit("SGLang has captured other graphs of prefill than expected")
    segments, values = {}, {}
    for size, shape in wanted.items():
        graph = backend._graphs[shape]
        if len(graph._segments) != len(graph._break_fns) + 1:
            raise Unfit(f"the graph of prefill for {size} tokens has other calls than expected")
        segments.update({Segment(size, i): each for i, each in enumerate(graph._segments)})
        values.update({Call(size, i): _arguments(each)
                       for i, each in enumerate(graph._break_fns)})
        values[Output(size)] = backend._outputs[shape]
    return segments, values


def _calls(size, returned):
    """Return what the calls of one graph have, in their order."""
    found = []
    while (name := graphs.name_of(Call(size, len(found)))) in returned:
        found.append(returned[name])
    return found


def entries(runner, returned, table):
    """Return [(a table of SGLang, {key: value})] with graphs of an image.

    returned: {name of a key: value}. table: a function of keys, which returns {key: graph}.
    """
    from sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph import (
        breakable_cuda_graph as breakable)
    calls = {size: _calls(size, returned) for size in shapes(runner)}
    loaded = table([Segment(size, i) for size, each in calls.items()
                    for i in range(len(each) + 1)])
    made, values = {}, {}
    for size, shape in shapes(runner).items():
        graph = breakable.BreakableCUDAGraph()
        graph._segments += [loaded[Segment(size, i)] for i in range(len(calls[size]) + 1)]
        graph._break_fns += [functools.partial(_call, breakable._copy_output, *each)
                             for each in calls[size]]
        made[shape], values[shape] = graph, returned[graphs.name_of(Output(size))]
    return [(runner.backend._graphs, made), (runner.backend._outputs, values)]


def _call(copy, args, more, output):
    """Do what SGLang's own replay does after a segment."""
    return copy(output, _attention()(*args, **dict(more)))
