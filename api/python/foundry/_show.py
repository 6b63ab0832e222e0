# SPDX-License-Identifier: Apache-2.0
"""Objects as HTML, for notebooks: _repr_html_() of the package's classes."""
import html

from . import _lib
from ._progress import size

_ROWS = 50  # a table shows so many rows


def cell(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    return html.escape(_lib.shown(value) if isinstance(value, str) else _lib.brief(value))


def _named(name, value):
    """A field of a report; numbers of bytes are followed by a rounded size."""
    if isinstance(value, int) and not isinstance(value, bool) and "bytes" in name and value > 999:
        return f"{value} ({size(value)})"
    return cell(value)


def table(title, head, rows):
    """A table with a title; head: the names of the columns, or none."""
    rows = list(rows)
    lines = [f"<b>{html.escape(title)}</b>", "<table>"]
    if head:
        lines.append("<tr>" + "".join(f"<th>{html.escape(each)}</th>" for each in head) + "</tr>")
    for row in rows[:_ROWS]:
        lines.append("<tr>" + "".join(f'<td style="text-align: left">{each}</td>'
                                      for each in row) + "</tr>")
    if len(rows) > _ROWS:
        lines.append(f"<tr><td>... {len(rows) - _ROWS} more</td></tr>")
    return "\n".join([*lines, "</table>"])


def fields(title, pairs):
    """A table of names and values."""
    return table(title, (), ((f"<b>{html.escape(name)}</b>", _named(name, value))
                             for name, value in pairs))


def plain(value):
    """repr() of an object."""
    return f"<code>{html.escape(repr(value))}</code>"


def mapping(title, view):
    """A table of a mapping's keys and values."""
    return table(title, ("key", "value"), ((cell(key), cell(value))
                                           for key, value in view.items()))


def tensors(title, found):
    """A table of tensors."""
    return table(title, ("name", "dtype", "shape", "use", "bytes", "address"),
                 ((cell(t.name), t.dtype, cell(list(t.shape)),
                   t.use + (", external" if t.external else "") + (", host" if t.host else ""),
                   _named("bytes", t.nbytes), f"{t.addr:#x}") for t in found))


def image(img):
    """The tables of a loaded image."""
    if not img._handle:
        return plain(img)
    graphs = table("Graphs", ("key", "name", "nodes"),
                   ((g.key, cell(g.name), g.nodes) for g in img.graphs.values()))
    return "\n".join([fields(f"Image {img.id[:12]}", (("id", img.id), ("device", img.device))),
                      graphs, tensors("Tensors", img.tensors.values()),
                      mapping("Facts", img.facts)])


def store(found):
    """The tables of a store: its size and its images."""
    if not found._handle:
        return plain(found)
    import datetime

    def when(seconds):
        return (datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M") if seconds
                else "not known")
    rows = ((cell(ref.name), ref.id[:12], when(ref.used), cell(ref.pinned))
            for ref in found.refs())
    return "\n".join([fields(repr(found).strip("<>"),
                             (("bytes used", found.used), ("bytes allowed", found.limit or None))),
                      table("Images", ("ref", "id", "last used", "pinned"), rows)])


def start(found):
    """How a workload started."""
    times = [(name, getattr(found, name)) for name in ("load_ms", "wait_ms", "capture_ms",
                                                       "seal_ms")]
    return "\n".join([
        fields(f"Start {found.name}", [("captured", found.captured), ("id", found.id), *times,
                                       ("warning", found.warning or None)]),
        table("Images that were not used", ("name", "id", "why"),
              ((cell(u.name), u.id[:12], cell(u.why)) for u in found.unused))
        if found.unused else "",
        f"<pre>{html.escape(str(found))}</pre>"])


def compiled(found, rows):
    """A model as graphs. rows: (key, arguments in words, number of results) of its calls."""
    how = "native" if found.reason else "loaded" if found.image else "captured"
    return "\n".join([
        fields(f"Compiled {found.ref}", (("calls", how), ("reason", found.reason or None),
                                         ("parameters", found.parameters),
                                         ("outputs", found.outputs), ("device", found.device))),
        table("Graphs", ("key", "arguments", "results"),
              ((key, cell(words), count) for key, words, count in rows)) if rows else ""])
