# SPDX-License-Identifier: Apache-2.0
from .jit import core


def gen_sampling_module():
    return core.module("sampling")
