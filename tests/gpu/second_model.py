# SPDX-License-Identifier: Apache-2.0
"""Tests that a second model of the same framework adds only the kernels that it does not share.

Small decoders of several families of transformers (Qwen3, a mixture of experts, Llama) are captured
into one store, each in a process of its own. Their weights are random, from a seed, and stay
outside the images. The script prints, for each model, how many kernels existed already and the
bytes that it added, beside its bytes in an empty store. Then another process loads each image and
decodes, and builds the model only afterwards. Tokens and logits must equal those of eager PyTorch,
bit for bit.
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
FAMILIES = ("qwen3", "qwen3_moe", "llama")
BATCHES = (1, 4)
LAYERS, CONTEXT, VOCAB, STEPS = 4, 128, 4096, 16
SHAPES = {}  # by family: the settings that differ
PROMPT = "It was the best of times"


def config_of(family):
    import decode
    import transformers
    common = dict(vocab_size=VOCAB, hidden_size=512, intermediate_size=1536,
                  num_hidden_layers=LAYERS,
                  num_attention_heads=16, num_key_value_heads=decode.KV_HEADS,
                  head_dim=decode.HEAD_DIM,
                  max_position_embeddings=CONTEXT, tie_word_embeddings=False)
    common.update(SHAPES.get(family, {}))
    if family == "qwen3":
        return transformers.Qwen3Config(**common), transformers.Qwen3ForCausalLM
    if family == "llama":
        return transformers.LlamaConfig(**common), transformers.LlamaForCausalLM
    # All experts of a token in one batched product: the shapes do not depend on the data, so it can
    # be captured.
    config = transformers.Qwen3MoeConfig(**common, num_experts=8, num_experts_per_tok=2,
                                         moe_intermediate_size=256)
    config._experts_implementation = "batched_mm"
    return config, transformers.Qwen3MoeForCausalLM


def decoder_of(family, device=None):
    """Returns decode.py's Decoder with another model."""
    import decode
    import torch
    from transformers import StaticCache

    decode.VOCAB = VOCAB

    class Small(decode.Decoder):
        def __init__(self):
            self.torch = torch
            torch.manual_seed(1 + FAMILIES.index(family))
            torch.set_default_dtype(torch.bfloat16)
            torch.set_grad_enabled(False)
            self.device = torch.device(device or "cuda:0")
            self.config, kind = config_of(family)
            shape = (max(BATCHES), decode.KV_HEADS, CONTEXT, decode.HEAD_DIM)
            with self.device:
                self.model = kind(self.config).eval()
                for p in self.model.parameters():
                    # some parameters start as zeros, which would make all experts equal
                    if p.dim() > 1:
                        p.normal_(0, 0.05)
                self.token = torch.zeros(max(BATCHES), 1, dtype=torch.long)
                self.position = torch.zeros(LAYERS, dtype=torch.long)
                self.keys = [torch.zeros(shape) for _ in range(LAYERS)]
                self.values = [torch.zeros(shape) for _ in range(LAYERS)]
            self.caches = {b: self._cache(StaticCache, b, CONTEXT) for b in BATCHES}
            self.forward = self.model.forward

    return Small()


class Args:
    prompt, steps = PROMPT, STEPS


def weights_path(store, family):
    return os.path.join(os.path.dirname(store), family + ".weights")


def name_state(cap, d, logits):
    cap.tensor("token", d.token, use="state")
    cap.tensor("position", d.position, use="state")
    for i in range(LAYERS):
        cap.tensor(f"keys/{i}", d.keys[i], use="state")
        cap.tensor(f"values/{i}", d.values[i], use="state")
    for batch, t in logits.items():
        cap.tensor(f"logits/{batch}", t, use="output")


def capture(family, store):
    import foundry
    import decode
    import torch
    with foundry.Capture() as cap:
        d = decoder_of(family)
        stream = torch.cuda.Stream()
        d.warm_up(sorted(BATCHES, reverse=True), stream)
        torch.cuda.empty_cache()
        logits = {}
        for batch in sorted(BATCHES, reverse=True):
            with cap.graph(batch, stream=stream):
                logits[batch] = d.step(batch)
        name_state(cap, d, logits)
        weights = dict(d.model.named_parameters())
        with open(weights_path(store, family), "wb") as f:
            for name, p in sorted(weights.items()):
                cap.tensor("weight/" + name, p, use="const", external=True)
                f.write(memoryview(decode.host_bits(p).numpy()))
        with foundry.Store(store, create=True) as shared, \
                foundry.Store(f"{store}.{family}", create=True) as empty:
            sealed, alone = cap.seal(shared, family), cap.seal(empty, family)
            kernels = [line.split()[2] for line in shared.describe(family).splitlines()
                       if line.startswith("kernel ")]
        assert sealed.id == alone.id, "the same workload has two ids"
    fields = ("nodes", "kernels", "kernels_whole", "kernel_bytes", "objects_new", "objects_known",
              "stored_new")
    report = {f: getattr(sealed, f) for f in fields}
    report.update(objects=kernels, alone_new=alone.objects_new, alone_stored=alone.stored_new)
    with open(weights_path(store, family) + ".json", "w", encoding="ascii") as f:
        json.dump(report, f)


def decode_image(family, store):
    import foundry
    img = foundry.load(family, store=store, poison=True)
    with open(weights_path(store, family), "rb") as f:
        for t in sorted((t for t in img.tensors() if t.external), key=lambda t: t.name):
            img.write(t.name, f.read(t.nbytes))
    import decode
    import torch
    decode.VOCAB = VOCAB
    assert "transformers" not in sys.modules
    views = {t.name: torch.from_dlpack(t) for t in img.tensors() if not t.external}
    results = {}
    for batch in BATCHES:
        for name in views:  # by name: a tensor that is held here could not be dropped below
            views[name].fill_(float("nan") if name.startswith("logits") else 0)
        results[batch] = decode.decode(
            Args, batch,
            lambda row, b=batch: views["token"][:b, 0].copy_(torch.tensor(row)),
            lambda b: img.launch(b, torch.cuda.current_stream()),
            lambda b: views["token"][:b, 0].cpu(), lambda b: decode.host_bits(views[f"logits/{b}"]))
    views.clear()
    img.close()
    return results


def decode_eagerly(family, device=None):
    import decode
    import torch
    d = decoder_of(family, device)
    results = {}
    for batch in BATCHES:
        d.reset()
        logits = {}

        def launch(b):
            logits[b] = d.step(b)
        results[batch] = decode.decode(
            Args, batch,
            lambda row, b=batch: d.token[:b, 0].copy_(torch.tensor(row)), launch,
            lambda b: d.token[:b, 0].cpu(), lambda b: decode.host_bits(logits[b]))
    return results


def load(family, store):
    got = decode_image(family, store)
    want = decode_eagerly(family)
    distinct = {t for _, tokens in got.values() for step in tokens for t in step.tolist()}
    for batch in BATCHES:
        assert got[batch][0] == want[batch][0], f"{family}: other bits at batch size {batch}"
    assert len(distinct) > 10, f"{family}: only {len(distinct)} distinct tokens"
    print(f"{family:10s} {len(distinct)} distinct tokens, equal to eager PyTorch's bit for bit")


def report(store):
    known, good = set(), True
    print(f"{'model':10s} {'nodes':>6s} {'kernels':>8s} {'whole':>6s} {'shared':>7s} "
          f"{'kernel bytes':>13s} "
          f"{'new at rest':>12s} {'in an empty store':>18s}")
    for family in FAMILIES:
        with open(weights_path(store, family) + ".json", encoding="ascii") as f:
            r = json.load(f)
        objects = set(r["objects"])
        shared = len(objects & known)
        print(f"{family:10s} {r['nodes']:6d} {r['kernels']:8d} {r['kernels_whole']:6d} {shared:7d} "
              f"{r['kernel_bytes']:13d} "
              f"{r['stored_new']:12d} {r['alone_stored']:18d}")
        # Shared objects were not stored again.
        good = good and r["alone_new"] - r["objects_new"] >= shared
        good = good and (not known or shared * 2 >= len(objects))
        known |= objects
    return good


def whole():
    parts.need("transformers")
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        results = [parts.run("capture", family, store, limit=120) for family in FAMILIES]
        results.append(all(results) and report(store))
        return results + [parts.run("load", family, store, limit=120) for family in FAMILIES]


if __name__ == "__main__":
    parts.main((capture, load), whole)
