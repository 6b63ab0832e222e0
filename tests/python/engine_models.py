# SPDX-License-Identifier: Apache-2.0
"""Common parts of scripts that start engines with models of several families: their configurations,
and the starts with each. The weights are dummies, in eight layers.

The window of sliding attention has fewer tokens than the longest prompts.
"""
import os
import shutil
import tempfile
import typing

from engine_start import QWEN3, done_for_requests, equal_answers, write_model

LAYERS = 8
WINDOW = 256
COMMON = {"torch_dtype": "bfloat16", "vocab_size": QWEN3["vocab_size"], "hidden_size": 1024,
          "intermediate_size": 3072, "num_hidden_layers": LAYERS, "num_attention_heads": 16,
          "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "rms_norm_eps": 1e-5,
          "max_position_embeddings": 8192, "rope_theta": 10000.0, "tie_word_embeddings": False}
GELU = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 128, "tie_word_embeddings": True}
# For classes of models that take hidden_size / num_attention_heads in place of head_dim.
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 4}
# Every second layer sees the window alone.
MIXED = {"sliding_window": WINDOW,
         "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2)}


def config(architecture, kind, **more):
    """Return the configuration of a model. kind: the name of its family in transformers."""
    return {**COMMON, "architectures": [architecture], "model_type": kind, **more}


MODELS = {
    "llama": config("LlamaForCausalLM", "llama", rope_theta=500000.0,
                    max_position_embeddings=131072,
                    rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                  "high_freq_factor": 4.0,
                                  "original_max_position_embeddings": 8192}),
    "qwen2": config("Qwen2ForCausalLM", "qwen2", use_sliding_window=False, **HEADS),
    "mistral": config("MistralForCausalLM", "mistral", sliding_window=WINDOW),
    "phi3": config("Phi3ForCausalLM", "phi3", original_max_position_embeddings=8192,
                   pad_token_id=0, bos_token_id=1, eos_token_id=2),
    "olmo2": config("Olmo2ForCausalLM", "olmo2", **HEADS),
    "gemma2": config("Gemma2ForCausalLM", "gemma2", attn_logit_softcapping=50.0,
                     final_logit_softcapping=30.0, **MIXED, **GELU),
    "gemma3": config("Gemma3ForCausalLM", "gemma3_text", rope_local_base_freq=10000.0, **MIXED,
                     **GELU),
    "cohere2": config("Cohere2ForCausalLM", "cohere2", layer_norm_eps=1e-5, logit_scale=0.25,
                      **{**MIXED, "tie_word_embeddings": True}),
    "mixtral": config("MixtralForCausalLM", "mixtral", num_local_experts=8, num_experts_per_tok=2,
                      **HEADS),
    "gpt-oss": config("GptOssForCausalLM", "gpt_oss", num_local_experts=16, num_experts_per_tok=4,
                      swiglu_limit=7.0, attention_bias=True, head_dim=64, **MIXED),
}


class Engine(typing.NamedTuple):
    """An engine. begin: begins a start, as engine_start.begin() does. options: of each start.
    asked: the answers that are equal.
    """

    package: str
    begin: typing.Callable
    nothing_done: typing.Callable
    options: list
    asked: tuple


def starts(engine, name, folder, gpu, limit):
    """Start an engine with a model: a plain and a first start side by side, then, with empty
    caches, a later one. Return [(what, whether it is so)].
    """
    write_model(folder, MODELS[name])

    def begin(title, mode, place, gate=False):
        return engine.begin(limit, f"{name}: {title}", mode, folder, *engine.options, gate=gate,
                            place=place, gpu=gpu)
    begun = [begin("plain", "plain", "plain"), begin("first", "first", "first"),
             begin("later", "next", "first", True)]
    try:
        results = [one.result() for one in begun[:2]]
        shutil.rmtree(os.path.join(folder, "first", "caches"), ignore_errors=True)
        begun[2].open()
        results.append(begun[2].result())
    finally:
        for one in begun:
            one.kill()
    different = [(results[0] or {}).get(each, {}).get("different", 0) for each in engine.asked]
    return [*((f"{one.title} succeeds", bool(found)) for one, found in zip(begun, results)),
            (f"{name}: first: seals", begun[1].says(1, "captured and sealed")),
            (f"{name}: later: loads", begun[2].says(1, "Foundry: loaded")),
            (f"{name}: later: no work", engine.nothing_done(results[2])),
            (f"{name}: later: no work for requests", not done_for_requests(results[2] or {})),
            *((f"{name}: answers are equal", so) for so in equal_answers(results, engine.asked)),
            (f"{name}: prompts have different answers {different}", min(different) > 1)]


def run(engine, names, limit):
    """Start an engine with each of the models `names`, or all, side by side."""
    import parts
    parts.need(engine.package)
    import torch
    with tempfile.TemporaryDirectory() as folder:
        found = parts.side_by_side(*(
            [lambda name=name, gpu=i % torch.cuda.device_count(): starts(
                engine, name, os.path.join(folder, name), gpu, limit)]
            for i, name in enumerate(names or MODELS)))
    rows = [row for name, each in zip(names or MODELS, found)
            for row in each or [(f"{name}: its starts", False)]]
    for what, so in rows:
        print(f"{what}: {'yes' if so else 'NO'}", flush=True)
    parts.finish([so for _, so in rows])
