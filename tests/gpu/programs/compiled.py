# SPDX-License-Identifier: Apache-2.0
"""torch.compile in its modes, and kernels of Triton."""
import functools

import torch
from torch.nn import functional as F

from . import base
from .base import Training, Work, program

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def block():
    return torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0).eval()


def compiled(**settings):
    model = torch.compile(block(), **settings)
    x = torch.zeros(2, 32, 128)
    return Work(lambda: model(x), {"x": x})


MODES = {
    "default": {}, "fullgraph": {"fullgraph": True}, "dynamic": {"dynamic": True},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "max-autotune": {"mode": "max-autotune"},
    "max-autotune-no-cudagraphs": {"mode": "max-autotune-no-cudagraphs"},
    "aot_eager": {"backend": "aot_eager"},
}
for _name, _settings in MODES.items():
    program("torch.compile, " + _name, slow=True, limit=180)(
        functools.partial(compiled, **_settings))


@program("torch.compile, step of training", slow=True, limit=180)
def compiled_training():
    model = torch.compile(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(),
                                              torch.nn.Dropout(0.1), torch.nn.Linear(128, 16)))
    x, t = torch.zeros(32, 64), torch.zeros(32, 16)
    return Training(model, torch.optim.Adam(model.parameters(), capturable=base.CAPTURABLE),
                    lambda m: F.mse_loss(m(x), t), {"x": x, "t": t})


@program("torch.compile, optimizer", slow=True, limit=180)
def compiled_optimizer():
    model = torch.nn.Linear(64, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3),
                                  capturable=base.CAPTURABLE)
    step = torch.compile(optimizer.step)
    x, t = torch.zeros(32, 64), torch.zeros(32, 16)

    class Compiled:
        state = optimizer.state
        zero_grad = staticmethod(optimizer.zero_grad)

        @staticmethod
        def step():
            step()
    return Training(model, Compiled, lambda m: F.mse_loss(m(x), t), {"x": x, "t": t})


@program("torch.compile, flexible attention", slow=True, limit=180)
def flexible():
    from torch.nn.attention.flex_attention import flex_attention
    run = torch.compile(flex_attention)

    def bias(score, _b, head, q, k):
        return score - 0.1 * (head + 1) * (q - k).abs()
    q, k, v = (torch.zeros(1, 4, 256, 64, dtype=torch.bfloat16) for _ in range(3))
    return Work(lambda: run(q, k, v, score_mod=bias), {"q": q, "k": k, "v": v})


if triton:
    @triton.jit
    def add_kernel(a, b, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(a + at, at < n) + tl.load(b + at, at < n), at < n)

    @triton.jit
    def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        row = tl.load(x + tl.program_id(0) * columns + at, at < columns, -float("inf"))
        top = tl.exp(row - tl.max(row, 0))
        tl.store(out + tl.program_id(0) * columns + at, top / tl.sum(top, 0), at < columns)

    @triton.autotune([triton.Config({"M": 32, "N": 32, "K": 32}, num_warps=4),
                      triton.Config({"M": 64, "N": 64, "K": 32}, num_warps=4, num_stages=3)],
                     ["size"])
    @triton.jit
    def product_kernel(a, b, out, size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        rows = tl.program_id(0) * M + tl.arange(0, M)[:, None]
        columns = tl.program_id(1) * N + tl.arange(0, N)[None, :]
        total = tl.zeros((M, N), tl.float32)
        for i in range(0, size, K):
            k = i + tl.arange(0, K)
            total = tl.dot(tl.load(a + rows * size + k[None, :]),
                           tl.load(b + k[:, None] * size + columns), total)
        tl.store(out + rows * size + columns, total.to(tl.float16))

    @triton.jit
    def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        kept = tl.rand(seed, at) > p
        tl.store(out + at, tl.where(kept, tl.load(x + at, at < n) / (1 - p), 0.0), at < n)

    @triton.jit
    def sum_kernel(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.atomic_add(out, tl.sum(tl.load(x + at, at < n, 0), 0))


@program("Triton, addition", ("triton",))
def triton_add():
    a, b = torch.zeros(10000), torch.zeros(10000)
    out = torch.zeros(10000)
    return Work(lambda: (add_kernel[(10,)](a, b, out, 10000, BLOCK=1024), out)[1],
                {"a": a, "b": b})


@program("Triton, softmax", ("triton",))
def triton_softmax():
    x, out = torch.zeros(64, 1000), torch.zeros(64, 1000)
    return Work(lambda: (softmax_kernel[(64,)](x, out, 1000, BLOCK=1024), out)[1], {"x": x})


@program("Triton, product with a search", ("triton",))
def triton_product():
    a, b, out = (torch.zeros(256, 256, dtype=torch.float16) for _ in range(3))
    return Work(lambda: (product_kernel[lambda c: (256 // c["M"], 256 // c["N"])](a, b, out, 256),
                         out)[1], {"a": a, "b": b})


@program("Triton, dropout by Philox", ("triton",))
def triton_dropout():
    x, out = torch.zeros(10000), torch.zeros(10000)
    return Work(lambda: (dropout_kernel[(10,)](x, out, 10000, 0.3, 77, BLOCK=1024), out)[1],
                {"x": x})


@program("Triton, atomic sum of integers", ("triton",))
def triton_sum():
    x, out = torch.zeros(10000, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    return Work(lambda: (out.zero_(), sum_kernel[(10,)](x, out, 10000, BLOCK=1024), out)[2],
                {"x": x})
