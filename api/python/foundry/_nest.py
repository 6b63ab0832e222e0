# SPDX-License-Identifier: Apache-2.0
"""Arguments and results of a model: tensors in nested containers.

spec() describes a value as nested tuples, which can be compared and kept as JSON. mapped() makes a
copy of the containers with other tensors in them.
"""
import collections
import dataclasses
import enum
import inspect
import sys
import types

from . import _torch

DEPTH = 32  # containers in containers
_PLAIN = (type(None), bool, int, float, str, bytes, complex)
_NAMED = (("torch", "dtype"), ("torch", "device"), ("torch", "memory_format"),
          ("torch", "layout"))


class Refused(Exception):
    """The reason for which a call or a model cannot use a graph."""


def _fields(value):
    """The names of a dataclass's fields that its constructor takes."""
    return [f.name for f in dataclasses.fields(value) if f.init]


def attributes(value):
    """The attributes that an object itself has: {name: value}."""
    return getattr(value, "__dict__", {})


def _mirrored(value, names):
    """Whether the attributes of a dict with fields are its elements, or None, as those of a
    ModelOutput of transformers.
    """
    return value.keys() <= set(names) and all(
        name in names and each is value.get(name) for name, each in attributes(value).items())


def parts(value):
    """(kind, keys, values) of a container; None for other values, and for those that have more than
    their elements.
    """
    cls = type(value)
    if cls in (list, tuple):
        return cls.__name__, range(len(value)), value
    if cls in (dict, collections.OrderedDict):
        return None if attributes(value) else ("dict", list(value), list(value.values()))
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return None if attributes(value) else ("named", cls._fields, value)
    if isinstance(value, tuple) and cls.__module__ == "torch.return_types":
        return "sequence", range(len(value)), value
    if dataclasses.is_dataclass(value) and cls is not type:
        names = _fields(value)
        if isinstance(value, dict):
            return ("fields", list(value), list(value.values())) if _mirrored(
                value, names) else None
        if vars(value).keys() - names if hasattr(value, "__dict__") else len(names) != len(
                dataclasses.fields(value)):
            return None  # it has more than its constructor takes
        return "fields", names, [getattr(value, name) for name in names]
    return None


def _made(kind, cls, keys, values):
    try:
        return _construct(kind, cls, keys, values)
    except Exception as e:  # whatever a constructor of the program raises
        raise Refused(f"objects of {cls.__qualname__} cannot be made again: {e}") from e


def _construct(kind, cls, keys, values):
    if kind in ("list", "tuple", "sequence"):
        return cls(values)
    if kind == "named":
        return cls(*values)
    return cls(**dict(zip(keys, values))) if kind == "fields" else cls(zip(keys, values))


def mapped(value, function, name=""):
    """A copy of the containers in `value`, with function(tensor, name) in place of each tensor."""
    if _torch.is_tensor(value):
        return function(value, name)
    found = parts(value)
    if found is None:
        return value
    kind, keys, values = found
    return _made(kind, type(value), keys,
                 [mapped(v, function, _within(name, k)) for k, v in zip(keys, values)])


def _within(name, key):
    return f"{name}.{key}" if name else str(key)


def _const(value, name):
    cls = type(value)
    if cls in _PLAIN or (cls.__module__, cls.__name__) in _NAMED:
        return "const", cls.__name__, repr(value)
    if isinstance(value, enum.Enum) and type(value.value) in _PLAIN:
        return "const", _class_name(cls), f"{value.name} = {value.value!r}"  # flags may lack names
    if isinstance(value, enum.Enum) and value.name is not None:
        return "const", _class_name(cls), value.name
    what = f"'{name}'" if name else "the result"
    raise Refused(f"{what} is a {cls.__module__}.{cls.__qualname__}, which has "
                  + ("more than its elements" if isinstance(value, (tuple, dict)) else
                     "no fixed value that a graph could be chosen by"))


def _class_name(cls):
    return f"{cls.__module__}:{cls.__qualname__}"


def spec(value, leaf, name="", depth=0):
    """A description of `value` in nested tuples. leaf(tensor, name): that of a tensor.

    Raises Refused, which names the part, for values of other kinds.
    """
    if _torch.is_tensor(value):
        return leaf(value, name)
    found = parts(value)
    if found is None:
        return _const(value, name)
    if depth == DEPTH:
        raise Refused(f"'{name}' lies in more than {DEPTH} containers")
    kind, keys, values = found
    if kind == "dict" and not all(type(k) in (str, int) for k in keys):
        raise Refused(f"'{name}' is a dict with keys that are neither str nor int")
    return (kind, _class_name(type(value)), tuple(keys),
            tuple(spec(v, leaf, _within(name, k), depth + 1) for k, v in zip(keys, values)))


def frozen(value):
    """Nested tuples from the nested lists that JSON makes of them."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def _find_class(name):
    module, _, path = name.partition(":")
    found = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise Refused(f"the results are objects of {name.replace(':', '.')}, a class that this "
                      "process has not imported")
    return found


def _value(kind, text):
    plain = {"NoneType": None, "True": True, "False": False}
    if kind in ("NoneType", "bool"):
        return plain.get(text)
    if kind in ("int", "float", "complex"):
        return {"int": int, "float": float, "complex": complex}[kind](text)
    if kind in ("str", "bytes"):
        import ast
        return ast.literal_eval(text)
    raise Refused(f"the results have a {kind}, which cannot be made again")


def builder(described, plain=False):
    """A function that makes the value of a spec, whose leaves are ("leaf", number), from tensors.

    plain: dicts and tuples in place of objects of the program's classes.
    """
    if described[0] == "leaf":
        number = described[1]
        return lambda tensors: tensors[number]
    if described[0] == "const":
        value = _value(described[1], described[2])
        return lambda tensors: value
    kind, name, keys, values = described
    cls = ((dict if kind in ("dict", "fields") else list if kind == "list" else tuple)
           if plain else _find_class(name))
    if plain and kind != "list":
        kind = "dict" if cls is dict else "tuple"
    each = [builder(v, plain) for v in values]
    return lambda tensors: _made(kind, cls, keys, [make(tensors) for make in each])


def _undecorated(function):
    """The function without torch's own decorators, such as no_grad(), which pass all arguments on.
    """
    plain = getattr(function, "__func__", function)
    while hasattr(plain, "__wrapped__") and str(getattr(plain, "__globals__", {}).get(
            "__name__")).partition(".")[0] == "torch":
        plain = plain.__wrapped__
    return types.MethodType(plain, function.__self__) if inspect.ismethod(function) else plain


class Signature:
    """The names of a function's parameters, by which positional arguments equal keyword ones.

    A decorator of the program may change arguments. So its own parameters count, not those of the
    function that it wraps.
    """

    def __init__(self, function):
        try:
            function = _undecorated(function)
            if hasattr(getattr(function, "__func__", function), "__signature__"):
                raise ValueError  # what a decorator claims
            found = inspect.signature(function, follow_wrapped=False).parameters.values()
        except (TypeError, ValueError):  # of compiled code
            found = ()
        self._unnamed = {p.name for p in found if p.kind is p.POSITIONAL_ONLY}
        self.names = [p.name for p in found
                      if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._by_name = self.names + [p.name for p in found if p.kind is p.KEYWORD_ONLY]
        self._defaults = {p.name: p.default for p in found if p.default is not p.empty
                          and type(p.default) in _PLAIN}

    def bind(self, args, kwargs):
        """{name: argument} in the order of the parameters, without those that equal defaults. Other
        keyword arguments keep their order, in which the function may read them.
        """
        bound = dict(zip(self.names, args))
        for i in range(len(self.names), len(args)):
            bound[f"args.{i}"] = args[i]
        both = (bound.keys() | self._unnamed) & kwargs.keys()
        if both:
            raise Refused(f"the argument '{min(both)}' is given by name, and another by position")
        bound.update((k, kwargs[k]) for k in self._by_name if k in kwargs)
        bound.update((k, v) for k, v in kwargs.items() if k not in bound)
        return {k: v for k, v in bound.items() if not self._is_default(k, v)}

    def _is_default(self, name, value):
        if name not in self._defaults:
            return False
        default = self._defaults[name]
        return type(value) is type(default) and repr(value) == repr(default)
