# SPDX-License-Identifier: Apache-2.0
import ctypes
import os

from . import env

BUILT = []
FLAGS = "-O3"
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


def generate_ninja_build_for_op(name, sources, extra_cflags, extra_cuda_cflags, extra_ldflags,
                                extra_include_dirs, needs_device_linking):
    return f"flags = {FLAGS}\nbuild {env.FLASHINFER_JIT_DIR}/{name}.so\n"


def run_ninja(folder, name):
    BUILT.append(name)
    for suffix in ("so", "o"):
        path = os.path.join(folder, f"{name}.{suffix}")
        if not os.path.exists(path):
            with open(path, "wb") as f:
                f.write(b"library")


class JitSpec:
    sources = extra_cflags = extra_cuda_cflags = extra_ldflags = extra_include_dirs = None
    needs_device_linking = False

    def __init__(self, name):
        self.name, self.loaded = name, False

    @property
    def ninja_path(self):
        return env.FLASHINFER_JIT_DIR / self.name / "build.ninja"

    def build(self, verbose, need_lock=True):
        path = self.ninja_path
        path.parent.mkdir(parents=True, exist_ok=True)
        commands = generate_ninja_build_for_op(self.name, *[None] * 6)
        if not path.exists() or path.read_text("utf-8") != commands:
            path.write_text(commands, "utf-8")
        run_ninja(path.parent, self.name)

    def build_and_load(self):
        if self.loaded:
            return
        self.loaded = True
        self.build(False, need_lock=False)
        # As dlopen() does, which Python does not notice.
        handle = _libc.open(os.fsencode(self.ninja_path.parent / f"{self.name}.so"), os.O_RDONLY)
        assert handle >= 0 and _libc.mmap(None, 4096, 1, 2, handle, 0)
        _libc.close(handle)


_modules = {}


def module(name):
    return _modules.setdefault(name, JitSpec(name))
