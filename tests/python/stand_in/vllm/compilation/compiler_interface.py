# SPDX-License-Identifier: Apache-2.0
INITS = []


def trigger_inductor_lazy_init(device):
    INITS.append(device)
