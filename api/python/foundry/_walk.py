# SPDX-License-Identifier: Apache-2.0
"""The walk of identify(): from one function through everything that it refers to, to facts.

identity.py explains the use of the facts. The walk follows functions, classes and objects of the
program one after the other, the nearest first. It refers to them by labels, so circles do no harm,
and a change affects one fact. The walk runs no code of the program: it reads attributes from
dictionaries, imports nothing, and calls no property, no __eq__ and no __iter__. It lists values
that it cannot compare, and does not stop the program for them.
"""
import collections
import enum
import functools
import io
import re
import sys
import types

from . import _code, _packages
from ._code import digest, pack, text
from ._values import PARTIAL, Opaque, TooMuch, Values, is_a, kind_of, of_enum, own_of

FUNCTIONS = 10000  # the most that are followed
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
# Modules of the standard library whose objects have no effect on a capture, and such classes.
_HARMLESS = {"logging", "threading", "_thread", "typing", "types", "abc", "_abc", "warnings",
             "weakref.WeakKeyDictionary", "_weakrefset.WeakSet"}
_HARMFUL = {"_thread._local"}
# Attributes of a package's kernel that tell its origin, repeat its signature, or change as it runs.
_KERNEL_OWN = re.compile(
    r"__\w+__|(.*_)?(cache|caches|hash|timings|line|lineno|line_number|src)|signature|params|nargs|"
    r"best_config|bench_time|do_bench|restore_copies|used_global_vals|binder|compile|"
    r"CompiledKernel|ASTSource")
# Names of functions that read files.
_READERS = {"open", "load", "from_pretrained", "load_file", "safe_open", "load_state_dict",
            "fromfile", "memmap", "read_bytes", "read_text"}

_COMPILED = (types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType,
             types.MethodDescriptorType, types.ClassMethodDescriptorType)
# What holds functions, and the names under which it does.
_DESCRIPTORS = {staticmethod: ["__func__"], classmethod: ["__func__"],
                property: ["fget", "fset", "fdel"],
                types.DynamicClassAttribute: ["fget", "fset", "fdel"],  # enum.property
                functools.cached_property: ["func"]}


def _module_name(name):
    # multiprocessing uses this name in the processes that it spawns
    return "__main__" if name == "__mp_main__" else str(name)


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


class Walk(Values):
    """One walk: the facts so far, and the objects that it still has to visit."""

    def __init__(self):
        super().__init__()
        self.items = {}        # key -> value, in the order in which they were reached
        self.packages = {}     # distribution -> version
        self.missing = {}      # name -> why it is not compared
        # id of a function, class or object -> (the object, which this keeps alive; its label)
        self.labels = {}
        self.taken = set()
        # name -> the number that the next object of that name gets
        self.last = collections.defaultdict(lambda: 2)
        self.modules = set()   # modules that are compared as a whole
        self.files = {}        # name -> spec, of those whose files are compared
        self.literals = {}     # name -> what a module's file binds its names to
        # ids of modules whose attributes a function uses: they refer to each other in circles
        self.expanded = set()
        self.values = {}       # (id of a value, label) -> (the value, the result of refer())
        self.waiting = collections.deque()
        self.followed = 0

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
        """State a fact, and return its key. If the name has another value already, state a second
        one.
        """
        key = prefix + self.name(label)
        if self.items.get(key) != value:
            key = self.another(key, self.items)
            self.items[key] = value
        return key

    # --- references ---

    def refer(self, value, label):
        """The bytes for a name's value. A plain value becomes a fact of its own, named `label`."""
        if is_a(value, functools.partial):
            return self.partial(value, label)
        if is_a(value, types.MethodType):
            return pack("method", self.refer(value.__func__, label),
                        self.refer(value.__self__, f"{label}.self"))
        reference = self.reference(value)
        if reference is not None:
            return reference
        if self.is_users(value) and not self.is_array(value):
            return self.users(value, label)
        return self.value(value, label)

    def partial(self, value, label):
        names = value.func.__code__.co_varnames if is_a(value.func, types.FunctionType) else ()
        args = [self.refer(v, f"{label}.{names[i] if i < len(names) else i}")
                for i, v in enumerate(value.args)]
        words = [pack("word", text(k), self.refer(v, f"{label}.{k}"))
                 for k, v in value.keywords.items()]
        return pack("partial", self.refer(value.func, label), *args, *words,
                    *self.more(value, functools.partial, label, PARTIAL))

    def more(self, value, base, label, known):
        """The class and attributes of a value that a value of the class `base` does not have."""
        if type(value) is not base:
            yield self.cls(type(value))
        for name, each in own_of(value).items():
            # those with underscores are copies of what the functions have
            if not name.startswith("__") and name not in known:
                yield pack("attribute", text(name), self.refer(each, f"{label}.{name}"))

    def value(self, value, label):
        """The fact of a value: the value itself if it is a number or a shape, else a digest, since
        values may be long or secret.

        Its bytes hold the key of the fact, since values of one label share it or have a key each.
        """
        if (id(value), label) not in self.values:
            data, bytes_ = self.try_encode(value, label), self.opaque(value)
            if data is not None and data != bytes_:
                said = self.said(value) or f"{type(value).__name__}:{digest(data)}"
                bytes_ = pack("value", text(self.item(VALUE, label, said)))
            self.values[id(value), label] = value, bytes_
        return self.values[id(value), label][1]

    def try_encode(self, value, label, whole=0):
        before = self.pieces, self.held, self.whole
        self.pieces, self.held, self.whole = 0, {}, whole
        try:
            return self.encode(value, label)
        except Opaque:
            raise
        except (TooMuch, RecursionError):
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
        if kind_of(value) == "torch.dtype":
            return repr(value)
        if self.is_array(value) and not self.elements(value):
            return "{1} {0}".format(*self.shape(value))
        return None

    def unknown(self, value, label):
        root = str(type(value).__module__).partition(".")[0]
        if is_a(value, io.IOBase):
            self.lacks(label, "an open file")
        elif root in ("ctypes", "_ctypes"):
            self.lacks(label, "code or data of a C library")
        elif not self.harmless(value):
            self.lacks(label, f"an object of {kind_of(value)}")

    @staticmethod
    def harmless(value):
        kind = kind_of(value)
        return (kind in _HARMLESS or kind.partition(".")[0] in _HARMLESS) and kind not in _HARMFUL

    # --- code, classes and modules: they are referred to by label ---

    def reference(self, value):
        """Bytes that name a function, class or module, which the walk follows; None for other
        values.
        """
        if is_a(value, types.FunctionType):
            return self.function(value)
        if is_a(value, *_COMPILED):
            return self.builtin(value)
        if is_a(value, type):
            return self.cls(value)
        if is_a(value, types.ModuleType):
            return self.module(value)
        for base, names in _DESCRIPTORS.items():
            if is_a(value, base):
                return self.descriptor(value, base, names)
        return self.wrapper(value)

    def descriptor(self, value, base, names):
        """The bytes of a property or the like, which holds functions under `names`."""
        label = base.__name__
        parts = [getattr(base, name).__get__(value) if hasattr(base, name)
                 else own_of(value).get(name) for name in names]
        return pack(label, *(b"" if f is None else self.refer(f, label) for f in parts),
                    *self.more(value, base, label, names))

    def wrapper(self, value):
        """The bytes of an object of a package's class that wraps functions, such as a cache of
        results or a kernel, with the settings that it has for them.
        """
        if not callable(value) or self.is_users(value) or self.is_module(value):
            return None
        own = {n: v for n, v in own_of(value).items()
               if n == "__wrapped__" or not _KERNEL_OWN.fullmatch(n)}
        functions = [n for n, f in own.items()
                     if n == "__wrapped__" or is_a(f, types.FunctionType)]
        if not any(not is_a(own[n], types.FunctionType) or self.place(own[n]) == _packages.OUTSIDE
                   for n in functions):
            return None
        self.package_of(type(value))
        label, new = self.label(value, kind_of(value))
        parts = [pack("function", text(n), self.refer(own[n], f"{label}.{n}"))
                 for n in functions if new]
        for name, each in own.items() if new else ():
            if name not in functions:
                data = self.setting(each, f"{label}.{name}")
                parts += [pack("setting", text(name), data)] if data else []
        return pack("wrapper", text(label), *parts)

    def setting(self, value, label):
        """The bytes of a kernel's setting, which is compared as a whole unless it is an object of
        the program; b"" for an empty container, and for a value with parts that cannot be compared,
        which is listed.
        """
        if self.is_users(value) and not self.is_array(value):
            return self.refer(value, label)
        if type(value) in (tuple, list, dict, set) and not value or self.harmless(value):
            return b""
        try:
            return self.try_encode(value, label, whole=1) or b""
        except Opaque as e:
            self.lacks(label, f"an object of {e}")
            return b""

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
        found = self.inner(f, "<locals>" in name)
        if not found:
            return pack("installed", text(name))
        label, new = self.label(f, name)
        return pack("installed", text(label),
                    *(self.inside(v, f"{label}.{n}") for n, v in found.items() if new))

    def inner(self, f, made):
        """The values with which a package's function was made, since decorators hold functions and
        settings of the program.
        """
        found = self.cells(f)
        if made:  # by another function; those of a module change with its version
            found.update(self.default_values(f))
        for name, value in f.__dict__.items():
            if name == "__wrapped__" or made and not name.startswith("__"):
                found[name] = value
        return {name: value for name, value in found.items() if value is not f}

    def inside(self, value, label):
        """The bytes of a value inside of a package's function."""
        if self.is_users(value) and not self.is_array(value):
            return self.refer(value, label)
        return self.try_encode(value, label) or b""

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
            [] if bound is None or is_a(bound, types.ModuleType) else [self.inside(bound, name)]))

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
        # __getattr__() makes the attributes that the module does not have
        for a in [] if id(module) in self.expanded else [*uses.attributes, "__getattr__"]:
            self.expanded.add(id(module))
            if a in has and a not in _MODULE_OWN:
                parts.append(pack("attribute", text(a), self.bound(a, has[a], f"{name}.{a}", uses)))
        return pack("module", text(name), *parts)

    def bound(self, name, value, label, uses):
        """The value that code finds under `name`, if it uses these names."""
        used = is_a(value, types.ModuleType) and name not in uses.bare
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
        parts += [pack("default", text(n), self.refer(v, f"{label}.{n}"))
                  for n, v in self.default_values(f).items()]
        for name, value in sorted(f.__dict__.items()):
            parts.append(pack("attribute", text(name), self.refer(value, f"{label}.{name}")))
        self.imports(uses, f.__globals__.get("__package__") or "")
        self.readers(uses, label)
        self.item(CODE, label, digest(pack("function", *parts)))

    @staticmethod
    def default_values(f):
        code, values = f.__code__, f.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(values):code.co_argcount] if values else ()
        return dict(zip(names, values), **(f.__kwdefaults__ or {}))

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
        has, named = dict(vars(cls)), issubclass(cls, enum.Enum)
        has.update(has.get("_member_map_", {}) if named else {})
        for name, value in sorted(has.items()):
            if name in _CLASS_OWN or named and of_enum(name) and not is_a(
                    value, types.FunctionType, staticmethod, classmethod):
                continue
            if is_a(value, types.MemberDescriptorType, types.GetSetDescriptorType):
                parts.append(pack("slot", text(name)))
            elif name.startswith("__") and self.reference(value) is None:
                parts.append(pack("member", text(name),
                                  self.try_encode(value, f"{label}.{name}") or b""))
            else:
                parts.append(pack("member", text(name), self.refer(value, f"{label}.{name}")))
        self.item(CODE, label, digest(pack("class", *parts)))

    def walk_object(self, value, label):
        self.compiled_bases(value, label)
        parts = [pack("attribute", text(n), self.refer(v, f"{label}.{n}"))
                 for n, v in own_of(value).items()]
        self.item(VALUE, label, f"{type(value).__name__}:{digest(pack('object', *parts))}")

    # --- modules that a function imports when it runs ---

    def imports(self, uses, package):
        for name, level, names in uses.imports:
            if level:
                parent = package.rsplit(".", level - 1)[0] if level > 1 else package
                name = f"{parent}.{name}" if name else parent
            self.imported(name, names)
            self.rebound(name, uses.globals_ if "*" in names else names or uses.attributes)
            more = names or [name[:i] for i, c in enumerate(name) if c == "."]
            for each in more:
                self.rebound(f"{name}.{each}" if names else each, uses.attributes)

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
            self.files[name] = spec
            self.waiting.append((self.walk_module, spec, name))
        return self.submodules(name, names)

    def rebound(self, name, names):
        """Compare the values of a loaded module that the program has bound since the import.

        Values that are equal to the literals in its file add no fact, so that the facts do not
        depend on earlier imports. Values that the module computes are listed.
        """
        spec, module = self.files.get(name), sys.modules.get(name)
        if (not spec or not is_a(module, types.ModuleType)
            or _packages.changed(spec.origin, name)):
            return
        has = vars(module)
        for each in [n for n in names if n in has and n not in _MODULE_OWN]:
            value, label = has[each], f"{name}.{each}"
            if (is_a(value, types.FunctionType, types.ModuleType, type, *_COMPILED)
                or self.harmless(value)):
                continue
            if name not in self.literals:
                self.literals[name] = self.take(self.read_literals, name, spec, name) or {}
            then = self.literals[name]
            if each not in then:
                self.lacks(label, "its module computes it")
            elif self.try_encode(then[each], label) != self.try_encode(value, label):
                self.refer(value, label)

    @staticmethod
    def read_literals(spec, name):
        return _code.literals(spec.loader.get_source(name) or "") if spec.has_location else {}

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
        """Follow a loaded module with everything in it."""
        has = vars(module)
        for each in sorted(has):
            if each not in _MODULE_OWN:
                self.refer(has[each], f"{name}.{each}")
