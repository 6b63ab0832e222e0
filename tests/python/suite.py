# SPDX-License-Identifier: Apache-2.0
"""Runs a file's unittest cases and prints the result in the form that tests/run reads."""
import os
import subprocess
import sys
import tempfile
import unittest

BUILD = os.environ.get("BUILD", "build")


class Vecadd(unittest.TestCase):
    """Tests with a store, in which the example's image is."""

    name = "store"

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.store = os.path.join(cls.folder.name, cls.name)
        subprocess.run([os.path.join(BUILD, "examples", "vecadd"), "capture", "-s", cls.store, "-m",
                        os.path.join(BUILD, "sim", "kernels.cubin")], check=True,
                       capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def load(self, **options):
        import foundry
        return foundry.load("vecadd", store=self.store, **options)


def main():
    result = unittest.main(exit=False, verbosity=0).result
    failures, errors = len(result.failures), len(result.errors)
    for _, reason in result.skipped:
        print(f"SKIP: {reason}")
    run = result.testsRun - len(result.skipped)
    if result.testsRun and not run and not failures and not errors:
        sys.exit(77)
    good = run - failures - errors
    print(f"{100 * good // run if run else 0}%: Checks: {run}, Failures: {failures}, Errors: "
          f"{errors}")
    sys.exit(failures + errors > 0 or not run)
