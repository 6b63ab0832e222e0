# SPDX-License-Identifier: Apache-2.0
"""Sphinx: what autodoc shows of the Python package.

Signatures come from its stubs, which have the types. Docstrings are plain text: paragraphs, `names`
in single backquotes, examples indented, and parameters as "name: text" within a paragraph.
"""
import ast
import itertools
import pathlib
import re

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "api/python/foundry"


def signature(function, method):
    """(parameters, result) of a function's definition, as text."""
    arguments = function.args
    if method and not any(isinstance(d, ast.Name) and d.id == "staticmethod"
                          for d in function.decorator_list):
        (arguments.posonlyargs or arguments.args).pop(0)
    result = ast.unparse(function.returns) if function.returns else None
    return f"({ast.unparse(arguments)})", None if result == "None" else result


def signatures():
    """{"foundry.Image.launch": (parameters, result)}, of every function and class."""
    found = {}
    for path in PACKAGE.glob("*.pyi"):
        prefix = "foundry." if path.stem == "__init__" else f"foundry.{path.stem}."
        for item in ast.parse(path.read_text()).body:
            if isinstance(item, ast.FunctionDef):
                found[prefix + item.name] = signature(item, False)
            for member in item.body if isinstance(item, ast.ClassDef) else ():
                if isinstance(member, ast.FunctionDef):
                    name = prefix + item.name
                    if member.name != "__init__":
                        name += "." + member.name
                    found.setdefault(name, signature(member, True))
    return found


def inline(text, parameters):
    """A paragraph as reStructuredText: names as code, parameters in bold, the rest as it is."""
    text = re.sub(r"[*|\\]|_(?!\w)", lambda found: "\\" + found[0], text)
    text = re.sub(r"(?<!`)`([^`]+)`(?!`)", lambda found: f"``{found[1]}``", text)
    for name in parameters:
        text = re.sub(rf"(^|[.)] |, ){name}(?=: |, \w+[,:])", rf"\1**{name}**", text)
    return text


def restructured(lines, parameters):
    """The lines of a docstring as reStructuredText."""
    found = []
    for block in "\n".join(line.rstrip() for line in lines).strip("\n").split("\n\n"):
        rows = block.strip("\n").split("\n")
        if re.match(r":\w+|\.\. ", rows[0]):
            found += rows
        elif any(row.startswith("  ") for row in rows):
            for indented, run in itertools.groupby(rows, lambda row: row.startswith("  ")):
                if indented:
                    found += ["::", "", *("    " + row for row in run), ""]
                else:
                    found += [inline(" ".join(run), parameters), ""]
        else:
            found.append(inline(" ".join(row.strip() for row in rows), parameters))
        found.append("")
    return found


def setup(app):
    known = signatures()

    def docstring(_app, _what, name, _thing, _options, lines):
        parameters = re.findall(r"(\w+)(?=:|=|,|\))", known.get(name, ("", ""))[0])
        lines[:] = restructured(lines, parameters)
    app.connect("autodoc-process-docstring", docstring)

    def process(_app, _what, name, _thing, _options, parameters, result):
        return known.get(name, (parameters, result))
    app.connect("autodoc-process-signature", process)
    return {"version": "1", "parallel_read_safe": True}
