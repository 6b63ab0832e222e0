# SPDX-License-Identifier: Apache-2.0
"""Captures a real decoder once and loads it again: transformers' Qwen3 in its 0.6B shape.

    decode.py capture   build the model, warm up, capture a decode step at each batch size, seal
    decode.py load      load the image by name or hash and decode; the model is never built
    decode.py native    build the model, warm up, capture, decode eagerly: what the others are
                        compared with

Weights are random, from a seed. A prompt is any text; each row of a batch gets tokens of its
own from it. Every step's tokens and logits are hashed: equal digests mean equal bits. All
modes print a table of phases; --digest FILE writes the digests, one line for each batch size.
decode.c does the same as `load` without Python.
"""
import argparse
import hashlib
import sys
import time

LAYERS, KV_HEADS, HEAD_DIM, VOCAB = 28, 8, 128, 151936


class Phases:
    """Wall-clock times by name, each printed when it ends."""

    def __init__(self):
        self.mark = time.perf_counter()

    def done(self, name):
        now = time.perf_counter()
        print(f"  {name:34s} {(now - self.mark) * 1e3:11.3f} ms", flush=True)
        self.mark = now

    def show(self, name, ms):
        print(f"  {name:34s} {ms:11.3f} ms", flush=True)


def prompt_tokens(prompt, batch):
    """Token ids [len(prompt)][batch]; decode.c computes the same."""
    return [
        [(byte * 577 + row * 7919 + 11) % VOCAB for row in range(batch)] for byte in prompt.encode()
    ]


class Decoder:
    """The model with one static KV cache, of which a batch of b uses the first b rows."""

    def __init__(self, args):
        import torch
        from transformers import Qwen3Config, Qwen3ForCausalLM, StaticCache
        self.torch = torch
        torch.manual_seed(args.seed)
        torch.set_default_dtype(torch.bfloat16)
        torch.set_grad_enabled(False)
        self.device = torch.device("cuda", 0)
        self.config = Qwen3Config(
            vocab_size=VOCAB, hidden_size=1024, intermediate_size=3072, num_hidden_layers=LAYERS,
            num_attention_heads=16, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
            max_position_embeddings=args.context, tie_word_embeddings=True)
        with self.device:
            self.model = Qwen3ForCausalLM(self.config).eval()
            rows = max(args.batches)
            self.token = torch.zeros(rows, 1, dtype=torch.long)
            self.position = torch.zeros(LAYERS, dtype=torch.long)
            shape = (rows, KV_HEADS, args.context, HEAD_DIM)
            self.keys = [torch.zeros(shape) for _ in range(LAYERS)]
            self.values = [torch.zeros(shape) for _ in range(LAYERS)]
        self.caches = {b: self._cache(StaticCache, b, args.context) for b in args.batches}
        self.forward = torch.compile(self.model.forward) if args.compile else self.model.forward
        torch.cuda.synchronize()

    def _cache(self, kind, batch, context):
        cache = kind(config=self.config, max_cache_len=context)
        for i, layer in enumerate(cache.layers):
            layer.dtype, layer.device = self.torch.bfloat16, self.device
            layer.batch_size, layer.num_heads = batch, KV_HEADS
            layer.k_head_dim = layer.v_head_dim = HEAD_DIM
            layer.keys, layer.values = self.keys[i][:batch], self.values[i][:batch]
            layer.cumulative_length = self.position[i]
            layer.is_initialized = True
        return cache

    def step(self, batch):
        """One token for each row: reads self.token, advances the cache, writes self.token."""
        logits = self.forward(input_ids=self.token[:batch], past_key_values=self.caches[batch],
                              use_cache=True).logits[:, -1]
        self.token[:batch, 0].copy_(logits.argmax(-1))
        return logits

    def reset(self):
        self.position.zero_()
        self.token.zero_()
        for t in self.keys + self.values:
            t.zero_()

    def warm_up(self, batches, stream):
        torch = self.torch
        with torch.cuda.stream(stream):
            for batch in batches:
                self.step(batch)
                self.step(batch)
        torch.cuda.synchronize()
        self.reset()
        torch.cuda.synchronize()


def decode(args, batch, write_token, launch, read_token, read_logits):
    """Feed the prompt, then decode; return the digest of every token and logit."""
    digest, tokens = hashlib.sha256(), []
    prompt = prompt_tokens(args.prompt, batch)
    for row in prompt:
        write_token(row)
        launch(batch)
    for step in range(args.steps):
        if step:
            launch(batch)
        token = read_token(batch)
        tokens.append(token)
        digest.update(token.numpy().tobytes())
        digest.update(read_logits(batch).numpy().tobytes())
    return digest.hexdigest(), tokens


def report(args, results):
    lines = [f"{batch} {digest}\n" for batch, (digest, _) in sorted(results.items())]
    distinct = {t for _, tokens in results.values() for step in tokens for t in step.tolist()}
    for line in lines:
        print("digest", line, end="")
    print(f"{len(distinct)} distinct tokens in {args.steps} steps at batch sizes "
          f"{','.join(map(str, sorted(results)))}")
    if args.digest:
        with open(args.digest, "w", encoding="ascii") as f:
            f.writelines(lines)


def host_bits(tensor):
    """A tensor's bytes on the host, whatever its type."""
    import torch
    return tensor.contiguous().view(torch.uint8).cpu()


def do_native(args):
    phases = Phases()
    import torch
    phases.done("import torch")
    torch.cuda.init()
    torch.cuda.synchronize()
    phases.done("CUDA")
    d = Decoder(args)
    phases.done("model and caches")
    stream = torch.cuda.Stream()
    d.warm_up(sorted(args.batches, reverse=True), stream)
    phases.done("warm-up")
    graphs, pool = {}, None
    for batch in sorted(args.batches, reverse=True):
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g, pool=pool, stream=stream):
            d.step(batch)
        pool = g.pool()
        graphs[batch] = g
    phases.done(f"capture of {len(graphs)} graphs")
    for g in graphs.values():
        g.replay()
    torch.cuda.synchronize()
    phases.done("first launch of each graph")
    for batch, g in sorted(graphs.items()):
        phases.show(f"replay, batch {batch}", replay_time(torch, g.replay))
    phases.mark = time.perf_counter()
    results = {}
    for batch in args.batches:
        d.reset()
        logits = {}

        def launch(b):
            logits[b] = d.step(b)
        results[batch] = decode(
            args, batch,
            lambda row, b=batch: d.token[:b, 0].copy_(torch.tensor(row)), launch,
            lambda b: d.token[:b, 0].cpu(), lambda b: host_bits(logits[b]))
    phases.done("eager decoding")
    report(args, results)


def replay_time(torch, replay, n=20):
    for _ in range(3):
        replay()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / n * 1e3


def do_capture(args):
    phases = Phases()
    import foundry  # before torch: the interposer must be loaded first
    import torch
    phases.done("import foundry, torch")
    torch.cuda.init()
    torch.cuda.synchronize()
    phases.done("CUDA")
    with foundry.Capture() as cap:
        d = Decoder(args)
        phases.done("model and caches")
        stream = torch.cuda.Stream()
        d.warm_up(sorted(args.batches, reverse=True), stream)
        torch.cuda.empty_cache()
        phases.done("warm-up")
        logits = {}
        for batch in sorted(args.batches, reverse=True):
            with cap.graph(batch, name=f"decode/{batch}", stream=stream):
                logits[batch] = d.step(batch)
        phases.done(f"capture of {len(logits)} graphs")
        cap.tensor("token", d.token, use="state")
        cap.tensor("position", d.position, use="state")
        for i in range(LAYERS):
            cap.tensor(f"keys/{i}", d.keys[i], use="state", external=args.weights == "external")
            cap.tensor(f"values/{i}", d.values[i], use="state", external=args.weights == "external")
        for batch, t in logits.items():
            cap.tensor(f"logits/{batch}", t, use="output")
        if args.weights == "external":
            weights = {f"weight/{n}": p for n, p in d.model.named_parameters()}
            for name, p in weights.items():
                cap.tensor(name, p, use="const", external=True)
            with open(args.weights_file, "wb") as f:
                for name in sorted(weights):
                    f.write(memoryview(host_bits(weights[name]).numpy()))
            phases.done("weights to their file")
        cap.fact("model", f"qwen3-0.6b-shape seed {args.seed}")
        sealed = cap.seal(foundry.Store(args.store, create=True), args.ref)
        phases.done("seal")
        phases.show("  of it graphs", sealed.graphs_ms)
        phases.show("  of it kernels", sealed.kernels_ms)
        phases.show("  of it content", sealed.content_ms)
        phases.show("  of it commit", sealed.commit_ms)
    print(f"image {sealed.id}")
    for field in ("graphs", "nodes", "kernels", "kernels_whole", "graph_bytes", "kernel_bytes",
                  "whole_bytes", "manifest_bytes", "content_bytes", "zero_bytes", "scratch_bytes",
                  "external_bytes", "objects_new", "objects_known", "stored_new"):
        print(f"  {field:16s} {getattr(sealed, field):14d}")


def fill_external(args, img):
    """Weights from their file, in the order of their names; caches with zeros."""
    with open(args.weights_file, "rb") as f:
        for t in img.tensors():
            if not t.external:
                continue
            if t.name.startswith("weight/"):
                img.write(t.name, f.read(t.nbytes))
            else:
                img.write(t.name, bytes(t.nbytes))


def do_load(args):
    phases = Phases()
    import foundry
    img = foundry.load(args.ref, store=foundry.Store(args.store), poison=args.poison,
                       facts={"model": f"qwen3-0.6b-shape seed {args.seed}"})
    phases.done("import foundry, load")
    r = img.report()
    for field in ("driver", "manifest", "memory", "content", "kernels"):
        phases.show(f"  of it {field}", getattr(r, field + "_ms"))
    phases.show("  beside: objects", r.objects_ms)
    phases.mark = time.perf_counter()
    if args.weights == "external":
        fill_external(args, img)
        phases.done("weights from their file")
    for batch in args.batches:
        img.build(batch)
    phases.done(f"build of {len(args.batches)} graphs")
    import torch
    phases.done("import torch (for decoding only)")
    tensors = {
        t.name: torch.from_dlpack(t)
        for t in img.tensors()
        if not t.external or t.name[:4] in ("keys", "valu")
    }
    for batch in sorted(args.batches):
        ms = replay_time(torch, lambda b=batch: img.launch(b, torch.cuda.current_stream()))
        phases.show(f"replay, batch {batch}", ms)
    phases.mark = time.perf_counter()
    results = {}
    for batch in args.batches:
        tensors["token"].zero_()
        tensors["position"].zero_()
        for i in range(LAYERS):
            tensors[f"keys/{i}"].zero_()
            tensors[f"values/{i}"].zero_()
        tensors[f"logits/{batch}"].fill_(float("nan"))
        results[batch] = decode(
            args, batch,
            lambda row, b=batch: tensors["token"][:b, 0].copy_(torch.tensor(row)),
            lambda b: img.launch(b, torch.cuda.current_stream()),
            lambda b: tensors["token"][:b, 0].cpu(), lambda b: host_bits(tensors[f"logits/{b}"]))
    phases.done("decoding")
    print("transformers imported:", "transformers" in sys.modules)
    report(args, results)
    tensors.clear()
    img.close()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("mode", choices=("capture", "load", "native"))
    p.add_argument("--store", help="a store's directory (the default store otherwise)")
    p.add_argument("--ref", default="qwen3-0.6b/decode", help="name or hash of the image")
    p.add_argument("--prompt", default="Once upon a time", help="any text")
    p.add_argument("--steps", type=int, default=32, help="tokens to decode")
    p.add_argument(
        "--batches", type=lambda s: [int(b) for b in s.split(",")], default=[1, 2, 4, 8, 16, 32]
    )
    p.add_argument("--context", type=int, default=256, help="rows of the KV cache")
    p.add_argument("--seed", type=int, default=0, help="of the weights")
    p.add_argument("--weights", choices=("content", "external"), default="content",
                   help="whether the image holds them")
    p.add_argument("--weights-file", default="weights.bin", help="where external weights are")
    p.add_argument("--compile", action="store_true", help="run the model under torch.compile")
    p.add_argument(
        "--poison",
        action="store_true",
        help="fill scratch and external memory with 0xA5 before the first launch",
    )
    p.add_argument("--digest", help="file for the digests")
    args = p.parse_args()
    {"capture": do_capture, "load": do_load, "native": do_native}[args.mode](args)


if __name__ == "__main__":
    main()
