# SPDX-License-Identifier: Apache-2.0
"""A small engine in vLLM's place, for tests on the software driver.

It has the phases of vLLM's worker, with the names that foundry.vllm wraps: a constructor with
buffers, weights, a profile that leaves a constant behind, a cache, a warm-up, a capture of one
graph for each batch size. Nothing in it knows of Foundry.
"""
import os

__version__ = os.environ.get("STAND_IN_VLLM", "0.25.1")
