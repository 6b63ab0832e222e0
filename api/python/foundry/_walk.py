# SPDX-License-Identifier: Apache-2.0
"""The walk of identify(): from one function through everything that it refers to, to facts.

identity.py explains the use of the facts. The walk follows functions, classes and objects of the
program one after the other, the nearest first. It refers to them by labels, so circles do no harm,
and a change affects one fact. The walk runs no code of the program: it reads attributes from
dictionaries, imports nothing, and calls no property, no __eq__ and no __iter__. It lists values
that it cannot compare, and does not stop the program for them.
"""
import array
import collections
import enum
import functools
import hashlib
import inspect
import io
import re
import sys
import types

from . import _code, _packages
from ._code import digest, pack, text

FUNCTIONS = 10000      # the most that are followed
PIECES = 20000         # the most that are compared of one value
ALL_PIECES = 200000    # the most of all values
BYTES = 1 << 20        # the most that are compared of one array

CODE, VALUE, PACKAGE = "py.code.", "py.value.", "py.package."

# Attributes that describe the origin of a module or class, not its function. Some differ between
# hosts.
_MODULE_OWN = {"__name__", "__file__", "__doc__", "__package__", "__path__", "__spec__",
               "__loader__", "__cached__", "__builtins__"}
_CLASS_OWN = {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__",
              "__static_attributes__", "__annotations__", "__annotate__", "__annotate_func__",
              "__annotations_cache__", "__abstractmethods__", "_abc_impl", "__dataclass_fields__",
              "__dataclass_params__", "__orig_bases__", "__parameters__", "__type_params__",
              "__signature__"}
# Modules of the standard library whose objects have no effect on a capture.
_HARMLESS = {"logging", "threading", "_thread", "weakref", "_weakref", "typing", "types",
             "contextvars", "_contextvars", "abc", "_abc", "warnings", "itertools", "enum", "time",
             "datetime"}
_AS_TEXT = {("datetime", name) for name in ("datetime", "date", "time", "timedelta")} | {
    ("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"), ("torch", "dtype"),
    ("torch", "device"), ("torch", "memory_format"), ("torch", "layout")}
_ARRAYS = ("__cuda_array_interface__", "__array_interface__", "__dlpack__")
# Names of functions that read files.
_READERS = {"open", "load", "from_pretrained", "load_file", "safe_open", "load_state_dict",
            "fromfile", "memmap", "read_bytes", "read_text"}
_HEAP_TYPE = 1 << 9  # of type.__flags__: a class that a class statement made

_COMPILED = (types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType,
             types.MethodDescriptorType, types.ClassMethodDescriptorType)
_BUILTIN = (int, float, complex, str, bytes, tuple, list, collections.deque, dict, set, frozenset)


class _TooMuch(Exception):
    pass


class _Opaque(Exception):
    """An object of an installed package's class has parts that cannot be compared."""


def _is(value, *kinds):
    """isinstance() that does not read the object's __class__."""
    return issubclass(type(value), kinds)


def _kind(value):
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _module_name(name):
    # multiprocessing uses this name in the processes that it spawns
    return "__main__" if name == "__mp_main__" else str(name)


def _attribute(value, name):
    """An attribute from the object's own dictionary or its class, without any call; None if there
    is none.
    """
    return inspect.getattr_static(value, name, None)


def _own(value):
    """The object's own dictionary and slots."""
    found = {}
    for cls in [cls for cls in type(value).__mro__ if cls.__flags__ & _HEAP_TYPE]:
        for name, member in vars(cls).items():
            # the others are offsets in C structs
            if _is(member, types.MemberDescriptorType) and not name.startswith("__"):
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


def _spec(name):
    """The spec of a module, found without an import of its packages; None if there is none."""
    spec, path, full = None, None, ""
    for part in name.split("."):
        full = f"{full}.{part}" if full else part
        try:
            found = (finder.find_spec(full, path) for finder in sys.meta_path
                     if hasattr(finder, "find_spec"))
            spec = next(filter(None, found), None)
            path = (list(spec.submodule_search_locations)
                    if spec and spec.submodule_search_locations is not None else [])
        except Exception:  # of a finder, or for a namespace whose parent is not imported
            return None
        if not spec:
            return None
    return spec


class Walk:
    """One walk: the facts so far, and the objects that it still has to visit."""

    def __init__(self):
        self.items = {}        # key -> value, in the order in which they were reached
        self.packages = {}     # distribution -> version
        self.missing = {}      # name -> why it is not compared
        # id of a function, class or object -> (the object, which this keeps alive; its label)
        self.labels = {}
        self.taken = set()
        # name -> the number that the next object of that name gets
        self.last = collections.defaultdict(lambda: 2)
        self.modules = set()   # modules that are compared as a whole
        # ids of modules whose attributes a function uses: they refer to each other in circles
        self.expanded = set()
        self.values = {}       # (id of a value, label) -> (the value, the result of refer())
        self.waiting = collections.deque()
        self.followed = 0
        self.pieces = self.all_pieces = 0
        self.held = {}         # id of a container that is being encoded -> its depth
        self.whole = 0         # not 0 inside an object that is compared as a whole or not at all

    def lacks(self, name, why):
        self.missing.setdefault(self.name(name), why)

    # --- names ---

    @staticmethod
    def name(label):
        """A label in the form of a fact's key."""
        label = label.replace("<locals>.", "").replace("<lambda>", "lambda")
        label = re.sub(r"[^A-Za-z0-9_.+/=:,@-]", "_", label)
        return label if len(label) <= 200 else f"{label[:180]}.{digest(text(label))}"

    def label(self, value, label):
        """The label by which code and values refer to `value`, and whether it is a new one."""
        if id(value) in self.labels:
            return self.labels[id(value)][1], False
        label = self.another(self.name(label), self.taken)
        self.taken.add(label)
        self.labels[id(value)] = value, label
        return label, True

    def another(self, name, taken):
        """A name that is not in use: `name`, or `name` with a number."""
        if name not in taken:
            return name
        while f"{name}@{self.last[name]}" in taken:
            self.last[name] += 1
        return f"{name}@{self.last[name]}"

    def item(self, prefix, label, value):
        """State a fact. If the name has another value already, state a second one."""
        key = prefix + self.name(label)
        if self.items.get(key) != value:
            self.items[self.another(key, self.items)] = value

    # --- references ---

    def refer(self, value, label):
        """The bytes for a name's value. A plain value becomes a fact of its own, named `label`."""
        if _is(value, functools.partial):
            return self.partial(value, label)
        if _is(value, types.MethodType):
            return pack("method", self.refer(value.__func__, label),
                        self.refer(value.__self__, f"{label}.self"))
        reference = self.reference(value)
        if reference is not None:
            return reference
        if self.is_users(value) and not self.is_array(value):
            return self.users(value, label)
        return self.value(value, label)

    def partial(self, value, label):
        names = value.func.__code__.co_varnames if _is(value.func, types.FunctionType) else ()
        args = [self.refer(v, f"{label}.{names[i] if i < len(names) else i}")
                for i, v in enumerate(value.args)]
        words = [pack("word", text(k), self.refer(v, f"{label}.{k}"))
                 for k, v in value.keywords.items()]
        return pack("partial", self.refer(value.func, label), *args, *words)

    def value(self, value, label):
        """The fact of a value: the value itself if it is a number or a shape, else a digest, since
        values may be long or secret.
        """
        if (id(value), label) not in self.values:
            data = self.try_encode(value, label)
            known = data is not None and data != self.opaque(value)
            if known:
                self.item(VALUE, label, self.said(value)
                          or f"{type(value).__name__}:{digest(data)}")
            self.values[id(value), label] = value, pack("value") if known else self.opaque(value)
        return self.values[id(value), label][1]

    def try_encode(self, value, label):
        before = self.pieces, self.held, self.whole
        self.pieces, self.held, self.whole = 0, {}, 0
        try:
            return self.encode(value, label)
        except (_TooMuch, RecursionError):
            self.lacks(label, "it is too large")
        except Exception as e:  # by an object that does not behave like its type
            self.lacks(label, f"{type(e).__name__} when it was looked at")
        finally:
            self.pieces, self.held, self.whole = before
        return None

    def said(self, value):
        def short(v):
            return v is None or type(v) in (bool, float) or type(v) is int and abs(v) < 1 << 63
        if (short(value)
            or type(value) in (tuple, list) and len(value) <= 8 and all(map(short, value))):
            return repr(value)
        if _kind(value) == "torch.dtype":
            return repr(value)
        if self.is_array(value) and not self.elements(value):
            return "{1} {0}".format(*self.shape(value))
        return None

    def unknown(self, value, label):
        root = str(type(value).__module__).partition(".")[0]
        if _is(value, io.IOBase):
            self.lacks(label, "an open file")
        elif root in ("ctypes", "_ctypes"):
            self.lacks(label, "code or data of a C library")
        elif root not in _HARMLESS:
            self.lacks(label, f"an object of {_kind(value)}")

    # --- code, classes and modules: they are referred to by label ---

    def reference(self, value):
        """Bytes that name a function, class or module, which the walk follows; None for other
        values.
        """
        if _is(value, types.FunctionType):
            return self.function(value)
        if _is(value, *_COMPILED):
            return self.builtin(value)
        if _is(value, type):
            return self.cls(value)
        if _is(value, types.ModuleType):
            return self.module(value)
        if _is(value, staticmethod, classmethod):
            return pack(type(value).__name__, self.refer(value.__func__, "method"))
        if _is(value, property):
            parts = value.fget, value.fset, value.fdel
            return pack("property",
                        *(b"" if f is None else self.refer(f, "property") for f in parts))
        if _is(value, functools.cached_property):
            return pack("cached_property", self.refer(value.func, "cached_property"))
        return self.wrapper(value)

    def wrapper(self, value):
        """The bytes of an object of a package's class that wraps functions, such as a cache of
        results or a kernel.
        """
        if not callable(value) or self.is_users(value) or self.is_module(value):
            return None
        functions = {n: f for n, f in _own(value).items() if n == "__wrapped__"
                     or _is(f, types.FunctionType)}
        if not any(not _is(f, types.FunctionType) or self.place(f) == _packages.OUTSIDE
                   for f in functions.values()):
            return None
        self.package_of(type(value))
        # lists hold, for example, the configurations of an autotuner
        lists = [v for v in _own(value).values() if _is(v, list, tuple)]
        return pack("wrapper", text(_kind(value)),
                    *(self.refer(f, f"wrapped.{n}") for n, f in functions.items()),
                    *map(self.plain, lists))

    def plain(self, value):
        """The bytes of a value that is compared as a whole. If that fails, it is neither compared
        nor listed.
        """
        before = self.pieces, self.held, self.whole, dict(self.missing)
        self.whole += 1
        try:
            return self.encode(value, "plain")
        except (_Opaque, _TooMuch, RecursionError):
            return b""
        finally:
            self.pieces, self.held, self.whole, self.missing = before

    @staticmethod
    def origin(function):
        """The module in which a function was written, also if functools.wraps() set another one."""
        return _module_name(function.__globals__.get("__name__", "__main__"))

    def place(self, function):
        path = function.__code__.co_filename
        if path.startswith("<") and not path.startswith("<frozen "):  # made by exec()
            path = function.__globals__.get("__file__")
            if not isinstance(path, str):
                return _packages.place_of(self.origin(function))
        return _packages.place(path)

    def function(self, f):
        code, where = f.__code__, self.place(f)
        made = code.co_filename.startswith("<")  # by exec(), as dataclasses do
        name = f.__qualname__ if made else getattr(code, "co_qualname", f.__qualname__)
        name = f"{self.origin(f)}.{name}"
        if where == _packages.OUTSIDE:
            label, new = self.label(f, name)
            if new:
                self.waiting.append((self.walk_function, f, label))
            return pack("function", text(label))
        if where == _packages.INSTALLED:
            self.package(self.origin(f), code.co_filename)
        if id(f) in self.labels:
            return pack("installed", text(name))
        self.labels[id(f)] = f, name
        return pack("installed", text(name), *self.inner(f, name))

    def inner(self, f, name):
        """The values with which a package's function was made, since decorators hold functions of
        the program.
        """
        found = [*self.cells(f).values(), f.__dict__.get("__wrapped__")]
        kinds = (types.FunctionType, types.MethodType, type, functools.partial, bool, int, float,
                 str, bytes, tuple, list, dict)
        for value in found:
            if _is(value, *kinds):
                yield self.try_encode(value, f"{name}.inner") or b""

    @staticmethod
    def cells(f):
        found = {}
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
            try:
                found[name] = cell.cell_contents
            except ValueError:  # not bound yet
                pass
        return found

    def builtin(self, f):
        module = (getattr(f, "__module__", None)
                  or getattr(getattr(f, "__objclass__", None), "__module__", None))
        name = f"{module}.{getattr(f, '__qualname__', '')}"
        if isinstance(module, str):
            where = _packages.place_of(module)
            if where == _packages.INSTALLED:
                self.package(module, None)
            elif where == _packages.OUTSIDE:
                self.lacks(name, "compiled code outside of installed packages")
        bound = getattr(f, "__self__", None)  # such as the text that ",".join is bound to
        return pack("builtin", text(name), *(
            [self.try_encode(bound, name) or b""] if _is(bound, *_BUILTIN) else []))

    def cls(self, cls):
        module = str(cls.__module__)
        name = f"{_module_name(module)}.{cls.__qualname__}"
        where = _packages.place_of(module)
        if where == _packages.OUTSIDE:
            label, new = self.label(cls, name)
            if new:
                self.waiting.append((self.walk_class, cls, label))
            return pack("class", text(label))
        if where == _packages.INSTALLED:
            self.package(module, None)
        return pack("installed", text(name))

    def module(self, module, uses=None):
        """The bytes of a module: those of its attributes that the code uses.

        The whole module counts if code passes it on instead of using its attributes at once.
        """
        name = _module_name(module.__name__)
        where = _packages.place_of(module.__name__)
        if where == _packages.INSTALLED:
            self.package(module.__name__, None)
        if where != _packages.OUTSIDE:
            return pack("module", text(name))
        if uses is None:
            if id(module) not in self.labels:
                self.labels[id(module)] = module, name
                self.waiting.append((self.loaded, module, name))
            return pack("module", text(name))
        has, parts = vars(module), []
        for a in [] if id(module) in self.expanded else uses.attributes:
            self.expanded.add(id(module))
            if a in has and a not in _MODULE_OWN:
                parts.append(pack("attribute", text(a), self.bound(a, has[a], f"{name}.{a}", uses)))
        return pack("module", text(name), *parts)

    def bound(self, name, value, label, uses):
        """The value that code finds under `name`, if it uses these names."""
        used = _is(value, types.ModuleType) and name not in uses.bare
        return self.module(value, uses) if used else self.refer(value, label)

    def package_of(self, cls):
        if _packages.place_of(str(cls.__module__)) == _packages.INSTALLED:
            self.package(cls.__module__, None)

    def package(self, module, path):
        found = _packages.distribution(module, path)
        if found:
            self.packages.setdefault(*found)
        else:
            self.lacks(module.partition(".")[0], "an installed package without a version")

    # --- following ---

    def run(self):
        while self.waiting:
            step, value, label = self.waiting.popleft()
            self.followed += 1
            if self.followed > FUNCTIONS:
                self.lacks("code", f"only {FUNCTIONS} functions and classes are followed")
                return
            self.take(step, label, value, label)

    def take(self, step, label, *args):
        """Visit one object. If the visit fails, list the reason, since it must not stop the
        program.
        """
        try:
            return step(*args)
        except Exception as e:
            self.lacks(label, f"{type(e).__name__} when it was looked at")
            return b""

    def walk_function(self, f, label):
        uses = _code.Uses()
        self.expanded.clear()
        parts = [_code.encode(f.__code__, uses)]
        parts += self.global_parts(f.__globals__, uses, self.origin(f))
        cells = {name: v for name, v in self.cells(f).items() if v is not f}
        parts += [pack("cell", text(n), self.refer(v, f"{label}.{n}")) for n, v in cells.items()]
        parts += self.defaults(f, label)
        for name, value in sorted(f.__dict__.items()):
            parts.append(pack("attribute", text(name), self.refer(value, f"{label}.{name}")))
        self.imports(uses, f.__globals__.get("__package__") or "")
        self.readers(uses, label)
        self.item(CODE, label, digest(pack("function", *parts)))

    def defaults(self, f, label):
        code, values = f.__code__, f.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(values):code.co_argcount] if values else ()
        pairs = [*zip(names, values), *(f.__kwdefaults__ or {}).items()]
        return [pack("default", text(n), self.refer(v, f"{label}.{n}")) for n, v in pairs]

    def global_parts(self, names, uses, module):
        parts = []
        builtins = names.get("__builtins__")
        builtins = vars(builtins) if isinstance(builtins, types.ModuleType) else builtins or {}
        for name in uses.globals_:
            if name in _MODULE_OWN:
                continue
            if name in names:
                parts.append(pack("global", text(name),
                                  self.bound(name, names[name], f"{module}.{name}", uses)))
            else:
                parts.append(pack("builtin" if name in builtins else "unbound", text(name)))
        return parts

    def readers(self, uses, label):
        found = [n for n in (*uses.globals_, *uses.attributes) if n in _READERS]
        if found:
            self.lacks(label, f"what it reads from files: {', '.join(found)}")

    def walk_class(self, cls, label):
        parts = [self.cls(base) for base in cls.__bases__] + [self.cls(type(cls))]
        named = issubclass(cls, enum.Enum)
        for name, value in sorted(vars(cls).items()):
            if (name in _CLASS_OWN
                or named and name.startswith("_") and not _is(value, types.FunctionType)):
                continue
            if _is(value, types.MemberDescriptorType, types.GetSetDescriptorType):
                parts.append(pack("slot", text(name)))
            elif name.startswith("__") and self.reference(value) is None:
                parts.append(pack("member", text(name),
                                  self.try_encode(value, f"{label}.{name}") or b""))
            else:
                parts.append(pack("member", text(name), self.refer(value, f"{label}.{name}")))
        self.item(CODE, label, digest(pack("class", *parts)))

    def walk_object(self, value, label):
        own = _own(value)
        for cls in type(value).__mro__[:-1]:
            if not cls.__flags__ & _HEAP_TYPE:
                self.lacks(label, f"what it holds as {cls.__module__}.{cls.__qualname__}")
        parts = [pack("attribute", text(n), self.refer(v, f"{label}.{n}")) for n, v in own.items()]
        self.item(VALUE, label, f"{type(value).__name__}:{digest(pack('object', *parts))}")

    # --- modules that a function imports when it runs ---

    def imports(self, uses, package):
        for name, level, names in uses.imports:
            if level:
                parent = package.rsplit(".", level - 1)[0] if level > 1 else package
                name = f"{parent}.{name}" if name else parent
            self.imported(name, names)

    def imported(self, name, names):
        """Follow a module as a whole, whether it is imported or not.

        Otherwise the facts would depend on whether other code has imported it.
        """
        if not name or name in self.modules:
            return self.submodules(name, names)
        parent = name.rpartition(".")[0]
        if parent:
            self.imported(parent, ())
        self.modules.add(name)
        top = name.partition(".")[0]
        if (top in sys.builtin_module_names or top in getattr(sys, "stdlib_module_names", ())
            or top == __package__):
            return None
        spec = _spec(name) if top not in ("__main__", "__mp_main__") else None
        if not spec and name in sys.modules:
            return self.loaded(sys.modules[name], name)
        if not spec:
            return self.lacks(name, "a module that is not installed here")
        path = (spec.origin if spec.has_location
                else next(iter(spec.submodule_search_locations or ()), None))
        where = _packages.place(path)
        if where == _packages.INSTALLED:
            self.package(name, path)
        elif where == _packages.OUTSIDE:
            self.waiting.append((self.walk_module, spec, name))
        return self.submodules(name, names)

    def submodules(self, name, names):
        for each in names:
            if name and f"{name}.{each}" not in self.modules and each != "*":
                spec = _spec(f"{name}.{each}") if self.is_package(name) else None
                if spec:
                    self.imported(f"{name}.{each}", ())

    @staticmethod
    def is_package(name):
        spec = _spec(name)
        return bool(spec and spec.submodule_search_locations and
                    _packages.place(next(iter(spec.submodule_search_locations))
                                    + "/") == _packages.OUTSIDE)

    def walk_module(self, spec, name):
        try:
            code = spec.loader.get_code(name) if spec.has_location else None
        except Exception as e:
            return self.lacks(name, f"its code cannot be read: {type(e).__name__}")
        if code is None:
            if spec.has_location:
                self.lacks(name, "compiled code outside of installed packages")
            return None
        uses = _code.Uses()
        value = digest(_code.encode(code, uses))
        if _packages.changed(spec.origin, name):
            value += "-edited"
            self.loaded(sys.modules[name], name)
        self.item(CODE, name, value)
        self.readers(uses, name)
        return self.imports(uses, name if spec.submodule_search_locations is not None
                            else name.rpartition(".")[0])

    def loaded(self, module, name):
        """Follow a loaded module without other modules in it, which the walk reaches by the
        functions that use them.
        """
        has = vars(module)
        for each in sorted(has):
            if each not in _MODULE_OWN and not _is(has[each], types.ModuleType):
                self.refer(has[each], f"{name}.{each}")

    # --- values ---

    @staticmethod
    def is_users(value):
        return _packages.place_of(str(type(value).__module__)) == _packages.OUTSIDE

    @staticmethod
    def is_array(value):
        return any(_attribute(value, name) is not None for name in _ARRAYS)

    @staticmethod
    def is_module(value):
        """Whether it is one of torch's modules."""
        return (isinstance(_own(value).get("_parameters"), dict)
                and isinstance(_own(value).get("_modules"), dict))

    def users(self, value, label):
        """The bytes of an object of the program, each of whose attributes is a fact."""
        known, new = self.label(value, label)
        kind = self.cls(type(value))
        if not new:
            return pack("object", kind, text(known))
        if _is(value, *_BUILTIN, enum.Enum) or self.is_module(value):
            self.value(value, label)
        else:
            self.waiting.append((self.walk_object, value, label))
        return pack("object", kind, text(known))

    def piece(self):
        self.pieces += 1
        self.all_pieces += 1
        if self.pieces > PIECES or self.all_pieces > ALL_PIECES:
            raise _TooMuch

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
        if _is(value, enum.Enum):
            return pack("enum", self.cls(kind), text(str(value._name_)),
                        self.encode(value._value_, label))
        if _is(value, types.MethodType):
            return pack("method", self.encode(value.__func__, label),
                        self.encode(value.__self__, label))
        if _is(value, functools.partial):
            return pack("partial",
                        *(self.encode(v, label) for v in (value.func, value.args, value.keywords)))
        base = next((b for b in _BUILTIN if _is(value, b)), None)
        if base:
            more = [] if kind is base else [self.cls(kind), self.attributes(value, label)]
            return pack(base.__name__, *more, pack("parts", *self.parts(value, base, label)))
        if kind in (bytearray, memoryview, array.array):
            return pack(kind.__name__, hashlib.sha256(value).digest(),
                        text(getattr(value, "typecode", "")))
        if kind in (range, slice):
            return pack(kind.__name__,
                        *(self.encode(v, label) for v in (value.start, value.stop, value.step)))
        if kind is types.MappingProxyType:
            return pack("mappingproxy", self.encode(dict(value), label))
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
            if _is(value, collections.defaultdict):
                yield self.encode(value.default_factory, label)
            for i, (k, v) in enumerate(list(dict.items(value))):
                yield pack("pair", self.encode(k, label),
                           self.encode(v, f"{label}.{k if type(k) is str else i}"))
        elif base in (set, frozenset):
            yield from sorted(self.encode(v, label) for v in list(base.__iter__(value)))
        elif base in (tuple, list, collections.deque):
            for i, v in enumerate(list(base.__iter__(value))):
                yield self.encode(v, f"{label}.{i}")
        else:
            exact = {int: int.__int__, float: float.__float__, str: str.__str__, bytes: memoryview,
                     complex: complex.__pos__}
            plain = exact[base](value)
            yield _code.atom(bytes(plain) if base is bytes else plain)

    def attributes(self, value, label):
        return pack("attributes", *(pack("attribute", text(n), self.encode(v, f"{label}.{n}"))
                                    for n, v in _own(value).items()))

    @staticmethod
    def shape(value):
        """(shape, element type) of an array, without a copy of it."""
        said = (_attribute(value, "__cuda_array_interface__")
                or _attribute(value, "__array_interface__"))
        if not _is(said, dict):
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
        return pack("array", text(_kind(value)), text(repr(shape)), text(dtype), data)

    def torch_module(self, value, label):
        """The bytes of a torch module: its class, its plain attributes, and the names, shapes and
        types of its parameters.
        """
        parts, whole, self.whole = [self.cls(type(value))], self.whole, 0
        for name, each in _own(value).items():
            if name == "_modules":
                parts += [pack("child", text(str(n)), self.encode(c, f"{label}.{n}"))
                          for n, c in each.items()]
            elif name in ("_parameters", "_buffers"):
                tensors = {n: t for n, t in each.items() if t is not None}
                parts += [pack("tensor", text(n), text(f"{tuple(t.shape)} {t.dtype}"))
                          for n, t in tensors.items()]
                if tensors:
                    self.lacks(label, "the parameters of a module")
            elif not name.startswith("_") or self.is_users(value):
                parts.append(pack("attribute", text(name), self.encode(each, f"{label}.{name}")))
        self.whole = whole
        return pack("torch", *parts)

    @staticmethod
    def opaque(value):
        return pack("unknown", text(_kind(value)))

    def object(self, value, label):
        """The bytes of an object: of the program's objects each part, of a package's objects the
        whole, if it can be compared at all.
        """
        own = _own(value)
        if self.is_users(value):
            return pack("object", self.cls(type(value)), self.attributes(value, label))
        module = str(type(value).__module__)
        plain = module in ("types", "argparse") or _packages.place_of(module) == _packages.INSTALLED
        self.package_of(type(value))
        self.whole += 1
        try:
            if plain and own:
                return pack("object", text(_kind(value)), self.attributes(value, label))
            if self.whole > 1:
                raise _Opaque
        except _Opaque:
            if self.whole > 1:
                raise
        finally:
            self.whole -= 1
        self.unknown(value, label)
        return self.opaque(value)
