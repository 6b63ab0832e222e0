# SPDX-License-Identifier: Apache-2.0


def compile_factors():
    return {"VLLM_STAND_IN": None, "VLLM_STAND_IN_KEY": None}
