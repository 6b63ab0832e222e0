# SPDX-License-Identifier: Apache-2.0
"""The processes of the benchmark that have PyTorch in them; run.py starts them.

    model.py native  COUNTS         warm up, capture and launch graphs natively
    model.py capture COUNTS STORE   the same under a capture, sealed after each of COUNTS graphs
    model.py inside  STORE          replay natively and from an image, in one PyTorch process

The model is that of api/examples/decode.py; graph n decodes a batch of n rows. COUNTS is
like 8,32,64. Prints lines "name value ...", milliseconds.
"""
import argparse
import gc
import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path[:0] = [os.path.join(ROOT, "api", "examples"), os.path.join(ROOT, "api", "python")]


class Clock:
    """Prints the milliseconds since it was last asked."""

    def __init__(self):
        self.mark = time.perf_counter()

    def elapsed(self):
        now = time.perf_counter()
        ms, self.mark = (now - self.mark) * 1e3, now
        return ms

    def show(self, name):
        print(f"{name} {self.elapsed():.3f}", flush=True)


def decoder(rows, context=256):
    from decode import Decoder
    return Decoder(argparse.Namespace(batches=list(range(1, rows + 1)), context=context, seed=0,
                                      compile=False))


def replay_time(torch, replay, reset, n=50):
    reset()  # each replay moves the decoder on by a row of its cache, which has an end
    for _ in range(3):
        replay()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / n * 1e3


def show_replays(torch, prefix, graphs, keys, reset):
    """Each graph by itself, three times, and all of them in turn."""
    for k in keys:
        print(f"{prefix}_{k}", *(f"{replay_time(torch, graphs[k], reset):.4f}" for _ in range(3)),
              flush=True)

    def turn():
        for k in keys:
            graphs[k]()
    print(f"{prefix}_in_turn", *(f"{replay_time(torch, turn, reset) / len(keys):.4f}"
                                 for _ in range(3)), flush=True)


def warm_up(d, batches, stream):
    """The decoder's warm-up moves it on by two rows a batch size and ends with a reset."""
    for i in range(0, len(batches), 100):
        d.warm_up(batches[i:i + 100], stream)


def capture_native(torch, d, batch, stream, pool):
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, pool=pool, stream=stream):
        d.step(batch)
    return g


def do_native(args):
    clock = Clock()
    import torch
    torch.cuda.init()
    torch.cuda.synchronize()
    clock.show("import_and_driver")
    d = decoder(max(args.counts))
    clock.show("model")
    gc.freeze()
    stream, graphs, pool = torch.cuda.Stream(), {}, None
    warm = capture = launch = 0.0
    for first, last in zip([0] + args.counts, args.counts):
        batches = range(first + 1, last + 1)
        clock.elapsed()
        warm_up(d, batches[::-1], stream)
        warm += clock.elapsed()
        for b in reversed(batches):
            graphs[b] = capture_native(torch, d, b, stream, pool)
            pool = pool or graphs[b].pool()
        capture += clock.elapsed()
        for b in batches:
            d.position.zero_()
            graphs[b].replay()
        torch.cuda.synchronize()
        launch += clock.elapsed()
        print(f"native_{last} {warm:.3f} {capture:.3f} {launch:.3f}", flush=True)
    keys = [k for k in (1, 8, 32) if k in graphs]
    show_replays(torch, "native_replay", {k: graphs[k].replay for k in keys}, keys, d.reset)


def name_tensors(cap, d, layers):
    cap.tensor("token", d.token, use="state")
    cap.tensor("position", d.position, use="state")
    for i in range(layers):
        cap.tensor(f"keys/{i}", d.keys[i], use="state", external=True)
        cap.tensor(f"values/{i}", d.values[i], use="state", external=True)
    for name, p in d.model.named_parameters():
        cap.tensor(f"weight/{name}", p, use="const", external=True)


def do_capture(args):
    clock = Clock()
    import foundry
    import torch
    from decode import LAYERS
    torch.cuda.init()
    torch.cuda.synchronize()
    clock.show("import_and_driver")
    store = foundry.Store(args.store, create=True)
    with foundry.Capture() as cap:
        d = decoder(max(args.counts))
        clock.show("model")
        gc.freeze()
        stream = torch.cuda.Stream()
        logits = {}
        name_tensors(cap, d, LAYERS)
        warm_up(d, range(max(args.counts), 0, -1), stream)
        torch.cuda.empty_cache()
        clock.show("warm_up")
        for first, last in zip([0] + args.counts, args.counts):
            clock.elapsed()
            for b in range(last, first, -1):
                with cap.graph(b, name=f"decode/{b}", stream=stream):
                    logits[b] = d.step(b)
            captured = clock.elapsed()
            for b in range(first + 1, last + 1):
                cap.tensor(f"logits/{b}", logits[b], use="output")
            clock.elapsed()
            s = cap.seal(store, f"bench/{last}")
            print(f"sealed_{last} {captured:.3f} {clock.elapsed():.3f} {s.graphs_ms:.3f} "
                  f"{s.kernels_ms:.3f} {s.content_ms:.3f} "
                  f"{s.commit_ms:.3f}", flush=True)
            for field in ("nodes", "kernels", "kernels_whole", "graph_bytes", "kernel_bytes",
                          "manifest_bytes", "content_bytes",
                          "scratch_bytes", "stored_new"):
                print(f"{field}_{last} {getattr(s, field)}", flush=True)


def do_inside(args):
    import foundry
    import torch
    keys = [1, 8, 32]
    d = decoder(max(keys))
    stream = torch.cuda.Stream()
    d.warm_up(keys, stream)
    graphs = {k: capture_native(torch, d, k, stream, None) for k in keys}
    current = torch.cuda.current_stream()

    def show_native(name):
        show_replays(torch, name, {k: graphs[k].replay for k in keys}, keys, d.reset)

    def show_image(name, img):
        position = torch.from_dlpack(img["position"])
        show_replays(torch, name, {k: lambda k=k: img.launch(k, current) for k in keys}, keys,
                     position.zero_)
    for name, options in (("inside", {}), ("own_context", {"own_context": True})):
        show_native(f"{name}_native")
        with foundry.load("bench/32", store=foundry.Store(args.store), **options) as img:
            img.filled()
            show_image(name, img)
            if not options:
                img.refresh()
                show_image("refreshed", img)
                show_native("refreshed_then_native")
                d.warm_up(keys, stream)  # on many streams: the context is as it was before


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = p.add_subparsers(dest="mode", required=True)

    def counts(s):
        return [int(n) for n in s.split(",")]
    modes.add_parser("native").add_argument("counts", type=counts)
    capture = modes.add_parser("capture")
    capture.add_argument("counts", type=counts)
    capture.add_argument("store")
    modes.add_parser("inside").add_argument("store")
    args = p.parse_args()
    {"native": do_native, "capture": do_capture, "inside": do_inside}[args.mode](args)


if __name__ == "__main__":
    main()
