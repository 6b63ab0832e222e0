# SPDX-License-Identifier: Apache-2.0
"""Code objects as bytes that are equal in every process and on every host.

The bytes come from the code that the interpreter runs, not from its source: a file may have been
edited since it was imported, and code made by exec() has no source. They hold each instruction with
the constants and names that it uses. They leave out file names, line numbers, comments and
docstrings. Bytecode differs between versions of Python, so the identity states the version.
"""
import ast
import collections
import dis
import hashlib
import sys

_HAS_DOCSTRING = 0x4000000  # CO_HAS_DOCSTRING since Python 3.13
# Names that a class body stores: docstrings, and names that the compiler makes from line numbers.
_LEFT_OUT = {"__doc__", "__firstlineno__", "__static_attributes__"}
# The number of low bits of an instruction's argument that do not belong to the index of a name.
_SHIFT = {"LOAD_GLOBAL": sys.version_info >= (3, 11), "LOAD_ATTR": sys.version_info >= (3, 12),
          "LOAD_SUPER_ATTR": 2}
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
_NAMED, _CONSTANT = set(dis.hasname), set(dis.hasconst)


def digest(data):
    """64 bits of a SHA-256, as 16 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:16]


def pack(kind, *parts):
    """Bytes that contain kind and parts: two different lists never have the same bytes."""
    out = [kind.encode(), b"(%d" % len(parts)]
    for part in parts:
        out += b":%d:" % len(part), part
    return b"".join(out)


def text(value):
    return value.encode("utf-8", "surrogatepass")


def atom(value):
    """A value without parts as bytes; None if it is of another type."""
    kind = type(value)
    if value is None or value is Ellipsis or kind is bool:
        return pack("name", repr(value).encode())
    if kind is int:
        return pack("int", b"%x" % value)
    if kind is float:
        return pack("float", value.hex().encode())
    if kind is complex:
        return pack("complex", value.real.hex().encode(), value.imag.hex().encode())
    if kind is str:
        return pack("str", text(value))
    if kind is bytes:
        return pack("bytes", value)
    return None


class Uses:
    """The names that a code object uses, with those of nested code, in the order of use.

    globals_, attributes: names. bare: names of both kinds that code does not only use to get an
    attribute, so that it may pass their values on. imports: (module, level, names imported from
    it).
    """

    def __init__(self):
        self.globals_, self.attributes, self.bare, self.imports = {}, {}, {}, {}


def _instructions(code):
    wide = 0
    for op, low in zip(code.co_code[::2], code.co_code[1::2]):
        wide = wide << 8 | low
        if op != dis.EXTENDED_ARG:
            yield op, wide
            wide = 0


def _names(value):
    return tuple(value) if isinstance(value, tuple) else ()


def _constant(value, uses):
    if hasattr(value, "co_code"):
        return encode(value, uses)
    if isinstance(value, (tuple, frozenset)):
        parts = [_constant(v, uses) for v in value]
        return pack(type(value).__name__, *(parts if isinstance(value, tuple) else sorted(parts)))
    if isinstance(value, slice):  # a constant since Python 3.14
        return pack("slice", *(_constant(v, uses) for v in (value.start, value.stop, value.step)))
    return atom(value) or pack("constant", repr(type(value)).encode())


def _note(name, used, loaded, uses):
    if name in _GLOBAL:
        uses.globals_[used] = True
    elif name in _ATTRIBUTE:
        uses.attributes[used] = True
    elif name == "IMPORT_NAME":
        uses.imports[used, loaded[-2], _names(loaded[-1])] = True


def _operations(code, uses):
    out, loaded, constant, last = [], [0, None], False, None
    for op, arg in _instructions(code):
        name = dis.opname[op]
        if name == "CACHE":
            continue
        if last and name not in _ATTRIBUTE:
            uses.bare[last] = True
        last = None
        if op in _CONSTANT and arg < len(code.co_consts):
            loaded.append(code.co_consts[arg])
            out.append(pack("constant", b"%d" % op, _constant(loaded[-1], uses)))
            constant = True
            continue
        if op in _NAMED:
            shift = int(_SHIFT.get(name, 0))
            used = code.co_names[arg >> shift]
            if constant and name == "STORE_NAME" and used in _LEFT_OUT:
                out.pop()
                continue
            out.append(pack("name", b"%d" % op, text(used), b"%d" % (arg & (1 << shift) - 1)))
            _note(name, used, loaded, uses)
            last = used if name in _GLOBAL or name in _ATTRIBUTE else None
        else:
            out.append(b"%d %d" % (op, arg))
        constant = name == "LOAD_SMALL_INT"
        if constant:
            loaded.append(arg)
    return out


def encode(code, uses):
    """The bytes of a code object; adds the names that it uses to `uses`."""
    names = code.co_varnames + code.co_freevars + code.co_cellvars
    numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
               code.co_flags & ~_HAS_DOCSTRING, len(code.co_varnames), len(code.co_freevars))
    return pack("code", text(code.co_name), pack("operations", *_operations(code, uses)),
                pack("names", *map(text, names)), repr(numbers).encode(),
                getattr(code, "co_exceptiontable", b""))


def literals(source):
    """{name: value} of the names that a module binds once, at its top level, to a literal.

    Containers that the module reads later, and perhaps fills, are left out.
    """
    tree, bound, read = ast.parse(source), collections.Counter(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                read.add(node.id)
            else:
                bound[node.id] += 1
        else:  # imports, functions, classes and others
            bound[getattr(node, "asname", None) or getattr(node, "name", None)] += 1
    found = {}
    for node in tree.body if "*" not in bound else ():
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            try:
                value = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update((each.id, value) for each in targets if isinstance(each, ast.Name))
    return {name: value for name, value in found.items()
            if bound[name] == 1 and (atom(value) is not None or name not in read)}
