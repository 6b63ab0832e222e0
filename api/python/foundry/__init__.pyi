# SPDX-License-Identifier: Apache-2.0
# The package as type checkers see it; tests/python/test_stubs.py compares it with the package.
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias

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

class _Graph(Protocol):
    def raw_cuda_graph(self) -> int: ...

_Array: TypeAlias = _CudaArray | _HostArray | _TorchTensor
_Stream: TypeAlias = _TorchStream | _CupyStream | int | None
_Bytes: TypeAlias = bytes | bytearray | memoryview | _Buffer
_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
_Use: TypeAlias = Literal["input", "output", "state", "const"]
_Phase: TypeAlias = Literal["manifest", "driver", "memory", "content", "kernels", "objects", "graphs"]
_Progress: TypeAlias = Callable[[_Phase, int, int, float], object]

__version__: str

class Error(RuntimeError):
    code: int
    name: str
    errno: int
    def __init__(self, code: int, text: str) -> None: ...

def activate(children: bool = False) -> None: ...
def environment(env: Mapping[str, str] | None = None) -> dict[str, str]: ...
def base_for_name(name: str | None = None) -> int: ...

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

class Capture:
    offset: int
    def __init__(self, name: str | None = None, base: int = 0, size: int = 0, preallocate: int = 0, device: int = 0) -> None: ...
    def tensor(self, name: str, tensor: _Array, use: _Use = "input", external: bool = False) -> None: ...
    def fact(self, key: str, value: object) -> None: ...
    def add_graph(self, key: int, graph: _Graph | int, name: str | None = None) -> None: ...
    def graph(self, key: int, name: str | None = None, stream: Any = None, pool: Any = None, generators: Iterable[Any] = (),
              capture_error_mode: str = "global") -> AbstractContextManager[Any]: ...
    def room(self, name: str, nbytes: int) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def seal(self, store: Store | _Path | None = None, ref: str | None = None) -> Sealed: ...
    def end(self) -> None: ...
    def __enter__(self) -> Capture: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None: ...

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
    def write(self, name: str, data: _Bytes, stream: _Stream = None, wait: bool = True) -> None: ...
    def copy(self, name: str, src: int, nbytes: int, stream: _Stream = None) -> None: ...
    def read(self, name: str, stream: _Stream = None) -> bytearray: ...
    def filled(self, name: str | None = None) -> None: ...
    def build(self, key: int) -> None: ...
    def wait(self) -> None: ...
    def build_stop(self) -> None: ...
    def launch(self, key: int, stream: _Stream = None) -> None: ...
    def restore(self, stream: _Stream = None) -> None: ...
    def synchronize(self, stream: _Stream = None) -> None: ...
    def report(self) -> Report: ...
    def close(self) -> None: ...
    def __enter__(self) -> Image: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None: ...

class Needs:
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
    rooms: dict[str, int]

class Store:
    def __init__(self, path: _Path | None = None, create: bool = False, readonly: bool = False) -> None: ...
    def describe(self, name: str) -> str: ...
    def needs(self, name: str, externals: Mapping[str, int] | None = None) -> Needs: ...
    def close(self) -> None: ...
    def __enter__(self) -> Store: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None: ...

def load(name: str, store: Store | _Path | None = None, facts: Mapping[str, object] | None = None, device: int = 0,
         verify: bool = False, poison: bool = False, build: bool = False, driver: str | None = None, order: Sequence[int] = (),
         threads: int = 0, progress: _Progress | None = None, background: bool = False, own_context: bool = False,
         check_overlap: bool = False, externals: Mapping[str, int] | None = None) -> Image: ...

class Unused:
    name: str
    id: str
    field: str
    wanted: str
    found: str
    why: str
    error: str

class Start:
    image: Image | None
    captured: bool
    value: Any
    name: str
    id: str
    seal_error: Error | None
    capture: Capture | None
    unused: list[Unused]
    load_ms: float
    wait_ms: float
    capture_ms: float
    seal_ms: float

def load_or_capture(ref: str | bytes | Iterable[str], capture: Callable[[Capture], Any] | None = None,
                    facts: Mapping[str, object] | None = None, strict: bool = False, store: Store | _Path | None = None,
                    seal_as: str | None = None, wait: float = 600, device: int = 0, base: int = 0, size: int = 0,
                    preallocate: int = 0, **options: Any) -> Start: ...
