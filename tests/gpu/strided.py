# SPDX-License-Identifier: Apache-2.0
"""Tests tensors whose elements have another order, or gaps between them, as in real models.

A convolution with channels-last input and output, an LSTM with its outputs batch first,
memory-efficient attention, and a slice with gaps, captured in one process. Another process, without
the model, writes the inputs from arrays of every order (on host and GPU, with and without a wait),
launches, and reads the outputs. They must be bit-equal to eager PyTorch's, and bytes between the
elements must not change.
"""
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

SALTS = (1, 2, 3)
SHAPES = {"image": (8, 16, 30, 40), "sequence": (4, 25, 64), "query": (2, 128, 8, 64),
          "wide": (64, 100)}


def inputs(salt):
    """Returns {name: a contiguous CPU tensor}."""
    import torch
    made = torch.Generator().manual_seed(salt)
    return {name: torch.randn(shape, generator=made) for name, shape in SHAPES.items()}


def build():
    """Returns the model, a function of the input tensors, and those tensors."""
    import torch
    torch.manual_seed(5)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    conv = torch.nn.Conv2d(16, 32, 3, padding=1).cuda().to(memory_format=torch.channels_last)
    lstm = torch.nn.LSTM(64, 48, num_layers=2, batch_first=True).cuda()
    storage = torch.zeros(64, 150, device="cuda")
    places = {"image": torch.zeros(SHAPES["image"],
                                   device="cuda").to(memory_format=torch.channels_last),
              "sequence": torch.zeros(25, 4, 64, device="cuda").transpose(0, 1),
              "query": torch.zeros(SHAPES["query"], device="cuda").transpose(1, 2),
              "wide": storage[:, 20:120]}
    places["query"] = places["query"].transpose(1, 2)

    def step():
        q = places["query"].transpose(1, 2)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
            attended = torch.nn.functional.scaled_dot_product_attention(q, q * 0.5, q + 1)
        out, (h, _) = lstm(places["sequence"])
        return {"conv": conv(places["image"]), "lstm": out, "hidden": h, "attended": attended,
                "columns": (places["wide"] * 2)[:, ::3], "total": places["wide"].sum(dim=1)}
    return step, places, storage, (conv, lstm)


def capture(folder):
    import foundry
    import torch
    with foundry.Capture(name="strided") as cap, torch.no_grad():
        step, places, storage, kept = build()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        side.synchronize()
        with cap.graph(1, stream=side):
            outputs = step()
        for name, tensor in places.items():
            cap.tensor(name, tensor, use="input")
        cap.tensor("storage", storage, use="state")
        for name, tensor in outputs.items():
            cap.tensor(name, tensor, use="output")
            print(f"{name}: {tuple(tensor.shape)} strides {tensor.stride()}")
        with torch.cuda.stream(side):
            for salt in SALTS:
                for name, tensor in inputs(salt).items():
                    places[name].copy_(tensor)
                wanted = {name: tensor.detach().clone().cpu() for name, tensor in step().items()}
                side.synchronize()
                torch.save(wanted, os.path.join(folder, f"wanted.{salt}"))
        torch.cuda.synchronize()
        cap.seal(os.path.join(folder, "store"), "strided")
        del kept


def orders(torch, tensor):
    """Yields the same elements in arrays of other orders, on host and device."""
    turned = tensor.permute(*reversed(range(tensor.dim()))).contiguous().permute(
        *reversed(range(tensor.dim())))
    gaps = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1])[..., ::2].copy_(tensor)
    for each in (tensor, turned, gaps):
        yield each
        yield each.cuda()
    yield tensor.numpy()
    yield tensor.numpy()[::-1].copy()[::-1]
    yield tensor.numpy().tobytes()


def replay(folder):
    import foundry
    import torch
    side = torch.cuda.Stream()
    with foundry.load("strided", store=os.path.join(folder, "store"), poison=True) as img:
        for name in ("conv", "lstm", "attended", "columns"):
            print(f"{name}: {img[name].shape} strides {img[name].stride}")
        for salt in SALTS:
            wanted, given = torch.load(os.path.join(folder, f"wanted.{salt}")), inputs(salt)
            ways = zip(*(list(orders(torch, given[name])) for name in given))
            for n, way in enumerate(ways):
                img.write("storage", bytes([n + 1]) * img["storage"].nbytes)
                for name, data in zip(given, way):
                    img.write(name, data, stream=side, wait=n % 2 == 0)
                del way
                img.launch(1, stream=side)
                check(torch, img, wanted, side)
                whole = torch.frombuffer(img.read("storage", stream=side),
                                         dtype=torch.uint8).view(64, 150, 4)
                assert (whole[:, :20] == n + 1).all() and (whole[:, 120:] == n
                                                           + 1).all(), "a gap was written to"
                with torch.cuda.stream(side):
                    got = torch.from_dlpack(img["conv"])
                    assert got.is_contiguous(memory_format=torch.channels_last) and torch.equal(
                        got.cpu(), wanted["conv"])
                    del got
        measure(torch, img)


def check(torch, img, wanted, side):
    """Checks the bits of each output, read as bytes, into host arrays and into GPU arrays."""
    for name, want in wanted.items():
        bits = want.contiguous().view(torch.uint8)
        got = torch.frombuffer(img.read(name, stream=side), dtype=torch.uint8).view(bits.shape)
        assert torch.equal(got, bits), f"{name}: other bits"
        for into in (torch.zeros_like(want), torch.zeros_like(want, device="cuda"),
                     torch.zeros(*want.shape[:-1], 2 * want.shape[-1])[..., ::2]):
            img.read(name, stream=side, out=into)
            assert torch.equal(into.cpu().contiguous().view(torch.uint8),
                               bits), f"{name}: other bits in an array"


def measure(torch, img):
    """Prints the milliseconds of a write and of a read, beside torch's own copies of the same
    tensors.
    """
    data = inputs(1)["image"]
    last = data.to(memory_format=torch.channels_last)
    place = torch.empty_like(last, device="cuda")
    ways = {"write, rows": lambda: img.write("image", data),
            "write, channels last": lambda: img.write("image", last),
            "write, on the GPU": lambda: img.write("image", place),
            "read": lambda: img.read("image"),
            "torch, rows": lambda: place.copy_(data),
            "torch, channels last": lambda: place.copy_(last)}
    for name, call in ways.items():
        took = []
        for _ in range(20):
            torch.cuda.synchronize()
            began = time.perf_counter()
            call()
            torch.cuda.synchronize()
            took.append(1e3 * (time.perf_counter() - began))
        print(f"{name}: {sorted(took)[10]:.3f} ms for {data.nbytes} bytes")


def whole():
    parts.need("numpy")
    with tempfile.TemporaryDirectory() as folder:
        return [parts.run("capture", folder, limit=300), parts.run("replay", folder, limit=300)]


if __name__ == "__main__":
    parts.main([capture, replay], whole)
