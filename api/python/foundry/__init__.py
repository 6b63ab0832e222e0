# SPDX-License-Identifier: Apache-2.0
"""Foundry: capture GPU work once, load it by hash in milliseconds.

Import it before anything that loads CUDA (torch, cupy, ...): the import puts the interposer in the
place of libcuda.so.1. The interposer passes every call on and records what a seal needs. A process
that only loads images does not need it, and may import foundry at any time.

To run a program that imports torch first, use `python -m foundry run program.py`.

    capturing:  Capture, activate, environment
    loading:    load, Image
    both:       Store, Error, load_or_capture
    graphs by key:                          Slots
    kernels without graphs:                 Kernels, Code
    numbers that change between launches:   DeviceScalar, DecodeState
    container registries:                   Store.push, Store.pull, tags, prune
"""
from . import telemetry
from ._lib import Error, lib, missing
from .activate import activate, environment
from .capture import Capture, Sealed, base_for_name
from .care import Fault, Repair, Repaired, Verification, repair, verify
from .device import Device
from .group import Pinned, gather, pin
from .identity import Identity, NotCompared, identify
from .image import Image, load
from .kernel import Code, Function, Kernels, KernelStats, KernelTarget
from .repo import Pruned, Tag, prune, tags, unpush
from .scalar import DecodeState, DeviceScalar
from .slots import SlotCall, SlotPhase, Slots, SlotStats
from .start import Start, Unused, load_or_capture
from .store import Collection, Eviction, File, Requirements, Pack, Store, Transfer
from .variables import Variable, check_variables, variables

__all__ = ["Capture", "Code", "Collection", "DecodeState", "Device", "DeviceScalar", "Error",
           "Eviction", "Fault", "File", "Function", "Identity", "Image", "KernelStats",
           "KernelTarget", "Kernels", "NotCompared", "Pack", "Pinned", "Pruned", "Repair",
           "Repaired", "Requirements", "Sealed", "SlotCall", "SlotPhase", "SlotStats", "Slots",
           "Start", "Store", "Tag", "Transfer", "Unused", "Variable", "Verification", "activate",
           "base_for_name", "check_variables", "environment", "gather", "identify", "load",
           "load_or_capture", "pin", "prune", "repair", "tags", "telemetry", "unpush", "variables",
           "verify"]
__version__ = lib.fdry_version().decode() if not missing else "0"

# Graphs in files, with the names of the original API (Documentation/api/torch-graphs.rst).
from .cudagraph import CUDAGraph, graph, graph_pool_handle, save_graphs
from .many import (load_cuda_modules_and_libraries, pack_fatbins_to_folder, save_graph_manifest,
                   set_pack_fatbins_on_exit)
from .region import (allocation_region, free_preallocated_region, get_current_alloc_offset,
                     get_live_region_ranges, parse_size, preallocate_cublas_workspaces,
                     preallocate_ranges, preallocate_region, resume_allocation_region,
                     set_allocation_region, set_current_alloc_offset, stop_allocation_region)

__all__ += ["CUDAGraph", "allocation_region", "free_preallocated_region",
            "get_current_alloc_offset", "get_live_region_ranges", "graph", "graph_pool_handle",
            "load_cuda_modules_and_libraries", "pack_fatbins_to_folder", "parse_size",
            "preallocate_cublas_workspaces", "preallocate_ranges", "preallocate_region",
            "resume_allocation_region", "save_graph_manifest", "save_graphs",
            "set_allocation_region", "set_current_alloc_offset", "set_pack_fatbins_on_exit",
            "stop_allocation_region"]


try:
    activate()
except (Error, ImportError):
    pass  # too late, or there is no interposer: only a capture needs it, and reports that then
