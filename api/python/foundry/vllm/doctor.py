# SPDX-License-Identifier: Apache-2.0
"""The part of `python -m foundry doctor` about vLLM. It runs in a process of its own, since it
imports vLLM.
"""
import importlib.metadata
import os
import subprocess
import sys

ENTRY = "foundry.vllm:register"
NEEDED = "install Foundry with pip, `make install` or its package into this Python"


def version():
    """Return (works, text) about the version of vLLM, or None if there is no vLLM."""
    try:
        found = importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return None
    try:
        from . import facts
        known, source = ", ".join(facts.SOURCES), facts.source()
    except Exception as e:  # anything may go wrong in another version
        return None, f"{found} cannot be examined: {type(e).__name__}: {e}"
    if source not in facts.SOURCES.values():
        return None, f"{found} starts without images, which support {known}"
    return True, f"{found} is supported"


def plug_in():
    """Return (works, text) about the entry point."""
    found = [e.value for e in importlib.metadata.entry_points(group="vllm.general_plugins")]
    if ENTRY not in found:
        return None, f"vLLM does not find it: {NEEDED}"
    try:
        from vllm import envs
        allowed = envs.VLLM_PLUGINS
    except (ImportError, AttributeError):
        allowed = None
    if allowed is not None and "foundry" not in allowed:
        return None, "VLLM_PLUGINS leaves it out: add foundry"
    return True, "vLLM finds it"


def interposer():
    """Return (works, text) about the interposer in Pythons that vLLM starts."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print('foundry' in sys.modules)"],
        env={**os.environ, "FOUNDRY_VLLM": "1"}, capture_output=True, text=True, check=False)
    if done.stdout.strip() == "True":
        return True, "is in place in each Python if FOUNDRY_VLLM is set"
    return None, f"needs `python3 -m foundry run`, or {NEEDED}"


def caches():
    """Return (works, text) about the folders of compilers."""
    from .folders import folders
    texts, good = [], True
    for name, path in folders().items():
        there = path
        while not os.path.exists(there):
            there = os.path.dirname(there)
        writable = os.access(there, os.W_OK)
        good = good and writable
        texts.append(f"{name} {path}" + ("" if writable else " (cannot be written)"))
    return good or None, ", ".join(texts)


def image(ref):
    """Return (works, text) about the image that FOUNDRY_VLLM names."""
    from .. import Error, Store
    from ..engines import caches as engine
    if ref in ("", "0"):
        return None, "FOUNDRY_VLLM is not set, so vLLM starts as without Foundry"
    if ref == "1":
        return True, "named for the model"
    try:
        with Store(readonly=True) as store:
            carried = engine.names(store.describe(ref))
    except Error as e:
        return True, f"the next start is a first one: {e}"
    return True, f"'{ref}' is in the store, with {len(carried)} files for caches"


def report(say, ref):
    """Call `say` with (name, works, text) for each check."""
    found = version()
    if found is None:
        say("vllm", None, "not installed (only needed to start vLLM from images)")
        return
    for name, check in (("vllm", lambda: found), ("vllm plug-in", plug_in),
                        ("vllm interposer", interposer), ("vllm caches", caches),
                        ("vllm image", lambda: image(ref))):
        try:
            say(name, *check())
        except Exception as e:  # the other checks go on
            say(name, None, f"{type(e).__name__}: {e}")
