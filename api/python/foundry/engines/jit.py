# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's compiled modules that an image carries.

FlashInfer calls ninja before it loads a module. Ninja compares the times of files, and compiles
again what an image has written. A later start loads such a module without ninja, if the commands
that would compile it, and the library on the disk, are those of the image. Its facts have the
version of FlashInfer, and so of the sources.
"""
import os

from . import log

FOLDER = "flashinfer"  # its name in an image
COMMANDS = "build.ninja"


def _same(path, data):
    try:
        with open(path, "rb") as f:
            return f.read() == data
    except OSError:
        return False


def modules(store, ref, places, carried):
    """Return the names of the modules whose files on the disk are those of the image.

    carried: the names of the image's files.
    """
    found = {}
    for name in {each.split("/")[1] for each in carried if each.startswith(f"{FOLDER}/")}:
        pair = f"{FOLDER}/{name}/{COMMANDS}", f"{FOLDER}/{name}/{name}.so"
        if FOLDER in places and set(pair) <= set(carried):
            found[name] = pair
    files = {file.name: file.data for file in store.files(
        ref, {each for pair in found.values() for each in pair})} if found else {}
    return {name for name, pair in found.items() if all(
        _same(os.path.join(places[FOLDER], each.partition("/")[2]), files[each]) for each in pair)}


def use(names):
    """Let FlashInfer load these modules without a call of ninja, from now on in this process."""
    if not names:
        return
    try:
        from flashinfer.jit import core
        build, _ = core.JitSpec.build, core.generate_ninja_build_for_op
    except (ImportError, AttributeError) as e:
        log.debug("Foundry: this FlashInfer calls ninja: %r", e)
        return

    def build_or_use(spec, *args, **kwargs):
        commands = core.generate_ninja_build_for_op(
            name=spec.name, sources=spec.sources, extra_cflags=spec.extra_cflags,
            extra_cuda_cflags=spec.extra_cuda_cflags, extra_ldflags=spec.extra_ldflags,
            extra_include_dirs=spec.extra_include_dirs,
            needs_device_linking=spec.needs_device_linking)
        if spec.name not in names or not _same(spec.ninja_path, commands.encode()):
            build(spec, *args, **kwargs)

    core.JitSpec.build = build_or_use
