# SPDX-License-Identifier: Apache-2.0
enabled = True


def set_cudagraph_capturing_enabled(value):
    global enabled
    enabled = value
