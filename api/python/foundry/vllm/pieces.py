# SPDX-License-Identifier: Apache-2.0
"""Graphs of vLLM's CUDAGraphWrapper, which wraps a piece of a compiled model or the whole model.

A wrapper has an entry for each batch size: a graph, the tensors that the graph writes, and the
addresses of its arguments. vLLM replays the graph of an entry and returns these tensors. A later
start gets entries with the same tensors, at their addresses in the image.
"""
import dataclasses
import gc
import json

from .. import _lib
from .._lib import Error
from ..engines import graphs, outputs



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


def describe(entries):
    """Return the addresses of the arguments of {key: entry} as text."""
    addresses = outputs.Numbers()
    inputs = {graphs.name_of(key): [addresses.of(addr, addr) for addr in entry.input_addresses]
              for key, entry in entries.items()}
    return json.dumps({"inputs": inputs, "addresses": addresses.first()}, separators=(",", ":"))


def restore(text, returned, loaded):
    """Return {wrapper: {batch: entry}} of {Piece: Loaded}.

    text: from describe(). returned: {name of a graph: what it returns}.
    """
    from vllm.compilation.cuda_graph import CUDAGraphEntry
    found, made = json.loads(text), {}
    for piece, graph in loaded.items():
        name = graphs.name_of(piece)
        made.setdefault(piece.wrapper, {})[piece.batch] = CUDAGraphEntry(
            batch_descriptor=piece.batch, cudagraph=graph, output=returned[name],
            input_addresses=[found["addresses"][i] for i in found["inputs"][name]])
    return made
