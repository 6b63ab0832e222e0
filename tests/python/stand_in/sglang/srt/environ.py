# SPDX-License-Identifier: Apache-2.0
import os
import types

envs = types.SimpleNamespace(SGLANG_PLUGINS=types.SimpleNamespace(
    get=lambda: os.environ.get("SGLANG_PLUGINS")),
    SGLANG_ENABLE_CUDA_GRAPH_DEDUP=types.SimpleNamespace(
        get=lambda: os.environ.get("SGLANG_ENABLE_CUDA_GRAPH_DEDUP") == "1"))
