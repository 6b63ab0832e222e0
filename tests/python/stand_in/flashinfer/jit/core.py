# SPDX-License-Identifier: Apache-2.0
import ctypes
import os

from . import env

BUILT = []
FLAGS = ["-O3"]
COMPILER = "/usr/local/cuda"  # None: this host has none
SOURCE = "source of {}"
FOREIGN = b"foreign"  # so begins a library that this host cannot load
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def generate_ninja_build_for_op(name, sources, extra_cflags, extra_cuda_cflags, extra_ldflags,
                                extra_include_dirs, needs_device_linking):
    if COMPILER is None:
        raise RuntimeError("Could not find nvcc")
    return f"cuda_home = {COMPILER}\nflags = {extra_cuda_cflags}\nbuild {name}: {sources}\n"


def run_ninja(folder, name):
    BUILT.append(name)
    paths = [os.path.join(folder, f"{name}.{suffix}") for suffix in ("so", "o")]
    if not all(map(os.path.exists, paths)):
        for path in paths:
            with open(path, "wb") as f:
                f.write(b"library")
            with open(os.path.join(folder, ".ninja_log"), "a", encoding="utf-8") as f:
                f.write(f"0\t1\t2\t{path}\t3\n")


class JitSpecRegistry:
    def __init__(self):
        self._specs = {}

    def register(self, spec):
        self._specs.setdefault(spec.name, spec)

    def get_all_specs(self):
        return dict(self._specs)


jit_spec_registry = JitSpecRegistry()


class JitSpec:
    """Ninja always runs."""

    extra_cflags = extra_ldflags = extra_include_dirs = None
    needs_device_linking = is_aot = False

    def __init__(self, name, sources):
        self.name, self.sources, self.loaded = name, sources, False
        self.extra_cuda_cflags = list(FLAGS)
        jit_spec_registry.register(self)

    @property
    def ninja_path(self):
        return env.FLASHINFER_JIT_DIR / self.name / "build.ninja"

    @property
    def jit_library_path(self):
        return env.FLASHINFER_JIT_DIR / self.name / f"{self.name}.so"

    def build(self, verbose, need_lock=True):
        path = self.ninja_path
        path.parent.mkdir(parents=True, exist_ok=True)
        commands = generate_ninja_build_for_op(
            self.name, self.sources, self.extra_cflags, self.extra_cuda_cflags, self.extra_ldflags,
            self.extra_include_dirs, self.needs_device_linking)
        if not path.exists() or path.read_text("utf-8") != commands:
            path.write_text(commands, "utf-8")
        run_ninja(path.parent, self.name)

    def build_and_load(self):
        if self.loaded:
            return
        self.loaded = True
        self.build(False, need_lock=False)
        self.load(self.jit_library_path)

    def load(self, so_path):
        """As dlopen() does, which Python does not notice."""
        handle, head = _libc.open(os.fsencode(so_path), os.O_RDONLY), ctypes.create_string_buffer(
            len(FOREIGN))
        assert handle >= 0 and _libc.read(handle, head, len(FOREIGN)) >= 0
        if head.raw == FOREIGN:
            _libc.close(handle)
            raise OSError(f"{so_path}: version `GLIBC_2.38' not found")
        assert _libc.mmap(None, 4096, 1, 2, handle, 0)
        _libc.close(handle)


_modules = {}


def module(name):
    """FlashInfer writes the sources of a module before it compiles them."""
    if name not in _modules:
        source = env.FLASHINFER_GEN_SRC_DIR / name / f"{name}.cu"
        if SOURCE is not None:
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(SOURCE.format(name), "utf-8")
        _modules[name] = JitSpec(name, [source])
    return _modules[name]
