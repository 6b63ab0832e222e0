# SPDX-License-Identifier: Apache-2.0
"""Finds tensors of the aside area in an engine's objects, so that a later start can set them there
again.

A path names the place of a tensor in these objects: "runner.manager.hidden_states". Attributes
follow a dot, keys of dicts a slash, indices of lists a colon. The same path is valid in the process
that loads, since its objects have the same constructors.
"""
import bisect
import collections
import contextlib
import re
import sys
import weakref

import torch

from .. import _lib
from .._lib import Error
from ..generators import slots
from .area import address
from .graphs import NAME_MAX

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_STEP = re.compile(r"([./:])([A-Za-z0-9_-]+)")
_DEPTH = 12


def searched(kind, packages, omitted):
    """Return whether objects of a class may hold what is looked for, as for find()."""
    name = kind.__module__ + "."
    return name.startswith(packages) and not name.startswith(omitted)


def _children(value, packages, omitted):
    """Yield (step, child) for an object that may hold tensors; step: None if the child cannot be
    set again.
    """
    if isinstance(value, dict):
        return [(f"/{key}" if isinstance(key, str) and _PLAIN.fullmatch(key) else None, child)
                for key, child in value.items()]
    if isinstance(value, list):
        return [(f":{i}", child) for i, child in enumerate(value)]
    if isinstance(value, tuple):
        return [(None, child) for child in value]
    kind = type(value)
    if searched(kind, packages, omitted) and hasattr(value, "__dict__"):
        return [(f".{name}" if _PLAIN.fullmatch(name) else None, child)
                for name, child in vars(value).items()]
    return []


def find(roots, start, end, packages, omitted=()):
    """Return {path: tensor} of the tensors in [start, end) that the objects `roots`, {name:
    object}, hold. Only objects whose classes are from `packages`, and not from `omitted`, are
    searched: tuples of the names of packages, each with a dot at its end.
    """
    left = [(name, value, 0) for name, value in roots.items()]
    found = {}
    seen = dict.fromkeys(map(id, roots.values()), True)  # {id: whether it was met with a path}
    while left:
        path, value, depth = left.pop()
        for step, child in _children(value, packages, omitted):
            place = path + step if step and path else ""
            if len(place) > NAME_MAX:
                place = ""
            if isinstance(child, torch.Tensor):
                if place and child.device.type == "cuda" and start <= address(child) < end:
                    found[place] = child
            elif depth < _DEPTH and (id(child) not in seen or place and not seen[id(child)]):
                seen[id(child)] = bool(place)
                left.append((place, child, depth + 1))
    return found


def _described(name, tensor):
    return name, address(tensor), str(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride())


def _named(model):
    """Yield (name, tensor) of a model's parameters and buffers."""
    for found in (model.named_parameters(), model.named_buffers()):
        yield from found


def _held(owners):
    """Yield (path, tensor) of the tensors that held() returns."""
    for path, owner in owners:
        for name, value in getattr(owner, "__dict__", {}).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            each = (value.items() if isinstance(value, dict) else
                    enumerate(value) if isinstance(value, (list, tuple)) else [("", value)])
            yield from ((f"{path}.{name}:{key}", one) for key, one in each
                        if isinstance(one, torch.Tensor))


def _on_gpu(found):
    return ((name, each) for name, each in found if each.device.type == "cuda")


def named(model):
    """Return [(name, address, type, shape, strides)] of a model's parameters and buffers."""
    return [_described(*each) for each in _on_gpu(_named(model))]


def held(owners):
    """Return [(path, address, type, shape, strides)], sorted, of the tensors that objects have, but
    neither as parameters nor as buffers: alone, or in a list, tuple or dict.

    owners: yields (path, object); the paths differ.
    """
    return sorted(_described(*each) for each in _on_gpu(_held(owners)))


def plain(model):
    """Return the tensors that a model's modules have, as held() does."""
    return held(model.named_modules())


def tensors(model):
    """Return {(name, address, type, shape, strides): tensor} of all tensors of a model that have
    memory.
    """
    found = (*_on_gpu(_named(model)), *_on_gpu(_held(model.named_modules())))
    return {_described(*each): each[1] for each in found if address(each[1])}


_ABSENT = object()


def place(roots, path, tensor):
    """Put a tensor at `path`. Returns a function that undoes it. Raises Error if there is no such
    place.
    """
    name = re.match(r"[^./:]+", path)[0]
    steps = _STEP.findall(path[len(name):])
    try:
        value = roots[name]
        for kind, key in steps[:-1]:
            value = getattr(value, key) if kind == "." else value[int(key) if kind == ":" else key]
        kind, key = steps[-1]
        if kind == ".":
            before = getattr(value, key, _ABSENT)
            setattr(value, key, tensor)
            return lambda: (delattr(value, key) if before is _ABSENT
                            else setattr(value, key, before))
        if kind == "/":
            before = value.get(key, _ABSENT)
            value[key] = tensor
            return lambda: (value.pop(key) if before is _ABSENT
                            else value.__setitem__(key, before))
        if int(key) == len(value):
            value.append(tensor)
            return value.pop
        before, value[int(key)] = value[int(key)], tensor
        return lambda: value.__setitem__(int(key), before)
    except (AttributeError, LookupError, TypeError) as e:
        raise Error(_lib.NOKEY, f"no place for the tensor {path} of the image: {e!r}") from e


def _in_order(path):
    """A key that sorts the indices of a list as numbers: a list grows at its end."""
    return [(kind, int(key), "") if kind == ":" else (kind, 0, key)
            for kind, key in _STEP.findall("." + path)]


def place_all(roots, tensors):
    """Put each tensor of {path: tensor} at its path. Returns a contextlib.ExitStack, which undoes
    it when it is closed. If one has no place, none is put anywhere.
    """
    with contextlib.ExitStack() as undo:
        for path, tensor in sorted(tensors.items(), key=lambda each: _in_order(each[0])):
            undo.callback(place(roots, path, tensor))
        return undo.pop_all()


def _ranges(others, placed):
    """Yield (start, end, tensor): the memory of each tensor of `others`.

    A graph may use any part of a tensor's storage. If a placed tensor has the same storage, a later
    start has that memory, too, and the range is that of the tensor alone.
    """
    kept = {each.untyped_storage().data_ptr() for each in placed}
    for each in others:
        storage = each.untyped_storage()
        start, size = storage.data_ptr(), storage.nbytes()
        if start in kept:
            start, size = each.data_ptr(), each.nbytes
        yield start - start % 8, start + size, each  # slots() rounds addresses down


def _holders(view):
    """Return how many references the tensor of a view has: of Python, of C++, and weak ones."""
    base = view._base
    return sys.getrefcount(base), base._use_count(), weakref.getweakrefcount(base)


def bases(tensors):
    """Return the tensors that views among `tensors` keep, and nothing else.

    Outside torch.inference_mode() a view keeps the tensor that it was made of, which torch then
    lists as an object. These have as many references as one that was made here has, and one more
    for each further view.
    """
    views = {id(each): each for each in tensors if each._base is not None}
    if not views:
        return []
    with torch.inference_mode(False), torch.no_grad():
        strong, views_of_one, weak = _holders(torch.zeros(2).view(2))
    counts = collections.Counter(id(each._base) for each in views.values())
    found = {id(each._base): each._base for each in views.values() if _holders(each) == (
        strong, views_of_one + counts[id(each._base)] - 1, weak)}
    return list(found.values())


def stale(capture, keys, others, placed=()):
    """Raise Error if a graph of `keys` uses one of the tensors `others`.

    A later start would not get these tensors again, and data that the host wrote to its own tensors
    would never reach the graph. A later start gets the tensors `placed`.
    """
    ranges = list(_ranges(others, placed))
    if not ranges:
        return
    used = sorted((addr, key) for key in keys for addr, _ in slots(capture._handle, key))
    for start, end, each in ranges:
        at = bisect.bisect_left(used, (start, 0))
        if at < len(used) and used[at][0] < end:
            raise Error(_lib.REFUSED, f"graph {used[at][1]} uses a tensor that was made while the "
                        f"engine profiled or warmed up ({each.dtype}, {list(each.shape)}, at "
                        f"{start:#x}), and no object of the worker has it: a later start could "
                        "not replace it")
