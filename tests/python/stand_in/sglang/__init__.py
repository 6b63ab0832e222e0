# SPDX-License-Identifier: Apache-2.0
"""A small engine in SGLang's place, for tests with the small array library.

It has the phases of SGLang's model runner and of its runner of decode graphs, with the names that
foundry.sglang wraps. A batch of N adds the weights N times.
"""
import logging
import os
import sys

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s")
__version__ = os.environ.get("STAND_IN_SGLANG", "0.5.15.post1")
