# SPDX-License-Identifier: Apache-2.0
"""Runs scripts that use a small array library in torch's place, on the software driver, each in a
process of its own.
"""
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

# The beginning of all other scripts. fails(NAME, part of the message, call)
BEGIN = """\
import foundry as fdry
import torch
BASE = 0x500000000000
def full(value, *shape):
    return torch.full(shape or (100, 100), value)
def is_all(tensor, value):
    found = set(tensor.tolist())
    assert found == {value}, (found, value)
def fails(name, says, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except fdry.Error as e:
        assert e.name == "FDRY_E_" + name and says in str(e), f"{e.name}: {e}"
    else:
        raise AssertionError(f"{says}: nothing was raised")
"""


class Folder(unittest.TestCase):
    """Scripts that run in a folder of their own."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_one(self, text, **variables):
        env = {k: v for k, v in os.environ.items() if k != "FOUNDRY_STORE"}
        env.update(HOME=self.folder.name, XDG_CACHE_HOME="", **variables)
        env["PYTHONPATH"] = os.pathsep.join([os.path.join(HERE, "stand_in"),
                                             env.get("PYTHONPATH", "")])
        return subprocess.run([sys.executable, "-c", text], cwd=self.folder.name, env=env,
                              capture_output=True, text=True, check=False, timeout=100)

    def script(self, text, **variables):
        """Runs the script and returns its output. If Linux placed a library at the region's
        addresses by chance, the script runs again.
        """
        for _ in range(4):
            done = self.run_one(text, **variables)
            if ("FDRY_E_TAKEN" not in done.stderr and "foundry._lib.Error" not in done.stderr
                or " is taken" not in done.stderr):
                break
        if done.returncode or done.stderr:
            raise AssertionError(f"{done.stdout}{done.stderr}status {done.returncode}")
        return done.stdout.strip()

    def more(self, text, before="", **variables):
        return self.script(BEGIN + before + textwrap.dedent(text), **variables)
