# SPDX-License-Identifier: Apache-2.0
"""Runs a file's unittest cases and prints the result in the form that tests/run reads."""
import sys
import unittest


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
