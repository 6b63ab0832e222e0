# SPDX-License-Identifier: Apache-2.0
"""Facts of a start that an image must share to be used, for all engines."""
import glob
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import sys

from .. import _modes

# Packages with kernels, or with host code that prepares what kernels read.
PACKAGES = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", "flash-attn",
            "deep-gemm", "nvidia-cutlass-dsl", "transformers", "nvidia-nccl-cu13",
            "nvidia-nccl-cu12", "nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cudnn-cu13",
            "nvidia-cudnn-cu12")
# Variables of other libraries that select kernels or their precision.
VARIABLES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "DISABLE_ADDMM_CUDA_LT",
             "TORCH_BLAS_PREFER_CUBLASLT", "FORCE_NUM_KV_SPLITS", "CUBLAS_WORKSPACE_CONFIG",
             "CUBLASLT_WORKSPACE_SIZE", "TORCH_CUBLASLT_UNIFIED_WORKSPACE", "TRITON_LIBDEVICE_PATH",
             "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
# The same, by how their names begin.
_PREFIXES = ("FLASHINFER_", "TRITON_", "TORCHINDUCTOR_", "NCCL_", "CUBLAS_", "CUBLASLT_", "CUDNN_",
             "FLA_", "DG_")
# Those with one of these words only change where something lies, what is logged, or how hosts
# reach each other.
_NEUTRAL = re.compile("(^|_)(CACHE|CACHES|DIR|PATH|WORKSPACE|LOG|LOGS|LOGGING|LOGLEVEL|LOGDEST|"
                      "RUN_ID|HOST|PORT|PLUGINS|HOME|VERBOSE|DEBUG|SOCKET|IB|PRINT|DUMP)(_|$)")
# Except these: files with settings of kernels, libraries, changes that are undone, switches, and
# kernels that are compiled for debugging.
_SELECTING = re.compile("_CONFIG_(DIR|FOLDER)$|_SO_PATH$|_DEBUG_REVERT_|_USE_|^TRITON_DEBUG$|"
                        "^FLASHINFER_JIT_(DEBUG|VERBOSE)$")
_LONG = 4000  # bytes; a fact may have 4,095
_SECRET = re.compile("(^|_)(KEY|TOKEN|SECRET|PASSWORD)$")
_SHORT = re.compile(r"[A-Za-z0-9_.,:-]{1,24}")
RUN, COMPARED = "run", "compared"  # what is known of an engine's code


def environment(names):
    """Return those of the variables `names`, of VARIABLES and of selecting() that are in the
    environment, with a hash in place of a long value. Secrets are left out.
    """
    found = []
    for name in sorted({*names, *VARIABLES, *selecting(_PREFIXES)}):
        value = os.environ.get(name)
        if value and not _SECRET.search(name):
            found.append(f"{name}={short(value)}")
    return " ".join(found) or "empty"


def selecting(prefixes):
    """Return the names in the environment that begin with one of `prefixes`, without those that
    change neither kernels nor what these compute.
    """
    return [name for name in os.environ if name.startswith(prefixes) and (
        not _NEUTRAL.search(name) or _SELECTING.search(name))]


def modes():
    """Return torch's settings that choose kernels."""
    import torch  # the doctor imports this file without torch
    return str(_modes.current(torch))


def stated(prefix, found):
    """Return {prefix + key: text} of facts, with a hash in place of a text that is too long."""
    texts = {prefix + key: str(value) for key, value in found.items()}
    return {key: text if len(text.encode()) < _LONG else hashed(text.encode())
            for key, text in texts.items()}


def short(text):
    """Return a text, or its hash if it is long or has blanks."""
    return text if _SHORT.fullmatch(text) else hashed(text.encode())


def packages(more=()):
    """Return the installed PACKAGES, and those of `more`, with their versions."""
    found = []
    for name in (*PACKAGES, *more):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return ", ".join(found) or "none"


def code(model):
    """Return a hash of the files with the classes of a model's modules and of their attention, and
    with the classes from which these are derived.

    A model's own code may change while its configuration stays.
    """
    parts = [each for module in model.modules() for each in (module, getattr(module, "impl", None))]
    files = {}
    for name in {each.__module__ for kind in set(map(type, parts)) for each in kind.__mro__}:
        path = getattr(sys.modules.get(name), "__file__", None)
        if path:
            with open(path, "rb") as f:
                files[name] = hashed(f.read())
    return hashed(repr(sorted(files.items())).encode())


def tuned(package, patterns, own=None):
    """Return the number of files with block sizes of Triton's kernels, and a hash of their names
    and contents. Operators tune them.

    patterns: of glob, below the engine's package. own: an operator's folder and a pattern, or None.
    """
    folder = os.path.dirname(importlib.util.find_spec(package).origin)
    places = [*([own] if own else []), *((folder, each) for each in patterns)]
    found = [(number, os.path.relpath(path, start), (data := content(path)) and hashed(data))
             for number, (start, pattern) in enumerate(places)
             for path in sorted(glob.glob(os.path.join(glob.escape(start), pattern)))]
    return f"{len(found)}, hash {hashed(repr(found).encode())}"


def content(path):
    """Return the bytes of a file, or None if it cannot be read."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return None


def source(package, names):
    """Return a hash of the files of the modules `names` of a package. Raises ImportError if there
    is no such module.

    Files, because another plug-in may have wrapped their functions. The modules are not imported:
    the start may not need all of them.
    """
    texts = []
    for name in names:
        found = importlib.util.find_spec(f"{package}.{name}")
        if found is None or not found.origin:
            raise ImportError(f"there is no module {package}.{name}")
        with open(found.origin, encoding="utf-8") as f:
            texts.append(f.read())
    return hashed("\0".join(texts).encode())


def known(plug_in):
    """Return how the installed engine's code is known: RUN if it is that of a version that was run
    with images on a GPU, COMPARED if it is that of a version that was only read and compared, None
    otherwise. Raises what its source() raises.

    plug_in: the module facts of a plug-in, with source(), SOURCES and COMPARED.
    """
    found = plug_in.source()
    if found in plug_in.SOURCES.values():
        return RUN
    return COMPARED if found in plug_in.COMPARED.values() else None


def hashed(data):
    """Return a short hash of bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def difference(wanted, found, prefix, more=None):
    """Return a sentence on the first fact of `wanted` that `found` has with another value, or None.

    more: None, or returns a better sentence on a fact with this key, or None.
    """
    for key, value in wanted.items():
        if found.get(key) != value:
            name = key.removeprefix(prefix)
            return (more and more(name)) or (
                f"{name} is {value} here and {found.get(key, 'not stated')} in the image")
    return None


def beginning(found, prefix):
    """Return those of an image's facts whose names begin with `prefix`."""
    return {key: value for key, value in found.items() if key.startswith(prefix)}
