# SPDX-License-Identifier: Apache-2.0
"""The files in which vLLM notes the properties of a model's class.

vLLM imports the class in a process of its own before it makes an engine, and keeps what it found in
a file. Without that file this takes about 16 s. A worker begins later than that, so the process
that registers the plug-in writes the files that an image carries. vLLM compares them with a hash of
the model's code.
"""
import glob
import os

from ..engines import caches, log
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
    """Write the files that the image `ref` carries and that are missing."""
    try:
        with Store(readonly=True) as store:
            carried = {name for name in caches.names(store.describe(ref))
                       if name == caches.PLACES or name.startswith(FOLDER + "/")}
            _, written = caches.unpack(store, ref, folder(), carried)
            log.debug("Foundry: %d files on models' classes written", written)
    except Exception as e:  # vLLM makes what is missing
        log.debug("Foundry: no files on models' classes, because %s", e)
