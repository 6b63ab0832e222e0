# SPDX-License-Identifier: Apache-2.0
import torch
from vllm.compilation import monitor
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.config import CUDAGraphMode
from vllm.forward_context import BatchDescriptor, set_forward_context
from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
from vllm.v1.worker import gpu_worker
from vllm.v1.worker.gpu import model_runner
from vllm.v1.worker.workspace import lock_workspace


class GPUModelRunner(model_runner.GPUModelRunner):
    """All graphs are in wrappers: those of pieces, and one around the model."""

    def __init__(self, config):
        super().__init__(config)
        self.compilation_config = config.compilation_config

    def load_model(self):
        super().load_model()
        if CUDAGraphMode.FULL in self.compilation_config.cudagraph_mode.modes():
            self.model = CUDAGraphWrapper(self.model, self.config, CUDAGraphMode.FULL)

    def get_model(self):
        return self.model.unwrap() if isinstance(self.model, CUDAGraphWrapper) else self.model

    def profile_run(self):
        with set_forward_context(CUDAGraphMode.NONE, None):
            peak = [torch.empty((1 << 20,)) for _ in range(3)]
            self.get_model().cache = torch.full(model_runner.SHAPE, 0.0)
            out = self.model(1)
            del self.get_model().cache
        del peak, out

    def make_tables(self):
        self.cudagraph_dispatcher = CudagraphDispatcher(self.compilation_config.cudagraph_mode,
                                                        self.sizes)

    def capture_model(self):
        gpu_worker.COUNTS["capture"] += 1
        for mode, batches in self.cudagraph_dispatcher.get_capture_descs():
            for batch in batches:
                with torch.cuda.stream(torch.cuda.Stream()):
                    self.run(CUDAGraphMode.NONE, batch)
                    self.run(mode, batch)
        monitor.set_cudagraph_capturing_enabled(False)
        lock_workspace()
        return 0

    def run(self, mode, batch):
        with set_forward_context(mode, batch):
            return self.model(batch.num_tokens)

    def decode(self, size, mode=None):
        assert not monitor.enabled
        mode = mode or self.compilation_config.cudagraph_mode.modes()[-1]
        return self.run(mode, BatchDescriptor(size))
