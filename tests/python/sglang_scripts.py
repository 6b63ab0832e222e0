# SPDX-License-Identifier: Apache-2.0
"""Starts of a small engine in SGLang's place, on the software driver, each in a process of its own.
"""
import textwrap

import engine_tests

ENGINE = """\
import dataclasses
import os
import threading
import types
import foundry.sglang
import torch
from foundry.sglang import facts
facts.SOURCES["of the stand-in"] = facts.source()
from sglang.srt.model_executor import model_runner
from sglang.srt.model_executor.counts import COUNTS
from sglang.srt.model_executor.runner import decode_cuda_graph_runner
from sglang.srt.plugins.hook_registry import HookRegistry

@dataclasses.dataclass
class Args:
    hidden_constant: bool = False
    device: str = "cuda"
    tp_size: int = 1
    nnodes: int = 1
    custom: bool = False
    dtype: str = "auto"
    load_format: str = "dummy"
    max_running_requests: int = 4
    host: str = "127.0.0.1"
    cuda_graph_config: object = None
    attention: str = "triton"
    prefill_attention: str = None
    prefill: str = "disabled"
    decode: str = "full"
    cuda_graph_bs_decode: tuple = (1, 2, 4)
    moe_runner_backend: str = "auto"
    moe_a2a_backend: str = "none"
    init_expert_location: str = "trivial"
    kv_cache_dtype: str = "auto"
    speculative_algorithm: str = None
    enable_lora: bool = False
    disaggregation_mode: str = "null"
    kv_canary: str = "none"
    offload_group_size: int = -1
    cpu_offload_gb: int = 0
    unnamed: int = 0
    shared_output: bool = False

    def __post_init__(self):
        space = types.SimpleNamespace
        self.disable_custom_all_reduce = not self.custom
        self.attention_backend = self.attention
        self.cuda_graph_config = space(
            decode=space(backend=self.decode, bs=list(self.cuda_graph_bs_decode)),
            prefill=space(backend=self.prefill, bs=[1, 3] if self.prefill == "breakable" else None))

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return 1 if name.endswith("_size") else None

    def get_attention_backends(self):
        return self.prefill_attention or self.attention, self.attention

def arguments(**options):
    fields = {field.name for field in dataclasses.fields(Args)}
    args = Args(**{name: value for name, value in options.items() if name in fields})
    vars(args).update({name: value for name, value in options.items() if name not in fields})
    return args

def start(weight=3.0, quantization=None, mambaish=None, draft=False, changes=None, **options):
    HookRegistry.apply_hooks()
    config = types.SimpleNamespace(
        weight=weight, mambaish=mambaish, model_path="some/model", context_len=100, revision=None,
        quantization=quantization, changes=changes or {},
        is_encoder_decoder=False, hf_config=types.SimpleNamespace(to_dict=dict))
    runner = model_runner.ModelRunner(arguments(**options), config, draft,
                                      int(os.environ.get("STAND_IN_RANK", 0)))
    runner.alloc_memory_pool()
    runner.init_attention_backends()
    runner.init_cuda_graphs()
    return runner

def decodes(runner, weight=3.0):
    for value in (1.0, 5.0):
        runner.model.inputs.fill_(value)
        for size in runner.decode_cuda_graph_runner.capture_bs:
            out = runner.forward(size).tolist()
            assert set(out) == {value + size * weight + 1000.0}, (size, out[:4])
    for each in threading.enumerate():
        if each.name == "foundry-caches":
            each.join()
    assert "forward" not in vars(runner)

def prefills(runner, weight=3.0):
    # Each request has other factors of attention.
    from sglang.srt.layers import radix_attention
    prefill = runner.prefill_cuda_graph_runner
    for value, factors in ((1.0, (2.0, 3.0)), (4.0, (5.0, 1.0))):
        prefill.inputs.fill_(value)
        radix_attention.FACTORS.update(enumerate(factors))
        for tokens in prefill.capture_num_tokens:
            wanted = value
            for factor in factors:
                wanted = (wanted + tokens * weight) * factor
            assert set(prefill.execute(tokens).tolist()) == {wanted}, (tokens, wanted)

PLAIN = {"profile": 1, "capture": 1, "dummy_run": 0}
LOADED = {"profile": 0, "capture": 0, "dummy_run": 3}
"""


class Engine(engine_tests.Engine):
    """Starts of the small engine."""

    def start(self, text="", counts="PLAIN", options="", weight=3.0, before="", after="",
              **variables):
        """One start; it decodes, and does the phases that `counts` has. Returns the log."""
        return self.script(ENGINE + "foundry.sglang.register()\n" + textwrap.dedent(before)
                           + textwrap.dedent(f"""
            runner = start({options})
            """) + textwrap.dedent(text) + textwrap.dedent(f"""
            decodes(runner, {weight})
            assert COUNTS == {counts}, COUNTS
            """) + textwrap.dedent(after), **{"FOUNDRY_SGLANG": "test", **variables})
