# SPDX-License-Identifier: Apache-2.0
"""Common parts of scripts that start engines with quantized weights: the files of each kind of
weights, and the starts with them.
"""
import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
import typing

import vllm_weights
from engine_start import equal_answers, model_in

BLOCK = 128   # weights of one scale
SPREAD = 0.04  # of usual weights
LAYERS = 8
SETS = ("weights", "other weights")
# What a mixture of experts has in its configuration. SGLang's class never ties the embeddings.
EXPERTS = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 16,
           "num_experts_per_tok": 4, "moe_intermediate_size": 512, "norm_topk_prob": True,
           "decoder_sparse_step": 1, "mlp_only_layers": [], "tie_word_embeddings": False}


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


def with_inputs(name, weight):
    """The same, and a scale of the layer's inputs."""
    import torch
    return {**in_tensors(name, weight), f"{name}.input_scale": torch.tensor(0.02)}


def with_caches(name, weight):
    """The same as in_tensors(), and scales of the KV cache."""
    import torch
    found, last = in_tensors(name, weight), name.rpartition(".")[2]
    if last in ("k_proj", "v_proj"):
        found[f"{name}.{last[0]}_scale"] = torch.tensor(0.05)
    return found


def _words(*shape):
    """Return random words, with the numbers of several weights each."""
    import torch
    return torch.randint(-1 << 31, 1 << 31, shape, device="cuda").to(torch.int32)


def _scales(bits, *shape):
    """Return random scales that give numbers of so many bits the spread of usual weights."""
    import torch
    return (torch.rand(shape, device="cuda") + 0.5) * SPREAD / (0.2875 * (1 << bits))


def packed(name, weight, bits=4):
    """4 or 8 bits, 128 weights of a scale, as compressed-tensors has them."""
    import torch
    n, k = weight.shape
    return {f"{name}.weight_packed": _words(n, k * bits // 32),
            f"{name}.weight_scale": _scales(bits, n, k // BLOCK).bfloat16(),
            f"{name}.weight_shape": torch.tensor([n, k])}


def gptq(name, weight, bits=4):
    """4 or 8 bits, as GPTQ has them."""
    import torch
    n, k = weight.shape
    zero = 0x77777777 if bits == 4 else 0x7f7f7f7f
    return {f"{name}.qweight": _words(k * bits // 32, n),
            f"{name}.scales": _scales(bits, k // BLOCK, n).half(),
            f"{name}.qzeros": torch.full((k // BLOCK, n * bits // 32), zero, dtype=torch.int32),
            f"{name}.g_idx": torch.arange(k, dtype=torch.int32) // BLOCK}


def ordered(name, weight):
    """The same with 4 bits, in the order of activations. Layers that engines join have the same
    order.
    """
    import torch
    found = gptq(name, weight)
    order = torch.Generator().manual_seed(torch.initial_seed())
    found[f"{name}.g_idx"] = found[f"{name}.g_idx"][torch.randperm(
        weight.shape[1], generator=order)]
    return found


def awq(name, weight):
    """4 bits with zero points, as AWQ has them."""
    n, k = weight.shape
    return {f"{name}.qweight": _words(k, n // 8),
            f"{name}.scales": _scales(4, k // BLOCK, n).half(),
            f"{name}.qzeros": _words(k // BLOCK, n // 8)}


def integers(bits):
    """Return the configuration of packed()."""
    return compressed("pack-quantized", {
        "num_bits": bits, "type": "int", "strategy": "group", "group_size": BLOCK})


FLOAT = {"num_bits": 8, "type": "float"}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
BLOCKS = {**FP8, "weight_block_size": [BLOCK, BLOCK]}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": BLOCK, "sym": True, "desc_act": False,
        "checkpoint_format": "gptq"}


class Files(typing.NamedTuple):
    """The files of a kind of weights.

    quantize: returns what they have in place of a layer's weights; None: these as they are.
    entry: of the model's configuration, or None. options: of the script that starts the engine.
    shape: what else differs in the model's configuration.
    """

    quantize: typing.Callable | None
    entry: dict | None
    options: tuple = ()
    shape: dict = types.MappingProxyType({})

    @property
    def fixed(self):
        """Whether the model has the weights of the files, so that an image can have them, too."""
        return "--quantization" not in self.options


KINDS = {
    "online": Files(None, None, ("--quantization", "fp8")),
    "blocks": Files(in_blocks, BLOCKS),
    "channels": Files(in_channels, compressed(
        "float-quantized", {**FLOAT, "strategy": "channel"},
        {**FLOAT, "strategy": "token", "symmetric": True, "dynamic": True})),
    "tensors": Files(in_tensors, FP8),
    "int4": Files(packed, integers(4)),
    "gptq": Files(gptq, GPTQ),
    "awq": Files(awq, {"quant_method": "awq", "bits": 4, "group_size": BLOCK, "zero_point": True,
                       "version": "gemm"}),
    "experts": Files(None, None, shape=EXPERTS),
    "experts-fp8": Files(in_blocks, {
        **BLOCKS, "modules_to_not_convert": [f"model.layers.{i}.mlp.gate" for i in range(LAYERS)]},
                         shape=EXPERTS),
}


@dataclasses.dataclass(frozen=True)
class Engine:
    """An engine, and the script that starts it. config: of its model, but for LAYERS.

    begin: begins a start, as engine_start.begin() does. said: returns whether a line of the first
    start's log is shown. compiled: returns the names of kernels that a later start has compiled,
    beyond what nothing_done() counts. Its argument is the folder of the store and the caches.
    """

    package: str
    script: str
    begin: typing.Callable
    nothing_done: typing.Callable
    config: dict
    kinds: dict
    said: typing.Callable = lambda line: False
    compiled: typing.Callable = lambda folder: []


def write(engine, folder, name, seed):
    """Write the model's configuration and random weights of a kind."""
    import torch
    from safetensors.torch import save_file
    files = engine.kinds[name]
    config = {**engine.config, "num_hidden_layers": LAYERS, **files.shape}
    torch.manual_seed(seed)
    found = {}
    for key, shape in vllm_weights.shapes(config):
        weight = torch.ones(shape) if len(shape) == 1 else torch.randn(shape, device="cuda").mul_(
            1 if "embed" in key else SPREAD * (1 + seed))
        if files.quantize and "_proj" in key:
            found.update(files.quantize(key.removesuffix(".weight"), weight))
        else:
            found[key] = weight.bfloat16()
    os.makedirs(folder)
    save_file({key: one.cpu().contiguous() for key, one in found.items()},
              os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**config, **({"quantization_config": files.entry} if files.entry else {})}, f)


class Starts:
    """The starts of one kind, in a folder with its files. options: an Options."""

    def __init__(self, engine, name, folder, gpu, options, limit):
        def begin(title, mode, place, gate=True):
            weights = "foundry" if options.image and mode != "plain" else "auto"
            return engine.begin(limit, f"{name}: {title}", mode, folder, "--weights", weights,
                                *engine.kinds[name].options, *options.more, gate=gate, place=place,
                                gpu=gpu)
        self.engine, self.name, self.folder, self.options = engine, name, folder, options
        for place in ("plain", "first") if options.caches else ():
            shutil.copytree(options.caches, os.path.join(folder, place, "caches"))
        self.use(SETS[0])
        self.starts = {"first": begin("first", "first", "first", False)}
        if not options.first:
            self.starts = {
                "plain": begin("plain", "plain", "plain", False), **self.starts,
                "later": begin("later", "next", "first"),
                "plain, other weights": begin("plain, other weights", "plain", "plain"),
                "later, other weights": begin("later, other weights", "next", "first")}

    def use(self, weights):
        """Let the model have the files of `weights`."""
        place = model_in(self.folder)
        if os.path.isdir(place):
            shutil.move(place, os.path.join(self.folder, "used"))
        shutil.move(os.path.join(self.folder, weights), place)

    def show(self):
        """Print what the first start has said of its kernels."""
        for line in self.starts["first"].log().splitlines():
            if self.engine.said(line):
                print(f"{self.name}: {line[:300]}", flush=True)

    def first(self):
        """Return [(what, whether it is so)] of the first start, without others."""
        start = self.starts["first"]
        try:
            succeeds = bool(start.result())
        finally:
            start.kill()
        self.show()
        return [("first: succeeds", succeeds),
                ("first: seals", start.says(self.options.ranks, "captured and sealed"))]

    def all(self):
        """Return [(what, whether it is so)]."""
        results, starts, asked = {}, self.starts, self.options.asked

        def done(*titles):
            for title in titles:
                if starts[title].gate:
                    starts[title].open()
            results.update({title: starts[title].result() for title in titles})
        try:
            done("plain", "first")
            shutil.rmtree(os.path.join(self.folder, "first", "caches"), ignore_errors=True)
            done("later")
            compiled = self.engine.compiled(os.path.join(self.folder, "first"))
            self.use(SETS[1])
            done("plain, other weights", "later, other weights")
        finally:
            for start in starts.values():
                start.kill()
        self.show()
        first, second = list(results.values())[:3], list(results.values())[3:]
        ranks, later = self.options.ranks, results["later"] or {}
        from_image = self.options.image and self.engine.kinds[self.name].fixed
        return [*((f"{title}: succeeds", bool(one)) for title, one in results.items()),
                ("first: seals", starts["first"].says(ranks, "captured and sealed")),
                *((f"{title}: loads", starts[title].says(ranks, "Foundry: loaded"))
                  for title in starts if "later" in title),
                *((f"{title}: no work", self.engine.nothing_done(one))
                  for title, one in results.items() if "later" in title),
                *[("later: weights from an image",
                   "weights" in later.get("of Foundry", {}))] * from_image,
                (f"later: compiles no more kernels {compiled}", not compiled),
                *(("answers are equal", so) for each in (first, second)
                  for so in equal_answers(each, asked)),
                ("other weights give other answers", bool(first[0] and second[0]) and
                 not equal_answers((first[0], second[0]), asked)[0])]


class Options(typing.NamedTuple):
    """How kinds are run. more: options of each start. asked: the answers that are equal. ranks:
    GPUs of each engine. image: whether the weights are from images, too. caches: a folder with
    files for all caches, or None. first: only the first start is run.
    """

    more: list
    asked: tuple
    ranks: int = 1
    image: bool = False
    caches: str | None = None
    first: bool = False


def parser():
    """Return a parser of the arguments that the scripts have in common."""
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--first", action="store_true")
    p.add_argument("--compared", action="store_true")
    p.add_argument("kinds", nargs="*", metavar="KIND")
    return p


def run(engine, a, options, limit):
    """Run the starts of kinds, or of all, side by side. a: what parser() has found, which sets the
    ranks and `first` of the options, too.
    """
    import parts
    parts.need(engine.package)
    import torch
    names, options = a.kinds or list(engine.kinds), options._replace(ranks=a.ranks, first=a.first)
    os.environ[f"FOUNDRY_{engine.package.upper()}_COMPARED"] = str(int(a.compared))
    with tempfile.TemporaryDirectory() as folder:
        # A process of its own, which then frees the GPU.
        if subprocess.run([sys.executable, engine.script, "--write", folder, *names],
                          check=False).returncode:
            parts.finish([False])
        kinds = [Starts(engine, name, os.path.join(folder, name),
                        i % torch.cuda.device_count() if options.ranks == 1 else None, options,
                        limit) for i, name in enumerate(names)]
        found = parts.side_by_side(*([kind.first if options.first else kind.all] for kind in kinds))
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
