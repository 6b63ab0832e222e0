# SPDX-License-Identifier: Apache-2.0
"""The values that a graph returns: tensors that it writes, in lists, tuples and dataclasses.

An image names these tensors. A later start makes the same values of the tensors at their addresses.
"""
import dataclasses
import json

import torch

from .. import _lib
from .._lib import Error

OUTPUT = "output."  # and a number: the name of a tensor
_KEPT = (bool, int, float, str, type(None))


class Numbers:
    """Numbers of values: equal keys get the same number. all: every value."""

    def __init__(self):
        self.values, self.all = {}, []

    def of(self, key, value):
        self.all.append(value)
        return self.values.setdefault(key, (len(self.values), value))[0]

    def first(self):
        """Return the value of each number."""
        return [value for _, value in self.values.values()]


def pack(value, tensors, classes=None):
    """Return a value as JSON: a tensor as its number in `tensors`. classes: {name: dataclass} that
    unpack() will know.
    """
    if isinstance(value, torch.Tensor) and value.numel():
        return tensors.of((value.data_ptr(), str(value.dtype), tuple(value.shape),
                           tuple(value.stride())), value)
    if type(value) in (list, tuple):
        return [type(value).__name__, *(pack(each, tensors, classes) for each in value)]
    if type(value) in (classes or {}).values():
        found = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__,
                "fields": {name: pack(each, tensors, classes) for name, each in found.items()
                           if each is not None}}
    if type(value) in _KEPT:
        return {"value": value}
    raise Error(_lib.REFUSED, f"a graph returns, or attention keeps, a value of the type "
                f"{type(value).__name__}, which images do not support")


def unpack(packed, tensors, classes=None):
    """Return the value that pack() had. classes: {name: dataclass}."""
    if isinstance(packed, int):
        return tensors[packed]
    if isinstance(packed, list):
        made = [unpack(each, tensors, classes) for each in packed[1:]]
        return made if packed[0] == "list" else tuple(made)
    if "value" in packed:
        return packed["value"]
    made = classes[packed["class"]]
    given = {name: unpack(each, tensors, classes) for name, each in packed["fields"].items()}
    return made(**{**{f.name: None for f in dataclasses.fields(made)}, **given})


def describe(returned, classes=None):
    """Return (text, tensors, all) of {name of a graph: what it returns}.

    classes: {name: dataclass} of it. tensors: one for each number. all: also those that equal them
    in place and shape.
    """
    tensors = Numbers()
    packed = {name: pack(value, tensors, classes) for name, value in returned.items()}
    return json.dumps(packed, separators=(",", ":")), tensors.first(), tensors.all


def restore(text, tensors, classes=None):
    """Return {name of a graph: what it returns}, with `tensors` by number."""
    return {name: unpack(each, tensors, classes) for name, each in json.loads(text).items()}
