#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` with a plain, a first and a later start: times until it answers, and its answers.

    python3 tests/gpu/vllm_serve.py [--mode3] [--big]

The plain and the first start run side by side. Each server gets the same requests over HTTP: one by
one, and all at once. All starts give the same answers to the former. With --mode3, vLLM compiles
the model, its default, but Inductor chooses its kernels without measuring them. With --big, the
model has the shape of Qwen3 8B.
"""
import json
import os
import sys
import tempfile

import vllm_start

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = ("import vllm_start, sys; sys.argv[0] = 'vllm'; "
           "from vllm.entrypoints.cli.main import main; main()")
MODE0 = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
MODE3 = {"mode": 3, "cudagraph_mode": "FULL_AND_PIECEWISE",
         "inductor_compile_config": vllm_start.UNMEASURED}


def tokenizer(folder, size):
    """Write a tokenizer with a word for each number."""
    words = {f"w{i}": i for i in range(size)}
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                   "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
                   "post_processor": None, "decoder": None,
                   "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}}, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0",
                   "eos_token": "w1", "model_max_length": 2048}, f)


def arguments(folder, compilation, port):
    """Return the arguments of Python that serve the model in a folder."""
    program = os.path.join(folder, "serve.py")
    with open(program, "w", encoding="utf-8") as f:
        f.write("if __name__ == '__main__':\n    " + PROGRAM + "\n")
    return [program, "serve", vllm_start.model_in(folder), "--load-format", "dummy", "--dtype",
            "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "32",
            "--gpu-memory-utilization", "0.1", "--kv-cache-memory-bytes", str(4 << 30),
            "--attention-backend", "FLASH_ATTN", "--seed", "0", "--no-enable-prefix-caching",
            "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "test",
            "--compilation-config", json.dumps(compilation)]


def ask(server, prompt):
    found = server.get("/v1/completions", {
        "model": "test", "prompt": prompt, "max_tokens": 32, "temperature": 0.7, "seed": 5,
        "ignore_eos": True, "logprobs": 2, "return_token_ids": True})
    choice = found["choices"][0]
    return [choice.get("token_ids"), choice["text"], choice["logprobs"]["token_logprobs"]]


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import engine_serve
    import parts
    parts.need("vllm")
    compilation = MODE3 if "--mode3" in sys.argv[1:] else MODE0
    config = vllm_start.BIG if "--big" in sys.argv[1:] else vllm_start.QWEN3
    vllm_start.plug_in()
    with tempfile.TemporaryDirectory() as folder:
        vllm_start.write_model(folder, config)
        tokenizer(vllm_start.model_in(folder), config["vocab_size"])
        variables = {**vllm_start.SETTINGS, "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
                     "VLLM_USE_V2_MODEL_RUNNER": "1",
                     "FOUNDRY_STORE": os.path.join(folder, "store"),
                     **vllm_start.cache_folders(os.path.join(folder, "caches"))}
        parts.finish(engine_serve.starts(lambda mode: engine_serve.Server(
            mode, mode, folder, lambda port: arguments(folder, compilation, port), ask,
            {**variables, "FOUNDRY_VLLM": "" if mode == "plain" else "serve"})))


if __name__ == "__main__":
    main()
