# SPDX-License-Identifier: Apache-2.0
import types


def get_world_group():
    return types.SimpleNamespace(cpu_group="cpu")
