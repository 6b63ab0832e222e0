# SPDX-License-Identifier: Apache-2.0
"""Notebooks from the examples in Python that have cells, whose lines begin with "# %%".

As an extension of Sphinx it writes them to the folder notebooks of the pages. As a program,
`notebooks.py FOLDER` writes them to that folder.
"""
import glob
import json
import os
import sys

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "api", "examples")


def cells(text):
    """[(kind, text)] of a script's cells: "markdown" without its comment signs, or "code"."""
    found = []
    for part in ("\n" + text).split("\n# %%")[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            lines = body.strip().split("\n")
            found.append(("markdown", "\n".join(line.lstrip("#").strip() for line in lines)))
        else:
            found.append(("code", body.strip("\n")))
    return found


def notebook(text):
    """A notebook, as the value of its JSON."""
    made = []
    for i, (kind, body) in enumerate(cells(text)):
        cell = {"cell_type": kind, "id": f"cell-{i}", "metadata": {},
                "source": body.splitlines(keepends=True)}
        made.append({**cell, "execution_count": None, "outputs": []} if kind == "code" else cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def write(folder):
    os.makedirs(folder, exist_ok=True)
    for path in sorted(glob.glob(os.path.join(EXAMPLES, "*.py"))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if "\n# %%\n" in text:
            name = os.path.splitext(os.path.basename(path))[0]
            with open(os.path.join(folder, f"{name}.ipynb"), "w", encoding="utf-8") as file:
                json.dump(notebook(text), file, indent=1)
                file.write("\n")


def setup(app):
    app.connect("build-finished", lambda app, error: error or app.builder.format != "html" or write(
        os.path.join(app.outdir, "notebooks")))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    write(*sys.argv[1:])
