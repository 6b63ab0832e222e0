# SPDX-License-Identifier: Apache-2.0
"""Tests that the package has all that foundry/__init__.pyi declares: names, parameters, defaults,
fields of reports.

test_stubs.py complete: tests also that the package has nothing else (part of make lint).
"""
import ast
import inspect
import os
import sys
import unittest

import suite
import foundry
from foundry import _lib

COMPLETE = "complete" in sys.argv
sys.argv = sys.argv[:1]
NONE = object()  # a parameter without a default
STUB = os.path.join(os.path.dirname(foundry.__file__), "__init__.pyi")
# Classes whose objects hold the fields of a struct, and their other attributes.
RECORDS = {"Sealed": (_lib.SealReport, {"id"}, {"sz"}), "Report": (_lib.LoadReport, set(), {"sz"}),
           "Pack": (_lib.PackReport, set(), {"sz"}), "Eviction": (_lib.EvictReport, set(), {"sz"}),
           "Collection": (_lib.GcReport, set(), {"sz"}),
           "Verification": (_lib.VerifyReport, set(), {"sz"}),
           "Repair": (_lib.RepairReport, {"reported"}, {"sz"}),
           "Requirements": (_lib.Requirements, {"capacities"}, {"nexternals"}),
           "Unused": (_lib.StartUnused, {"error"}, {"code"}),
           "SlotCall": (_lib.SlotsCall, set(), set()), "SlotPhase": (_lib.SlotsPhase, set(), set()),
           "SlotStats": (_lib.SlotsStats, set(), {"sz"})}


def stub():
    with open(STUB, encoding="utf-8") as f:
        body = ast.parse(f.read()).body
    found = {n.name: n for n in body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    # Modules, whose contents their own source declares: from . import NAME as NAME
    return found | {a.name: n for n in body if isinstance(n, ast.ImportFrom) and n.level
                    for a in n.names if a.asname == a.name}


def modules():
    """Returns the names of the package's modules that the stub re-exports."""
    with open(STUB, encoding="utf-8") as f:
        return [a.name for n in ast.parse(f.read()).body if isinstance(n, ast.ImportFrom)
                and n.level for a in n.names]


def fields(node):
    return {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}


def methods(node):
    return {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}


def stub_parameters(node):
    """Returns (name, default) of each parameter without self; positional-only parameters have no
    name to compare.
    """
    a = node.args
    named = a.args + a.kwonlyargs
    defaults = [None] * (len(a.args) - len(a.defaults)) + list(a.defaults) + list(a.kw_defaults)
    found = [(n.arg, ast.literal_eval(d) if d else NONE) for n, d in zip(named, defaults)
             if n.arg not in ("self", "cls")]
    return found + ([(a.kwarg.arg, NONE)] if a.kwarg else [])


def parameters(function):
    return [(p.name, NONE if p.default is p.empty else p.default)
            for p in inspect.signature(function).parameters.values()
            if p.name != "self" and p.kind != p.VAR_POSITIONAL]


class Stubs(unittest.TestCase):
    maxDiff = None

    def same(self, stubbed, has):
        """Checks that the stub's list is the package's list or the beginning of it."""
        self.assertEqual(stubbed, has if COMPLETE else has[:len(stubbed)])

    def all_of(self, has, stubbed, where):
        if COMPLETE:
            self.assertEqual(set(), set(has) - set(stubbed),
                             f"{where}: add it to foundry/__init__.pyi")

    def test_names(self):
        self.all_of(foundry.__all__, [*stub(), *modules()], "foundry")
        self.assertGreater(len(stub()), 10)

    def test_functions(self):
        for name, node in stub().items():
            if isinstance(node, ast.FunctionDef):
                with self.subTest(name):
                    self.assertIn(name, foundry.__all__)
                    self.same(stub_parameters(node), parameters(getattr(foundry, name)))

    def test_methods(self):
        checked = 0
        for name, node in stub().items():
            cls = (getattr(foundry, name, None) or getattr(foundry.image, name, None)
                   or getattr(foundry.tensor, name, None))
            if not isinstance(node, ast.ClassDef) or cls is None:
                continue
            public = {m for m in vars(cls) if not m.startswith("_")
                      and not isinstance(vars(cls)[m], classmethod)}
            self.all_of(public - {"settle"}, set(methods(node)) | fields(node), name)
            for method, stubbed in methods(node).items():
                with self.subTest(f"{name}.{method}"):
                    function = inspect.getattr_static(cls, method)
                    if isinstance(function, property) or method == "__exit__":
                        continue
                    checked += 1
                    self.same(stub_parameters(stubbed), parameters(getattr(cls, method)))
        self.assertGreater(checked, 30)

    def test_records(self):
        for name, (struct, more, without) in RECORDS.items():
            with self.subTest(name):
                has = {f for f, _ in struct._fields_} - without | more
                self.assertEqual(set(), fields(stub()[name]) - has)
                self.all_of(has, fields(stub()[name]), name)


if __name__ == "__main__":
    suite.main()
