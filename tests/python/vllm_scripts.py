# SPDX-License-Identifier: Apache-2.0
"""Starts of a small engine in vLLM's place, on the software driver, each in a process of its own.
"""
import textwrap

import engine_tests

ENGINE = """\
import itertools
import types
import foundry.vllm
import torch
from foundry.vllm import facts
facts.SOURCES["of the stand-in"] = facts.source()
foundry.vllm.register()
foundry.vllm.register()
from vllm.v1.worker import gpu_worker, worker_base
from vllm.config import CUDAGraphMode

def config(seqs=4, weight=3.0, hidden=False, ranks=1, sizes=(4, 2, 1), quantization=None,
           cache_dtype="auto", scaled=False, mode=0, graphs="FULL_DECODE_ONLY", runner="V2",
           constant=False, load_format="dummy", extra=None, changes=None, custom=False,
           rope=0.0, moe=False, attention="FLASH_ATTN", backend_given=None, model=(),
           **compilation):
    space = types.SimpleNamespace
    layer = space(get_attn_backend=lambda: space(get_name=lambda: attention))
    return space(
        compute_hash=lambda: "hash", sizes=sizes, weight=weight, hidden_constant=hidden,
        runner=runner, use_v2_model_runner=runner == "V2", compiled_constant=constant,
        loader_changes=changes or {}, rope=rope,
        model_config=space(model="some/model", revision=None, dtype="float32",
                           architectures=["Architecture"],
                           quantization=quantization, seed=0, max_model_len=100,
                           enforce_eager=False, enable_sleep_mode=False, is_moe=moe,
                           compute_hash=lambda: f"rope {rope}", **{
                               "runner_type": "generate", "is_multimodal_model": False,
                               "is_encoder_decoder": False, "is_hybrid": False,
                               "is_attention_free": False, **dict(model)}),
        attention_config=space(backend=backend_given and space(name=backend_given)),
        kernel_config=space(enable_flashinfer_autotune=None),
        scheduler_config=space(max_num_seqs=seqs, max_num_batched_tokens=200),
        compilation_config=space(**{
            "cudagraph_capture_sizes": list(sizes), "mode": mode,
            "cudagraph_mode": CUDAGraphMode[graphs], "cache_dir": "", "backend": "inductor",
            "use_inductor_graph_partition": False, "cudagraph_copy_inputs": False,
            "cudagraph_mm_encoder": False, "pass_config": space(),
            "static_forward_context": {"layer": layer, "experts": space()},
            "compile_cache_save_format": "binary", **compilation}),
        cache_config=space(gpu_memory_utilization=0.5, kv_cache_memory_bytes=None,
                           cache_dtype=cache_dtype, enable_prefix_caching=False, block_size=16,
                           num_gpu_blocks=None, calculate_kv_scales=scaled),
        load_config=space(load_format=load_format, model_loader_extra_config=extra or {}),
        parallel_config=space(world_size=ranks, data_parallel_size=1, rank=0,
                              data_parallel_index=0, tensor_parallel_size=ranks,
                              enable_expert_parallel=False, nnodes=1,
                              distributed_executor_backend="mp",
                              disable_custom_all_reduce=not custom), speculative_config=None,
        lora_config=None, kv_transfer_config=None)

def start(**options):
    wrapper = worker_base.WorkerWrapperBase()
    wrapper.init_worker(config(**options))
    worker = wrapper.worker
    worker.init_device()
    worker.load_model()
    assert worker.determine_available_memory() == 64 << 20
    worker.initialize_from_config(8)
    assert worker.compile_or_warm_up_model() == "times"
    return worker

def decodes(worker, weight=3.0):
    for value in (1.0, 5.0):
        worker.model_runner.inputs.fill_(value)
        modes = worker.vllm_config.compilation_config.cudagraph_mode.modes()
        for size, mode in itertools.product(worker.model_runner.sizes, modes):
            out = worker.model_runner.decode(size, mode).tolist()
            assert set(out) == {value + size * weight + 1000.0}, (size, mode, out[:4])

NOTHING = {"profile": 0, "kernel_warmup": 0, "capture": 0, "warmup_kernels": 0, "dummy_run": 0}
ONCE = dict.fromkeys(NOTHING, 1)
ONCE_V1 = {**ONCE, "warmup_kernels": 0, "dummy_run": 3}
LOADED = {**NOTHING, "warmup_kernels": 1}
LOADED_V1 = {**NOTHING, "dummy_run": 2}
"""


class Engine(engine_tests.Engine):
    """Starts of the small engine."""

    AGAIN = "{**ONCE, 'profile': 0}"  # counts: it omits the profile, then captures

    def start(self, text="", counts="ONCE", options="", weight=3.0, before="", **variables):
        """One start; it decodes, and does the phases that `counts` has. Returns the log."""
        variables = {"FOUNDRY_VLLM": "test", **variables}
        return self.script(ENGINE + before + textwrap.dedent(f"""
            worker = start({options})
            """) + textwrap.dedent(text) + textwrap.dedent(f"""
            decodes(worker, {weight})
            assert gpu_worker.COUNTS == {counts}, gpu_worker.COUNTS
            """), **variables)
