# SPDX-License-Identifier: Apache-2.0
"""The numbers that a model has in the host's memory.

A graph has such a number as an argument of a kernel, and torch passes a tensor of the host with one
element in the same way. Engines compute some of them from the weights, such as scales of quantized
ones, and weights may change while the configuration of the model stays. So a later start must have
the numbers of the first one.
"""
import base64
import collections
import functools
import json
import re
import types
import zlib

import torch

from . import attach
from .facts import hashed

_NUMBERS = (bool, int, float, complex)
_OF_MODULES = re.compile(r"\._(?:modules|parameters|buffers)/'([^']*)'")
_COMPILER = "_torchdynamo_"  # attributes that torch.compile() gives to functions: ids, for example


def _value(value):
    """Return a number as text, or a hash of an array in the host's memory; None for anything else.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))  # an enumeration's member, too
    if isinstance(value, _NUMBERS):
        return repr(value)
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout != torch.strided:
            return None
        flat = value.detach().resolve_conj().resolve_neg().contiguous().flatten()
        return (f"tensor {value.dtype} {tuple(value.shape)} "
                f"{hashed(flat.view(torch.uint8).numpy().tobytes())}")
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        if value.shape == () and value.dtype.kind in "iu":
            return str(int(value))
        return f"array {value.dtype} {value.shape} {hashed(value.tobytes())}"
    return None


def _children(value, packages, omitted):
    """Return [(step, child)] of an object that may have numbers."""
    more = [] if type(value).__module__ in ("builtins", "collections") else [
        (".attributes", getattr(value, "__dict__", {}))]  # of classes derived from containers
    if isinstance(value, dict):
        return [*((f"/{key!r}" if isinstance(key, (str, int)) else f"/#{i}", each)
                  for i, (key, each) in enumerate(value.items())), *more]
    if isinstance(value, (list, tuple, collections.deque)):
        return [*((f":{i}", each) for i, each in enumerate(value)), *more]
    if isinstance(value, (set, frozenset)):
        return [(f":{i}", each) for i, each in enumerate(sorted(
            each for each in value if isinstance(each, (bool, int, float))))]
    if isinstance(value, functools.partial):
        return [(":args", value.args), (":keywords", value.keywords), (":func", value.func)]
    if isinstance(value, types.MethodType):
        return [(":self", value.__self__), (":func", value.__func__)]
    if isinstance(value, types.FunctionType):
        package = f"{value.__module__}."
        if not package.startswith(packages) or package.startswith(omitted):
            return []
        cells = zip(value.__code__.co_freevars, value.__closure__ or ())
        return [(":defaults", value.__defaults__), (":keywords", value.__kwdefaults__),
                (":attributes", {name: each for name, each in vars(value).items()
                                 if not name.startswith(_COMPILER)}),
                *((f":{name}", cell.cell_contents) for name, cell in cells if _filled(cell))]
    if attach.searched(type(value), packages, omitted) or isinstance(value, torch.nn.Module):
        slots = [name for kind in type(value).__mro__
                 for name in _names(getattr(kind, "__slots__", ())) if hasattr(value, name)]
        return [*((f".{name}", each) for name, each in getattr(value, "__dict__", {}).items()),
                *((f".{name}", getattr(value, name)) for name in slots if name != "__dict__")]
    if "__wrapped__" in getattr(value, "__dict__", {}):  # a function with a cache, for example
        return [(":wrapped", value.__wrapped__)]
    return []


def _filled(cell):
    try:
        return cell.cell_contents is not cell
    except ValueError:  # its function has not assigned it yet
        return False


def _names(slots):
    return (slots,) if isinstance(slots, str) else slots


def of(model, packages, omitted=()):
    """Return {path: text} of the numbers, and of hashes of the arrays in the host's memory, that a
    model has.

    Modules are searched, containers, functions, and objects whose classes are from `packages` and
    not from `omitted`, as attach.find() takes them.
    """
    found, left = {}, [("model", model)]
    seen = {id(model): model}  # by identity; it keeps them, so that no other object gets an id
    while left:
        path, value = left.pop()
        for step, child in _children(value, packages, omitted):
            text = _value(child)
            if text is not None:
                found[path + step] = text
            elif not isinstance(child, (str, bytes)) and id(child) not in seen:
                seen[id(child)] = child
                left.append((path + step, child))
    return found


def summary(numbers):
    """Return the count of numbers, as of() returned them, and a hash of them."""
    return f"{len(numbers)}, hash {hashed(json.dumps(sorted(numbers.items())).encode())}"


def packed(numbers):
    """Return numbers, as of() returned them, as a text of few bytes."""
    return base64.b85encode(zlib.compress(json.dumps(numbers).encode())).decode()


def first_difference(numbers, text):
    """Return a sentence on the first of `numbers` that the packed numbers `text` have with another
    value, or lack; then of one that only they have. None if there is none, or no text.
    """
    if not text:  # of an image that an older version sealed
        return None
    others = json.loads(zlib.decompress(base64.b85decode(text)))
    for path in (*numbers, *others):
        ours, theirs = numbers.get(path, "not there"), others.get(path, "not there")
        if ours != theirs:
            return f"the model's number {shown(path)} is {ours} here and {theirs} in the image"
    return None


def shown(path):
    """Return a path without the names of the dictionaries that torch's modules have."""
    return _OF_MODULES.sub(r".\1", path)


def _whole(text):
    return text.lstrip("-").isdecimal() or text in ("True", "False")


def made_later(before, now):
    """Return the path of a number that is not whole, or of an array, which came after `before`, or
    changed; None if there is none. Whole numbers may count something. One that is only at a new
    place has not changed.
    """
    known, found = collections.Counter(before.values()), collections.Counter(now.values())
    return next((path for path, text in now.items()
                 if before.get(path) != text and not _whole(text) and
                 (path in before or found[text] > known[text])), None)
