# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's compiler of modules, as far as foundry.engines.jit uses it. Ninja always runs."""
from . import core, env

__all__ = ["core", "env"]
