# SPDX-License-Identifier: Apache-2.0
"""Sphinx: the reference of the C interface, made of the comments of the public headers.

    .. header:: foundry/image.h

The headers have the kernel's form: a comment directly above what it describes, `@name:` before the
text of a parameter or member, a comment above or behind an enumerator. Functions without a comment
share that of their neighbour above. A part that cannot be read and a `@name:` that names nothing
are errors. Sphinx' own parser of C reads each declaration again.
"""
import functools
import pathlib
import re

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.util.nodes import nested_parse_with_titles

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"

PART = re.compile(r"""
    (?P<section>/\*\ -{3,}\ (?P<title>[^*]*?)\ -{3,}\ \*/\n)
  | (?P<comment>/\*.*?\*/)
  | (?P<macro>\#define\ (?P<macroname>FDRY_\w+)\ +(?P<value>[^/\n\\]+?)\ *(?P<behind>/\*.*?\*/)?\n)
  | (?P<directive>\#(?:[^\n\\]|\\\n)*\n)
  | (?P<block>(?P<kind>struct|enum|union)\ (?P<tag>\w+)\ \{(?P<body>.*?)\};)
  | (?P<forward>struct\ (?P<opaque>\w+);)
  | (?P<typedef>typedef\ [^;]+;)
  | (?P<function>[A-Za-z][^;{}\#]*\([^;{}\#]*\);)
  | (?P<brace>extern\ "C"\ \{|\})
""", re.X | re.S)
FIELD = re.compile(r"@(\w+(?:, @\w+)*): *")


class Item:
    """One declaration: its kind, name, lines of C, comment, and members."""

    def __init__(self, kind, name, code=(), comment=(), body=""):
        self.kind, self.name, self.code = kind, name, list(code)
        self.comment, self.body = list(comment), body


def words(comment):
    """The lines of a comment, without its marks."""
    lines = re.sub(r"^/\*\*?|\*/$", "", comment.strip()).split("\n")
    lines = [lines[0].strip()] + [re.sub(r"^\s*\* ?", "", line).rstrip() for line in lines[1:]]
    return "\n".join(lines).strip("\n").split("\n")


def expand(body, source):
    """A body with its X-macros expanded: #define X(a) ... LIST(X) ... #undef X."""
    def replace(found):
        parameters, template, items = found[1].split(", "), found[2], found[3]
        listed = re.search(rf"#define {items}\(X\)((?:[^\n\\]|\\\n)*)", source)[1]
        out = ""
        for item in re.findall(r"X\(([^)]*)\)", listed):
            line = template
            for parameter, value in zip(parameters, item.split(", ")):
                line = re.sub(rf"(##)?\b{parameter}\b(##)?", value, line)
            out += line + "\n"
        return out
    return re.sub(r"#define X\(([^)]*)\) ([^\n]*)\n\s*(\w+)\(X\)\n#undef X\n", replace, body)


def read(name):
    """The items of a header, in order."""
    source = (INCLUDE / name).read_text()
    source = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", source, flags=re.S)
    at, comment, items = 0, [], []

    def loose():
        if comment:
            items.append(Item("text", "", (), comment))
    while at < len(source):
        part = PART.match(source, at)
        if not part:
            if not source[at].isspace():
                raise ValueError(f"{name}: cannot read {source[at:at + 60]!r}")
            if source.startswith("\n\n", at):
                loose()
                comment = []
            at += 1
            continue
        at = part.end()
        if part["comment"]:
            loose()
            comment = words(part[0])
            continue
        if part["section"]:
            items.append(Item("section", part["title"].strip().capitalize()))
        elif part["macro"]:
            behind = words(part["behind"]) if part["behind"] else comment
            items.append(Item("macro", part["macroname"], [part["value"]], behind))
        elif part["block"]:
            body = expand(part["body"], source)
            items.append(Item(part["kind"], part["tag"], (), comment, body))
        elif part["forward"]:
            items.append(Item("opaque", part["opaque"], (), comment))
        elif part["typedef"] and "CU" not in part[0].split("(")[0]:
            code = " ".join(part[0].split())[len("typedef "):-1]
            named = re.search(r"\(\*(\w+)\)", code) or re.search(r"(\w+)$", code)
            items.append(Item("type", named[1], [code], comment))
        elif part["function"]:
            code = " ".join(part[0].split())[:-1]
            if comment or not items or items[-1].kind != "function":
                items.append(Item("function", re.search(r"(\w+)\(", code)[1], [code], comment))
            else:
                items[-1].code.append(code)
        elif comment and comment[0].startswith(pathlib.Path(name).name + " - "):
            comment[0] = comment[0].partition(" - ")[2]
            comment[0] = comment[0][0].upper() + comment[0][1:]
            loose()
        comment = []
    return [item for item in items if not "".join(item.comment[:1]).startswith("SPDX-")]


def split(code):
    """`int a, *b` as [`int a`, `int *b`]."""
    if "(" in code or "," not in code:
        return [code]
    first, *others = code.split(",")
    base = re.match(r"(.*?)\**\w+(\[.*\])?$", first)[1]
    return [first] + [base + other.strip() for other in others]


def members(item):
    """[(declaration, comment)] of a struct or an enum."""
    if "#include" in item.body:
        return []
    found, above, end = [], [], "," if item.kind == "enum" else ";"
    for piece in re.finditer(rf"/\*.*?\*/|[^/{end}]+{end}?", item.body, re.S):
        text = piece[0]
        if text.startswith("/*"):
            before = item.body[:piece.start()].rsplit("\n", 1)[-1]
            if before.strip() and found:
                found[-1][1].extend(words(text))
            else:
                above = words(text)
            continue
        code = " ".join(text.rstrip(end).split())
        for one in split(code) if code else ():
            found.append((one, list(above)))
            above = []
    return found


def fields_of(item):
    """({name: text}, other lines) of a comment: its `@name:` parts, and all that is none."""
    title = re.compile(rf"(struct |enum |union )?{item.name}(\(\))? - ")
    fields, rest, current = {}, [], ()
    for number, line in enumerate(item.comment):
        if number == 0:
            line = title.sub("", line)
        found = FIELD.match(line)
        if found:
            current = found[1].replace("@", "").split(", ")
            fields.update({name: line[found.end():] for name in current})
        elif current and line[:1].isspace():
            for name in current:
                fields[name] += " " + line.strip()
        else:
            current = ()
            rest.append(line)
    return fields, rest


class Writer:
    """Writes items as reStructuredText."""

    def __init__(self, known, homes, functions):
        self.known, self.homes, self.functions, self.lines = known, homes, functions, []

    def inline(self, text):
        """A text with its names as references, and every other character as itself."""
        token = re.compile(r"(?<!\w)(?:(?:struct|enum|union) )?(fdry_\w+)(\(\))?"
                           r"|\b(FDRY_\w*[A-Z0-9a-z])\b(?!_)"
                           r"|(?<!\w)@(\w+)|\b(FOUNDRY_[A-Z_]*[A-Z])\b")

        def one(found):
            name = found[1] or found[3]
            if name in self.known:
                role = "func" if found[2] else "type" if found[1] else "macro"
                return f"\\ :c:{role}:`{name}`\\ "
            if found[4]:
                return f"\\ *{found[4]}*\\ "
            return f"\\ ``{found[0]}``\\ "
        out, at = "", 0
        for found in token.finditer(text):
            out += re.sub(r"([\\*`|_])", r"\\\1", text[at:found.start()]) + one(found)
            at = found.end()
        return out + re.sub(r"([\\*`|_])", r"\\\1", text[at:])

    def body(self, lines, indent):
        """Paragraphs; what is indented in the comment is shown as it is."""
        for block in "\n".join(lines).split("\n\n"):
            if not block.strip():
                continue
            rows = block.strip("\n").split("\n")
            if all(row.startswith("  ") for row in rows):
                self.add(indent, "::", "", *("   " + row for row in rows), "")
            else:
                self.add(indent, self.inline(" ".join(row.strip() for row in rows)), "")

    def add(self, indent, *lines):
        self.lines += [(indent + line).rstrip() for line in lines]

    def directive(self, kind, codes, indent=""):
        head = f".. c:{kind}:: "
        self.add(indent, head + codes[0], *(" " * len(head) + code for code in codes[1:]), "")

    def write(self, item, header):
        if item.kind == "section":
            self.add("", item.name, "~" * len(item.name), "")
        elif item.kind == "text":
            self.body(item.comment, "")
        elif item.kind == "opaque":
            if self.homes.get(item.name) == header:
                self.directive("struct", [item.name])
                self.body(item.comment or ["Opaque: its functions take a pointer to it."], "   ")
        elif item.kind == "macro":
            self.directive("macro", [item.name])
            self.body([f"{item.code[0]}{':' * bool(item.comment)} " + " ".join(item.comment)],
                      "   ")
        elif item.kind in ("struct", "enum", "union"):
            self.block(item)
        else:
            self.function(item)

    def function(self, item):
        fields, rest = fields_of(item)
        self.directive(item.kind, item.code)
        self.body(rest, "   ")
        for name, text in fields.items():
            if not any(re.search(rf"\b{name}\b", code) for code in item.code):
                raise ValueError(f"{item.name}: there is no parameter {name}")
            self.add("   ", f":param {name}: {self.inline(text)}")
        self.add("", "")

    def block(self, item):
        fields, rest = fields_of(item)
        # Sphinx has one name space for all of C; a struct may have the name of a function.
        shared = item.name in self.functions
        if shared:
            self.add("", ".. c:namespace-push:: tags", "")
        self.directive(item.kind, [item.name])
        self.body(rest, "   ")
        if "#include" in item.body:
            self.add("   ", ":doc:`/help/errors` describes each of them.", "")
        for code, comment in members(item):
            name = re.search(r"\(\*(\w+)\)|^(\w+)(?: =|$)|(\w+)(?:\[.*\])?$", code)
            name = next(group for group in name.groups() if group)
            kind = "enumerator" if item.kind == "enum" else "member"
            self.directive(kind, [code], "   ")
            self.body([fields.pop(name, "")] + comment, "      ")
        if fields:
            raise ValueError(f"{item.name}: there is no member {', '.join(fields)}")
        if shared:
            self.add("", ".. c:namespace-pop::", "")


@functools.lru_cache(maxsize=None)
def index():
    """(names that have a target, {opaque struct: the header that describes it}, functions)."""
    known, homes, forward, functions = set(), {}, {}, set()
    for path in sorted(INCLUDE.glob("foundry/**/*.h")):
        name = str(path.relative_to(INCLUDE))
        for item in read(name):
            known.add(item.name)
            if item.kind == "function":
                functions.update(re.search(r"(\w+)\(", code)[1] for code in item.code)
                ends = re.match(r"(fdry_\w+)_(close|free|end|unload|put)$", item.name)
                if ends:
                    homes[ends[1]] = name
            elif item.kind == "enum":
                known.update(code.split(" =")[0] for code, _ in members(item))
            elif item.kind == "opaque":
                forward.setdefault(item.name, name)
    codes = re.findall(r"^FDRY_ERRCODE\(\d+, (\w+)", (INCLUDE / "foundry/errcode.def").read_text(),
                       re.M)
    known |= functions | {"FDRY_E_" + name for name in codes}
    return known - {""}, {**forward, **homes}, functions


class Header(Directive):
    required_arguments = 1

    def run(self):
        name = self.arguments[0]
        env = self.state.document.settings.env
        env.note_dependency(str(INCLUDE / name))
        try:
            writer = Writer(*index())
            for item in read(name):
                writer.write(item, name)
        except (OSError, ValueError) as error:
            raise self.error(f"{name}: {error}")
        node = nodes.section()
        node.document = self.state.document
        nested_parse_with_titles(self.state, StringList(writer.lines, name), node)
        return node.children


def setup(app):
    app.add_directive("header", Header)
    return {"version": "1", "parallel_read_safe": True}
