# SPDX-License-Identifier: Apache-2.0
"""Tests of the environment variables in Python: the library's own list, and its messages about
wrong values.
"""
import os
import subprocess
import sys
import unittest

import suite
import foundry


def child(code, **env):
    """Runs Python code with these variables set and returns its status and output."""
    done = subprocess.run([sys.executable, *code],
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class Variables(unittest.TestCase):
    def test_the_list(self):
        found = {v.name: v for v in foundry.variables()}
        self.assertEqual(found["FOUNDRY_LOG"].allowed, "error, warn, info or debug")
        self.assertEqual(found["FOUNDRY_STORE_ANY_FS"][1:3], ("FLAG", "0"))
        self.assertIn("FOUNDRY_LIBRARY", found)
        self.assertTrue(all(v.meaning for v in found.values()))

    def test_messages_name_the_allowed_values(self):
        code = ["-c",
                "import foundry\ntry: foundry.check_variables()\nexcept foundry.Error as e: "
                "print(e.name, e)"]
        self.assertEqual(child(code, FOUNDRY_LOG="warn"), (0, ""))
        status, said = child(code, FOUNDRY_LOG="loud")
        self.assertEqual((status, said),
                         (0, "FDRY_E_ENV FOUNDRY_LOG is 'loud'; set it to error, warn, info or "
                             "debug, "
                                             "or unset it\n"))

    def test_an_unknown_name(self):
        foundry.check_variables("FOUNDRY_DEBUG")
        with self.assertRaisesRegex(foundry.Error, "'FOUNDRY_NONE' is not a variable") as caught:
            foundry.check_variables("FOUNDRY_NONE")
        self.assertEqual(caught.exception.name, "FDRY_E_INVAL")

    def test_doctor_lists_variables_that_are_set(self):
        said = child(["-m", "foundry", "doctor"], FOUNDRY_STORE_ANY_FS="perhaps",
                     FOUNDRY_DEBUG="overlap")[1]
        self.assertRegex(said, r"(?m)^ok +FOUNDRY_DEBUG +overlap$")
        self.assertRegex(said,
                         r"(?m)^FAIL +FOUNDRY_STORE_ANY_FS +FOUNDRY_STORE_ANY_FS is 'perhaps'; set "
                         r"it to 0 or 1")


if __name__ == "__main__":
    suite.main()
