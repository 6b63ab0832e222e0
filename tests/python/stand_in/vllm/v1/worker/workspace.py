# SPDX-License-Identifier: Apache-2.0
_manager = None
locked = []


def lock_workspace():
    locked.append(True)
