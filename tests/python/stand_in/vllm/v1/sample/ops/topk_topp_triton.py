# SPDX-License-Identifier: Apache-2.0
_TRITON_BUFFER_CACHE = {}


def reset_buffer_cache():
    _TRITON_BUFFER_CACHE.clear()
