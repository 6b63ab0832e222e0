# SPDX-License-Identifier: Apache-2.0
"""A strict reader of Prometheus' text format, version 0.0.4. Run as a program, it checks standard
input and prints lines "name{labels} value".
"""
import re
import sys

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')


def labels(text):
    found, at = {}, 0
    while at < len(text):
        m = _LABEL.match(text, at)
        if not m or m.group(1) in found:
            raise ValueError(f"labels {text!r}")
        found[m.group(1)] = re.sub(r"\\(.)", lambda c: "\n" if c.group(1) == "n" else c.group(1),
                                   m.group(2))
        at = m.end()
    return found


def check_name(name, kind):
    """Checks Prometheus' rules for names: base units, and _total at the end of counters."""
    if (kind == "counter") != name.endswith("_total"):
        raise ValueError(f"{name} is a {kind}")
    if re.search(r"_(ms|ns|us|milli\w*|nano\w*|kb|mb|kib|mib)(_|$)", name):
        raise ValueError(f"{name} is in no base unit")


def parse(text):
    """Returns {(name, ((label, value), ...)): number}; raises ValueError if the text breaks the
    format.
    """
    if not text.endswith("\n"):
        raise ValueError("the last line does not end")
    found, kinds, helped, last = {}, {}, set(), None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            if name in helped or not line.split(" ", 3)[3]:
                raise ValueError(f"{name}: help twice, or none")
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name in kinds or kind not in ("counter", "gauge"):
                raise ValueError(line)
            check_name(name, kind)
            kinds[name] = kind
            last = name
        else:
            m = _SAMPLE.match(line)
            if not m or m.group(1) != last or last not in helped:
                raise ValueError(f"line {line!r} behind {last}")
            key = m.group(1), tuple(sorted(labels(m.group(2) or "").items()))
            if key in found:
                raise ValueError(f"{line!r} stands twice")
            found[key] = float(m.group(3)) if "." in m.group(3) else int(m.group(3))
    return found


if __name__ == "__main__":
    for (_name, _labels), _value in parse(sys.stdin.read()).items():
        print(_name + "".join(f" {k}={v}" for k, v in _labels if k != "store"), _value)
