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


def child(file, *args, env=None):
    """Runs a test's file in another process, as "FILE child ARGS", and returns what it prints."""
    done = subprocess.run([sys.executable, os.path.abspath(file), "child", *args],
                          capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


class Result(unittest.TextTestResult):
    """Counts the tests that passed: testsRun has skipped ones too, but not since Python 3.12.1."""

    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def main():
    runner = unittest.TextTestRunner(resultclass=Result, verbosity=0)
    result = unittest.main(exit=False, testRunner=runner).result
    failures, errors = len(result.failures), len(result.errors)
    for _, reason in result.skipped:
        print(f"SKIP: {reason}")
    run = result.passed + failures + errors
    if result.skipped and not run:
        sys.exit(77)
    share = 100 * result.passed // run if run else 0
    print(f"{share}%: Checks: {run}, Failures: {failures}, Errors: "
          f"{errors}")
    sys.exit(failures + errors > 0 or not run)
