# SPDX-License-Identifier: Apache-2.0
"""Foundry: capture GPU work once, load it by hash in milliseconds.

Import it before anything that loads CUDA (torch, cupy, ...): the import puts the interposer in the
place of libcuda.so.1. The interposer passes every call on and records what a seal needs. A process
that only loads images does not need it, and may import foundry at any time.

To run a program that imports torch first, use `python -m foundry run program.py`.

    capturing:  Capture, activate, environment
    loading:    load, Image
    both:       Store, Error, load_or_capture
    models:     compile
    graphs by key:                          Slots
    kernels without graphs:                 Kernels, Code
    numbers that change between launches:   DeviceScalar, DecodeState
    container registries:                   Store.push, Store.pull, tags, prune

    with foundry.load("my-model") as image:
        image["x"].shape                    # tensors by name
        image.graphs[1].launch(stream)      # graphs by key
        image.facts["revision"]             # facts

Errors are subclasses of Error, which is a RuntimeError: foundry.errors lists them by the one who
can mend them. Some are also KeyError, ValueError, FileNotFoundError, MemoryError, ... Closed
objects raise ValueError. progress=True draws a bar. Messages go to the logger "foundry" of logging,
unless FOUNDRY_LOG is set.

Units: sizes and offsets are bytes; times are milliseconds if the name ends with _ms, and _ns and _s
likewise; shapes and strides count elements, the last dimension changes fastest.

Threads: any thread may call anything; an object serialises its calls, unless a method says
otherwise. Other threads run during a call. After os.fork(), images and captures cannot be used in
the child; open a Store there again.

Ownership: a with block, close(), or the last reference frees an object. An object that another one
needs stays as long as that one.
"""
from . import _lib, _log
from ._lib import Error
from .activate import activate, environment

# Each name by its module, which is imported when the name is first used: a program that only loads
# an image need not wait for the rest.
_NAMES = {name: module for module, names in {
    "capture": ("Capture", "Sealed", "base_for_name"),
    "compiled": ("Compiled", "compile"),
    "care": ("Fault", "Repair", "Repaired", "Verification", "repair", "verify"),
    "device": ("Device",),
    "errors": ("AccessError", "BusyError", "DamagedError", "FullError", "InternalError",
               "InvalidError", "LimitError", "MismatchError", "NetworkError", "NoKeyError",
               "NotFoundError", "OutOfMemoryError", "PlatformError", "UntrustedError",
               "UsageError"),
    "group": ("Pinned", "gather", "pin"),
    "identity": ("Identity", "NotCompared", "identify"),
    "image": ("Checked", "GraphTimes", "Image", "KernelTime", "Report", "Selftest", "load"),
    "kernel": ("Code", "Function", "KernelStats", "KernelTarget", "Kernels"),
    "repo": ("Pruned", "Tag", "prune", "tags", "unpush"),
    "scalar": ("DecodeState", "DeviceScalar"),
    "settings": ("Variable", "check_variables", "variables"),
    "slots": ("SlotCall", "SlotPhase", "SlotStats", "Slots"),
    "start": ("Start", "Unused", "load_or_capture"),
    "store": ("Collection", "Eviction", "File", "Pack", "Progress", "Ref", "Requirements", "Store",
              "StoredImage", "Transfer"),
    "tensor": ("Tensor",),
    "views": ("Facts", "Graph", "Graphs", "Tensors"),
    # Graphs in files, with the names of the original API (Documentation/api/torch-graphs.rst).
    "cudagraph": ("CUDAGraph", "graph", "graph_pool_handle", "save_graphs"),
    "many": ("Pending", "load_cuda_modules_and_libraries", "pack_fatbins_to_folder",
             "save_graph_manifest", "set_pack_fatbins_on_exit"),
    "region": ("allocation_region", "free_preallocated_region", "get_current_alloc_offset",
               "get_live_region_ranges", "parse_size", "preallocate_cublas_workspaces",
               "preallocate_ranges", "preallocate_region", "resume_allocation_region",
               "set_allocation_region", "set_current_alloc_offset", "stop_allocation_region"),
}.items() for name in names}

__all__ = ["Error", "activate", "environment", "telemetry", *_NAMES]
__version__ = "0" if _lib.missing else _lib.version()


def _module(name):
    return __import__(f"{__name__}.{name}", fromlist=["*"])


def __getattr__(name):
    if name == "telemetry":
        return _module("telemetry")
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})


if not _lib.missing:
    # An error is ignored: too late, or no interposer. Only a capture needs it, and reports that.
    _lib.raw["fdry_hook_install"](None)
    _log.begin()
