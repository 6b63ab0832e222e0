# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's compiled modules that an image carries.

FlashInfer calls ninja before it loads a module. Ninja needs a compiler, compares the times of
files, and compiles again what an image has written. A later start loads such a module without
ninja, if the library on the disk is that of the image, and the module has the same flags, sources
and headers as in the first start. The path in the folder has the version of FlashInfer and the
GPU's architecture.
"""
import functools
import importlib.util
import json
import os
import sys

from . import log
from .facts import content, hashed

FOLDER = "flashinfer-cache"  # its name in an image
CARRIED = (".so", ".cubin")  # the suffixes of files that FlashInfer loads
MODULES = "flashinfer.json"  # a file of the image: {name of a library in it: what describe() found}
_used = {}  # {path of a library that is loaded without ninja: (description, function that builds)}


def folder():
    """Return {name: path} of FlashInfer's folder. FlashInfer is not imported: that takes seconds,
    and a start may not need it.
    """
    if importlib.util.find_spec("flashinfer") is None:
        return {}
    base = os.environ.get("FLASHINFER_WORKSPACE_BASE", os.path.expanduser("~"))
    return {FOLDER: os.path.join(base, ".cache", "flashinfer")}


def is_built(path):
    """Return whether ninja has noted that it built the library with this path. It would take the
    library of an image for that one, and not build it though flags or sources are others.
    """
    folder, name = os.path.split(path)
    logs = (content(os.path.join(each, ".ninja_log")) for each in (folder, os.path.dirname(folder)))
    return name.endswith(".so") and any(f"/{name}\t".encode() in (each or b"") for each in logs)


def _path(spec):
    return os.path.abspath(spec.jit_library_path)


def _commands(spec):
    """Return the commands that compile a module, as ninja reads them."""
    return sys.modules["flashinfer.jit.core"].generate_ninja_build_for_op(
        name=spec.name, sources=spec.sources, extra_cflags=spec.extra_cflags,
        extra_cuda_cflags=spec.extra_cuda_cflags, extra_ldflags=spec.extra_ldflags,
        extra_include_dirs=spec.extra_include_dirs, needs_device_linking=spec.needs_device_linking)


@functools.cache
def _tree(folder):
    """Return a hash of the files in a folder, or None if it has none."""
    found = []
    for parent, _, names in os.walk(folder):
        for path in (os.path.join(parent, name) for name in names):
            found.append((os.path.relpath(path, folder), hashed(content(path) or b"")))
    return hashed(repr(sorted(found)).encode()) if found else None


def _description(spec):
    """Return what must be equal for a module: its flags, its sources and FlashInfer's headers. What
    is missing here is None. The compiler and the paths of headers may differ.
    """
    flags = (spec.name, spec.extra_cflags, spec.extra_cuda_cflags, spec.extra_ldflags,
             spec.needs_device_linking)
    env = sys.modules["flashinfer.jit.env"]
    sources = map(content, spec.sources)
    return {"flags": hashed(repr(flags).encode()),
            "sources": [*(None if each is None else hashed(each) for each in sources),
                        *(_tree(each) for each in (env.FLASHINFER_INCLUDE_DIR,
                                                   env.FLASHINFER_CSRC_DIR))]}


def _fits(description, other):
    """Return whether a module may be used for another one."""
    pairs = list(zip(description["sources"], other["sources"]))
    return (description["flags"] == other["flags"]
            and len(description["sources"]) == len(other["sources"])
            and all(None in pair or pair[0] == pair[1] for pair in pairs))


def _is_of_image(description, spec, path):
    """Return whether the library on the disk is that of the image, and fits a module."""
    try:
        return (_fits(description, _description(spec))
                and hashed(content(path) or b"") == description["library"])
    except Exception as e:  # another version of Foundry has described it, or FlashInfer is another
        log.debug("Foundry: the module %s cannot be compared: %r", path, e)
        return False


def describe(path, data):
    """Return a description of the module of this process whose library has this path and content.
    Return None if there is no such module, or if the library may be that of other commands.
    """
    try:
        specs = sys.modules["flashinfer.jit.core"].jit_spec_registry.get_all_specs().values()
        spec = next(each for each in specs if _path(each) == path)
        library = hashed(data)
        known, _ = _used.get(path, ({}, None))
        if known.get("library") == library:
            return known  # an image has brought it; this host may lack its sources
        found = _description(spec)
        if None in found["sources"][:len(spec.sources)] or (
                content(spec.ninja_path) != _commands(spec).encode()):
            return None
        return {**found, "library": library}
    except Exception as e:  # FlashInfer is another
        log.debug("Foundry: the module %s cannot be described: %r", path, e)
        return None


def modules(store, ref, places, carried):
    """Return {path: description} of the modules whose libraries the image has.

    carried: the names of the image's files.
    """
    if MODULES not in carried or FOLDER not in places:
        return {}
    found = json.loads(store.files(ref, {MODULES})[0].data)
    return {os.path.join(places[FOLDER], name.partition("/")[2]): each
            for name, each in found.items()}


def prepare(spec):
    """Compile a module, unless that was done, and return the path of its library. Nothing is
    loaded: another thread that wants to load it waits for FlashInfer's lock.
    """
    spec.build(verbose=False)
    return _path(spec)


def use(found):
    """Let FlashInfer load modules without a call of ninja, from now on in this process.

    found: {path of the library: description}. FlashInfer holds a lock while it builds and loads, so
    a library is compared when no other process writes it.
    """
    if not found:
        return
    try:
        from flashinfer.jit import core
        build, load, _ = core.JitSpec.build, core.JitSpec.load, core.JitSpec.jit_library_path
    except (ImportError, AttributeError) as e:
        log.debug("Foundry: this FlashInfer calls ninja: %r", e)
        return

    def build_or_use(spec, *args, **kwargs):
        path = _path(spec)
        if path in found and _is_of_image(found[path], spec, path):
            # FlashInfer loads under its lock, so a build after that takes none.
            _used[path] = found[path], functools.partial(build, spec, False, need_lock=False)
        else:
            _used.pop(path, None)
            build(spec, *args, **kwargs)

    def load_or_build(spec, path, *args, **kwargs):
        try:
            return load(spec, path, *args, **kwargs)
        except Exception as e:
            _, build_it = _used.pop(os.path.abspath(path), (None, None))
            if build_it is None:
                raise
            log.warning("Foundry: FlashInfer compiles the module %s, because that of the image "
                        "cannot be loaded: %s", spec.name, e)
        build_it()
        return load(spec, path, *args, **kwargs)

    core.JitSpec.build, core.JitSpec.load = build_or_use, load_or_build
