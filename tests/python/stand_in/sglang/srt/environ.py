# SPDX-License-Identifier: Apache-2.0
import os
import types


def _variable(get):
    return types.SimpleNamespace(get=get)


envs = types.SimpleNamespace(
    SGLANG_PLUGINS=_variable(lambda: os.environ.get("SGLANG_PLUGINS")),
    SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE=_variable(lambda: None),
    SGLANG_ONE_VISIBLE_DEVICE_PER_PROCESS=_variable(lambda: False),
    SGLANG_JIT_DEEPGEMM_PRECOMPILE=_variable(
        lambda: os.environ.get("SGLANG_JIT_DEEPGEMM_PRECOMPILE") != "0"),
    SGLANG_SIMULATE_UNIFORM_EXPERTS=_variable(
        lambda: os.environ.get("SGLANG_SIMULATE_UNIFORM_EXPERTS") == "1"),
    SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS=_variable(
        lambda: os.environ.get("SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS") == "1"),
    SGLANG_USE_SGL_FA3_KERNEL=_variable(
        lambda: os.environ.get("SGLANG_USE_SGL_FA3_KERNEL") != "0"),
    SGLANG_ENABLE_CUDA_GRAPH_DEDUP=_variable(
        lambda: os.environ.get("SGLANG_ENABLE_CUDA_GRAPH_DEDUP") == "1"))
