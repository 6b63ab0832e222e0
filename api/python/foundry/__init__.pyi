# SPDX-License-Identifier: Apache-2.0
# The package as type checkers see it; tests/python/test_stubs.py compares it with the package.
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, overload

class _CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class _HostArray(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class _TorchTensor(Protocol):
    def data_ptr(self) -> int: ...
    def stride(self) -> Sequence[int]: ...

class _TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...

class _CupyStream(Protocol):
    @property
    def ptr(self) -> int: ...

class _Buffer(Protocol):
    def __buffer__(self, flags: int, /) -> memoryview: ...

class _DLPack(Protocol):
    def __dlpack__(self, *, stream: Any = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class _Graph(Protocol):
    def raw_cuda_graph(self) -> int: ...

_Array: TypeAlias = _CudaArray | _HostArray | _TorchTensor
_Stream: TypeAlias = _TorchStream | _CupyStream | int | None
_Bytes: TypeAlias = bytes | bytearray | memoryview | _Buffer
_Out = TypeVar("_Out", bound=_Bytes | _DLPack)
_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]

class _HasFileno(Protocol):
    def fileno(self) -> int: ...

_File: TypeAlias = _Path | int | _HasFileno
_Use: TypeAlias = Literal["input", "output", "state", "const"]
_Phase: TypeAlias = Literal["manifest", "driver", "memory", "content", "kernels", "objects",
                            "graphs"]
_Progress: TypeAlias = Callable[[_Phase, int, int, float], object]
_HostFunction: TypeAlias = Callable[[], object] | int | tuple[int, int]

from . import telemetry as telemetry

__version__: str

class Device:
    caps: dict[str, Any]
    def __init__(self, ordinal: int = 0) -> None: ...
    def warm_up(self) -> None: ...
    def clean_up(self) -> None: ...
    def get(self, nbytes: int, stream: _Stream | Literal["none"] = None,
            kind: Literal["device", "pinned"] = "device") -> int: ...
    def put(self, addr: int, stream: _Stream | Literal["none"] = None,
            kind: Literal["device", "pinned"] = "device") -> None: ...
    def pool(self, kind: Literal["device", "pinned"] = "device") -> dict[str, int]: ...
    def set_limit(self, nbytes: int, kind: Literal["device", "pinned"] = "device") -> None: ...
    def get_sync(self, kind: Literal["stream", "event", "timer"] = "stream") -> int: ...
    def put_sync(self, what: int, kind: Literal["stream", "event", "timer"] = "stream") -> None: ...
    def syncs(self, kind: Literal["stream", "event", "timer"] = "stream") -> dict[str, int]: ...
    def new(self, nbytes: int) -> int: ...
    def view(self, handle: int) -> tuple[int, int]: ...
    def write(self, handle: int, data: _Bytes, offset: int = 0,
              stream: _Stream | Literal["none"] = None) -> None: ...
    def read(self, handle: int, nbytes: int, offset: int = 0,
             stream: _Stream | Literal["none"] = None) -> bytes: ...
    def free(self, handle: int, stream: _Stream | Literal["none"] = None) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Device: ...
    def __exit__(self, *_: object) -> None: ...

class Error(RuntimeError):
    code: int
    name: str
    errno: int
    def __init__(self, code: int, text: str) -> None: ...

def activate(children: bool = False) -> None: ...
def environment(env: Mapping[str, str] | None = None) -> dict[str, str]: ...
def base_for_name(name: str | None = None) -> int: ...

class Variable(NamedTuple):
    name: str
    type: str
    default: str
    allowed: str
    meaning: str

def variables() -> list[Variable]: ...
def check_variables(name: str | None = None) -> None: ...

class Sealed:
    id: str
    graphs: int
    nodes: int
    kernels: int
    kernels_whole: int
    graph_bytes: int
    kernel_bytes: int
    whole_bytes: int
    manifest_bytes: int
    content_bytes: int
    zero_bytes: int
    scratch_bytes: int
    external_bytes: int
    objects_new: int
    objects_known: int
    stored_new: int
    graphs_ms: float
    kernels_ms: float
    content_ms: float
    commit_ms: float
    total_ms: float
    pointer_words: int
    unchanged_bytes: int

class Capture:
    offset: int
    rng_uses: dict[int, dict[str, tuple[int, int, int]]]
    def __init__(self, name: str | None = None, base: int = 0, size: int = 0, preallocate: int = 0,
                 device: int = 0, after: Capture | None = None, aside: int = 0,
                 pinned: bool = False) -> None: ...
    def aside(self) -> AbstractContextManager[None]: ...
    def allocs(self) -> list[tuple[int, int]]: ...
    def tensor(self, name: str, tensor: _Array, use: _Use = "input",
               external: bool = False) -> None: ...
    def fact(self, key: str, value: object) -> None: ...
    def add_graph(self, key: int, graph: _Graph | int, name: str | None = None) -> None: ...
    def graph(self, key: int, name: str | None = None, stream: Any = None, pool: Any = None,
              generators: Iterable[Any] | Mapping[str, Any] = (),
              capture_error_mode: str = "global") -> AbstractContextManager[Any]: ...
    def capacity(self, name: str, nbytes: int) -> None: ...
    def host_function(self, name: str, function: _HostFunction) -> int: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def selftest(self, seed: int = 1) -> None: ...
    def seal(self, store: Store | _Path | None = None, ref: str | None = None) -> Sealed: ...
    def end(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Capture: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

class Selftest:
    graphs: int
    left_out: int
    outputs: int
    differ: int
    unstable: int
    ms: float
    differences: list[str]

class Checked:
    tensors: int
    bytes: int
    differ: int
    skipped: int
    ms: float

class Report:
    driver_ms: float
    manifest_ms: float
    memory_ms: float
    content_ms: float
    kernels_ms: float
    total_ms: float
    build_ms: float
    graphs_built: int
    nodes_built: int
    mapped_bytes: int
    content_bytes: int
    verified_bytes: int
    objects_ms: float
    objects_cpu_ms: float
    wait_ms: float
    first_ms: float
    all_ms: float
    object_bytes: int
    threads: int
    exec_bytes: int
    checked_bytes: int
    check_ms: float

class Tensor:
    name: str
    addr: int
    dtype: str
    use: _Use
    external: bool
    host: bool
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    itemsize: int
    nbytes: int
    def numpy(self) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...

class Image:
    device: int
    @property
    def id(self) -> str: ...
    def graphs(self) -> dict[int, str]: ...
    def tensors(self) -> list[Tensor]: ...
    def __getitem__(self, name: str) -> Tensor: ...
    def fact(self, key: str) -> str: ...
    def write(self, name: str, data: _Bytes | _DLPack, stream: _Stream = None,
              wait: bool = True) -> None: ...
    def copy(self, name: str, src: int, nbytes: int, stream: _Stream = None) -> None: ...
    @overload
    def read(self, name: str, stream: _Stream = None, *, out: _Out) -> _Out: ...
    @overload
    def read(self, name: str, stream: _Stream = None, out: None = None) -> bytearray: ...
    def filled(self, name: str | None = None) -> None: ...
    def check_content(self) -> None: ...
    def check(self, name: str | None = None, stream: _Stream = None) -> Checked: ...
    def selftest(self) -> Selftest: ...
    def build(self, key: int) -> None: ...
    def wait(self) -> None: ...
    def build_stop(self) -> None: ...
    def launch(self, key: int, stream: _Stream = None) -> None: ...
    def generators(self) -> list[str]: ...
    def generator(self, name: str, generator: Any) -> None: ...
    def rng_state(self, name: str = "default") -> tuple[int, int]: ...
    def set_rng_state(self, seed: int, offset: int = 0, name: str = "default") -> None: ...
    def restore(self, stream: _Stream = None) -> None: ...
    def refresh(self) -> None: ...
    def synchronize(self, stream: _Stream = None) -> None: ...
    def report(self) -> Report: ...
    def close(self) -> None: ...
    def __enter__(self) -> Image: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

class Requirements:
    base: int
    address_bytes: int
    mapped_bytes: int
    content_bytes: int
    scratch_bytes: int
    external_bytes: int
    copied_bytes: int
    exec_bytes: int
    kernel_bytes: int
    graphs: int
    nodes: int
    kernels: int
    host_bytes: int
    externals: dict[str, int]
    capacities: dict[str, int]

class Pack:
    id: str
    images: list[tuple[str, str | None, str | None]]
    objects: int
    bytes: int
    packed: int
    objects_new: int
    bytes_new: int
    stored_new: int

class Transfer:
    id: str
    images: int | list[tuple[str, str | None, str | None]]
    objects: int
    bytes: int
    objects_moved: int
    bytes_moved: int
    objects_mounted: int
    requests: int
    retries: int

class KernelStats(NamedTuple):
    modules: int
    bytes: int
    hits: int
    misses: int
    source_hits: int
    source_misses: int
    ptx_compilations: int
    source_compilations: int
    failures: int
    store_hits: int
    store_misses: int
    store_saves: int
    store_bytes: int
    store_damaged: int
    store_errors: int
    compile_ms: float
    store_ms: float
    load_ms: float

class KernelTarget(NamedTuple):
    arch: str
    exact: str
    cc: int
    driver: int
    ptx: int

class Code:
    def __init__(self, data: str | bytes, source: bool = False, options: str | Iterable[str] = (),
                 target: str | None = None,
                 name: str | None = None, version: str | None = None) -> None: ...

class Function:
    handle: int
    def __init__(self, kernels: Kernels, handle: int) -> None: ...
    def launch(self, grid: int | Sequence[int], block: int | Sequence[int],
               args: Iterable[Any] = (), shared: int = 0,
               stream: _Stream = 0, cooperative: bool = False) -> None: ...

class Kernels:
    def __init__(self, store: Store | None = None, device: int = 0, driver: _Path | None = None,
                 nvrtc: _Path | None = None) -> None: ...
    @property
    def handle(self) -> Any: ...
    def function(self, code: Code | str | bytes, entry: str, **how: Any) -> Function: ...
    def load(self, code: Code | str | bytes, **how: Any) -> None: ...
    def key(self, code: Code | str | bytes, **how: Any) -> bytes: ...
    def find(self, key: bytes, entry: str) -> Function: ...
    def prepare(self, requests: Iterable[Code | tuple[Code, str | None]],
                threads: int = 0) -> None: ...
    def wait(self) -> None: ...
    def __len__(self) -> int: ...
    def clear(self) -> None: ...
    def stats(self) -> KernelStats: ...
    def reset_stats(self) -> None: ...
    def log(self) -> str: ...
    def target(self) -> KernelTarget: ...
    def close(self) -> None: ...
    def __enter__(self) -> Kernels: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

class Eviction:
    limit: int
    before: int
    after: int
    images: list[tuple[str, str, int]]
    objects: int
    stored: int
    collected: bool

class Collection:
    live: int
    dead: int
    dead_bytes: int
    dead_stored: int
    spared: int
    leases: int
    reclaimed: int
    stopped: bool
    by_kind: dict[str, tuple[int, int]]

class Fault(NamedTuple):
    kind: str
    id: str | None
    other: str | None
    text: str

class Repaired(NamedTuple):
    what: str
    id: str | None
    ref: str | None
    text: str

class Verification:
    faults: list[Fault]
    objects: int
    bytes: int
    damaged: int
    quarantined: int
    missing: int
    refs: int
    broken: int
    dangling: int
    crashes: int
    compared: int
    compared_bytes: int
    def __bool__(self) -> bool: ...

class Repair:
    reported: list[Repaired]
    damaged: int
    missing: int
    back: int
    quarantined: int
    lost: int
    broken: int

def verify(store: _Path | None = None, threads: int = 0,
           progress: Callable[[int, int], object] | None = None,
           fast: bool = False) -> Verification: ...

def repair(sources: _Path | Iterable[_Path] = (), store: _Path | None = None, dry_run: bool = False,
           threads: int = 0,
           progress: Callable[[int, int], object] | None = None) -> Repair: ...

class File(NamedTuple):
    name: str
    data: bytes
    executable: bool = False

class Progress:
    bytes: int
    bytes_total: int
    objects: int
    objects_total: int
    bytes_moved: int
    elapsed_ms: float
    bytes_per_s: float
    left_s: float | None

class Store:
    def __init__(self, path: _Path | None = None, create: bool = False, readonly: bool = False,
                 group: bool = False) -> None: ...
    def describe(self, name: str) -> str: ...
    def requirements(self, name: str,
                     externals: Mapping[str, int] | None = None) -> Requirements: ...
    def export(self, names: str | Iterable[str] | None, file: _File, plain: bool = False,
               refs: bool = True, progress: Callable[[int, int], object] | None = None,
               threads: int = 0) -> Pack: ...
    def import_(self, file: _File, dry_run: bool = False, refs: bool = True,
                progress: Callable[[int, int], object] | None = None, threads: int = 0) -> Pack: ...
    def attach(self, name: str, files: Iterable[File]) -> str: ...
    def files(self, name: str, wanted: Container[str] | None = None) -> list[File]: ...
    def push(self, names: str | Iterable[str], registry: str | None = None, private: bool = False,
             mounts: Iterable[str] = (), refs: bool = True, plain_http: bool = False,
             progress: Callable[[int, int], object] | None = None,
             requests: int = 0, sign_key: _Path | None = None,
             watch: Callable[[Progress], object] | None = None) -> Transfer: ...
    def sign(self, names: str | Iterable[str], registry: str | None = None,
             sign_key: _Path | None = None, refs: bool = True,
             plain_http: bool = False) -> Transfer: ...
    def pull(self, registry: str, ref: str | None = None, refs: bool = True,
             plain_http: bool = False, progress: Callable[[int, int], object] | None = None,
             requests: int = 0, policy: _Path | None = None,
             watch: Callable[[Progress], object] | None = None) -> Transfer: ...
    def tag(self, image: str, ref: str) -> None: ...
    def pin(self, name: str) -> None: ...
    def unpin(self, name: str) -> None: ...
    @property
    def limit(self) -> int: ...
    @limit.setter
    def limit(self, size: int) -> None: ...
    @property
    def used(self) -> int: ...
    def evict(self, size: int = 0, dry_run: bool = False) -> Eviction: ...
    def gc(self, dry_run: bool = False,
           progress: Callable[[str, int, int], object] | None = None) -> Collection: ...
    def close(self) -> None: ...
    def __enter__(self) -> Store: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

def load(name: str, store: Store | _Path | None = None, facts: Mapping[str, object] | None = None,
         device: int = 0,
         verify: bool = False, poison: bool = False, build: bool = False,
         driver: _Path | None = None, order: Sequence[int] = (),
         threads: int = 0, progress: _Progress | None = None, background: bool = False,
         own_context: bool = False,
         check_overlap: bool = False, externals: Mapping[str, int] | None = None,
         into: Capture | None = None,
         keep: Iterable[tuple[int, int]] | None = None, ordered: bool = False,
         check_at_launch: bool = False,
         functions: Mapping[str, _HostFunction] | None = None) -> Image: ...

class Unused:
    name: str
    id: str
    field: str
    wanted: str
    found: str
    why: str
    error: str

class NotCompared(NamedTuple):
    name: str
    why: str

class Identity:
    facts: dict[str, str]
    not_compared: list[NotCompared]
    automatic: bool
    def __init__(self, facts: dict[str, str], not_compared: list[NotCompared],
                 automatic: bool = True) -> None: ...
    def lines(self) -> list[str]: ...

def identify(capture: Callable[[Capture], Any] | None = None,
             facts: Mapping[str, object] | None = None,
             automatic: bool = True) -> Identity: ...

class Start:
    image: Image | None
    captured: bool
    value: Any
    name: str
    id: str
    seal_error: Error | None
    capture: Capture | None
    unused: list[Unused]
    identity: Identity
    warning: str
    load_ms: float
    wait_ms: float
    capture_ms: float
    seal_ms: float

def load_or_capture(ref: str | Iterable[str], capture: Callable[[Capture], Any] | None = None,
                    facts: Mapping[str, object] | None = None, strict: bool = False,
                    store: Store | _Path | None = None,
                    seal_as: str | None = None, wait: float = 600, device: int = 0, base: int = 0,
                    size: int = 0,
                    preallocate: int = 0, identity: Literal["auto", "manual"] = "auto",
                    **options: Any) -> Start: ...

class Pinned:
    code: int
    id: str
    objects: int
    missing: int
    bytes: int
    ranks_missing: int
    first_missing: int
    why: str
    def __bool__(self) -> bool: ...

_Exchange: TypeAlias = Callable[[bytes], Sequence[bytes]]

def gather(process_group: Any = None) -> _Exchange: ...
def pin(name: str, store: Store | _Path | None = None, facts: Mapping[str, object] | None = None,
        group: str | None = None, rank: int = 0, ranks: int = 1,
        exchange: _Exchange | None = None, wait: float = 600) -> Pinned: ...

class _Exec(Protocol):
    def raw_cuda_graph_exec(self) -> int: ...

class SlotCall:
    key: int
    nr: int
    upload_ns: int
    launch_ns: int
    sync_ns: int
    total_ns: int

class SlotPhase:
    calls: int
    total_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int

class SlotStats:
    upload: SlotPhase
    launch: SlotPhase
    sync: SlotPhase
    total: SlotPhase

class Slots:
    def __init__(self, device: int = 0, upload: Literal["first", "always"] | None = None,
                 sync: bool | None = None,
                 driver: _Path | None = None) -> None: ...
    def install(self, key: int, graph: _Exec | int) -> None: ...
    def install_graph(self, key: int, graph: _Graph | int, flags: int = 0) -> None: ...
    def holds(self, image: Image) -> bool: ...
    def install_image(self, key: int, image: Image, graph: int) -> None: ...
    def capture_end(self, key: int, stream: _Stream, flags: int = 0) -> None: ...
    def replay(self, key: int, stream: _Stream = None) -> bool: ...
    def invalidate(self, key: int | None = None) -> None: ...
    def keys(self) -> list[int]: ...
    def __contains__(self, key: int) -> bool: ...
    def __len__(self) -> int: ...
    def profile(self, every: int = 0,
                callback: Callable[[SlotCall], object] | None = None) -> None: ...
    def profile_stop(self) -> None: ...
    def stats(self) -> SlotStats: ...
    def reset_stats(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Slots: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...
def parse_size(size: int | str) -> int: ...
def set_allocation_region(base: int | str, size: int | str) -> None: ...
def stop_allocation_region() -> None: ...
def resume_allocation_region() -> None: ...
def get_current_alloc_offset() -> int: ...
def set_current_alloc_offset(offset: int | str) -> None: ...
def preallocate_region(size: int | str) -> bool: ...
def preallocate_ranges(ranges: Iterable[tuple[int, int]], end_offset: int | str) -> bool: ...
def get_live_region_ranges() -> list[tuple[int, int]]: ...
def preallocate_cublas_workspaces() -> None: ...
def free_preallocated_region() -> None: ...
def allocation_region(base: int | str, size: int | str,
                      prealloc_size: int | str | None = None) -> AbstractContextManager[None]: ...

_Pool: TypeAlias = tuple[int, int]

class Pending:
    def __len__(self) -> int: ...

class CUDAGraph:
    def __init__(self, keep_graph: bool = False) -> None: ...
    def capture_begin(self, pool: _Pool | None = None,
                      capture_error_mode: str = "global") -> None: ...
    def capture_end(self) -> None: ...
    def instantiate(self) -> None: ...
    def replay(self) -> None: ...
    def reset(self) -> None: ...
    def pool(self) -> _Pool: ...
    def register_generator_state(self, generator: Any) -> None: ...
    def enable_debug_mode(self) -> None: ...
    def debug_dump(self, debug_path: str) -> None: ...
    def raw_cuda_graph(self) -> int: ...
    def raw_cuda_graph_exec(self) -> int: ...
    def save(self, path: _Path, output_tensors: Any = None) -> None: ...
    @classmethod
    def load(cls, path: _Path, pool: _Pool | None = None) -> Any: ...
    @classmethod
    def start_graph_builds(cls, paths: Iterable[_Path], pool: _Pool | None = None,
                           num_threads: int = 4) -> Pending: ...
    @staticmethod
    def finish_graph_loads(pending: Pending) -> list[Any]: ...
    @staticmethod
    def finish_one_graph_load(pending: Pending, i: int) -> Any: ...

class graph:
    def __init__(self, cuda_graph: CUDAGraph, pool: _Pool | None = None, stream: Any = None,
                 capture_error_mode: str = "global") -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

def graph_pool_handle() -> _Pool: ...
def save_graphs(graphs: Mapping[_Path, CUDAGraph | tuple[CUDAGraph, Any]]) -> None: ...
def save_graph_manifest(folder: _Path) -> None: ...
def pack_fatbins_to_folder(folder: _Path) -> None: ...
def set_pack_fatbins_on_exit(enabled: bool) -> None: ...
def load_cuda_modules_and_libraries(workspace_dir: _Path) -> None: ...

class DeviceScalar:
    dtype: str
    addr: int
    def __init__(self, dtype: object, value: float = 0, device: int = 0, addr: int = 0,
                 driver: _Path | None = None) -> None: ...
    def update(self, value: float, stream: _Stream = None) -> None: ...
    def read(self, stream: _Stream = None) -> float: ...
    def close(self) -> None: ...
    def __enter__(self) -> DeviceScalar: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

class DecodeState:
    token_addr: int
    position_addr: int
    length_addr: int
    from_device: bool
    def __init__(self, device: int = 0, addr: int = 0, driver: _Path | None = None) -> None: ...
    @property
    def token(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...
    def set(self, token: int, step: int, stream: _Stream = None) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> DecodeState: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None, /) -> None: ...

class Tag:
    tag: str | None
    id: str
    why: str | None
    objects: int
    bytes: int
    kept: bool
    is_image: bool
    is_signed: bool
    is_signature: bool

class Pruned:
    tags: int
    kept: int
    removed: int
    bytes: int
    requests: int
    retries: int
    items: list[Tag]

def tags(repository: str, plain_http: bool = False, requests: int = 0) -> list[Tag]: ...
def unpush(name: str, dry_run: bool = False, plain_http: bool = False,
           requests: int = 0) -> Pruned: ...
def prune(repository: str, keep: str | Iterable[str], dry_run: bool = True,
          plain_http: bool = False, requests: int = 0) -> Pruned: ...
