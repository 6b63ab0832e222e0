# SPDX-License-Identifier: Apache-2.0
"""Sphinx: error codes, with their number, class and meaning from include/foundry/errcode.def.

    .. errcode:: FDRY_E_NOENT

       Its causes, and what to do.

An unknown code is an error; so is a page with `.. errcodes-end::` that leaves one out.
"""
import pathlib
import re

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

LIST = pathlib.Path(__file__).resolve().parents[2] / "include/foundry/errcode.def"
ENTRY = re.compile(r'^FDRY_ERRCODE\((\d+), (\w+), (\w+),\s+"([^"]*)"\)', re.M)


def codes():
    """{name: (number, errno class, meaning)} of every code."""
    return {"FDRY_E_" + name: (int(number), errno, meaning)
            for number, name, errno, meaning in ENTRY.findall(LIST.read_text())}


class Errcode(Directive):
    required_arguments = 1
    has_content = True

    def run(self):
        name, env = self.arguments[0], self.state.document.settings.env
        env.note_dependency(str(LIST))
        if name not in codes():
            raise self.error(f"{LIST.name} has no {name}")
        env.temp_data.setdefault("errcodes", set()).add(name)
        number, errno, meaning = codes()[name]
        head = [f".. c:macro:: {name}", "",
                f"   **{meaning[0].upper() + meaning[1:]}** ({number}, errno {errno}).", ""]
        text = StringList(head, str(LIST))
        text.extend(StringList(["   " + line for line in self.content], self.content.source(0)))
        node = nodes.Element()
        self.state.nested_parse(text, self.content_offset, node)
        return node.children


class End(Directive):
    def run(self):
        shown = self.state.document.settings.env.temp_data.get("errcodes", set())
        missing = sorted(set(codes()) - shown)
        if missing:
            raise self.error(f"this page leaves out {', '.join(missing)}")
        return []


def setup(app):
    app.add_directive("errcode", Errcode)
    app.add_directive("errcodes-end", End)
    return {"version": "1", "parallel_read_safe": True}
