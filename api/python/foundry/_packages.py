# SPDX-License-Identifier: Apache-2.0
"""Installed packages: which file belongs to one, and its version. Nothing here imports a package.
"""
import functools
import os
import re
import sys
import sysconfig

from ._lib import STARTED

_SITES = ("site-packages", "dist-packages")
_HERE = os.path.dirname(os.path.abspath(__file__))
_STANDARD = {os.path.abspath(path) for path in (sysconfig.get_path("stdlib"),
                                                sysconfig.get_path("platstdlib"),
                                                os.path.dirname(os.__file__))}
# Distributions whose versions determine the kernels that a framework launches.
_GPU = re.compile(
    r"torch|(pytorch-)?triton|nvidia-(?!ml-py).*|cuda-(toolkit|pathfinder|bindings|core)|cupy.*|"
    r"jaxlib|"
                  r"flash-attn.*|flashinfer.*|xformers|transformer-engine.*")
_INFO = re.compile(r"(.+?)-([^-]+?)(-py[\d.]+.*)?\.(dist|egg)-info")
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*['\"]([^'\"\n]+)['\"]", re.M)

STANDARD, INSTALLED, OURS, OUTSIDE = "standard", "installed", "ours", "outside"


def changed(path, module):
    """Whether a file or folder changed since foundry was imported, and its module is imported.

    The imported module may then be older than the file.
    """
    try:
        found = os.stat(path)
    except OSError:
        return False
    return module in sys.modules and max(found.st_mtime, found.st_ctime) > STARTED


@functools.lru_cache(maxsize=None)
def place(path):
    """The kind of place of a file: the standard library, an installed package, this package, or
    OUTSIDE.
    """
    if not path or path.startswith("<frozen "):
        return STANDARD
    path = os.path.abspath(path)
    if os.path.dirname(path) == _HERE:
        return OURS
    if any(f"/{site}/" in path for site in _SITES):
        return INSTALLED
    return STANDARD if any(path.startswith(top + os.sep) for top in _STANDARD) else OUTSIDE


def place_of(module):
    """The path of a module's file, by the module's name."""
    top = module.partition(".")[0]
    if top in sys.builtin_module_names or top in getattr(sys, "stdlib_module_names", ()):
        return STANDARD
    found = sys.modules.get(module)
    if found is None:  # compiled code may give itself such a name
        parent = module.rpartition(".")[0]
        return place_of(parent) if parent else OUTSIDE
    file = vars(found).get("__file__")
    if file is None and module not in ("__main__", "__mp_main__"):
        spec = vars(found).get("__spec__")  # a namespace package has folders instead of a file
        folders = getattr(spec, "submodule_search_locations", None)
        file = os.path.join(list(folders)[0], "") if folders else None
    return place(file) if isinstance(file, str) else OUTSIDE


def _canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.lru_cache(maxsize=None)
def _distributions(site):
    """{canonical name: (version, folder of its metadata)} of the distributions installed in a
    folder.
    """
    found = {}
    try:
        entries = sorted(os.listdir(site))
    except OSError:
        return found
    for entry in entries:
        parts = _INFO.fullmatch(entry)
        if parts:
            found[_canonical(parts[1])] = parts[2], os.path.join(site, entry)
    return found


def _lists(info, path, top):
    """Whether a distribution's own list of files has `path`, or the module or package `top`."""
    for name, wanted in (("RECORD", rf"^{re.escape(path)},"),
                         ("top_level.txt", rf"^{re.escape(top)}\s*$")):
        try:
            with open(os.path.join(info, name), encoding="utf-8", errors="replace") as f:
                return bool(re.search(wanted, f.read(), re.M))
        except OSError:
            pass
    return False


@functools.lru_cache(maxsize=None)
def _of(site, path, top):
    found = _distributions(site)
    same = ([_canonical(top)]
            if _canonical(top) in found else [n for n in found if _lists(found[n][1], path, top)])
    for name in same:
        version, info = found[name]
        return name, version + " (replaced)" * changed(info, top)
    return None


def distribution(module, path):
    """(name, version) of the distribution of the module at `path`; None if unknown."""
    loaded = sys.modules.get(module)
    path = os.path.abspath(path or getattr(loaded, "__file__", None) or "")
    for site in _SITES:
        at = path.rfind(f"/{site}/") + len(site) + 2
        if at > len(site) + 1:
            inside = path[at:]
            found = _of(path[:at - 1], inside, inside.partition("/")[0].partition(".")[0])
            if found:
                return found
    top = module.partition(".")[0]
    version = getattr(sys.modules.get(top), "__version__", None)
    return (_canonical(top), version) if isinstance(version, str) else None


def gpu_stack():
    """{name: version} of the installed distributions that launch work on GPUs, with the CUDA
    version of torch.
    """
    found = {}
    for site in dict.fromkeys(sys.path):
        if os.path.basename(os.path.normpath(site)) in _SITES:
            for name, (version, _) in _distributions(os.path.abspath(site)).items():
                if _GPU.fullmatch(name):
                    found.setdefault(name, version)
            if "torch.cuda" not in found and "torch" in found:
                found.update(_torch_cuda(site))
    return found


def _torch_cuda(site):
    try:
        with open(os.path.join(site, "torch", "version.py"), encoding="utf-8") as f:
            parts = _CUDA.search(f.read())
    except OSError:
        return {}
    return {"torch.cuda": parts[1]} if parts else {}
