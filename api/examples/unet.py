# SPDX-License-Identifier: Apache-2.0
"""Removes noise step by step with a small UNet, as diffusion models do: a launch for each step.

    unet.py [--store STORE] [--steps N]

Weights are random, from a seed.
"""
import argparse
import sys

import foundry  # before torch


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--store", help="a store's folder (the default store otherwise)")
    p.add_argument("--steps", type=int, default=20)
    args = p.parse_args()
    try:
        import torch
        from torch import nn
    except ImportError:
        sys.exit("no GPU, or none with torch")
    if not torch.cuda.is_available():
        sys.exit("no GPU")

    class UNet(nn.Module):
        """Two scales, a connection between them, and the step as a number in a tensor."""

        def __init__(self):
            super().__init__()
            self.time, self.down = nn.Linear(1, 64), nn.Conv2d(3, 64, 3, 2, 1)
            self.middle = nn.Conv2d(64, 64, 3, padding=1)
            self.up = nn.ConvTranspose2d(64, 32, 4, 2, 1)
            self.out = nn.Conv2d(35, 3, 3, padding=1)

        def forward(self, image, step):
            hidden = nn.functional.silu(self.down(image))
            hidden = nn.functional.silu(self.middle(hidden + self.time(step)[:, :, None, None]))
            return self.out(torch.cat([self.up(hidden), image], 1))

    torch.manual_seed(0)
    model = UNet().cuda().eval()
    image, step = torch.randn(1, 3, 128, 128, device="cuda"), torch.zeros(1, 1, device="cuda")
    fast = foundry.compile(model, {"image": image, "step": step}, ref="examples/unet",
                           store=args.store)
    print(fast)
    with torch.no_grad():
        plain = image
        for i in range(args.steps):
            step.fill_(1 - i / args.steps)
            image = image - fast(image, step) / args.steps
            plain = plain - model(plain, step) / args.steps
        assert torch.equal(image, plain)
    print(f"{args.steps} steps, equal to the model's; the mean is {image.mean().item():.4f}")


if __name__ == "__main__":
    main()
