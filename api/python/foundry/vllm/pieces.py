# SPDX-License-Identifier: Apache-2.0
"""Graphs of vLLM's CUDAGraphWrapper, which wraps a piece of a compiled model or the whole model.

A wrapper has an entry for each batch size: a graph, the tensors that the graph writes, and the
addresses of its arguments. vLLM replays the graph of an entry and returns these tensors. A later
start gets entries with the same tensors, at their addresses in the image.
"""
import dataclasses
import gc
import json

import torch

from .. import _lib
from .._lib import Error

OUTPUT = "output."  # and a number: the name of a tensor
_KEPT = (bool, int, float, str, type(None))


@dataclasses.dataclass(frozen=True)
class Piece:
    """The key of a graph: the name of its wrapper, and vLLM's key of the entry."""

    wrapper: str
    batch: object


def _name(wrapper):
    """Return a wrapper's name: the same in every start with the same compiled code."""
    part = wrapper.runnable
    index = getattr(part, "piecewise_compile_index", None)
    return wrapper.runtime_mode.name if index is None else f"{part.vllm_backend.prefix}.{index}"


def wrappers(config):
    """Return {name: wrapper} of the wrappers of the engine with this configuration."""
    from vllm.compilation.cuda_graph import CUDAGraphWrapper
    for attempt in range(2):
        found, other = {}, None
        for each in list(CUDAGraphWrapper._all_instances):
            if each.compilation_config is config.compilation_config:
                if found.setdefault(_name(each), each) is not each:
                    other = _name(each)
        if not other:
            return dict(sorted(found.items()))
        if not attempt:
            del found, each
            gc.collect()  # they may be left of code that could not be loaded
    raise Error(_lib.REFUSED, f"two pieces of the model have the name {other}")


def keys(found, batches):
    """Return the keys of all graphs that wrappers should have, {mode: [keys of entries]}."""
    return [Piece(name, batch) for name, wrapper in found.items()
            for batch in batches.get(wrapper.runtime_mode, ())]


def captured(found, batches):
    """Return {key: entry} of what vLLM has captured. Raises Error unless that is `batches`."""
    entries = {Piece(name, batch): entry for name, wrapper in found.items()
               for batch, entry in wrapper.concrete_cudagraph_entries.items()
               if entry.cudagraph is not None}
    other = set(entries) ^ set(keys(found, batches))
    if other:
        raise Error(_lib.REFUSED, f"vLLM has captured other graphs than expected: {other.pop()}")
    return entries


class _Numbers:
    """Numbers of values: equal keys get the same number. all: every value."""

    def __init__(self):
        self.values, self.all = {}, []

    def of(self, key, value):
        self.all.append(value)
        return self.values.setdefault(key, (len(self.values), value))[0]


def _pack(value, tensors):
    """Return a value that a piece returned as JSON: a tensor as its number in `tensors`."""
    if isinstance(value, torch.Tensor) and value.numel():
        return tensors.of((value.data_ptr(), str(value.dtype), tuple(value.shape),
                           tuple(value.stride())), value)
    if type(value) in (list, tuple):
        return [type(value).__name__, *(_pack(each, tensors) for each in value)]
    if type(value) in _KEPT:
        return {"value": value}
    raise Error(_lib.REFUSED, f"a piece of the model returns {type(value).__name__}, which images "
                "do not support")


def _unpack(packed, tensors):
    if isinstance(packed, int):
        return tensors[packed]
    if isinstance(packed, dict):
        return packed["value"]
    kind, *each = packed
    made = [_unpack(one, tensors) for one in each]
    return made if kind == "list" else tuple(made)


def describe(entries):
    """Return (text, tensors, others) of {number of a graph: entry}.

    restore() makes the entries again from the text. tensors: those that the graphs return, by
    number. others: tensors that equal them in place and shape.
    """
    tensors, addresses = _Numbers(), _Numbers()
    packed = {number: [_pack(entry.output, tensors),
                       [addresses.of(addr, addr) for addr in entry.input_addresses]]
              for number, entry in entries.items()}
    text = json.dumps({"graphs": packed, "addresses": list(addresses.values)},
                      separators=(",", ":"))
    return text, [tensor for _, tensor in tensors.values.values()], tensors.all


def restore(text, tensors, graphs):
    """Return {wrapper: {batch: entry}} of {Piece: Loaded}, with `tensors` by number."""
    from vllm.compilation.cuda_graph import CUDAGraphEntry
    found, made = json.loads(text), {}
    for piece, graph in graphs.items():
        output, inputs = found["graphs"][str(graph.key)]
        made.setdefault(piece.wrapper, {})[piece.batch] = CUDAGraphEntry(
            batch_descriptor=piece.batch, cudagraph=graph, output=_unpack(output, tensors),
            input_addresses=[found["addresses"][i] for i in inputs])
    return made
