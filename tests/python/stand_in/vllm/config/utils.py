# SPDX-License-Identifier: Apache-2.0
import types


def replace(config, **more):
    return types.SimpleNamespace(**{**vars(config), **more})
