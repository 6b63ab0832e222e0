# SPDX-License-Identifier: Apache-2.0
"""The structs, kinds of callbacks and functions of the library, as tables for _lib.py.

A test compares SIGNATURES with the library's list of exports, and all of them with the headers.
_lib.py imports this module when a name in it is first used, since it takes as long as the rest.
"""
import ctypes
from ctypes import (POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32, c_int64,
                    c_size_t, c_ubyte, c_uint, c_uint32, c_uint64, c_void_p)

from ._lib import (CAPTURE, CUDAGRAPH, DECODE, DEVICE, FUNCTION, GRAPH, GRAPH_EXEC, IMAGE, KERNELS,
                   LOG_FN, POOL, SCALARS, SLOTS, STORE, STREAM, Handle, fit)


class Struct(Structure):
    """A struct that cuts off no integer, and whose handles are held during a call."""

    handles = ()

    def __init_subclass__(cls):
        super().__init_subclass__()
        cls.kinds = dict(cls._fields_)

    def __setattr__(self, name, value):
        if isinstance(value, Handle):
            self.handles += (value,)
            value = value.raw
        super().__setattr__(name, fit(self.kinds.get(name), value, f"{name}: "))


CAPTURE_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
RANK_MAX = 8
ID_SIZE = 65


class Variable(Struct):
    _fields_ = [(n, c_char_p) for n in ("name", "type", "fallback", "allowed", "meaning")]


class Telemetry(Struct):
    _fields_ = [(n, c_char_p) for n in ("name", "labels", "help")] + [("value", c_uint64),
                                                                      ("unit", c_uint32),
                                                                      ("gauge", c_uint32)]


CAPS = ("cc_major", "cc_minor", "multiprocessors", "warp_size", "block_threads", "block_x",
        "block_y", "block_z", "grid_x", "grid_y", "grid_z", "multiprocessor_threads",
        "multiprocessor_blocks", "block_registers", "multiprocessor_registers", "block_shared",
        "block_shared_optin", "block_shared_reserved", "multiprocessor_shared", "constant_memory",
        "l2_cache", "clock_khz", "memory_clock_khz", "memory_bus_bits", "copy_engines",
        "concurrent_kernels", "stream_priorities", "unified_addressing", "managed_memory",
        "map_host_memory", "virtual_memory", "memory_pools", "cooperative_launch", "cluster_launch",
        "multicast", "integrated", "ecc", "compute_mode")


class DeviceCaps(Struct):
    _fields_ = [("sz", c_size_t), ("name", c_char * 128), ("memory", c_uint64),
                ("ordinal", c_int32), ("driver", c_int32)] + [(n, c_int32) for n in CAPS]


class DeviceLaunchOpts(Struct):
    _fields_ = [("sz", c_size_t), ("function", c_void_p), ("grid", c_uint32 * 3),
                ("block", c_uint32 * 3), ("shared", c_uint32), ("reserved", c_uint32),
                ("params", POINTER(c_void_p)), ("stream", c_void_p)]


class TransientStats(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_uint64) for n in (
        "limit", "cached", "cached_count", "used", "used_count", "peak", "hits", "misses",
        "retries", "busy")]


class SyncStats(Struct):
    _fields_ = ([("sz", c_size_t)]
                + [(n, c_uint64) for n in ("limit", "kept", "used", "made", "destroyed", "again")])


class Tensor(Struct):
    _fields_ = [("name", c_char_p), ("addr", c_uint64), ("dtype", c_uint32), ("use", c_uint32),
                ("flags", c_uint32), ("rank", c_uint32), ("shape", c_int64 * RANK_MAX),
                ("stride", c_int64 * RANK_MAX)]


class Fact(Struct):
    _fields_ = [("key", c_char_p), ("value", c_char_p)]


class CaptureOpts(Struct):
    _fields_ = [("sz", c_size_t), ("device", c_int32), ("flags", c_uint32), ("base", c_uint64),
                ("size", c_uint64), ("preallocate", c_uint64), ("name", c_char_p),
                ("after", c_void_p), ("aside", c_uint64)]


PROGRESS_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_uint64, c_uint64, c_double)
SEAL_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_uint64, c_uint64, c_double)
FACT_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Fact))
class KernelTime(Struct):
    _fields_ = [("node", c_uint32), ("kernel", c_uint32), ("name", c_char_p), ("ms", c_double)]


class GraphTimes(Struct):
    _fields_ = ([("key", c_uint64), ("name", c_char_p), ("left_out", c_char_p)]
                + [(n, c_double) for n in ("launch_ms", "alone_ms", "empty_ms")]
                + [("kernels", POINTER(KernelTime)), ("nkernels", c_size_t)])


GRAPH_TIMES_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(GraphTimes))
SELFTEST_FN = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)
BYTES_FN = ctypes.CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)
IMPORTED_FN = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_char_p, c_char_p)
STOP_FN = ctypes.CFUNCTYPE(c_int, c_void_p)
EVICT_FN = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_char_p, c_uint64)
GC_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_uint64, c_uint64)
FAULT_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p, c_char_p)
REPAIR_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p, c_char_p)


class External(Struct):
    _fields_ = [("name", c_char_p), ("bytes", c_uint64)]


class File(Struct):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("len", c_uint64), ("flags", c_uint32),
                ("reserved", c_uint32)]


FILE_FN = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(File))


class Memory(Struct):
    _fields_ = [("addr", c_uint64), ("bytes", c_uint64)]


HOST_FN = ctypes.CFUNCTYPE(None, c_void_p)


class HostFunction(Struct):
    _fields_ = [("name", c_char_p), ("fn", c_void_p), ("data", c_void_p)]


class Semaphore(Struct):
    _fields_ = [("name", c_char_p), ("semaphore", c_void_p), ("add", c_uint64)]


class LoadOpts(Struct):
    _fields_ = [("sz", c_size_t), ("device", c_int32), ("flags", c_uint32),
                ("facts", POINTER(Fact)), ("nfacts", c_size_t), ("driver", c_char_p),
                ("order", POINTER(c_uint64)), ("norder", c_size_t), ("threads", c_uint32),
                ("reserved", c_uint32), ("progress", PROGRESS_FN), ("progress_arg", c_void_p),
                ("externals", POINTER(External)), ("nexternals", c_size_t), ("into", CAPTURE),
                ("keep", POINTER(Memory)), ("nkeep", c_size_t),
                ("functions", POINTER(HostFunction)), ("nfunctions", c_size_t),
                ("semaphores", POINTER(Semaphore)), ("nsemaphores", c_size_t),
                ("stop", STOP_FN), ("stop_arg", c_void_p)]


class PackReport(Struct):
    _fields_ = [("sz", c_size_t), ("id", c_char * ID_SIZE)] + [(n, c_uint64) for n in (
        "images", "objects", "bytes", "packed", "objects_new", "bytes_new", "stored_new")]


class ExportOpts(Struct):
    _fields_ = [("sz", c_size_t), ("flags", c_uint32), ("threads", c_uint32),
                ("progress", BYTES_FN), ("progress_arg", c_void_p)]


class ImportOpts(Struct):
    _fields_ = ExportOpts._fields_ + [("image", IMPORTED_FN), ("image_arg", c_void_p)]


class RegistryProgress(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_uint64) for n in (
        "bytes", "bytes_total", "objects", "objects_total", "bytes_moved")] + [
        (n, c_double) for n in ("elapsed_ms", "bytes_per_s", "left_s")]


WATCH_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(RegistryProgress))


class RegistryOpts(Struct):
    _fields_ = [("sz", c_size_t), ("flags", c_uint32), ("requests", c_uint32), ("ref", c_char_p),
                ("mounts", POINTER(c_char_p)), ("count_mounts", c_size_t), ("progress", BYTES_FN),
                ("progress_arg", c_void_p), ("image", IMPORTED_FN), ("image_arg", c_void_p),
                ("policy", c_char_p), ("sign_key", c_char_p), ("watch", WATCH_FN),
                ("watch_arg", c_void_p), ("stop", STOP_FN), ("stop_arg", c_void_p)]


class RegistryReport(Struct):
    _fields_ = [("sz", c_size_t), ("id", c_char * ID_SIZE)] + [(n, c_uint64) for n in (
        "images", "objects", "bytes", "objects_moved", "bytes_moved", "objects_mounted", "requests",
        "retries")]


EXCHANGE_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)


class PinOpts(Struct):
    _fields_ = [("sz", c_size_t), ("flags", c_uint32), ("wait_ms", c_uint32),
                ("facts", POINTER(Fact)), ("nfacts", c_size_t), ("group", c_char_p),
                ("rank", c_uint32), ("ranks", c_uint32), ("exchange", EXCHANGE_FN),
                ("exchange_arg", c_void_p), ("stop", STOP_FN), ("stop_arg", c_void_p)]


class PinReport(Struct):
    _fields_ = [("sz", c_size_t), ("code", c_int32), ("id", c_char * ID_SIZE)] + [
        (n, c_uint64) for n in ("objects", "missing", "bytes")] + [
        ("ranks_missing", c_uint32), ("first_missing", c_uint32), ("why", c_char * 512)]


class RepoItem(Struct):
    _fields_ = [("tag", c_char_p), ("id", c_char_p), ("why", c_char_p), ("objects", c_uint64),
                ("bytes", c_uint64), ("fate", c_int), ("is_image", c_int), ("is_signed", c_int),
                ("is_signature", c_int)]


REPO_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(RepoItem))


class RepoOpts(Struct):
    _fields_ = [("sz", c_size_t), ("flags", c_uint32), ("requests", c_uint32),
                ("keep", POINTER(c_char_p)), ("count_keep", c_size_t), ("item", REPO_FN),
                ("item_arg", c_void_p)]


class RepoReport(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_uint64) for n in (
        "tags", "kept", "removed", "bytes", "requests", "retries")]


class RngState(Struct):
    _fields_ = [("seed", c_uint64), ("offset", c_uint64)]


class RngUse(Struct):
    _fields_ = [("generator", c_char_p), ("seed", c_uint64), ("offset", c_uint64),
                ("increment", c_uint64)]


class RngSlot(Struct):
    _fields_ = [("addr", c_uint64), ("value", c_uint64)]


class EvictOpts(Struct):
    _fields_ = [("sz", c_size_t), ("flags", c_uint32), ("reserved", c_uint32), ("bytes", c_uint64),
                ("evicted", EVICT_FN), ("evicted_arg", c_void_p)]


class EvictReport(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_uint64) for n in (
        "limit", "before", "after", "images", "objects", "stored", "collected")]


class RefInfo(Struct):
    _fields_ = [("sz", c_size_t), ("name", c_char_p), ("id", c_char_p), ("used", c_uint64),
                ("pinned", c_uint32), ("reserved", c_uint32)]


REF_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(RefInfo))


class GcOpts(Struct):
    _fields_ = [("sz", c_size_t), ("flags", c_uint32), ("reserved", c_uint32), ("progress", GC_FN),
                ("progress_arg", c_void_p)]


class GcKind(Struct):
    _fields_ = [("dead", c_uint64), ("stored", c_uint64)]


class GcReport(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_uint64) for n in (
        "live", "dead", "dead_bytes", "dead_stored", "spared", "leases", "reclaimed",
        "stopped")] + [("by_kind", GcKind * 5)]


class VerifyOpts(Struct):
    _fields_ = [("sz", c_size_t), ("flags", c_uint32), ("threads", c_uint32), ("fault", FAULT_FN),
                ("fault_arg", c_void_p), ("progress", BYTES_FN), ("progress_arg", c_void_p)]


class VerifyReport(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_uint64) for n in (
        "faults", "objects", "bytes", "damaged", "quarantined", "missing", "refs", "broken",
        "dangling", "crashes", "compared", "compared_bytes")]


class RepairOpts(Struct):
    _fields_ = [("sz", c_size_t), ("flags", c_uint32), ("threads", c_uint32),
                ("repaired", REPAIR_FN), ("repaired_arg", c_void_p), ("progress", BYTES_FN),
                ("progress_arg", c_void_p)]


class RepairReport(Struct):
    _fields_ = ([("sz", c_size_t)]
                + [(n, c_uint64) for n in ("damaged", "missing", "back", "quarantined", "lost",
                                           "broken")])


class SealReport(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_uint64) for n in (
        "graphs", "nodes", "kernels", "kernels_whole", "graph_bytes", "kernel_bytes", "whole_bytes",
        "manifest_bytes", "content_bytes", "zero_bytes", "scratch_bytes", "external_bytes",
        "objects_new", "objects_known", "stored_new")] + [(n, c_double) for n in (
            "graphs_ms", "kernels_ms", "content_ms", "commit_ms",
            "total_ms")] + [("pointer_words", c_uint64), ("unchanged_bytes", c_uint64)]


class LoadReport(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_double) for n in (
        "driver_ms", "manifest_ms", "memory_ms", "content_ms", "kernels_ms", "total_ms",
        "build_ms")] + [
            (n, c_uint64) for n in ("graphs_built", "nodes_built", "mapped_bytes", "content_bytes",
                                    "verified_bytes")] + [
            (n, c_double) for n in ("objects_ms", "objects_cpu_ms", "wait_ms", "first_ms",
                                    "all_ms")] + [
            (n, c_uint64) for n in ("object_bytes", "threads", "exec_bytes",
                                    "checked_bytes")] + [("check_ms", c_double)]


class CheckReport(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_uint64) for n in (
        "tensors", "bytes", "differ", "skipped")] + [("ms", c_double)]


class SelftestReport(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_uint64) for n in (
        "graphs", "left_out", "outputs", "differ", "unstable")] + [("ms", c_double)]


class RequirementsExternal(Struct):
    _fields_ = [("name", c_char_p), ("addr", c_uint64), ("bytes", c_uint64),
                ("max_bytes", c_uint64)]


class Requirements(Struct):
    _fields_ = [(n, c_uint64) for n in (
        "base", "address_bytes", "mapped_bytes", "content_bytes", "scratch_bytes", "external_bytes",
        "copied_bytes", "exec_bytes", "kernel_bytes", "graphs", "nodes", "kernels")] + [
            ("externals", POINTER(RequirementsExternal)), ("nexternals", c_size_t),
            ("host_bytes", c_uint64), ("array_bytes", c_uint64)]


class StartOpts(Struct):
    _fields_ = [("sz", c_size_t), ("names", POINTER(c_char_p)), ("nnames", c_size_t),
                ("ref", c_char_p), ("load", POINTER(LoadOpts)), ("capture", POINTER(CaptureOpts)),
                ("fn", CAPTURE_FN), ("arg", c_void_p), ("flags", c_uint32), ("wait_ms", c_uint32),
                ("stop", STOP_FN), ("stop_arg", c_void_p)]


class StartUnused(Struct):
    _fields_ = ([(n, c_char_p) for n in ("name", "id", "field", "wanted", "found", "why")]
                + [("code", c_int)])


class StartReport(Struct):
    _fields_ = [("image", c_void_p), ("capture", c_void_p), ("captured", c_int),
                ("seal_code", c_int), ("name", c_char_p), ("seal_why", c_char_p),
                ("text", c_char_p), ("id", c_char * ID_SIZE), ("unused", POINTER(StartUnused)),
                ("nunused", c_size_t)] + [
                    (n, c_double) for n in ("load_ms", "wait_ms", "capture_ms", "seal_ms")]


class SlotsOpts(Struct):
    _fields_ = [("sz", c_size_t), ("device", c_int32), ("upload", c_uint32), ("sync", c_uint32),
                ("reserved", c_uint32), ("ctx", c_void_p), ("driver", c_char_p)]


class SlotsCall(Struct):
    _fields_ = [(n, c_uint64) for n in ("key", "nr", "upload_ns", "launch_ns", "sync_ns",
                                        "total_ns")]


class SlotsPhase(Struct):
    _fields_ = [(n, c_uint64) for n in ("calls", "total_ns", "p50_ns", "p90_ns", "p99_ns",
                                        "max_ns")]


class SlotsStats(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, SlotsPhase) for n in ("upload", "launch", "sync", "total")]


SLOTS_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(SlotsCall))


class SlotsProfileOpts(Struct):
    _fields_ = [("sz", c_size_t), ("every", c_uint64), ("fn", SLOTS_FN), ("arg", c_void_p)]


class KernelsOpts(Struct):
    _fields_ = [("sz", c_size_t), ("device", c_int32), ("reserved", c_uint32), ("store", STORE),
                ("driver", c_char_p), ("nvrtc", c_char_p)]


class KernelsSource(Struct):
    _fields_ = [("sz", c_size_t), ("form", c_uint32), ("reserved", c_uint32), ("data", c_char_p),
                ("len", c_size_t), ("name", c_char_p), ("target", c_char_p),
                ("options", POINTER(c_char_p)), ("noptions", c_size_t), ("version", c_char_p)]


class KernelsKey(Struct):
    _fields_ = [("bytes", c_ubyte * 32)]


class KernelsRequest(Struct):
    _fields_ = [("source", POINTER(KernelsSource)), ("entry", c_char_p)]


class KernelsStats(Struct):
    _fields_ = [("sz", c_size_t)] + [(n, c_uint64) for n in (
        "modules", "bytes", "hits", "misses", "source_hits", "source_misses", "ptx_compilations",
        "source_compilations", "failures", "store_hits", "store_misses", "store_saves",
        "store_bytes", "store_damaged", "store_errors")] + [(n, c_double)
                                                            for n in ("compile_ms", "store_ms",
                                                                      "load_ms")]


class KernelsTarget(Struct):
    _fields_ = [("sz", c_size_t), ("arch", c_char * 16), ("exact", c_char * 16), ("cc", c_uint32),
                ("driver", c_int32), ("ptx", c_uint32), ("reserved", c_uint32)]


class KernelsArg(Struct):
    _fields_ = [("data", c_void_p), ("size", c_size_t)]


class KernelsLaunchOpts(Struct):
    _fields_ = [("sz", c_size_t), ("grid", c_uint32 * 3), ("block", c_uint32 * 3),
                ("shared", c_uint32), ("flags", c_uint32), ("stream", c_void_p)]


class CudagraphOpts(Struct):
    _fields_ = [("sz", c_size_t), ("driver", c_char_p), ("device", c_int32), ("reserved", c_uint32)]


class GraphpoolOpts(Struct):
    _fields_ = CudagraphOpts._fields_


class GraphpoolId(Struct):
    _fields_ = [("hi", c_uint64), ("lo", c_uint64)]


class GraphpoolInfo(Struct):
    _fields_ = [("sz", c_size_t), ("reserved_bytes", c_uint64), ("used_bytes", c_uint64),
                ("graphs", c_uint32), ("sealed", c_uint32), ("capturing", c_uint32)]


class CudagraphBeginOpts(Struct):
    _fields_ = [("sz", c_size_t), ("stream", c_void_p), ("pool", c_void_p), ("mode", c_uint32),
                ("reserved", c_uint32)]


CUDAGRAPH_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)


class CudagraphRunOpts(Struct):
    _fields_ = [("sz", c_size_t), ("fn", CUDAGRAPH_FN), ("arg", c_void_p), ("stream", c_void_p),
                ("pool", c_void_p), ("flags", c_uint64), ("warmups", c_uint32), ("mode", c_uint32)]


class ScalarsOpts(Struct):
    _fields_ = [("sz", c_size_t), ("driver", c_char_p), ("device", c_int32), ("count", c_uint32),
                ("dtypes", POINTER(c_uint32)), ("values", POINTER(c_uint64)), ("addr", c_uint64),
                ("flags", c_uint64)]


class DecodeStateOpts(Struct):
    _fields_ = CudagraphOpts._fields_ + [("addr", c_uint64)]


class DecodeStateArgs(Struct):
    _fields_ = [(n, c_uint64) for n in ("token_addr", "position_addr", "length_addr")] + [
        ("token", c_uint32), ("position", c_int32), ("length", c_int32), ("source", c_uint32)]



# Functions that return 0 or a negative code. A negative code raises Error.
CHECKED = {
    "fdry_store_open": [c_char_p, c_uint, POINTER(STORE)],
    "fdry_store_export": [STORE, POINTER(c_char_p), c_size_t, c_int, POINTER(ExportOpts),
                          POINTER(PackReport)],
    "fdry_store_import": [STORE, c_int, POINTER(ImportOpts), POINTER(PackReport)],
    "fdry_store_push": [STORE, POINTER(c_char_p), c_size_t, c_char_p, POINTER(RegistryOpts),
                        POINTER(RegistryReport)],
    "fdry_repo_tags": [c_char_p, POINTER(RepoOpts), POINTER(RepoReport)],
    "fdry_repo_unpush": [c_char_p, POINTER(RepoOpts), POINTER(RepoReport)],
    "fdry_repo_prune": [c_char_p, POINTER(RepoOpts), POINTER(RepoReport)],
    "fdry_store_sign": [STORE, POINTER(c_char_p), c_size_t, c_char_p, POINTER(RegistryOpts),
                        POINTER(RegistryReport)],
    "fdry_store_pull": [STORE, c_char_p, POINTER(RegistryOpts), POINTER(RegistryReport)],
    "fdry_telemetry_at": [POINTER(Telemetry), c_size_t, POINTER(c_size_t)],
    "fdry_telemetry_text": [STORE, POINTER(c_void_p)],
    "fdry_store_refs": [STORE, REF_FN, c_void_p],
    "fdry_store_remove": [STORE, c_char_p],
    "fdry_store_pin": [STORE, c_char_p],
    "fdry_store_unpin": [STORE, c_char_p],
    "fdry_store_limit": [STORE, POINTER(c_uint64), POINTER(c_uint64)],
    "fdry_store_set_limit": [STORE, c_uint64],
    "fdry_store_evict": [STORE, POINTER(EvictOpts), POINTER(EvictReport)],
    "fdry_store_gc": [STORE, POINTER(GcOpts), POINTER(GcReport)],
    "fdry_store_verify": [c_char_p, POINTER(VerifyOpts), POINTER(VerifyReport)],
    "fdry_store_repair": [c_char_p, POINTER(c_char_p), c_size_t, POINTER(RepairOpts),
                          POINTER(RepairReport)],
    "fdry_device_get": [c_int, POINTER(DEVICE)],
    "fdry_device_caps": [DEVICE, POINTER(DeviceCaps)],
    "fdry_device_warm_up": [DEVICE],
    "fdry_device_clean_up": [DEVICE],
    "fdry_device_launch_cooperative": [DEVICE, POINTER(DeviceLaunchOpts)],
    "fdry_transient_get": [DEVICE, c_int, c_size_t, STREAM, POINTER(c_uint64)],
    "fdry_transient_put": [DEVICE, c_int, c_uint64, STREAM],
    "fdry_transient_stats": [DEVICE, c_int, POINTER(TransientStats)],
    "fdry_transient_set_limit": [DEVICE, c_int, c_uint64],
    "fdry_sync_get": [DEVICE, c_int, POINTER(c_void_p)],
    "fdry_sync_put": [DEVICE, c_int, c_void_p],
    "fdry_sync_stats": [DEVICE, c_int, POINTER(SyncStats)],
    "fdry_resident_new": [DEVICE, c_size_t, POINTER(c_uint64)],
    "fdry_resident_view": [DEVICE, c_uint64, POINTER(c_uint64), POINTER(c_size_t)],
    "fdry_resident_free": [DEVICE, c_uint64, STREAM],
    "fdry_resident_write": [DEVICE, c_uint64, c_size_t, c_void_p, c_size_t, STREAM],
    "fdry_resident_read": [DEVICE, c_uint64, c_size_t, c_void_p, c_size_t, STREAM],
    "fdry_variable_at": [c_size_t, POINTER(Variable)],
    "fdry_variable_check": [c_char_p],
    "fdry_kernels_new": [POINTER(KernelsOpts), POINTER(KERNELS)],
    "fdry_kernels_function": [KERNELS, POINTER(KernelsSource), c_char_p, POINTER(FUNCTION)],
    "fdry_kernels_key": [KERNELS, POINTER(KernelsSource), POINTER(KernelsKey)],
    "fdry_kernels_find": [KERNELS, POINTER(KernelsKey), c_char_p, POINTER(FUNCTION)],
    "fdry_kernels_prepare": [KERNELS, POINTER(KernelsRequest), c_size_t, c_uint32],
    "fdry_kernels_wait": [KERNELS],
    "fdry_kernels_clear": [KERNELS],
    "fdry_kernels_stats": [KERNELS, POINTER(KernelsStats)],
    "fdry_kernels_stats_reset": [KERNELS],
    "fdry_kernels_log": [KERNELS, POINTER(c_char), c_size_t, POINTER(c_size_t)],
    "fdry_kernels_target": [KERNELS, POINTER(KernelsTarget)],
    "fdry_kernels_launch": [KERNELS, FUNCTION, POINTER(KernelsLaunchOpts), POINTER(KernelsArg),
                            c_size_t],
    "fdry_hook_install": [c_char_p],
    "fdry_hook_path": [POINTER(c_char), c_size_t],
    "fdry_capture_begin": [POINTER(CaptureOpts), POINTER(CAPTURE)],
    "fdry_capture_allocs": [CAPTURE, POINTER(POINTER(Memory)), POINTER(c_size_t)],
    "fdry_capture_origin": [CAPTURE, c_uint64, POINTER(c_uint32)],
    "fdry_capture_code_files": [CAPTURE, POINTER(c_void_p), POINTER(c_size_t)],
    "fdry_capture_graph_remove": [CAPTURE, c_uint64],
    "fdry_capture_graph_fixed": [CAPTURE, c_uint64, c_int],
    "fdry_capture_graph_skip": [CAPTURE, c_uint64, c_int],
    "fdry_capture_host_function": [CAPTURE, POINTER(HostFunction)],
    "fdry_capture_semaphore": [CAPTURE, c_char_p, c_void_p],
    "fdry_capture_pause": [CAPTURE],
    "fdry_capture_aside": [CAPTURE, c_int],
    "fdry_capture_resume": [CAPTURE],
    "fdry_capture_offset": [CAPTURE, POINTER(c_uint64)],
    "fdry_capture_selftest": [CAPTURE, c_uint64],
    "fdry_capture_set_offset": [CAPTURE, c_uint64],
    "fdry_capture_preallocate": [CAPTURE, c_uint64],
    "fdry_capture_free_preallocated": [CAPTURE],
    "fdry_capture_tensor": [CAPTURE, POINTER(Tensor)],
    "fdry_capture_fact": [CAPTURE, c_char_p, c_char_p],
    "fdry_capture_graph": [CAPTURE, c_uint64, c_char_p, GRAPH],
    "fdry_capture_rng": [CAPTURE, c_uint64],
    "fdry_capture_hold": [CAPTURE, c_int],
    "fdry_capture_rng_use": [CAPTURE, c_uint64, POINTER(RngUse)],
    "fdry_capture_rng_slots": [CAPTURE, c_uint64, POINTER(RngSlot), c_size_t, POINTER(c_size_t)],
    "fdry_capture_capacity": [CAPTURE, c_char_p, c_uint64],
    "fdry_capture_progress": [CAPTURE, SEAL_FN, c_void_p],
    "fdry_capture_seal": [CAPTURE, STORE, c_char_p, POINTER(c_char), POINTER(SealReport)],
    "fdry_image_load": [STORE, c_char_p, POINTER(LoadOpts), POINTER(IMAGE)],
    "fdry_image_graph": [IMAGE, c_size_t, POINTER(c_uint64), POINTER(c_char_p), POINTER(c_uint32)],
    "fdry_image_tensor": [IMAGE, c_size_t, POINTER(Tensor)],
    "fdry_image_tensor_find": [IMAGE, c_char_p, POINTER(Tensor)],
    "fdry_image_fact": [IMAGE, c_char_p, POINTER(c_char_p)],
    "fdry_image_fact_at": [IMAGE, c_size_t, POINTER(c_char_p), POINTER(c_char_p)],
    "fdry_image_facts": [STORE, c_char_p, FACT_FN, c_void_p],
    "fdry_image_write": [IMAGE, c_char_p, c_void_p, c_size_t, STREAM],
    "fdry_image_write_async": [IMAGE, c_char_p, c_void_p, c_size_t, STREAM],
    "fdry_image_copy": [IMAGE, c_char_p, c_uint64, c_size_t, STREAM],
    "fdry_image_read": [IMAGE, c_char_p, c_void_p, c_size_t, STREAM],
    "fdry_image_write_array": [IMAGE, c_char_p, POINTER(Tensor), c_uint32, STREAM],
    "fdry_image_read_array": [IMAGE, c_char_p, POINTER(Tensor), STREAM],
    "fdry_image_host": [IMAGE, c_char_p, POINTER(c_void_p)],
    "fdry_image_check_content": [IMAGE],
    "fdry_image_check": [IMAGE, c_char_p, STREAM, POINTER(CheckReport)],
    "fdry_memory_fingerprint": [c_int, STREAM, POINTER(Memory), c_size_t, c_void_p],
    "fdry_image_selftest": [IMAGE, SELFTEST_FN, c_void_p, POINTER(SelftestReport)],
    "fdry_image_kernel_times": [IMAGE, POINTER(c_uint64), c_size_t, GRAPH_TIMES_FN, c_void_p],
    "fdry_image_filled": [IMAGE, c_char_p],
    "fdry_image_build": [IMAGE, c_uint64],
    "fdry_image_build_stop": [IMAGE],
    "fdry_image_wait": [IMAGE],
    "fdry_image_launch": [IMAGE, c_uint64, STREAM],
    "fdry_image_launch_rng": [IMAGE, c_uint64, STREAM, POINTER(RngState), c_size_t],
    "fdry_image_rng": [IMAGE, c_size_t, POINTER(c_char_p)],
    "fdry_image_rng_use": [IMAGE, c_uint64, c_size_t, POINTER(RngUse)],
    "fdry_image_rng_seed": [IMAGE, c_char_p, c_uint64],
    "fdry_image_rng_state": [IMAGE, c_char_p, POINTER(RngState)],
    "fdry_image_rng_set_state": [IMAGE, c_char_p, POINTER(RngState)],
    "fdry_image_rng_advance": [IMAGE, c_char_p, c_uint64],
    "fdry_image_refresh": [IMAGE],
    "fdry_image_restore": [IMAGE, STREAM],
    "fdry_image_semaphore_add": [IMAGE, c_char_p, c_uint64],
    "fdry_image_stop_set": [IMAGE, STOP_FN, c_void_p],
    "fdry_image_synchronize": [IMAGE, STREAM],
    "fdry_image_report": [IMAGE, POINTER(LoadReport)],
    "fdry_load_or_capture": [STORE, POINTER(StartOpts), POINTER(POINTER(StartReport))],
    "fdry_image_pin": [STORE, c_char_p, POINTER(PinOpts), POINTER(PinReport)],
    "fdry_image_requirements": [STORE, c_char_p, POINTER(LoadOpts), POINTER(POINTER(Requirements))],
    "fdry_image_describe": [STORE, c_char_p, POINTER(c_void_p)],
    "fdry_image_attach": [STORE, c_char_p, POINTER(File), c_size_t, c_char_p],
    "fdry_image_files": [STORE, c_char_p, FILE_FN, c_void_p],
    "fdry_image_tag": [STORE, c_char_p, c_char_p],
    "fdry_slots_new": [POINTER(SlotsOpts), POINTER(SLOTS)],
    "fdry_slots_install": [SLOTS, c_uint64, GRAPH, GRAPH_EXEC, c_uint32],
    "fdry_slots_install_graph": [SLOTS, c_uint64, GRAPH, c_uint64, c_uint32],
    "fdry_slots_install_image": [SLOTS, c_uint64, IMAGE, c_uint64],
    "fdry_slots_capture_end": [SLOTS, c_uint64, STREAM, c_uint64],
    "fdry_slots_invalidate": [SLOTS, c_uint64],
    "fdry_slots_invalidate_all": [SLOTS],
    "fdry_slots_replay": [SLOTS, c_uint64, STREAM, POINTER(c_int)],
    "fdry_slots_keys": [SLOTS, POINTER(c_uint64), c_size_t, POINTER(c_size_t)],
    "fdry_slots_profile": [SLOTS, POINTER(SlotsProfileOpts)],
    "fdry_slots_stats": [SLOTS, POINTER(SlotsStats)],
    "fdry_slots_stats_reset": [SLOTS],
    "fdry_cudagraph_begin": [CUDAGRAPH, POINTER(CudagraphBeginOpts)],
    "fdry_cudagraph_end": [CUDAGRAPH],
    "fdry_cudagraph_exec": [CUDAGRAPH, POINTER(c_void_p)],
    "fdry_cudagraph_graph": [CUDAGRAPH, POINTER(GRAPH)],
    "fdry_cudagraph_instantiate": [CUDAGRAPH, c_uint64],
    "fdry_cudagraph_launch": [CUDAGRAPH, STREAM],
    "fdry_cudagraph_new": [POINTER(CudagraphOpts), POINTER(CUDAGRAPH)],
    "fdry_cudagraph_pool": [CUDAGRAPH, POINTER(POOL)],
    "fdry_cudagraph_reset": [CUDAGRAPH],
    "fdry_cudagraph_run": [CUDAGRAPH, POINTER(CudagraphRunOpts)],
    "fdry_cudagraph_stream": [CUDAGRAPH, POINTER(STREAM)],
    "fdry_cudagraph_synchronize": [CUDAGRAPH],
    "fdry_cudagraph_upload": [CUDAGRAPH, STREAM],
    "fdry_graphpool_mem_alloc": [POOL, c_uint64, POINTER(c_uint64)],
    "fdry_graphpool_get": [POINTER(GraphpoolId), POINTER(POOL)],
    "fdry_graphpool_id": [POOL, POINTER(GraphpoolId)],
    "fdry_graphpool_info": [POOL, POINTER(GraphpoolInfo)],
    "fdry_graphpool_new": [POINTER(GraphpoolOpts), POINTER(POOL)],
    "fdry_graphpool_mem_free": [POOL, c_uint64],
    "fdry_graphpool_seal": [POOL],
    "fdry_graphpool_sealed": [POOL, POINTER(c_uint32)],
    "fdry_graphpool_trim": [POOL],
    "fdry_graphpool_unseal": [POOL],
    "fdry_scalars_addr": [SCALARS, c_uint32, POINTER(c_uint64)],
    "fdry_scalars_dtype": [SCALARS, c_uint32, POINTER(c_uint32)],
    "fdry_scalars_new": [POINTER(ScalarsOpts), POINTER(SCALARS)],
    "fdry_scalars_read": [SCALARS, c_uint32, POINTER(c_uint64), STREAM],
    "fdry_scalars_update": [SCALARS, c_uint32, c_uint32, POINTER(c_uint64), STREAM],
    "fdry_decode_state_args": [DECODE, POINTER(DecodeStateArgs)],
    "fdry_decode_state_new": [POINTER(DecodeStateOpts), POINTER(DECODE)],
    "fdry_decode_state_set": [DECODE, c_uint32, c_uint32, STREAM],
    "fdry_decode_state_use": [DECODE, c_uint32],
}

# All other functions: (result, arguments).
OTHERS = {
    "fdry_last_error": (c_char_p, []),
    "fdry_error_name": (c_char_p, [c_int]),
    "fdry_error_meaning": (c_char_p, [c_int]),
    "fdry_error_errno": (c_int, [c_int]),
    "fdry_version": (c_char_p, []),
    "fdry_log_set": (None, [LOG_FN, c_void_p, c_int]),
    "fdry_device_put": (None, [DEVICE]),
    "fdry_sync_count": (c_size_t, [DEVICE]),
    "fdry_resident_count": (c_size_t, [DEVICE]),
    "fdry_telemetry_reset": (None, []),
    "fdry_base_for_name": (c_uint64, [c_char_p]),
    "fdry_dtype_size": (c_size_t, [c_uint32]),
    "fdry_slots_free": (None, [SLOTS]),
    "fdry_slots_has": (c_int, [SLOTS, c_uint64]),
    "fdry_kernels_free": (None, [KERNELS]),
    "fdry_kernels_count": (c_size_t, [KERNELS]),
    "fdry_start_report_free": (None, [POINTER(StartReport)]),
    "fdry_store_close": (None, [STORE]),
    "fdry_capture_end": (None, [CAPTURE]),
    "fdry_image_unload": (None, [IMAGE]),
    "fdry_image_id": (None, [IMAGE, POINTER(c_char)]),
    "fdry_image_graph_count": (c_size_t, [IMAGE]),
    "fdry_image_tensor_count": (c_size_t, [IMAGE]),
    "fdry_image_rng_count": (c_size_t, [IMAGE]),
    "fdry_cudagraph_free": (None, [CUDAGRAPH]),
    "fdry_graphpool_put": (None, [POOL]),
    "fdry_scalars_free": (None, [SCALARS]),
    "fdry_scalars_count": (c_size_t, [SCALARS]),
    "fdry_decode_state_free": (None, [DECODE]),
    "fdry_stream_current": (STREAM, []),
    "fdry_stream_make_current": (STREAM, [STREAM]),
}

SIGNATURES = {**{name: (c_int, args) for name, args in CHECKED.items()}, **OTHERS}
