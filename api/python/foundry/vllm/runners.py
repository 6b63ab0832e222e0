# SPDX-License-Identifier: Apache-2.0
"""The tables in which vLLM's two model runners keep their graphs."""


class V2:
    """vllm.v1.worker.gpu: the manager has whole graphs; wrappers have those of pieces."""

    def __init__(self, runner):
        self._manager = runner.cudagraph_manager

    @property
    def mode(self):
        """The graph mode after vLLM has compared it with the attention backends."""
        return self._manager.cudagraph_mode

    @property
    def graphs(self):
        """{key: graph} of the whole graphs."""
        return self._manager.graphs

    def keys(self):
        """The keys of all whole graphs that vLLM captures."""
        return [key for mode, found in self._manager._capture_descs.items()
                if mode.name != "PIECEWISE" for key in found]

    def batches(self):
        """{mode: keys of the entries that each wrapper of that mode gets}.

        A key of the manager states the number of LoRAs since vLLM 0.24.
        """
        from vllm.forward_context import BatchDescriptor
        return {mode: [BatchDescriptor(num_tokens=key.num_tokens, has_lora=False,
                                       num_active_loras=getattr(key, "num_active_loras", 0))
                       for key in found]
                for mode, found in self._manager._capture_descs.items()
                if mode.name == "PIECEWISE"}

    def fill(self, graphs):
        """Use whole graphs of an image, {key: graph}."""
        self._manager.graphs.update(graphs)
        self._manager._graphs_captured = True

    def forget(self):
        """Free what no graph uses and vLLM makes again when it needs it."""


class V1:
    """vllm.v1.worker.gpu_model_runner: all graphs are in wrappers."""

    def __init__(self, runner):
        self._runner = runner

    @property
    def mode(self):
        return self._runner.compilation_config.cudagraph_mode

    @property
    def graphs(self):
        return {}

    def keys(self):
        return []

    def batches(self):
        return dict(self._runner.cudagraph_dispatcher.get_capture_descs())

    def fill(self, _graphs):
        """Do what capture_model() does after it has captured."""
        from vllm.compilation.monitor import set_cudagraph_capturing_enabled
        from vllm.v1.worker.workspace import lock_workspace
        set_cudagraph_capturing_enabled(False)
        lock_workspace()

    def forget(self):
        from vllm.v1.sample.ops.topk_topp_triton import reset_buffer_cache
        reset_buffer_cache()


def of(worker):
    """Return the tables of a worker's runner."""
    return (V2 if worker.use_v2_model_runner else V1)(worker.model_runner)
