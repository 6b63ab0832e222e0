# SPDX-License-Identifier: Apache-2.0
"""foundry.sglang with a small engine in SGLang's place, on the software driver; each start is a
process of its own.
"""
import os
import shutil

import suite
from sglang_scripts import ENGINE, Engine


class Starts(Engine):
    def test_the_first_start_seals_and_the_next_loads(self):
        self.first()
        log = self.start(counts="LOADED")
        self.assertIn("Foundry: loaded 'test'", log)
        self.assertIn("capture or load", log)


if __name__ == "__main__":
    suite.main()
