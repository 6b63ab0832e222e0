# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's kernels, which images carry.

DeepGEMM compiles a kernel at its first use, and keeps it in a folder kernel.NAME.HASH, with its
source and its code. The hash is of the source, the compiler's version and its options, which have
the path of DeepGEMM's headers. So another installation ignores the folder.

If a folder lacks one of these files, DeepGEMM fails. So it is created as a whole.
"""
import os
import secrets
import shutil

FOLDER = "deepgemm"  # the name of the cache's folder in an image
CODE = "kernel.cubin"
FILES = ("kernel.cu", CODE)


def folder(default):
    """Return {name: path} of the folder with kernels. default: where the engine keeps them if the
    environment names no place.
    """
    return {FOLDER: os.path.join(os.environ.get("DG_JIT_CACHE_DIR") or default, "cache")}


def is_used(path, loaded):
    """Return whether a file belongs to a kernel whose code is among the files `loaded`."""
    parent, name = os.path.split(path)
    return name in FILES and os.path.join(parent, CODE) in loaded


def complete(files):
    """Return the files of an image without those of kernels that lack one."""
    kept = {each.name for kernel in of(files).values() for each in kernel}
    return [each for each in files if each.name in kept or
            not each.name.startswith(FOLDER + "/")]


def of(files):
    """Return {KERNEL: [file, ...]} of the files of an image, named deepgemm/KERNEL/NAME, whose
    kernel is complete.
    """
    found = {}
    for each in files:
        place, kernel, *rest = each.name.split("/")
        if place == FOLDER and len(rest) == 1:
            found.setdefault(kernel, []).append(each)
    return {kernel: each for kernel, each in found.items()
            if {os.path.basename(file.name) for file in each} == set(FILES)}


def write(folder_of_all, kernel, files):
    """Create a kernel's folder as a whole, unless it exists. Returns the number of files created.

    Its bytes are on the disk before it has its name.
    """
    made = os.path.join(folder_of_all, f".foundry-{secrets.token_hex(8)}")
    os.mkdir(made)
    try:
        for each in files:
            with open(os.path.join(made, os.path.basename(each.name)), "xb") as f:
                f.write(each.data)
                f.flush()
                os.fsync(f.fileno())
        entries = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(entries)
        finally:
            os.close(entries)
        try:
            os.rename(made, os.path.join(folder_of_all, kernel))
        except OSError:
            if os.path.lexists(os.path.join(folder_of_all, kernel)):
                return 0
            raise
        return len(files)
    finally:
        shutil.rmtree(made, ignore_errors=True)
