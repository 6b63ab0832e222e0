#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts of vLLM with quantized weights, each kind with two sets of weights.

    python3 tests/gpu/vllm_quantized.py [--mode3] [--limit SECONDS] [KIND...]

KIND: see KINDS; without one, all run side by side, so the times say little. With two GPUs, half of
the kinds run on each. --mode3: with torch.compile, vLLM's default.

For each kind a plain and a first start run side by side, then a later one with the same weights,
then a plain and a later one with other weights in the same place. The starts that have equal
weights give equal answers, and the later ones load the image and neither profile, capture nor
compile. With --limit, it ends its starts then, and prints what it has.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import vllm_start
import vllm_weights

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = {**vllm_start.QWEN3, "num_hidden_layers": 8}
BLOCK = 128   # weights of one scale
SPREAD = 0.04  # of usual weights
SETS = ("weights", "other weights")


def compressed(kind, weights, inputs=None):
    """Return the configuration of the package compressed-tensors for all linear layers."""
    return {"quant_method": "compressed-tensors", "format": kind,
            "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": {
                "targets": ["Linear"], "input_activations": inputs,
                "weights": {"symmetric": True, "dynamic": False, **weights}}}}


def fp8(weight, largest):
    """Return weights in 8 bits. largest: the largest absolute value of each scale's weights."""
    import torch
    return (weight / largest * 448).clamp(-448, 448).to(torch.float8_e4m3fn)


def in_blocks(name, weight):
    """FP8 with a scale for each block of 128 x 128 weights."""
    rows, columns = (n // BLOCK for n in weight.shape)
    blocks = weight.view(rows, BLOCK, columns, BLOCK)
    largest = blocks.abs().amax((1, 3), keepdim=True)
    return {f"{name}.weight": fp8(blocks, largest).view(weight.shape),
            f"{name}.weight_scale_inv": (largest / 448).view(rows, columns)}


def in_channels(name, weight):
    """FP8 with a scale for each output."""
    largest = weight.abs().amax(1, keepdim=True)
    return {f"{name}.weight": fp8(weight, largest), f"{name}.weight_scale": largest / 448}


def _words(*shape):
    """Return random words, with eight numbers of 4 bits each."""
    import torch
    return torch.randint(-1 << 31, 1 << 31, shape, device="cuda").to(torch.int32)


def _scales(*shape):
    """Return random scales that give numbers of 4 bits the spread of usual weights."""
    import torch
    return (torch.rand(shape, device="cuda") + 0.5) * SPREAD / 4.6


def packed(name, weight):
    """4 bits, 128 weights of a scale, as compressed-tensors has them."""
    import torch
    n, k = weight.shape
    return {f"{name}.weight_packed": _words(n, k // 8),
            f"{name}.weight_scale": _scales(n, k // BLOCK).bfloat16(),
            f"{name}.weight_shape": torch.tensor([n, k])}


def gptq(name, weight):
    """4 bits, as GPTQ has them."""
    import torch
    n, k = weight.shape
    return {f"{name}.qweight": _words(k // 8, n), f"{name}.scales": _scales(k // BLOCK, n).half(),
            f"{name}.qzeros": torch.full((k // BLOCK, n // 8), 0x77777777, dtype=torch.int32),
            f"{name}.g_idx": torch.arange(k, dtype=torch.int32) // BLOCK}


def awq(name, weight):
    """4 bits with zero points, as AWQ has them."""
    n, k = weight.shape
    return {f"{name}.qweight": _words(k, n // 8), f"{name}.scales": _scales(k // BLOCK, n).half(),
            f"{name}.qzeros": _words(k // BLOCK, n // 8)}


FLOAT = {"num_bits": 8, "type": "float"}
# kind: (how a layer's weights are written, or None: as they are; the entry in the model's
# configuration; options of vllm_start.py)
KINDS = {
    "online": (None, None, ("--quantization", "fp8")),
    "blocks": (in_blocks, {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                           "weight_block_size": [BLOCK, BLOCK]}, ()),
    "channels": (in_channels, compressed("float-quantized", {**FLOAT, "strategy": "channel"}, {
        **FLOAT, "strategy": "token", "symmetric": True, "dynamic": True}), ()),
    "int4": (packed, compressed("pack-quantized", {
        "num_bits": 4, "type": "int", "strategy": "group", "group_size": BLOCK}), ()),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": BLOCK, "desc_act": False,
                    "sym": True, "checkpoint_format": "gptq"}, ()),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": BLOCK, "zero_point": True,
                  "version": "gemm"}, ()),
}


def write(folder, name, seed):
    """Write the model's configuration and random weights of a kind."""
    import torch
    from safetensors.torch import save_file
    quantize, config, _ = KINDS[name]
    torch.manual_seed(seed)
    found = {}
    for key, shape in vllm_weights.shapes(CONFIG):
        weight = torch.ones(shape) if len(shape) == 1 else torch.randn(shape, device="cuda").mul_(
            1 if "embed" in key else SPREAD * (1 + seed))
        if quantize and "_proj" in key:
            found.update(quantize(key.removesuffix(".weight"), weight))
        else:
            found[key] = weight.bfloat16()
    os.makedirs(folder)
    save_file({key: one.cpu().contiguous() for key, one in found.items()},
              os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**CONFIG, **({"quantization_config": config} if config else {})}, f)


def write_all(folder, names):
    """Write the files of all kinds in a process of its own, which then frees the GPU."""
    return not subprocess.run([sys.executable, os.path.abspath(__file__), "--write", folder,
                               *names], check=False).returncode


class Kind:
    """The starts of one kind, in a folder with its files. more: options of vllm_start.py."""

    def __init__(self, name, folder, gpu, more, limit):
        def begin(title, mode, place, gate=True):
            return vllm_start.begin(
                limit, f"{name}: {title}", mode, folder, *vllm_start.SIDE, "--weights",
                "safetensors", *KINDS[name][2], *more, gate=gate, place=place, gpu=gpu)
        self.name, self.folder = name, folder
        self.use(SETS[0])
        self.starts = {
            "plain": begin("plain", "plain", "plain", False),
            "first": begin("first", "first", "first", False),
            "later": begin("later", "next", "first"),
            "plain, other weights": begin("plain, other weights", "plain", "plain"),
            "later, other weights": begin("later, other weights", "next", "first")}

    def use(self, weights):
        """Let the model have the files of `weights`."""
        place = vllm_start.model_in(self.folder)
        if os.path.isdir(place):
            shutil.move(place, os.path.join(self.folder, "used"))
        shutil.move(os.path.join(self.folder, weights), place)

    def run(self):
        """Return [(what, whether it is so)]."""
        results, starts = {}, self.starts

        def done(*titles):
            for title in titles:
                if starts[title].gate:
                    starts[title].open()
            results.update({title: starts[title].result() for title in titles})
        try:
            done("plain", "first")
            done("later")
            self.use(SETS[1])
            done("plain, other weights", "later, other weights")
        finally:
            for start in starts.values():
                start.kill()
        for line in starts["first"].log().splitlines():
            if "Kernel" in line and " for " in line:
                print(f"{self.name}: {line[:300]}", flush=True)
        first, second = list(results.values())[:3], list(results.values())[3:]
        return [*((f"{title}: succeeds", bool(one)) for title, one in results.items()),
                ("first: seals", starts["first"].says(1, "captured and sealed")),
                *((f"{title}: loads", starts[title].says(1, "Foundry: loaded"))
                  for title in starts if "later" in title),
                *((f"{title}: no work", vllm_start.nothing_done(one))
                  for title, one in results.items() if "later" in title),
                *(("answers are equal", so) for each in (first, second)
                  for so in vllm_start.equal_answers(each, vllm_start.ASKED)),
                ("other weights give other answers", not vllm_start.equal_answers(
                    (first[0], second[0]), vllm_start.ASKED)[0])]


def main():
    # Beside this file lie others that have the names of packages.
    sys.path[:] = [os.path.join(HERE, os.pardir, "python"),
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    import engine_child
    import parts
    parts.need("vllm")
    import torch
    more = sys.argv[1:]
    limit = engine_child.Limit(more, 400)
    names = [each for each in more if not each.startswith("-")] or list(KINDS)
    more = ("--mode3", "--unmeasured") if "--mode3" in more else ()
    with tempfile.TemporaryDirectory() as folder:
        if not write_all(folder, names):
            parts.finish([False])
        kinds = [Kind(name, os.path.join(folder, name), i % torch.cuda.device_count(), more, limit)
                 for i, name in enumerate(names)]
        found = parts.side_by_side(*([kind.run] for kind in kinds))
    for name, each in zip(names, found):
        for what, so in each or [("its starts", False)]:
            print(f"{name}: {what}: {'yes' if so else 'NO'}", flush=True)
    parts.finish([so for each in found for _, so in each or [("", False)]])


if __name__ == "__main__":
    if "--write" in sys.argv:
        sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
        into, *kinds_wanted = sys.argv[sys.argv.index("--write") + 1:]
        for kind_wanted in kinds_wanted:
            for number, what_set in enumerate(SETS):
                write(os.path.join(into, kind_wanted, what_set), kind_wanted, number)
    else:
        main()
