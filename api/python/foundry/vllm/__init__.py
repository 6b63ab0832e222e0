# SPDX-License-Identifier: Apache-2.0
"""Starts vLLM from an image: the first start captures and seals, later starts load.

vLLM finds this plug-in by the entry point `vllm.general_plugins`, in every process that it starts.
It does nothing unless FOUNDRY_VLLM is set to a value other than 0. Documentation/api/vllm.rst
explains its use.
"""
import functools
import logging
import os


def _unknown(e):
    """An unknown version of vLLM must start as without Foundry."""
    why = f"this version of vLLM lacks what Foundry wraps: {e!r}"
    if os.environ.get("FOUNDRY_VLLM_STRICT") == "1":
        raise RuntimeError(f"FOUNDRY_VLLM_STRICT is set, and {why}") from e
    logging.getLogger("vllm.foundry").warning("Foundry: started without an image, because %s", why)


def register():
    """Wrap the workers that vLLM makes in this process from now on. vLLM calls this."""
    if "FOUNDRY_VLLM" not in os.environ:
        return
    try:
        from .weights import register as register_format
        register_format()
    except (ImportError, AttributeError) as e:
        logging.getLogger("vllm.foundry").debug("Foundry: no load format: %r", e)
    if os.environ["FOUNDRY_VLLM"] in ("", "0"):
        return
    try:
        from vllm.v1.worker import worker_base
        wrapper = worker_base.WorkerWrapperBase
        original = wrapper.init_worker
    except (ImportError, AttributeError) as e:
        _unknown(e)
        return
    if hasattr(original, "foundry"):
        return

    ref = os.environ["FOUNDRY_VLLM"]
    if ref != "1" and os.environ.get("FOUNDRY_VLLM_CACHES") != "0":
        from .infos import unpack
        unpack(ref)

    @functools.wraps(original)
    def init_worker(self, *args, **kwargs):
        original(self, *args, **kwargs)
        try:
            from .worker import wrap
            wrap(self.worker)
        except (ImportError, AttributeError) as e:
            _unknown(e)

    init_worker.foundry = True
    wrapper.init_worker = init_worker
