# SPDX-License-Identifier: Apache-2.0
import os
import pathlib

FLASHINFER_JIT_DIR = pathlib.Path(os.environ.get(
    "FLASHINFER_WORKSPACE_BASE", os.path.expanduser("~"))) / ".cache" / "flashinfer" / "cached_ops"
