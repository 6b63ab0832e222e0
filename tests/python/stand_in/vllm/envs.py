# SPDX-License-Identifier: Apache-2.0
import os

VLLM_PLUGINS = os.environ["VLLM_PLUGINS"].split(",") if "VLLM_PLUGINS" in os.environ else None


def compile_factors():
    return {"VLLM_STAND_IN": None, "VLLM_STAND_IN_KEY": None, "VLLM_BATCH_INVARIANT": None}


def __getattr__(name):
    """The variables that vLLM changes when it initializes a device."""
    default = {"VLLM_USE_AOT_COMPILE": "1", "VLLM_BATCH_INVARIANT": "0"}
    if name not in default:
        raise AttributeError(name)
    return os.environ.get(name, default[name]) == "1"


VLLM_CACHE_ROOT = os.path.join(os.path.expanduser("~"), ".cache", "vllm")
VLLM_TUNED_CONFIG_FOLDER = os.environ.get("VLLM_TUNED_CONFIG_FOLDER")
VLLM_GPU_SYNC_CHECK = os.environ.get("VLLM_GPU_SYNC_CHECK")
VLLM_USE_STANDALONE_COMPILE = True
VLLM_DISABLE_COMPILE_CACHE = os.environ.get("VLLM_DISABLE_COMPILE_CACHE") == "1"
VLLM_USE_BREAKABLE_CUDAGRAPH = False
VLLM_ALLREDUCE_USE_SYMM_MEM = os.environ.get("VLLM_ALLREDUCE_USE_SYMM_MEM") == "1"
VLLM_USE_NCCL_SYMM_MEM = VLLM_ALLREDUCE_USE_FLASHINFER = False
