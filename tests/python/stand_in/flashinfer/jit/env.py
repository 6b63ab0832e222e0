# SPDX-License-Identifier: Apache-2.0
import os
import pathlib

FLASHINFER_WORKSPACE_DIR = pathlib.Path(os.environ.get(
    "FLASHINFER_WORKSPACE_BASE", os.path.expanduser("~"))) / ".cache" / "flashinfer" / "0.6" / "90a"
FLASHINFER_JIT_DIR = FLASHINFER_WORKSPACE_DIR / "cached_ops"
FLASHINFER_GEN_SRC_DIR = FLASHINFER_WORKSPACE_DIR / "generated"
FLASHINFER_INCLUDE_DIR = pathlib.Path("data/include")
FLASHINFER_CSRC_DIR = pathlib.Path("data/csrc")
