# SPDX-License-Identifier: Apache-2.0
import os
import types

envs = types.SimpleNamespace(SGLANG_PLUGINS=types.SimpleNamespace(
    get=lambda: os.environ.get("SGLANG_PLUGINS")))
