# SPDX-License-Identifier: Apache-2.0
"""unused.py OBJECTS-FOLDER MAP - functions and data that the product does not need as they are.

Prints a line "FILE: SYMBOL" for each global symbol of the objects that no other object needs and
that MAP does not export, if its own source names it once (so only tests can use it), or if no test
names it (so it can be static).
"""
import glob
import os
import re
import subprocess
import sys

FOLDERS = ("lib", "arch", "mm", "graph", "store", "hook", "registry", "image", "run", "api")
# Other programs look these up by name.
BY_NAME = re.compile(r"fdry_((hook|sim)_|registry_client$)")
# Assembly inside these files makes their symbols, and macros make some names.
MADE = ("graph/fingerprint_code.c", "graph/heap.c")
NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.S)


def symbols(objects, *flags):
    """(object, symbol) pairs of ours that nm lists."""
    for line in subprocess.run(["nm", "-A", *flags, *objects], capture_output=True, text=True,
                               check=True).stdout.splitlines():
        path, _, rest = line.partition(":")
        name = rest.split()[-1]
        if name.startswith(("fdry_", "sim_", "cmd_")):
            yield path, name


def words_of(paths):
    """All words of the code in these files, with repetitions."""
    words = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as f:
            words += re.findall(r"\w+", NO_CODE.sub("", f.read()))
    return words


def main(folder, version_map):
    sources = {os.path.join(folder, os.path.splitext(path)[0] + ".o"): path
               for top in FOLDERS for path in glob.glob(top + "/**/*.[cS]", recursive=True)}
    sources = {path: source for path, source in sources.items() if os.path.exists(path)}
    needed = {name for _, name in symbols(sources, "-u")} | set(words_of([version_map]))
    tested = set(words_of(glob.glob("tests/**/*.[ch]", recursive=True)))
    found = 0
    for path, name in symbols(sources, "-g", "--defined-only"):
        if name in needed or sources[path] in MADE or BY_NAME.match(name):
            continue
        if name not in tested or words_of([sources[path]]).count(name) == 1:
            print(f"{sources[path]}: {name}")
            found = 1
    return found


sys.exit(main(*sys.argv[1:]))
