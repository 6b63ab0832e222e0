# SPDX-License-Identifier: Apache-2.0
import os
import types


def get_world_group():
    return types.SimpleNamespace(cpu_group="cpu")


_groups = {name: lambda name=name: types.SimpleNamespace(
    device_group=name, world_size=int(os.environ.get("STAND_IN_RANKS", 1)))
    for name in ("world", "tp")}
