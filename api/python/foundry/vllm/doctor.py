# SPDX-License-Identifier: Apache-2.0
"""The part of `python -m foundry doctor` about vLLM."""
from ..engines import doctor


def _facts():
    from . import facts
    return facts


def _folders():
    from .folders import folders
    return folders()


def _allowed():
    from vllm import envs
    return envs.VLLM_PLUGINS


ENGINE = doctor.Engine("vllm", "vLLM", "FOUNDRY_VLLM", "VLLM_PLUGINS", "vllm.general_plugins",
                       _facts, _folders, _allowed)


def report(say, ref):
    """Call `say` with (name, works, text) for each check."""
    doctor.report(ENGINE, say, ref)
