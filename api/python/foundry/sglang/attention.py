# SPDX-License-Identifier: Apache-2.0
"""What SGLang's attention keeps for each batch size of graphs of decoding.

A capture makes it. FlashAttention 3 keeps tensors in buffers of its own, to which it writes before
each replay, and numbers. Triton's attention keeps nothing.
"""
import dataclasses
import sys

from ..engines import graphs
from ..engines.session import Unfit, check_configuration

BACKENDS = ("triton", "fa3")  # that images support


@dataclasses.dataclass(frozen=True)
class Kept:
    """The key of what attention keeps for graphs of this batch size."""

    batch: int


def check(args):
    """Raise Unfit if images do not support the attention of the server's arguments."""
    names = args.get_attention_backends()
    check_configuration((len(set(names)) > 1 or names[0] not in BACKENDS,
                         f"the attention backends {', '.join(names)}"))


def classes():
    """Return the classes of what values() returns. Their modules have been imported by then."""
    module = sys.modules.get("sglang.srt.layers.attention.flashattention_backend")
    return (module.FlashAttentionMetadata,) if module else ()


def values(decode):
    """Return {key: value} of what attention keeps after a capture. decode: SGLang's runner of
    graphs of decoding.
    """
    table = _table(decode.attn_backend)
    if table is None:
        return {}
    missing = [size for size in decode.capture_bs if size not in table]
    if missing:
        raise Unfit(f"attention keeps nothing for graphs of {missing[0]} requests")
    return {Kept(size): table[size] for size in decode.capture_bs}


def entries(decode, returned):
    """Return [(the table of attention, {batch size: value})]. returned: {name of a key: value}."""
    table = _table(decode.attn_backend)
    if table is None:
        return []
    return [(table, {size: returned[graphs.name_of(Kept(size))] for size in decode.capture_bs})]


def _table(backend):
    """Return the table of a backend with an entry for each batch size, or None."""
    return getattr(backend, "decode_cuda_graph_metadata", None)
