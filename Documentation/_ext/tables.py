# SPDX-License-Identifier: Apache-2.0
"""Sphinx: simple tables whose first column is wrapped.

In reStructuredText each line with text in the first column of a simple table begins a row. Here, a
line continues the row above if its first cell begins with a space:

    ================ ==========
    graph: child      tested
     graphs
    ================ ==========

Such a table becomes a list table before it is read. Other tables stay as they are.
"""
import re

RULE = re.compile(r"( *)=+( +=+)+ *$")


def cells(line, columns):
    """The text of a line in each column; the last one has no end."""
    ends = [end for _, end in columns[:-1]] + [None]
    return [line[begin:end].rstrip() for (begin, _), end in zip(columns, ends)]


def rows_of(lines, columns):
    """The rows of a table's body: a list of lines for each cell."""
    rows = []
    for line in lines:
        now = cells(line, columns)
        if rows and (not now[0] or now[0].startswith(" ")):
            for cell, text in zip(rows[-1], now):
                cell.append(text)
        elif any(now):
            rows.append([[text] for text in now])
    return rows


def list_table(head, rows, columns, indent):
    """The lines of a list table."""
    widths = " ".join(str(end - begin) for begin, end in columns)
    lines = [".. list-table::", f"   :widths: {widths}"]
    lines += ["   :header-rows: 1"] if head else []
    for row in head + rows:
        lines += [""] if row is (head + rows)[0] else []
        for number, cell in enumerate(row):
            text = [part.strip() for part in cell if part.strip() not in ("", "\\")] or [""]
            lines.append(f"   {' ' if number else '*'} - {text[0]}")
            lines += [f"       {part}" for part in text[1:]]
    return [(indent + line).rstrip() for line in ["", *lines, ""]]


def rewritten(lines):
    """The lines of a page, with its wrapped tables as list tables."""
    found, at = [], 0
    while at < len(lines):
        rule = RULE.match(lines[at])
        if not rule:
            found.append(lines[at])
            at += 1
            continue
        rules = [at]
        while len(rules) < 2 or (rules[-1] + 1 < len(lines) and lines[rules[-1] + 1].strip()):
            rules.append(next(k for k in range(rules[-1] + 1, len(lines)) if RULE.match(lines[k])))
        columns = [each.span() for each in re.finditer("=+", lines[at])]
        body = lines[rules[-2] + 1:rules[-1]]
        first = [cells(line, columns)[0] for line in body]
        if any(cell.startswith(" ") for cell in first):
            head = rows_of(lines[at + 1:rules[-2]], columns)
            found += list_table(head, rows_of(body, columns), columns, rule[1])
        else:
            found += lines[at:rules[-1] + 1]
        at = rules[-1] + 1
    return found


def setup(app):
    def read(_app, _page, source):
        source[0] = "\n".join(rewritten(source[0].split("\n")))
    app.connect("source-read", read)
    return {"version": "1", "parallel_read_safe": True}
