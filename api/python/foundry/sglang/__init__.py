# SPDX-License-Identifier: Apache-2.0
"""Starts SGLang from an image: the first start captures and seals, later starts load.

SGLang finds this plug-in by the entry point `sglang.srt.plugins`, in every process that it starts.
It does nothing unless FOUNDRY_SGLANG is set to a value other than 0. Documentation/api/sglang.rst
explains its use.
"""
import logging
import os


def _unknown(e):
    """An unknown version of SGLang must start as without Foundry."""
    why = f"this version of SGLang lacks what Foundry wraps: {e!r}"
    if os.environ.get("FOUNDRY_SGLANG_STRICT") == "1":
        # SGLang would continue after an exception.
        raise SystemExit(f"FOUNDRY_SGLANG_STRICT is set, and {why}") from e
    logging.getLogger("sglang.foundry").warning("Foundry: started without an image, because %s",
                                                why)


def register():
    """Have SGLang's registry wrap the phases of its model runners. SGLang calls this."""
    if os.environ.get("FOUNDRY_SGLANG", "0") in ("", "0"):
        return
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
        from . import runner
        for target, hook in runner.hooks().items():
            HookRegistry.register(target, hook, HookType.AROUND)
    except (ImportError, AttributeError) as e:
        _unknown(e)
