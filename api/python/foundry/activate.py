# SPDX-License-Identifier: Apache-2.0
"""Putting the interposer in place: in this process, and in programs that it starts."""
import ctypes
import os
import re

from ._lib import lib

_SEPARATORS = re.compile(r"[ :]+")


def interposer():
    """Path of the interposer; Error where there is none."""
    path = ctypes.create_string_buffer(4096)
    lib.fdry_hook_path(path, len(path))
    return os.fsdecode(path.value)


def environment(env=None):
    """A copy of `env` (None: os.environ) whose LD_PRELOAD puts the interposer in place.

    For programs that import torch first, or are no Python: subprocess.run(command,
    env=foundry.environment()). What LD_PRELOAD names already stays in front.
    """
    env = dict(os.environ if env is None else env)
    path = interposer()
    if _SEPARATORS.search(path):
        raise ValueError(
            f"LD_PRELOAD cannot name {path}, for its blank or colon; install Foundry elsewhere")
    named = [p for p in _SEPARATORS.split(env.get("LD_PRELOAD", "")) if p]
    ours = [path, os.path.join(os.path.dirname(path), "libcuda.so")]
    env["LD_PRELOAD"] = " ".join(named + [p for p in ours if p not in named])
    return env


def activate(children=False):
    """Put the interposer in place, as importing foundry does, and raise where that is too late.

    children: also for every program that this process starts from now on, whatever it imports
    first (os.environ is changed as environment() says). Workers that are forked, or import foundry
    before torch themselves, need it not.
    """
    lib.fdry_hook_install(None)
    if children:
        os.environ.update(environment())
