# SPDX-License-Identifier: Apache-2.0
"""Parameters in an image's content: trained numbers, which no code or version identifies."""
import gc
import re
import sys

from ._lib import Error
from .tensor import DTYPES, EXTERNAL, HOST, USES

FACT = "py.parameters"
# A fact whose key ends in one of these words identifies the parameters of an image.
WORDS = {"revision", "weights", "parameters", "checkpoint", "commit", "digest", "sha256"}


def covered(facts):
    """Whether one of the caller's facts identifies the parameters."""
    given = [key.lower() for key in facts if not key.startswith("py.")]
    return any(re.split(r"[-_.@+/=:,]", key)[-1] in WORDS for key in given)


def _range(raw):
    """The addresses of a named tensor: (the first, its end)."""
    n = 1 + sum((size - 1) * step for size, step in zip(raw.shape[:raw.rank],
                                                        raw.stride[:raw.rank]))
    return raw.addr, raw.addr + (n if 0 not in raw.shape[:raw.rank] else 0) * DTYPES[raw.dtype][1]


def _torch_tensors():
    """The parameters and saved buffers of every live module of torch."""
    torch = sys.modules.get("torch")
    module = getattr(getattr(torch, "nn", None), "Module", None)
    if module is None:
        return
    for each in gc.get_objects():
        if issubclass(type(each), module):
            own = each.__dict__
            passing = own.get("_non_persistent_buffers_set", ())
            yield from own.get("_parameters", {}).values()
            yield from (t for name, t in own.get("_buffers", {}).items() if name not in passing)


def _torch_ranges():
    for tensor in _torch_tensors():
        try:
            if tensor is not None and tensor.is_cuda:
                yield tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()
        except RuntimeError:  # it is not in memory, or in several pieces
            pass


def of_capture(named, base, size):
    """The parameters that an image of [base, base + size) will have, in words; "" if there are
    none.

    named: the tensors that the program named, as _lib.Tensor. Parameters are those with
    use="const", and those of torch's modules. External tensors do not count, since the loading
    process fills them.
    """
    device = [raw for raw in named if not raw.flags & HOST]
    external = [_range(raw) for raw in device if raw.flags & EXTERNAL]
    const = [_range(raw) for raw in device if USES[raw.use] == "const"]
    found = {(at, end) for at, end in (*const, *_torch_ranges())
             if base <= at < end <= base + size
             and not any(a <= at and end <= b for a, b in external)}
    return _said(len(found), sum(end - at for at, end in found))


def of_image(image):
    """The parameters of an image, in words; "" if there are none.

    If the image does not list them, only its named tensors are known.
    """
    try:
        return image.fact(FACT)
    except Error:
        const = [t for t in image.tensors() if t.use == "const" and not t.external and not t.host
                 and t.nbytes]
        return _said(len(const), sum(t.nbytes for t in const))


def _said(count, nbytes):
    return f"{count} tensor{'s' * (count != 1)}, {nbytes} bytes" if count else ""
