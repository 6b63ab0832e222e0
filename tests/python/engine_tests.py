# SPDX-License-Identifier: Apache-2.0
"""What tests of every small engine share: the first start, and checks that do not depend on it."""
from torch_scripts import Folder


class Engine(Folder):
    """Starts of a small engine. A subclass has start(), which makes one and returns its log."""

    def first(self, **more):
        log = self.start(**more)
        self.assertIn("Foundry: captured and sealed 'test'", log)
        self.assertIn("3 graphs", log)
        self.assertIn("because there is no ref 'test' in the store", log)
        return log


class Starts:
    """Tests for a subclass of Engine."""

    def test_weights_are_those_of_the_process(self):
        self.first()
        self.start(counts="LOADED", options="weight=7.0", weight=7.0)

    def test_memory_of_the_process_can_change_after_a_load(self):
        self.first()
        self.start("kept = [torch.full((1 << 18,), 5.0) for _ in range(8)]", counts="LOADED")
