# SPDX-License-Identifier: Apache-2.0
"""The version that foundry.vllm reads, for tests with the small engine."""
__version__ = "3.6.0"
