# SPDX-License-Identifier: Apache-2.0
"""Tests that the tables of foundry/_lib.py agree with foundry.h, the library's map and the
compiler.
"""
import ctypes
import os
import re
import subprocess
import unittest

import suite
from foundry import _lib, _tables

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
INCLUDES = [f"-I{os.path.join(ROOT, 'include')}"]


def compile_c(text, *flags):
    return subprocess.run([os.environ.get("CC", "cc"), "-x", "c", "-std=gnu11", *INCLUDES, *flags,
                           "-"],
                          input=text, capture_output=True, text=True, check=False)


def declarations():
    """Returns name -> (result, [parameter, ...]) as foundry.h declares them, read after comments
    and macros are removed.
    """
    text = compile_c("#include <foundry.h>\n#include <foundry/run.h>\n", "-E", "-P").stdout
    found = {}
    # a parameter may have parentheses itself: (*ret)[2]
    form = r"([\w ]+?[ *]+)(fdry_\w+)\(((?:[^()]|\([^()]*\))*)\)\s*;"
    for result, name, params in re.findall(form, text):
        params = [] if params.strip() == "void" else [p.strip() for p in params.split(",")]
        found[name] = (result.strip(), params)
    return found


def exported():
    with open(os.path.join(ROOT, "api", "libfoundry.map"), encoding="utf-8") as f:
        text = f.read().split("local:")[0]
    return set(re.findall(r"\b(fdry_\w+);", text))


# The types of C parameters in a signature: the size in bytes, or None for a pointer.
SIZES = {"int": 4, "unsigned int": 4, "size_t": 8, "uint64_t": 8, "uint32_t": 4, "fdry_devptr": 8,
         "fdry_resident": 8, "int32_t": 4,
         "enum fdry_transient_kind": 4, "enum fdry_sync_kind": 4}


# Pointers to functions
FUNCTIONS = tuple(t for t in vars(_tables).values()
                  if isinstance(t, type) and issubclass(t, ctypes._CFuncPtr))


def size_of(param):
    if ("*" in param or "[" in param
        or re.match(r"(CUfunction|CUgraph|CUgraphExec|CUstream|CUexternalSemaphore|fdry_\w+_fn)\b",
                    param)):
        return None
    words = param.replace("const ", "").split()
    return SIZES[" ".join(words if param in SIZES else words[:-1])]


def is_pointer(ctype):
    return (issubclass(ctype, (ctypes.c_void_p, ctypes.c_char_p, *FUNCTIONS))
            or hasattr(ctype, "contents"))


def structs():
    return {name: cls for name, cls in vars(_tables).items()
            if isinstance(cls, type) and issubclass(cls, _lib.Struct) and cls is not _lib.Struct}


class Tables(unittest.TestCase):
    def test_every_exported_function_has_a_signature(self):
        self.assertEqual(exported(), set(_lib.SIGNATURES))
        self.assertGreater(len(exported()), 30)

    def test_parameters(self):
        declared = declarations()
        for name, (_, arguments) in _lib.SIGNATURES.items():
            with self.subTest(name):
                params = declared[name][1]
                self.assertEqual(len(params), len(arguments))
                for param, ctype in zip(params, arguments):
                    size = size_of(param)
                    self.assertEqual(size is None, is_pointer(ctype), param)
                    if size:
                        self.assertEqual(size, ctypes.sizeof(ctype), param)

    def test_results(self):
        declared = declarations()
        for name, (result, _) in _lib.SIGNATURES.items():
            with self.subTest(name):
                c = declared[name][0]
                expected = {"void": None, "int": ctypes.c_int, "size_t": ctypes.c_size_t,
                            "fdry_devptr": ctypes.c_uint64, "const char *": ctypes.c_char_p,
                            "CUstream": ctypes.c_void_p}[c]
                self.assertEqual(expected, result)

    def test_functions_that_can_fail_are_checked(self):
        never = {"fdry_error_errno", "fdry_slots_has"}
        for name, (result, _) in declarations().items():
            if result == "int" and name not in never:
                self.assertIn(name, _lib.CHECKED)

    def test_structs(self):
        lines = ["#include <stddef.h>", "#include <foundry.h>", "#include <foundry/run.h>"]
        for name, cls in structs().items():
            c = "struct fdry_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
            lines.append(f'_Static_assert(sizeof({c}) == {ctypes.sizeof(cls)}, "size of {c}");')
            for field, _ in cls._fields_:
                at = getattr(cls, field)
                lines.append(
                    f'_Static_assert(offsetof({c}, {field}) == {at.offset}, "{c}.{field}");')
                lines.append(
                    f'_Static_assert(sizeof((({c} *)0)->{field}) == {at.size}, "{c}.{field}");')
        done = compile_c("\n".join(lines) + "\n", "-fsyntax-only")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(structs()), 3)

    def test_constants(self):
        text = f"""#include <foundry.h>
#include <foundry/run.h>
            _Static_assert(FDRY_RANK_MAX == {_lib.RANK_MAX}, "");
            _Static_assert(FDRY_ID_SIZE == {_lib.ID_SIZE}, "");
            """
        done = compile_c(text, "-fsyntax-only")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    suite.main()
