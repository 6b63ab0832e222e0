# SPDX-License-Identifier: Apache-2.0
"""The facts of a start of SGLang that an image must share to be used."""
import dataclasses
import platform
import re

import torch

from ..engines import facts, ranks

PREFIX = "sglang."
# source() of the versions of SGLang that were run with Foundry on a GPU.
SOURCES = {"0.5.15.post1": "eb31d1e391c47fce"}
COMPARED = {}
PACKAGES = ("sglang-kernel", "apache-tvm-ffi", "sgl-deep-gemm")
ARGUMENTS = ("dtype", "load_format", "context_length", "mem_fraction_static",
             "max_running_requests", "max_total_tokens", "chunked_prefill_size", "page_size",
             "attention_backend", "sampling_backend", "disable_radix_cache")
# Arguments of the server that do not change what its GPU computes: those with one of these words.
_NEUTRAL = re.compile(
    "(^|_)(host|port|ports|addr|url|urls|log|ssl|http|http2|ipc|metric|metrics|trace|warmup|"
    "warmups|watchdog|random_seed|api_key|served_model_name|template|parser|stream|streaming|"
    "tokenizer|detokenizer|crash|timeout|gc|stat_loggers|sigquit|bucket|buckets|show_time|"
    "sleep_on_idle|schedule|priority|download_dir|batch_notify|cache_report|instance_id|"
    "decode_log_interval|requests_log|storage_path|load_collector)(_|$)")
_PREFIXES = ("SGLANG_", "SGL_", "USE_TRITON_W8A8_FP8_KERNEL")  # of SGLang's variables


def early(runner):
    """Return {key: value} of the facts known before the model runner uses the GPU. The most
    informative facts come first.
    """
    import sglang
    import triton
    gpu = torch.cuda.get_device_properties(runner.gpu_id)
    args, model = runner.server_args, runner.model_config
    found = {
        "sglang": sglang.__version__, "torch": torch.__version__, "triton": triton.__version__,
        "python": platform.python_version(), "gpu": gpu.name, "memory": gpu.total_memory,
        "model": model.model_path, "context": model.context_len,
        **({"ranks": f"{runner.tp_rank} of {runner.tp_size}"} if runner.tp_size > 1 else {}),
        **ranks.shared_facts(runner.tp_size),
        **{name: getattr(args, name) for name in ARGUMENTS},
        "decode_graphs": sizes(args.cuda_graph_config.decode),
        "prefill_graphs": sizes(args.cuda_graph_config.prefill),
        "environment": facts.environment(facts.selecting(_PREFIXES)),
        "modes": facts.modes(), "packages": facts.packages(PACKAGES), "source": source(),
        "config": facts.hashed(repr(model.hf_config.to_dict()).encode()),
        **arguments(args),
    }
    return facts.stated(PREFIX, found)


def late(decode, prefill):
    """Return {key: value} of the facts known when graphs are to be captured.

    decode, prefill: SGLang's runners of these graphs; prefill may be None.
    """
    runner = decode.model_runner
    found = {
        "dtypes": f"{runner.dtype}, KV cache {runner.kv_cache_dtype}",
        "tokens": runner.max_total_num_tokens, "requests": runner.max_running_requests,
        "capture_sizes": decode.capture_bs, "attention": type(decode.attn_backend).__name__,
        "graphs": type(decode.backend).__name__, "code": facts.code(runner.model),
    }
    if prefill:
        found["prefill_tokens"] = prefill.capture_num_tokens
    return facts.stated(PREFIX, found)


def sizes(phase):
    """Return the backend of a phase's graphs, with their sizes."""
    return f"{phase.backend} {phase.bs}"


def arguments(args):
    """Return {key: value} of the server's arguments that are not the default ones, and a hash of
    all, without those that only change how the server is reached.
    """
    given, entire = {}, []
    for field in sorted(dataclasses.fields(args), key=lambda f: f.name):
        if _NEUTRAL.search(field.name):
            continue
        value = _plain(getattr(args, field.name))
        entire.append((field.name, value))
        stated = field.name in ARGUMENTS or field.name.startswith(("cuda_graph_", "model_path"))
        if value != _plain(field.default) and not stated:
            given[f"argument.{field.name}"] = facts.short(value)
    return {**given, "arguments": facts.hashed(repr(entire).encode())}


def _plain(value):
    text = value if isinstance(value, str) else repr(value)
    return type(value).__name__ if " at 0x" in text else text


def source():
    """Return a hash of the files of SGLang with code that is wrapped or left out, so that another
    version is detected.
    """
    runner, backend = "model_executor.runner.", "model_executor.runner_backend."
    return facts.source("sglang.srt", (
        "model_executor.model_runner", "model_executor.model_runner_kv_cache_mixin",
        runner + "base_runner", runner + "base_cuda_graph_runner",
        runner + "decode_cuda_graph_runner", runner + "eager_runner",
        backend + "full_cuda_graph_backend", backend + "utils", "layers.attention.triton_backend",
        "layers.attention.flashattention_backend", "layers.logits_processor",
        runner + "prefill_cuda_graph_runner",
        backend + "breakable_cuda_graph_backend",
        "model_executor.runner_backend_utils.breakable_cuda_graph.breakable_cuda_graph",
        "layers.radix_attention", "model_loader.loader"))
