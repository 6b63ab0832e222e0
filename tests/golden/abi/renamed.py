#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""renamed.py OLD.abi NEW.abi > FILE - write the description OLD with the names, SONAME and symbol version of NEW.

The names come from the tables of Documentation/api/renamed.rst. An old name must be gone from the public headers, a new
name must stand there, and an old function must stand in OLD: a wrong row is an error.
"""
import glob
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
NAME = r"``(?:\w+ )?((?:fdry|FDRY)_\w+)(\(\))?``"
ROW = re.compile(rf"^   \* - {NAME}\n     - {NAME}$", re.M)
WORD = re.compile(r"\b(?:fdry|FDRY)_\w+")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def header(text):
    return re.search(r"soname='([^']*)'", text)[1], re.search(r"version='(FOUNDRY_[^']*)'", text)[1]


def wrong_rows(rows, old, headers):
    for was, is_function, now, _ in rows:
        if is_function and f"<elf-symbol name='{was}'" not in old:
            yield f"{was}() was no function"
        if was in headers:
            yield f"{was} is still a name"
        if now not in headers:
            yield f"{now} is no name"


def main(old, new):
    old, new = read(old), read(new)
    rows = ROW.findall(read(os.path.join(ROOT, "Documentation/api/renamed.rst")))
    paths = glob.glob(os.path.join(ROOT, "include/**/*.h"), recursive=True)
    wrong = list(wrong_rows(rows, old, set(WORD.findall("".join(map(read, paths))))))
    if wrong:
        sys.exit("Documentation/api/renamed.rst: " + "; ".join(wrong))
    names = {was: now for was, _, now, _ in rows}
    text = WORD.sub(lambda found: names.get(found[0], found[0]), old)
    for was, now in zip(header(old), header(new)):
        text = text.replace(f"'{was}'", f"'{now}'")
    sys.stdout.write(text)


main(*sys.argv[1:])
