# SPDX-License-Identifier: Apache-2.0
"""Values as bytes that are equal in every process: the part of the walk (_walk.py) that reads
values.

It reads attributes from dictionaries and slots, and the content of builtin types by the methods of
these types, so no code of the program runs.
"""
import array
import collections
import contextvars
import enum
import functools
import hashlib
import inspect
import re
import types
import weakref

from . import _code, _packages
from ._code import pack, text

PIECES = 20000         # the most that are compared of one value
ALL_PIECES = 200000    # the most of all values
BYTES = 1 << 20        # the most that are compared of one array

_AS_TEXT = {("datetime", name) for name in ("datetime", "date", "time", "timedelta",
                                               "timezone")} | {
    ("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"), ("torch", "dtype"),
    ("torch", "device"), ("torch", "memory_format"), ("torch", "layout")}
_HOOKS = re.compile(r"_(forward|backward)_(pre_)?hooks")  # of a torch module
_ARRAYS = ("__cuda_array_interface__", "__array_interface__", "__dlpack__")
# Of type.__flags__: a class statement made the first kind, C makes the second.
_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8

PARTIAL = ("func", "args", "keywords")  # attributes of functools.partial
BUILTIN = (int, float, complex, str, bytes, tuple, list, collections.deque, dict, set, frozenset)

_PLAIN = frozenset(BUILTIN)


class TooMuch(Exception):
    pass


class Opaque(Exception):
    """An object of an installed package's class has parts that cannot be compared."""


def is_a(value, *kinds):
    """isinstance() that does not read the object's __class__."""
    return issubclass(type(value), kinds)


def kind_of(value):
    return f"{type(value).__module__}.{type(value).__qualname__}"


def attribute(value, name):
    """An attribute from the object's own dictionary or its class, without any call; None if there
    is none.
    """
    return inspect.getattr_static(value, name, None)


def _full_name(value):
    """The names of a value's class and, if it is a function or a class, its own."""
    if is_a(value, types.FunctionType, type):
        return kind_of(value), str(value.__module__), str(value.__qualname__)
    names = own_of(value)
    return kind_of(value), str(names.get("__module__")), str(names.get("__qualname__"))


def of_enum(name):
    """Whether the enum module has made an attribute of this name, such as _value_."""
    return name.startswith("_") and name.endswith("_")


def own_of(value):
    """The object's own dictionary and slots."""
    found = {}
    for cls in [cls for cls in type(value).__mro__ if cls.__flags__ & _HEAP_TYPE]:
        for name, member in vars(cls).items():
            # the others are offsets in C structs
            if is_a(member, types.MemberDescriptorType) and not name.startswith("__"):
                try:
                    found[name] = member.__get__(value)
                except AttributeError:
                    pass
    try:
        found.update(object.__getattribute__(value, "__dict__"))
    except (AttributeError, TypeError):
        pass
    return {str(name): found[name] for name in sorted(found, key=str)
            if name not in ("__dict__", "__weakref__")}


class Values:
    """The encoding of values. Walk, which derives from it, follows what values refer to."""

    def __init__(self):
        self.pieces = self.all_pieces = 0
        self.held = {}         # id of a container that is being encoded -> its depth
        self.whole = 0         # not 0 inside an object that is compared as a whole or not at all

    @staticmethod
    def is_users(value):
        return _packages.place_of(str(type(value).__module__)) == _packages.OUTSIDE

    @staticmethod
    def is_array(value):
        return any(attribute(value, name) is not None for name in _ARRAYS)

    @staticmethod
    def is_module(value):
        """Whether it is one of torch's modules."""
        return (isinstance(own_of(value).get("_parameters"), dict)
                and isinstance(own_of(value).get("_modules"), dict))

    def users(self, value, label):
        """The bytes of an object of the program, each of whose attributes is a fact."""
        known, new = self.label(value, label)
        kind = self.cls(type(value))
        if not new:
            return pack("object", kind, text(known))
        if is_a(value, *BUILTIN, enum.Enum) or self.is_module(value):
            return pack("object", kind, text(known), self.value(value, label))
        self.waiting.append((self.walk_object, value, known))
        return pack("object", kind, text(known))

    def piece(self):
        self.pieces += 1
        self.all_pieces += 1
        if self.pieces > PIECES or self.all_pieces > ALL_PIECES:
            raise TooMuch

    def encode(self, value, label):
        """A value as bytes, with everything in it."""
        self.piece()
        plain = _code.atom(value)
        if plain is not None:
            return plain
        reference = self.reference(value)
        if reference is not None:
            return reference
        if id(value) in self.held:
            return pack("cycle", b"%d" % (len(self.held) - self.held[id(value)]))
        self.held[id(value)] = len(self.held)
        try:
            return self.compound(value, label)
        finally:
            del self.held[id(value)]

    def compound(self, value, label):
        kind = type(value)
        if is_a(value, enum.Enum):
            return pack("enum", self.cls(kind), text(str(value._name_)),
                        self.encode(value._value_, label),
                        *(pack("attribute", text(n), self.encode(v, f"{label}.{n}"))
                          for n, v in own_of(value).items() if not of_enum(n)))
        if is_a(value, types.MethodType):
            return pack("method", self.encode(value.__func__, label),
                        self.encode(value.__self__, label))
        if is_a(value, functools.partial):
            more = [] if kind is functools.partial else [self.cls(kind)]
            return pack("partial", self.attributes(value, label, PARTIAL), *more,
                        *(self.encode(v, label) for v in (value.func, value.args, value.keywords)))
        base = next((b for b in BUILTIN if is_a(value, b)), None)
        if base:
            more = [] if kind is base else [self.cls(kind), self.attributes(value, label)]
            return pack(base.__name__, *more, pack("parts", *self.parts(value, base, label)))
        if kind in (bytearray, memoryview, array.array):
            form = [text(str(getattr(value, name, ""))) for name in ("typecode", "format", "shape")]
            return pack(kind.__name__, hashlib.sha256(value).digest(), *form)
        if kind in (range, slice):
            return pack(kind.__name__,
                        *(self.encode(v, label) for v in (value.start, value.stop, value.step)))
        if kind is types.MappingProxyType:
            return pack("mappingproxy", self.encode(dict(value), label))
        if kind is contextvars.ContextVar:
            try:
                now = value.get()
            except LookupError:  # it has neither a value nor a default
                return pack("contextvar", text(value.name))
            return pack("contextvar", text(value.name), self.encode(now, label))
        if kind is weakref.ref:
            return pack("weakref", self.encode(value(), label))
        if kind is re.Pattern:
            return pack("pattern", self.encode(value.pattern, label), b"%d" % value.flags)
        if ((kind.__module__, kind.__name__) in _AS_TEXT
            or str(kind.__module__).partition(".")[0] == "pathlib"):
            return pack("text", text(kind.__qualname__), text(str(value)))
        if kind.__module__ in ("operator", "_operator"):
            return pack("operator", text(kind.__qualname__),
                        self.encode(value.__reduce__()[1], label))
        if self.is_array(value):
            return self.array(value, label)
        if self.is_module(value):
            return self.torch_module(value, label)
        return self.object(value, label)

    def parts(self, value, base, label):
        """The content of a value of a builtin type, or of a subclass of one, without a call of its
        methods.
        """
        if base is dict:
            if is_a(value, collections.defaultdict):
                yield self.encode(value.default_factory, label)
            for i, (k, v) in enumerate(list(dict.items(value))):
                yield pack("pair", self.encode(k, label),
                           self.encode(v, f"{label}.{k if type(k) is str else i}"))
        elif base in (set, frozenset):
            found = list(base.__iter__(value))
            if not _PLAIN.issuperset(map(type, found)):
                # the order of a set differs between processes, and labels are given in order
                found.sort(key=_full_name)
            yield from sorted(self.encode(v, label) for v in found)
        elif base in (tuple, list, collections.deque):
            for i, v in enumerate(list(base.__iter__(value))):
                yield self.encode(v, f"{label}.{i}")
            if base is collections.deque:
                yield self.encode(base.maxlen.__get__(value), label)
        else:
            exact = {int: int.__int__, float: float.__float__, str: str.__str__, bytes: memoryview,
                     complex: complex.__pos__}
            plain = exact[base](value)
            yield _code.atom(bytes(plain) if base is bytes else plain)

    def attributes(self, value, label, known=()):
        return pack("attributes", *(pack("attribute", text(n), self.encode(v, f"{label}.{n}"))
                                    for n, v in own_of(value).items() if n not in known))

    @staticmethod
    def shape(value):
        """(shape, element type) of an array, without a copy of it."""
        said = (attribute(value, "__cuda_array_interface__")
                or attribute(value, "__array_interface__"))
        if not is_a(said, dict):
            return tuple(getattr(value, "shape", ())), str(getattr(value, "dtype", ""))
        return tuple(said.get("shape", ())), said.get("typestr", "")

    @staticmethod
    def elements(value):
        """The bytes of a small array on the host, else b""."""
        if (type(value).__module__.partition(".")[0] != "numpy" or value.nbytes > BYTES
            or value.dtype.hasobject):
            return b""
        return value.tobytes()

    def array(self, value, label):
        self.package_of(type(value))
        data, (shape, dtype) = self.elements(value), self.shape(value)
        if not data and 0 not in shape:
            self.lacks(label, "the elements of an array")
        return pack("array", text(kind_of(value)), text(repr(shape)), text(dtype), data)

    def torch_module(self, value, label):
        """The bytes of a torch module: its class, its plain attributes, and the names, shapes and
        types of its parameters.
        """
        parts, whole, self.whole = [self.cls(type(value))], self.whole, 0
        for name, each in own_of(value).items():
            if name == "_modules":
                parts += [pack("child", text(str(n)), self.encode(c, f"{label}.{n}"))
                          for n, c in each.items()]
            elif name in ("_parameters", "_buffers"):
                tensors = {n: t for n, t in each.items() if t is not None}
                parts += [pack("tensor", text(n), text(f"{tuple(t.shape)} {t.dtype}"))
                          for n, t in tensors.items()]
                if tensors:
                    self.lacks(label, "the parameters of a module")
            elif _HOOKS.fullmatch(name) and is_a(each, dict):  # their keys count all hooks
                parts += [pack("hook", text(name), self.encode(v, f"{label}.{name}"))
                          for v in each.values()]
            elif not name.startswith("_") or self.is_users(value):
                parts.append(pack("attribute", text(name), self.encode(each, f"{label}.{name}")))
        self.whole = whole
        return pack("torch", *parts)

    def compiled_bases(self, value, label):
        """List the classes in C that an object of the program derives from, as they hold values."""
        for cls in type(value).__mro__[:-1]:
            if not cls.__flags__ & _HEAP_TYPE or cls.__flags__ & _IMMUTABLE:
                self.lacks(label, f"what it holds as {cls.__module__}.{cls.__qualname__}")

    @staticmethod
    def opaque(value):
        return pack("unknown", text(kind_of(value)))

    def object(self, value, label):
        """The bytes of an object: of the program's objects each part, of a package's objects the
        whole, if it can be compared at all.
        """
        own = own_of(value)
        if self.is_users(value):
            self.compiled_bases(value, label)
            return pack("object", self.cls(type(value)), self.attributes(value, label))
        module = str(type(value).__module__)
        plain = module in ("types", "argparse") or _packages.place_of(module) == _packages.INSTALLED
        self.package_of(type(value))
        self.whole += 1
        try:
            if plain and own:
                return pack("object", text(kind_of(value)), self.attributes(value, label))
            if self.whole > 1:
                raise Opaque(kind_of(value))
        except Opaque:
            if self.whole > 1:
                raise
        finally:
            self.whole -= 1
        self.unknown(value, label)
        return self.opaque(value)
