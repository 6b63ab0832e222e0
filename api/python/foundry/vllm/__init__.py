# SPDX-License-Identifier: Apache-2.0
"""Starts vLLM from an image: the first start captures and seals, later starts load.

vLLM finds this plug-in by the entry point `vllm.general_plugins`, in every process that it starts.
It does nothing unless FOUNDRY_VLLM is set. Documentation/api/vllm.rst explains its use.
"""
import functools
import os


def register():
    """Wrap the workers that vLLM makes in this process from now on. vLLM calls this."""
    if not os.environ.get("FOUNDRY_VLLM"):
        return
    from vllm.v1.worker import worker_base
    wrapper = worker_base.WorkerWrapperBase
    if hasattr(wrapper.init_worker, "foundry"):
        return
    original = wrapper.init_worker

    @functools.wraps(original)
    def init_worker(self, *args, **kwargs):
        original(self, *args, **kwargs)
        from .worker import wrap
        wrap(self.worker)

    init_worker.foundry = True
    wrapper.init_worker = init_worker
