# SPDX-License-Identifier: Apache-2.0
"""The part of `python -m foundry doctor` about a serving engine. It runs in a process of its own,
since it imports the engine.
"""
import dataclasses
import importlib.metadata
import os
import re
import subprocess
import sys
import typing

from . import facts

NEEDED = "install Foundry with pip, `make install` or its package into this Python"


@dataclasses.dataclass
class Engine:
    """An engine, as the checks need to know it.

    facts, folders: functions that import the plug-in's modules and return them. allowed: returns
    the names of the plug-ins that the engine may load, or None for all.
    """

    name: str         # of its package
    shown: str        # in texts
    variable: str     # names the image
    allow: str        # the variable that names plug-ins
    group: str        # of entry points
    facts: typing.Callable
    folders: typing.Callable
    allowed: typing.Callable


def version(engine):
    """Return (works, text) about the version of the engine, or None if there is no engine."""
    try:
        found = importlib.metadata.version(engine.name)
    except importlib.metadata.PackageNotFoundError:
        return None
    try:
        plug_in = engine.facts()
        known = facts.known(plug_in)
    except Exception as e:  # anything may go wrong in another version
        return None, f"{found} cannot be examined: {type(e).__name__}: {e}"
    run = ", ".join(plug_in.SOURCES)
    if known is None:
        return None, (f"{found} starts without images, which support "
                      f"{', '.join((*plug_in.SOURCES, *plug_in.COMPARED))}")
    if known == facts.RUN:
        return True, f"{found} is supported"
    variable = f"{engine.variable}_COMPARED"
    if os.environ.get(variable) == "1":
        return True, (f"{found} was compared with {run}, but its tests with images were not run "
                      "on a GPU")
    return None, (f"{found} starts without images unless {variable}=1: it was compared with {run}, "
                  "but its tests with images were not run on a GPU")


def plug_in(engine):
    """Return (works, text) about the entry point."""
    found = [e.value for e in importlib.metadata.entry_points(group=engine.group)]
    if f"foundry.{engine.name}:register" not in found:
        return None, f"{engine.shown} does not find it: {NEEDED}"
    try:
        allowed = engine.allowed()
    except (ImportError, AttributeError):
        allowed = None
    if allowed is not None and "foundry" not in allowed:
        return None, f"{engine.allow} leaves it out: add foundry"
    return True, f"{engine.shown} finds it"


def interposer(engine):
    """Return (works, text) about the interposer in Pythons that the engine starts."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print('foundry' in sys.modules)"],
        env={**os.environ, engine.variable: "1"}, capture_output=True, text=True, check=False)
    if done.stdout.strip() == "True":
        return True, f"is in place in each Python if {engine.variable} is set"
    return None, f"needs `python3 -m foundry run`, or {NEEDED}"


def caches(engine):
    """Return (works, text) about the folders of compilers."""
    texts, good = [], True
    for name, path in engine.folders().items():
        there = path
        while not os.path.exists(there):
            there = os.path.dirname(there)
        writable = os.access(there, os.W_OK)
        good = good and writable
        texts.append(f"{name} {path}" + ("" if writable else " (cannot be written)"))
    return good or None, ", ".join(texts)


def of_ranks(store, ref, prefix):
    """Return the names of the images that a start with the name `ref` loads: `ref`, or if the store
    has that of any rank alone, those of all ranks.

    prefix: of the engine's facts.
    """
    stored = {each.name for each in store.refs()}
    ranks = {name for name in stored if re.fullmatch(re.escape(ref) + r"\.rank\d+", name)}
    if ref in stored or not ranks:
        return [ref]
    _, _, count = store.facts(max(ranks)).get(prefix + "ranks", "").rpartition(" of ")
    return [f"{ref}.rank{rank}" for rank in range(int(count or 0))] or [ref]


def image(engine, ref):
    """Return (works, text) about the image that the engine's variable names, or those of its ranks.
    """
    from .. import Error, Store
    from .caches import names
    if ref in ("", "0"):
        return None, f"{engine.variable} is not set, so {engine.shown} starts as without Foundry"
    if ref == "1":
        return True, "named for the model"
    try:
        with Store(readonly=True) as store:
            found = {name: len(names(store.describe(name)))
                     for name in of_ranks(store, ref, engine.facts().PREFIX)}
    except Error as e:
        return True, f"the next start is a first one: {e}"
    return True, "; ".join(f"'{name}' is in the store, with {count} files for caches"
                           for name, count in found.items())


def report(engine, say, ref):
    """Call `say` with (name, works, text) for each check."""
    found = version(engine)
    if found is None:
        say(engine.name, None,
            f"not installed (only needed to start {engine.shown} from images)")
        return
    for name, check in (("", lambda: found), (" plug-in", lambda: plug_in(engine)),
                        (" interposer", lambda: interposer(engine)),
                        (" caches", lambda: caches(engine)),
                        (" image", lambda: image(engine, ref))):
        try:
            say(engine.name + name, *check())
        except Exception as e:  # the other checks go on
            say(engine.name + name, None, f"{type(e).__name__}: {e}")
