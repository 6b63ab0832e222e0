# SPDX-License-Identifier: Apache-2.0
import os

import torch
import triton
from vllm import envs

KERNELS = ["sampler", "prepare"]
MODULES = []  # of FlashInfer, which the sampler loads
COUNTS = {"profile": 0, "kernel_warmup": 0, "capture": 0, "warmup_kernels": 0,
          "dummy_run": 0}


def kernel_warmup(worker):
    COUNTS["kernel_warmup"] += 1
    worker.collective()
    torch.empty((1 << 20,))


def warmup_kernels(runner, *_):
    COUNTS["warmup_kernels"] += 1
    for name in KERNELS:
        assert triton.compile(name) == f"code of {name}".encode()
    for name in MODULES:
        from flashinfer.jit import core
        core.module(name).build_and_load()
    for size in runner.sizes:
        runner.decode(size)


class Worker:
    local_rank = 0
    device = "cuda:0"

    def __init__(self, config):
        self.rank = int(os.environ.get("STAND_IN_RANK", 0))
        self.use_v2_model_runner = config.runner == "V2"
        self.vllm_config, self.cache_config = config, config.cache_config

    def init_device(self):
        from vllm.v1.worker import gpu_model_runner
        from vllm.v1.worker.gpu import model_runner
        torch.cuda.init()
        if envs.VLLM_BATCH_INVARIANT:
            os.environ["VLLM_USE_AOT_COMPILE"] = "0"
        module = model_runner if self.use_v2_model_runner else gpu_model_runner
        self.model_runner = module.GPUModelRunner(self.vllm_config)

    def load_model(self):
        self.model_runner.load_model()

    @torch.inference_mode()
    def determine_available_memory(self):
        COUNTS["profile"] += 1
        self.collective()
        self.model_runner.profile_run()
        return 64 << 20

    def collective(self):
        """Ranks that profile or capture wait for each other, if the test starts several."""
        count = self.vllm_config.parallel_config.world_size
        if count > 1 and "STAND_IN_RANK" in os.environ:
            found = [None] * count
            torch.distributed.all_gather_object(found, "collective", "cpu")
            assert set(found) == {"collective"}, found

    def initialize_from_config(self, blocks):
        self.cache_config.num_gpu_blocks = blocks
        self.model_runner.initialize_kv_cache(blocks)

    def compile_or_warm_up_model(self):
        self.model_runner._dummy_run(200)
        kernel_warmup(self)
        self.model_runner.capture_model()
        if self.use_v2_model_runner:
            warmup_kernels(self.model_runner)
        else:
            hidden, last = self.model_runner._dummy_run(4)
            assert hidden is None
            self.model_runner._dummy_sampler_run(last)
        from vllm.compilation import compiler_interface
        if hasattr(compiler_interface, "trigger_inductor_lazy_init"):  # since vLLM 0.25
            compiler_interface.trigger_inductor_lazy_init(0)
        return "times"
