# SPDX-License-Identifier: Apache-2.0
"""Encodes sound as Whisper does: two convolutions and a transformer, under torch.compile if asked.

    encode.py [--store STORE] [--compile]

Weights are random, from a seed. The loading process compiles nothing.
"""
import argparse
import sys

import foundry  # before torch


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--store", help="a store's folder (the default store otherwise)")
    p.add_argument("--compile", action="store_true", help="run the model under torch.compile")
    args = p.parse_args()
    try:
        import torch
        from torch import nn
    except ImportError:
        sys.exit("no GPU, or none with torch")
    if not torch.cuda.is_available():
        sys.exit("no GPU")

    class Encoder(nn.Module):
        """80 bands of a spectrogram to 384 numbers for each 20 ms."""

        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv1d(80, 384, 3, 1, 1), nn.Conv1d(384, 384, 3, 2, 1)
            self.place = nn.Parameter(torch.randn(500, 384) * 0.02)
            layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

        def forward(self, bands):
            hidden = nn.functional.gelu(self.second(nn.functional.gelu(self.first(bands))))
            return self.layers(hidden.transpose(1, 2) + self.place)

    torch.manual_seed(0)
    model = Encoder().cuda().eval()
    if args.compile:
        model = torch.compile(model)
    encode = foundry.compile(model, torch.zeros(1, 80, 1000, device="cuda"),
                             ref="examples/encode" + "-compiled" * args.compile, store=args.store)
    print(encode)
    with torch.no_grad():
        bands = torch.randn(1, 80, 1000, device="cuda")
        hidden = encode(bands)
        assert args.compile or torch.equal(hidden, model(bands))
    print(f"{tuple(hidden.shape)} numbers, the first ones {hidden[0, 0, :3].tolist()}")


if __name__ == "__main__":
    main()
