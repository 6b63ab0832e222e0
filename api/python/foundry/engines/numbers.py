# SPDX-License-Identifier: Apache-2.0
"""The numbers that a model has in the host's memory.

A graph has such a number as an argument of a kernel, and torch passes a tensor of the host with one
element in the same way. Engines compute some of them from the weights, such as scales of quantized
ones, and weights may change while the configuration of the model stays. So a later start must have
the numbers of the first one.
"""
import functools
import json
import types

import torch

from . import attach
from .facts import hashed

_NUMBERS = (bool, int, float, complex)


def _value(value):
    """Return a number as text, or a hash of an array in the host's memory; None for anything else.
    """
    if isinstance(value, _NUMBERS):
        return repr(value)
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout != torch.strided:
            return None
        flat = value.detach().resolve_conj().resolve_neg().contiguous().flatten()
        return "tensor " + hashed(flat.view(torch.uint8).numpy().tobytes())
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        return "array " + hashed(value.tobytes())
    return None


def _children(value, packages, omitted):
    """Yield (step, child) of an object that may have numbers."""
    if isinstance(value, dict):
        return [(f"/{key if isinstance(key, (str, int)) else i}", each)
                for i, (key, each) in enumerate(value.items())]
    if isinstance(value, (list, tuple)):
        return [(f":{i}", each) for i, each in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return [(f":{i}", each) for i, each in enumerate(sorted(
            each for each in value if isinstance(each, (bool, int, float))))]
    if isinstance(value, functools.partial):
        return [(":args", value.args), (":keywords", value.keywords), (":func", value.func)]
    if isinstance(value, types.MethodType):
        return [(":self", value.__self__), (":func", value.__func__)]
    if isinstance(value, types.FunctionType):
        name = f"{value.__module__}."
        if not name.startswith(packages) or name.startswith(omitted):
            return []
        return [(":defaults", value.__defaults__), (":keywords", value.__kwdefaults__), *(
            (f":{name}", cell.cell_contents) for name, cell in zip(
                value.__code__.co_freevars, value.__closure__ or ()) if _filled(cell))]
    if attach.searched(type(value), packages, omitted) or isinstance(value, torch.nn.Module):
        slots = [name for kind in type(value).__mro__
                 for name in _names(getattr(kind, "__slots__", ())) if hasattr(value, name)]
        return [*((f".{name}", each) for name, each in getattr(value, "__dict__", {}).items()),
                *((f".{name}", getattr(value, name)) for name in slots if name != "__dict__")]
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
    found, seen, left = {}, {id(model)}, [("model", model)]
    while left:
        path, value = left.pop()
        for step, child in _children(value, packages, omitted):
            text = _value(child)
            if text is not None:
                found[path + step] = text
            elif not isinstance(child, (str, bytes)) and id(child) not in seen:
                seen.add(id(child))
                left.append((path + step, child))
    return found


def summary(numbers):
    """Return the count of numbers, as of() returned them, and a hash of them."""
    return f"{len(numbers)}, hash {hashed(json.dumps(sorted(numbers.items())).encode())}"


def made_later(before, now):
    """Return the path of a number that is not whole, or of an array, which came after `before`, or
    changed; None if there is none. Whole numbers may count something.
    """
    return next((path for path, text in now.items()
                 if before.get(path) != text and not text.lstrip("-").isdecimal() and
                 text not in ("True", "False")), None)
