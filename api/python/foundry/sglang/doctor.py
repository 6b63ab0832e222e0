# SPDX-License-Identifier: Apache-2.0
"""The part of `python -m foundry doctor` about SGLang."""
from ..engines import doctor


def _facts():
    from . import facts
    return facts


def _folders():
    from .folders import folders
    return folders()


def _allowed():
    from sglang.srt.environ import envs
    text = envs.SGLANG_PLUGINS.get()
    return [each.strip() for each in text.split(",")] if text else None


ENGINE = doctor.Engine("sglang", "SGLang", "FOUNDRY_SGLANG", "SGLANG_PLUGINS",
                       "sglang.srt.plugins", _facts, _folders, _allowed)


def report(say, ref):
    """Call `say` with (name, works, text) for each check."""
    doctor.report(ENGINE, say, ref)
