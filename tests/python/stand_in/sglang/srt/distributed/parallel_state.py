# SPDX-License-Identifier: Apache-2.0
import os
import types


def get_world_group():
    return types.SimpleNamespace(cpu_group="cpu")


_groups = {name: lambda name=name, size=size: types.SimpleNamespace(
    device_group=name, world_size=size) for name, size in (
        ("world:0", int(os.environ.get("STAND_IN_RANKS", 1))),
        ("tp:0", int(os.environ.get("STAND_IN_RANKS", 1))), ("pp:0", 1))}
