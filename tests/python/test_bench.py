# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of Python that can run on the software driver: each prints its table."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import suite
from parts import ROOT


def output(name, *args):
    """Run a benchmark, and return what it prints."""
    script = os.path.join(ROOT, "tests", "bench", "gpu", name)
    done = subprocess.run([sys.executable, script, *args], capture_output=True, text=True,
                          timeout=100)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


class SavedLoads(unittest.TestCase):
    def test_the_table_has_a_row_for_each_part(self):
        table = output("saved_loads.py", "--sim", "2", "nothing")
        for row in ("read the file", "call of the library", "= of the library"):
            self.assertRegex(table, rf"\n{row} +\d+\.\d{{3}} +\d+\.\d{{3}} +\d+\.\d\n")


class Contents(unittest.TestCase):
    ROWS = ("check, ms a GB", "load, checked / not, 4 pairs (quartiles)",
            "seal, 1 % changed / all new", "8 saves in turn / one", "content, warm / pinned",
            "content, warm and checked / pinned", "restore / pinned", "content, cold / cat_cold")

    def test_the_table_has_all_ratios(self):
        with tempfile.TemporaryDirectory() as folder:
            table = output("contents.py", "--small", "--rounds", "1", "--dir", folder)
        for row in self.ROWS:
            found = re.search(rf"\n{re.escape(row)} .*?(\d+\.\d+) \(", table)
            self.assertTrue(found, row)
            self.assertGreater(float(found[1]), 0, row)
        self.assertRegex(table, r"\nseal by another capture / all new +\d\.\d{3}\n")


if __name__ == "__main__":
    suite.main()
