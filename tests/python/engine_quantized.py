# SPDX-License-Identifier: Apache-2.0
"""Common parts of scripts that start engines with quantized weights: the files of each kind of
weights, and the starts with them.
"""
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import typing

import vllm_weights
from engine_start import equal_answers, model_in

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


def in_tensors(name, weight):
    """FP8 with one scale."""
    largest = weight.abs().amax()
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


def ordered(name, weight):
    """The same, in the order of activations. Layers that engines join have the same order."""
    import torch
    found = gptq(name, weight)
    order = torch.Generator().manual_seed(torch.initial_seed())
    found[f"{name}.g_idx"] = found[f"{name}.g_idx"][torch.randperm(
        weight.shape[1], generator=order)]
    return found


def awq(name, weight):
    """4 bits with zero points, as AWQ has them."""
    n, k = weight.shape
    return {f"{name}.qweight": _words(k, n // 8), f"{name}.scales": _scales(k // BLOCK, n).half(),
            f"{name}.qzeros": _words(k // BLOCK, n // 8)}


FLOAT = {"num_bits": 8, "type": "float"}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": BLOCK, "sym": True,
        "checkpoint_format": "gptq"}
# kind: (how a layer's weights are written, or None: as they are; the entry in the model's
# configuration; options of the script that starts the engine)
KINDS = {
    "online": (None, None, ("--quantization", "fp8")),
    "blocks": (in_blocks, {**FP8, "weight_block_size": [BLOCK, BLOCK]}, ()),
    "channels": (in_channels, compressed("float-quantized", {**FLOAT, "strategy": "channel"}, {
        **FLOAT, "strategy": "token", "symmetric": True, "dynamic": True}), ()),
    "int4": (packed, compressed("pack-quantized", {
        "num_bits": 4, "type": "int", "strategy": "group", "group_size": BLOCK}), ()),
    "gptq": (gptq, {**GPTQ, "desc_act": False}, ()),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": BLOCK, "zero_point": True,
                  "version": "gemm"}, ()),
}


@dataclasses.dataclass(frozen=True)
class Engine:
    """An engine, and the script that starts it.

    begin: begins a start, as engine_start.begin() does. said: returns whether a line of the first
    start's log is shown.
    """

    package: str
    script: str
    begin: typing.Callable
    asked: tuple
    nothing_done: typing.Callable
    config: dict
    kinds: dict
    said: typing.Callable = lambda line: False


def write(engine, folder, name, seed):
    """Write the model's configuration and random weights of a kind."""
    import torch
    from safetensors.torch import save_file
    quantize, config, _ = engine.kinds[name]
    torch.manual_seed(seed)
    found = {}
    for key, shape in vllm_weights.shapes(engine.config):
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
        json.dump({**engine.config, **({"quantization_config": config} if config else {})}, f)


class Kind:
    """The starts of one kind, in a folder with its files. more: options of each start."""

    def __init__(self, engine, name, folder, gpu, more, limit):
        def begin(title, mode, place, gate=True):
            return engine.begin(limit, f"{name}: {title}", mode, folder, *engine.kinds[name][2],
                                *more, gate=gate, place=place, gpu=gpu)
        self.engine, self.name, self.folder = engine, name, folder
        self.use(SETS[0])
        self.starts = {
            "plain": begin("plain", "plain", "plain", False),
            "first": begin("first", "first", "first", False),
            "later": begin("later", "next", "first"),
            "plain, other weights": begin("plain, other weights", "plain", "plain"),
            "later, other weights": begin("later, other weights", "next", "first")}

    def use(self, weights):
        """Let the model have the files of `weights`."""
        place = model_in(self.folder)
        if os.path.isdir(place):
            shutil.move(place, os.path.join(self.folder, "used"))
        shutil.move(os.path.join(self.folder, weights), place)

    def run(self):
        """Return [(what, whether it is so)]."""
        results, starts, asked = {}, self.starts, self.engine.asked

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
            if self.engine.said(line):
                print(f"{self.name}: {line[:300]}", flush=True)
        first, second = list(results.values())[:3], list(results.values())[3:]
        return [*((f"{title}: succeeds", bool(one)) for title, one in results.items()),
                ("first: seals", starts["first"].says(1, "captured and sealed")),
                *((f"{title}: loads", starts[title].says(1, "Foundry: loaded"))
                  for title in starts if "later" in title),
                *((f"{title}: no work", self.engine.nothing_done(one))
                  for title, one in results.items() if "later" in title),
                *(("answers are equal", so) for each in (first, second)
                  for so in equal_answers(each, asked)),
                ("other weights give other answers", not equal_answers(
                    (first[0], second[0]), asked)[0])]


def copy_caches(folder, caches):
    """Let the caches of the plain and the first start have the files of the folder `caches`."""
    for place in ("plain", "first"):
        shutil.copytree(caches, os.path.join(folder, place, "caches"))


def run(engine, names, more, limit, caches=None):
    """Run the starts of the kinds `names` side by side. more: options of each start. limit: of
    time. caches: a folder with files for all caches, or None.
    """
    import parts
    parts.need(engine.package)
    import torch
    with tempfile.TemporaryDirectory() as folder:
        # A process of its own, which then frees the GPU.
        if subprocess.run([sys.executable, engine.script, "--write", folder, *names],
                          check=False).returncode:
            parts.finish([False])
        kinds = []
        for i, name in enumerate(names):
            place = os.path.join(folder, name)
            if caches:
                copy_caches(place, caches)
            kinds.append(Kind(engine, name, place, i % torch.cuda.device_count(), more, limit))
        found = parts.side_by_side(*([kind.run] for kind in kinds))
    for name, each in zip(names, found):
        for what, so in each or [("its starts", False)]:
            print(f"{name}: {what}: {'yes' if so else 'NO'}", flush=True)
    parts.finish([so for each in found for _, so in each or [("", False)]])


def main(engine, start):
    """Write the files that the arguments name, or call start(), which runs the starts."""
    # Beside the script lie others that have the names of packages.
    here = os.path.dirname(engine.script)
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    if "--write" not in sys.argv:
        start()
        return
    into, *names = sys.argv[sys.argv.index("--write") + 1:]
    for name in names:
        for seed, what in enumerate(SETS):
            write(engine, os.path.join(into, name, what), name, seed)
