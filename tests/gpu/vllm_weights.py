#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM that load weights by vLLM's loaders, and from an image: seconds and GB/s.

    python3 tests/gpu/vllm_weights.py [--big] [--cold] [FORMAT...]

FORMAT: load formats of vLLM to compare with; the default is safetensors, fastsafetensors and
runai_streamer. A format whose package is not installed is left out, and named. --big: 16.4 GB of
weights, in place of 1.2 GB. --cold: before each start, the system drops the files of weights and
the store from its memory, as far as it does that when asked.

All starts give the same answers. Those of Foundry have the load format foundry.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time

import vllm_start

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = {"safetensors": "safetensors", "fastsafetensors": "fastsafetensors",
            "runai_streamer": "runai_model_streamer", "instanttensor": "instanttensor"}
SHARD = 4 << 30


def feed_forward(config):
    """Yield (name, shape) of the weights of a layer's part after attention."""
    hidden, experts = config["hidden_size"], config.get("num_experts", 0)
    middle = config["moe_intermediate_size" if experts else "intermediate_size"]
    for name in [f"mlp.experts.{i}" for i in range(experts)] or ["mlp"]:
        yield from ((f"{name}.gate_proj", (middle, hidden)), (f"{name}.up_proj", (middle, hidden)),
                    (f"{name}.down_proj", (hidden, middle)))
    if experts:
        yield "mlp.gate", (experts, hidden)


def shapes(config):
    """Yield (name, shape) of the model's weights, as its files have them."""
    hidden, head = config["hidden_size"], config["head_dim"]
    queries, keys = (config[f"num_{key}_heads"] * head for key in ("attention", "key_value"))
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        for name, shape in (
                ("self_attn.q_proj", (queries, hidden)), ("self_attn.k_proj", (keys, hidden)),
                ("self_attn.v_proj", (keys, hidden)), ("self_attn.o_proj", (hidden, queries)),
                ("self_attn.q_norm", (head,)), ("self_attn.k_norm", (head,)),
                *feed_forward(config), ("input_layernorm", (hidden,)),
                ("post_attention_layernorm", (hidden,))):
            yield f"model.layers.{i}.{name}.weight", shape
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)


def checkpoint(config, folder):
    """Write random weights as files of safetensors. Returns their paths and bytes."""
    import torch
    from safetensors.torch import save_file
    torch.manual_seed(0)
    paths, held, size, total = [], {}, 0, 0

    def write():
        paths.append(os.path.join(folder, f"model-{len(paths):05}.safetensors"))
        save_file(held, paths[-1], metadata={"format": "pt"})

    for name, shape in shapes(config):
        if len(shape) == 1:
            one = torch.ones(shape, dtype=torch.bfloat16)
        else:
            one = torch.randn(shape, device="cuda", dtype=torch.bfloat16).mul_(
                1 if "embed" in name else 0.04).cpu()
        held[name] = one
        size += one.nbytes
        total += one.nbytes
        if size >= SHARD:
            write()
            held, size = {}, 0
    if held:
        write()
    return paths, total


def drop(paths):
    """Ask the system to drop files from its memory."""
    for path in paths:
        if os.path.isfile(path):
            with open(path, "rb") as f:
                os.fsync(f.fileno())
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_files(folder):
    """Write the files for the model of a test in a process of its own, which then frees the GPU.
    Returns their paths and bytes, or none if that fails.
    """
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--write",
                           vllm_start.model_in(folder)],
                          stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout) if not done.returncode else ([], 0)


def starts(formats, folder, cold, paths):
    """Run the starts. Returns [(what, what it printed)]."""
    found, store = [], os.path.join(folder, "store", "data.mdb")
    for mode, name in (*(("plain", name) for name in formats), ("first", "foundry"),
                       ("next", "foundry"), ("next", "foundry")):
        if cold:
            drop([*paths, store])
        found.append((f"{mode} {name}", vllm_start.start(
            mode, folder, "--weights", name, "--kv", str(4 << 30), "--util", "0.4")))
    return found


def show(found, total):
    """Print a table. found: [(what, what a start printed)]. total: the bytes of the weights."""
    print(f"{'start':28}{'weights':>10}{'GB/s':>8}{'from image':>12}{'GB/s':>8}{'seal':>8}"
          f"{'engine':>10}")
    for what, one in found:
        phase, own = one.get("weights", float("nan")), one.get("of Foundry", {})
        image = own.get("weights", float("nan"))
        print(f"{what:28}{phase:10.3f}{total / phase / 1e9:8.2f}{image:12.3f}"
              f"{total / image / 1e9:8.2f}{own.get('weights sealed', float('nan')):8.2f}"
              f"{one.get('engine', float('nan')):10.2f}")


def main():
    more = sys.argv[1:]
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import parts
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("vllm") is None:
        parts.skip("no GPU, or none with vllm")
    formats = [each for each in more if not each.startswith("-")] or [*PACKAGES][:3]
    for each in formats[:]:
        if importlib.util.find_spec(PACKAGES.get(each, each)) is None:
            print(f"{each} is not installed")
            formats.remove(each)
    config = vllm_start.BIG if "--big" in more else vllm_start.QWEN3
    with tempfile.TemporaryDirectory() as folder:
        vllm_start.write_model(folder, config)
        began = time.monotonic()
        paths, total = write_files(folder)
        if not paths:
            parts.skip("no GPU")
        print(f"{total / 1e9:.2f} GB in {len(paths)} files, {time.monotonic() - began:.1f} s",
              flush=True)
        found = starts(formats, folder, "--cold" in more, paths)
    show(found, total)
    each = [one for _, one in found]
    parts.finish([*each, *vllm_start.equal_answers(each, vllm_start.ASKED),
                  *(vllm_start.nothing_done(one) for one in each[-2:]),
                  *("weights" in one.get("of Foundry", {}) for one in each[-2:])])


if __name__ == "__main__":
    if "--write" in sys.argv:
        made = sys.argv[-1]
        sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
        with open(os.path.join(made, "config.json"), encoding="utf-8") as file:
            print(json.dumps(checkpoint(json.load(file), made)))
    else:
        main()
