# SPDX-License-Identifier: Apache-2.0
"""The benchmark that can run on the software driver: it finds the functions whose time it takes."""
import os
import subprocess
import sys
import unittest

import suite
from parts import ROOT

SCRIPT = os.path.join(ROOT, "tests", "bench", "gpu", "saved_loads.py")


class SavedLoads(unittest.TestCase):
    def test_the_table_has_a_row_for_each_part(self):
        done = subprocess.run([sys.executable, SCRIPT, "--sim", "2", "nothing"],
                              capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        for row in ("read the file", "call of the library", "= of the library"):
            self.assertRegex(done.stdout, rf"\n{row} +\d+\.\d{{3}} +\d+\.\d{{3}} +\d+\.\d\n")


if __name__ == "__main__":
    suite.main()
