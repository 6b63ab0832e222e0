# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's compiled modules that an image carries.

FlashInfer calls ninja before it loads a module. Ninja needs a compiler, compares the times of
files, and compiles again what an image has written. A later start loads such a module without
ninja, if the library on the disk is that of the image, and the module has the same flags and
sources as in the first start. The path in the folder has the version of FlashInfer and the GPU's
architecture.
"""
import importlib.util
import json
import os
import sys

from . import log
from .facts import hashed

FOLDER = "flashinfer-cache"  # its name in an image
CARRIED = (".so", ".cubin")  # the suffixes of files that FlashInfer loads
MODULES = "flashinfer.json"  # a file of the image: {name of a library in it: what describe() found}


def folder():
    """Return {name: path} of FlashInfer's folder. FlashInfer is not imported: that takes seconds,
    and a start may not need it.
    """
    if importlib.util.find_spec("flashinfer") is None:
        return {}
    base = os.environ.get("FLASHINFER_WORKSPACE_BASE", os.path.expanduser("~"))
    return {FOLDER: os.path.join(base, ".cache", "flashinfer")}


def _data(path):
    """Return the bytes of a file, or None if it cannot be read."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return None


def _path(spec):
    return os.path.abspath(spec.jit_library_path)


def _commands(spec):
    """Return the commands that compile a module, as ninja reads them."""
    return sys.modules["flashinfer.jit.core"].generate_ninja_build_for_op(
        name=spec.name, sources=spec.sources, extra_cflags=spec.extra_cflags,
        extra_cuda_cflags=spec.extra_cuda_cflags, extra_ldflags=spec.extra_ldflags,
        extra_include_dirs=spec.extra_include_dirs, needs_device_linking=spec.needs_device_linking)


def _description(spec):
    """Return what must be equal for a module: its flags, and its sources, None for one that is
    missing here. The compiler and the paths of headers may differ.
    """
    flags = (spec.name, spec.extra_cflags, spec.extra_cuda_cflags, spec.extra_ldflags,
             spec.needs_device_linking)
    sources = map(_data, spec.sources)
    return {"flags": hashed(repr(flags).encode()),
            "sources": [None if each is None else hashed(each) for each in sources]}


def _fits(description, other):
    """Return whether a module may be used for another one."""
    pairs = list(zip(description["sources"], other["sources"]))
    return (description["flags"] == other["flags"]
            and len(description["sources"]) == len(other["sources"])
            and all(None in pair or pair[0] == pair[1] for pair in pairs))


def describe(path):
    """Return a description of the module of this process whose library has this path. Return None
    if there is no such module, or if the library may be that of other commands.
    """
    try:
        specs = sys.modules["flashinfer.jit.core"].jit_spec_registry.get_all_specs().values()
        spec = next(each for each in specs if _path(each) == path)
        # A library that another image has brought has no file with commands.
        on_disk = _data(spec.ninja_path)
        if on_disk is not None and on_disk != _commands(spec).encode():
            return None
        return _description(spec)
    except (KeyError, AttributeError, StopIteration, OSError, RuntimeError) as e:
        log.debug("Foundry: the module %s cannot be described: %r", path, e)
        return None


def modules(store, ref, places, carried):
    """Return {path: description} of the modules whose libraries on the disk are those of the image.

    carried: the names of the image's files.
    """
    if MODULES not in carried or FOLDER not in places:
        return {}
    found = json.loads(store.files(ref, {MODULES})[0].data)
    paths = {name: os.path.join(places[FOLDER], name.partition("/")[2]) for name in found}
    return {paths[file.name]: found[file.name] for file in store.files(ref, set(found))
            if _data(paths[file.name]) == file.data}


def use(found):
    """Let FlashInfer load modules without a call of ninja, from now on in this process.

    found: {path of the library: description}.
    """
    if not found:
        return
    try:
        from flashinfer.jit import core
        build, _ = core.JitSpec.build, core.JitSpec.jit_library_path
    except (ImportError, AttributeError) as e:
        log.debug("Foundry: this FlashInfer calls ninja: %r", e)
        return

    def build_or_use(spec, *args, **kwargs):
        known = found.get(_path(spec))
        if known is None or not _fits(known, _description(spec)):
            build(spec, *args, **kwargs)

    core.JitSpec.build = build_or_use
