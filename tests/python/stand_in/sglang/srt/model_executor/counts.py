# SPDX-License-Identifier: Apache-2.0
import os

import torch

COUNTS = {"profile": 0, "capture": 0, "dummy_run": 0}


def collective(runner):
    """Ranks wait for each other, if the test starts several."""
    if runner.tp_size > 1 and "STAND_IN_RANK" in os.environ:
        found = [None] * runner.tp_size
        torch.distributed.all_gather_object(found, "collective", "cpu")
        assert set(found) == {"collective"}, found
