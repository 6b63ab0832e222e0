# SPDX-License-Identifier: Apache-2.0
"""The facts that tie an image to the program that captured it, determined before anything is
loaded.

identify() makes facts of a capture function and of everything that it refers to (_walk.py).
Functions outside installed packages count by their bytecode (_code.py), installed packages by their
versions (_packages.py), and values by their content. The facts depend on nothing but the program:
they are equal in every process and on every host.

Everything that cannot be compared is listed, with the reason.
"""
import collections
import hashlib
import sys

from . import _modes, _packages
from ._code import digest, pack, text
from ._walk import CODE, PACKAGE, VALUE, Walk

FACTS = 256  # the most about functions and values; all further ones share one fact
LISTED = 64  # names that are listed as not compared
NOT_COMPARED = "py.not_compared"  # a fact for people; loads do not compare it

NotCompared = collections.namedtuple("NotCompared", "name why")


class Identity:
    """The facts that tie an image to the program that calls load_or_capture(); str() of it is
    readable.

    facts: {key: value} that an image must have to be loaded. not_compared: a list of
    NotCompared(name, why). automatic: whether it has facts besides the caller's.
    """

    def __init__(self, facts, not_compared, automatic=True):
        self.facts, self.not_compared, self.automatic = facts, not_compared, automatic

    def _repr_html_(self):
        from . import _show
        return "\n".join([_show.mapping("Compared", self.facts),
                          _show.table("Not compared", ("name", "why"),
                                      ((_show.cell(each.name), _show.cell(each.why))
                                       for each in self.not_compared))
                          if self.not_compared else ""])

    def __repr__(self):
        return f"<Identity: {self._counts()}>"

    def __str__(self):
        first, *missing = self.lines()
        return "\n".join([first, *(f"    {key} = {value}" for key, value in self.facts.items()),
                          *missing])

    def _counts(self):
        def count(prefix, what):
            n = sum(key.startswith(prefix) for key in self.facts)
            return f"{n} {what}{'s' * (n != 1)}"
        more = [f"{n} other fact{'s' * (n != 1)}"
                for n in [sum(not key.startswith("py.") for key in self.facts)] if n]
        return ", ".join([count(CODE, "piece") + " of code", count(VALUE, "value"),
                          count(PACKAGE, "package version"), *more])

    def lines(self):
        """Lines for a report: how many facts are compared, and what is not compared."""
        return ["compared: " + self._counts(),
                *(f"not compared: {name} ({why})" for name, why in self.not_compared)]


def _listed(missing):
    found = [NotCompared(name, why) for name, why in missing.items()]
    return (found[:LISTED]
            + [NotCompared(f"{len(found) - LISTED} more",
                           "too many to list")] * (len(found) > LISTED))


def _torch_settings(walk):
    try:
        return _modes.altered()
    except Exception as e:  # of a torch whose settings have other names
        walk.lacks("torch", f"{type(e).__name__} when its settings were read")
        return "unknown"


def identify(capture=None, facts=None, automatic=True):
    """The facts that load_or_capture(capture=capture, facts=facts) compares with an image: an
    Identity.

    These are: the version of Python; the versions of the installed packages that the function
    reaches and, if it reaches any, of torch and the GPU libraries, with torch's settings; the code
    of the function and of everything that it reaches outside installed packages; the values in its
    closure, defaults and globals, with shapes and dtypes of arrays. A fact in `facts` replaces one
    with the same key that was determined here. automatic=False: `facts` alone.
    """
    given = {key: str(value) for key, value in (facts or {}).items()}
    if capture is None or not automatic:
        why = ("no capture function was given"
               if automatic else "only the facts that were given are compared")
        return Identity(given, [NotCompared("code", why)], automatic)
    walk = Walk()
    root = walk.take(walk.refer, "capture", capture, "capture")
    walk.run()
    items = {key: given.get(key, value) for key, value in walk.items.items()}
    keys = list(items)
    found = {"py.python": f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"}
    stack = _packages.gpu_stack() if walk.packages else {}
    found.update({PACKAGE + name: version
                  for name, version in sorted({**stack, **walk.packages}.items())})
    if PACKAGE + "torch" in found:
        found["py.torch"] = _torch_settings(walk)
    found.update({key: items[key] for key in keys[:FACTS]})
    rest = [pack("item", text(key), text(items[key])) for key in keys]
    if len(keys) > FACTS:
        found["py.more"] = f"{len(keys) - FACTS}:{digest(pack('more', *rest[FACTS:]))}"
    found["py.all"] = hashlib.sha256(pack("all", root, *sorted(rest))).hexdigest()
    return Identity({**given, **{key: given.get(key, value) for key, value in found.items()}},
                    _listed(walk.missing))
