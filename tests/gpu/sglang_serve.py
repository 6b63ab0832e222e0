#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SGLang's server with a plain, a first and a later start: times until it answers, and its answers.

    python3 tests/gpu/sglang_serve.py [--caches DIR] [--defaults] [--big]

The plain and the first start run side by side. Each server gets the same requests over HTTP: one by
one, and all at once. All starts give the same answers to the former. --caches DIR lets all
compilers keep their files in DIR. With --defaults, SGLang chooses the backends of attention and
sampling. With --big, the model has the shape of Qwen3 8B.
"""
import argparse
import os
import sys
import tempfile

import sglang_start
from engine_start import BIG, QWEN3, write_model

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments(folder, port, defaults):
    """Return the arguments of Python that serve the model in a folder."""
    chosen = () if defaults else (word for name, value in sglang_start.CHOSEN.items()
                                  for word in ("--" + name.replace("_", "-"), value))
    return ["-m", "sglang.launch_server", "--model-path", sglang_start.model_in(folder),
            "--load-format", "dummy", "--skip-tokenizer-init", *chosen, "--mem-fraction-static",
            "0.6", "--max-total-tokens", "20000", "--max-running-requests", "32",
            "--cuda-graph-max-bs-decode", "32", "--disable-flashinfer-autotune",
            "--random-seed", "0", "--disable-radix-cache",
            "--context-length", "2048", "--host", "127.0.0.1", "--port", str(port)]


def ask(server, prompt):
    found = server.get("/generate", {
        "input_ids": prompt, "sampling_params": {"max_new_tokens": 32, "temperature": 0.0,
                                                 "ignore_eos": True},
        "return_logprob": True, "top_logprobs_num": 2})
    return [found["output_ids"], sglang_start.chances(found)]


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import engine_serve
    import parts
    parts.need("sglang")
    p = argparse.ArgumentParser()
    p.add_argument("--caches")
    p.add_argument("--defaults", action="store_true")
    p.add_argument("--big", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        caches = a.caches or os.path.join(folder, "caches")
        write_model(folder, BIG if a.big else QWEN3)
        sglang_start.plug_in(caches)
        parts.finish(engine_serve.starts(lambda mode: engine_serve.Server(
            mode, mode, folder, lambda port: arguments(folder, port, a.defaults), ask,
            {"FOUNDRY_STORE": os.path.join(folder, "store"),
             "FOUNDRY_SGLANG": "" if mode == "plain" else "serve"})))


if __name__ == "__main__":
    main()
