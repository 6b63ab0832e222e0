# SPDX-License-Identifier: Apache-2.0
"""Models that compile.py tests, beside those of packages."""
import dataclasses
import random

import torch
from torch import nn


@dataclasses.dataclass
class Result:
    """The result of Block."""
    hidden: torch.Tensor
    attention: torch.Tensor
    name: str = "block"


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self):
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(256), nn.Linear(256, 768), nn.Linear(256, 256)
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x, mask=None, scale=1.0):
        rows, length, _ = x.shape
        q, k, v = (t.view(rows, length, 4, 64).transpose(1, 2)
                   for t in self.mix(self.norm(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, 256))
        return Result(x + self.down(nn.functional.gelu(self.up(x))), mixed)


class Cache(nn.Module):
    """Adds each argument to a row of a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(16, 128))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        self.rows.index_add_(0, self.at, x)
        self.at.add_(1).remainder_(16)
        return self.rows.sum(0), self.at.clone()


class Drops(nn.Module):
    """Draws random numbers on the GPU."""

    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=True) + torch.rand_like(x)


class Branch(nn.Module):
    """Reads a number of the GPU to decide."""

    def forward(self, x):
        return x * 2 if x.sum().item() > 0 else x


class HostRandom(nn.Module):
    """Draws a random number on the host."""

    def forward(self, x):
        return x * random.random()


class Counter(nn.Module):
    """Counts its calls in an attribute."""
    calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class InPlace(nn.Module):
    """Changes its argument."""

    def forward(self, x):
        return x.mul_(2)


class Hidden(nn.Module):
    """Has a state that is no buffer."""

    def __init__(self):
        super().__init__()
        self.state = {}

    def forward(self, x):
        sums = self.state.setdefault("sums", torch.zeros_like(x))
        return sums.add_(x).clone()
