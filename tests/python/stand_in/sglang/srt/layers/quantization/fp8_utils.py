# SPDX-License-Identifier: Apache-2.0
import os

use_triton_w8a8_fp8_kernel = bool(os.environ.get("USE_TRITON_W8A8_FP8_KERNEL"))


def cutlass_fp8_supported():
    return True
