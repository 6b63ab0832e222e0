# SPDX-License-Identifier: Apache-2.0
"""Put the interposer in place: in this process, and in programs that it starts."""
import ctypes
import os

from ._lib import lib


def _parts(names):
    """The names in LD_PRELOAD, which blanks and colons separate."""
    return [name for name in names.replace(":", " ").split(" ") if name]


def interposer():
    """The path of the interposer. Raises Error if there is none."""
    path = ctypes.create_string_buffer(4096)
    lib.fdry_hook_path(path, len(path))
    return os.fsdecode(path.value)


def environment(env=None):
    """A copy of `env` (None: os.environ) whose LD_PRELOAD puts the interposer in place.

    It is for programs that import torch first, or do not use Python: subprocess.run(command,
    env=foundry.environment()). Libraries that LD_PRELOAD has already stay in front.
    """
    env = dict(os.environ if env is None else env)
    path = interposer()
    if _parts(path) != [path]:
        raise ValueError(
            f"LD_PRELOAD cannot name {path}, which has a blank or colon; install Foundry elsewhere")
    named = _parts(env.get("LD_PRELOAD", ""))
    ours = [path, os.path.join(os.path.dirname(path), "libcuda.so")]
    env["LD_PRELOAD"] = " ".join(named + [p for p in ours if p not in named])
    return env


def activate(children=False):
    """Put the interposer in place, as the import of foundry does. Raises Error if that is too late.

    children: also for every program that this process starts from now on, whatever it imports first
    (this changes os.environ as environment() does). Workers that are forked, or that import foundry
    before torch, do not need it.
    """
    lib.fdry_hook_install(None)
    if children:
        os.environ.update(environment())
