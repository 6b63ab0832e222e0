# SPDX-License-Identifier: Apache-2.0
"""The files in which vLLM notes the properties of a model's class.

vLLM imports the class in a process of its own before it makes an engine, and keeps what it found in
a file. Without that file this takes about 16 s. A worker begins later than that, so the process
that registers the plug-in writes the files that an image carries. vLLM compares them with a hash of
the model's code.
"""
import glob
import logging
import multiprocessing
import os

from ..engines import caches, log, registry
from ..errors import NotFoundError
from ..store import Store

FOLDER = "infos"  # its name in an image


def folder():
    """Return {name: path} of vLLM's folder of such files."""
    import vllm.envs
    root = getattr(vllm.envs, "VLLM_CACHE_ROOT", None)
    return {FOLDER: os.path.abspath(os.path.join(root, "modelinfos"))} if root else {}


def files(config):
    """Return the paths of the files of a model with this configuration."""
    return [path for root in folder().values() for name in getattr(config, "architectures", ())
            for path in glob.glob(os.path.join(glob.escape(root), f"*-{glob.escape(name)}.json"))]


def unpack(ref):
    """Write the files that images of the name `ref` carry and that are missing.

    If the store has no image of this name, the process that makes the engine fetches one, as its
    worker would do later.
    """
    log.use(logging.getLogger("vllm.foundry"))
    names = ref, f"{ref}.rank0"  # with several GPUs, each rank has an image, with the same files
    try:
        may_fetch = bool(registry.name()) and multiprocessing.parent_process() is None
        with Store(create=may_fetch, readonly=not may_fetch) as store:
            refs = [each for each in store.refs() if each.name in names]
            if not refs and may_fetch and fetch(store, names):
                refs = [each for each in store.refs() if each.name in names]
            for each in refs:  # they may be of different models
                write(store, f"{each.name}:{each.id}")
    except Exception as e:  # vLLM makes what is missing
        log.debug("Foundry: no files on models' classes, because %s", e)


def write(store, ref):
    """Write the files that an image carries and that are missing."""
    carried = {name for name in caches.names(store.describe(ref))
               if name == caches.PLACES or name.startswith(FOLDER + "/")}
    _, written = caches.unpack(store, ref, folder(), carried)
    log.debug("Foundry: %d files on models' classes written", written)


def fetch(store, names):
    """Fetch the first image of `names` that the registry has. Return whether it has one."""
    for name in names:
        try:
            registry.fetch(store, name)
            return True
        except NotFoundError as e:
            log.debug("Foundry: no files on models' classes, because %s", e)
    return False
