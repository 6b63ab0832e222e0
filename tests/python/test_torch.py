# SPDX-License-Identifier: Apache-2.0
"""Tests which versions of PyTorch the package accepts, with a small array library in torch's place.
"""
import os
import re
import subprocess
import sys
import unittest
from unittest import mock

import suite
import foundry

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "stand_in"))
import torch  # noqa: E402


def doctor(version):
    """Returns the doctor's line on torch."""
    paths = [os.path.join(HERE, "stand_in"), os.environ["PYTHONPATH"]]
    done = subprocess.run([sys.executable, "-m", "foundry", "doctor"], capture_output=True,
                          text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(paths),
                               "STAND_IN_TORCH": version})
    return [line for line in done.stdout.splitlines() if re.search(r"^\S+ +torch ", line)]


class Missing(unittest.TestCase):
    def test_it_is_named_with_what_to_do(self):
        for call in (lambda: foundry.compile(abs, (1,), ref="x"), foundry.graph_pool_handle):
            with mock.patch.dict(sys.modules, {"torch": None}):
                with self.assertRaisesRegex(ModuleNotFoundError,
                                            "needs PyTorch 2.9 or newer.*pip install torch") as e:
                    call()
            self.assertEqual(e.exception.name, "torch")


class Versions(unittest.TestCase):
    def test_older_ones_are_refused_before_anything_begins(self):
        with foundry.Capture() as capture:
            for version in ("2.8.0", "2.8.1+cu129", "2.8.0a0+gitabcdef", "1.13.1", "0.9",
                            "unknown"):
                calls = (foundry.graph_pool_handle, lambda: foundry.graph(foundry.CUDAGraph()),
                         capture.graph(1).__enter__)
                with mock.patch.object(torch, "__version__", version):
                    for call in calls:
                        with self.assertRaisesRegex(ImportError,
                                                    re.escape(f"PyTorch {version} is installed, "
                                                              "and foundry captures "
                                                                           "with 2.9 and newer; "
                                                                           "install a newer one")):
                            call()
            self.assertFalse(torch.cuda.is_initialized())

    def test_newer_versions_are_accepted(self):
        for version in ("2.9.0", "2.9.1+cu128", "2.10.0.dev20251101", "2.11.0+cu130", "2.100.1",
                        "3.0.0a0", "10.0"):
            with mock.patch.object(torch, "__version__", version):
                self.assertEqual(len(foundry.graph_pool_handle()), 2, version)

    def test_the_doctor_says_so(self):
        self.assertRegex(doctor("2.8.1")[0],
                         r"^no +torch +ImportError: PyTorch 2.8.1 is installed, and foundry "
                         r"captures with 2.9")
        self.assertRegex(doctor("2.9.0")[0], r"^ok +torch +2.9.0, built for CUDA 13.0, CUDA works")


if __name__ == "__main__":
    suite.main()
