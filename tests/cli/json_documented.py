# SPDX-License-Identifier: Apache-2.0
"""json_documented.py PAGE COMMAND EXPRESSION < JSON: checks that the page has every key of the
JSON, with its path and type, that no required key is missing, and that the expression over j is
true.

A line of the page is "``path``  type  meaning": paths are written refs[].id; <kind> stands for any
key; a key whose type ends in "?" may be missing.
"""
import json
import re
import sys

TYPES = {"string": str, "number": int, "bool": bool, "array": list, "object": dict, "any": object}


def documented(page, command):
    """Returns path -> (type, may be missing) of the command's section."""
    with open(page, encoding="utf-8") as f:
        lines = f.read().split("\n")
    start = next(i for i, line in enumerate(lines) if line == command
                 and set(lines[i + 1]) == {"="})
    end = next((i for i in range(start + 2, len(lines)) if re.fullmatch("=+", lines[i])
                and lines[i - 1]), len(lines))
    found = (re.match(r"``([^`]+)`` +(\w+)(\??)", line) for line in lines[start:end])
    return {m[1]: (TYPES[m[2]], bool(m[3])) for m in found if m}


def join(path, key):
    return path + "." + key if path else key


def check(value, path, doc, faults):
    if isinstance(value, list):
        for item in value:
            check_one(item, path + "[]", doc, faults)
    elif isinstance(value, dict):
        for key, item in value.items():
            known = join(path, key)
            check_one(item, known if known in doc else join(path, "<key>"), doc, faults)
        for name, (_, optional) in doc.items():
            parent, _, key = name.rpartition(".")
            if parent == path and not key.endswith(
                "[]") and key != "<key>" and not optional and key not in value:
                faults.append("missing: " + name)


def check_one(value, path, doc, faults):
    if path not in doc:
        faults.append("not documented: " + path)
    elif not isinstance(value, doc[path][0]) or (isinstance(value, bool) and doc[path][0] is int):
        faults.append("of another type: " + path)
    elif doc[path][0] is not object:
        check(value, path, doc, faults)


j = json.load(sys.stdin)
wrong = []
# Any document may hold an error, alone or beside other keys.
errors = documented(sys.argv[1], "Errors")
check(j, "", errors if set(j) == {"error"} else {**documented(sys.argv[1], sys.argv[2]), **errors},
      wrong)
if wrong:
    sys.exit("\n".join(sorted(set(wrong))) + "\n" + str(j)[:2000])
if not eval("(" + sys.argv[3] + ")"):
    sys.exit(str(j)[:2000])
