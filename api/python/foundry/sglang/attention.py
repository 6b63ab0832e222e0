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
CLASSES = ("triton_backend.TritonAttnBackend", "flashattention_backend.FlashAttentionBackend")
_PACKAGE = "sglang.srt.layers.attention."


@dataclasses.dataclass(frozen=True)
class Kept:
    """The key of what attention keeps for graphs of this batch size."""

    batch: int


def check(args, envs):
    """Raise Unfit if images do not support the attention of the server's arguments. envs: SGLang's
    variables.
    """
    names = args.get_attention_backends()
    check_configuration(
        (len(set(names)) > 1 or names[0] not in BACKENDS,
         f"the attention backends {', '.join(names)}"),
        # Which kernels these are may depend on whether a hub can be reached.
        (names[0] == "fa3" and not envs.SGLANG_USE_SGL_FA3_KERNEL.get(),
         "FlashAttention 3 from a hub (SGLANG_USE_SGL_FA3_KERNEL=0)"))


def check_backend(backend):
    """Raise Unfit if images do not support what a backend keeps."""
    kind = f"{type(backend).__module__}.{type(backend).__qualname__}"
    known = [_PACKAGE + each for each in CLASSES]
    check_configuration((kind not in known, f"the attention {kind}"),
                        (getattr(backend, "has_local_attention", False), "chunked attention"))


def classes():
    """Return the classes of what values() returns. Their modules have been imported by then."""
    module = sys.modules.get(_PACKAGE + "flashattention_backend")
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
