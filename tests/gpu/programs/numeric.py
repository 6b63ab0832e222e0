# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own operators: cuBLAS, cuDNN, cuFFT, cuSPARSE, cuSOLVER, attention, random numbers."""
import functools

import torch
from torch.nn import functional as F

from .base import Work, forward, program

BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64


def call(function, *names, high=None, **inputs):
    return forward(function, *(names or inputs), high=high, **inputs)


def declare(name, make):
    program(name)(make)


def zeros(*shape, dtype=FP32):
    return torch.zeros(*shape, dtype=dtype)


# by name: a function that returns the step's Work
PLAIN = {
    "cuBLAS, bf16 product": lambda: call(torch.mm, a=zeros(512, 768, dtype=BF16),
                                         b=zeros(768, 640, dtype=BF16)),
    "cuBLAS, fp16 product with a long inner side": lambda: call(
        torch.mm, a=zeros(16, 16384, dtype=FP16), b=zeros(16384, 32, dtype=FP16)),
    "cuBLAS, batched fp64 product": lambda: call(
        torch.baddbmm, c=zeros(8, 64, 96, dtype=FP64), a=zeros(8, 64, 128, dtype=FP64),
        b=zeros(8, 128, 96, dtype=FP64)),
    "cuBLAS, complex product": lambda: call(torch.mm, a=zeros(64, 96, dtype=torch.complex64),
                                            b=zeros(96, 64, dtype=torch.complex64)),
    "cuBLASLt, product with bias and GELU": lambda: call(
        functools.partial(torch._addmm_activation, use_gelu=True), bias=zeros(256, dtype=BF16),
        a=zeros(128, 512, dtype=BF16), b=zeros(512, 256, dtype=BF16)),
    "cuBLASLt, int8 product": lambda: call(
        lambda a, b: torch._int_mm(a, b.t()), high={"a": 100, "b": 100},
        a=zeros(64, 128, dtype=torch.int8), b=zeros(64, 128, dtype=torch.int8)),
    "cuDNN, fp16 convolution": lambda: call(F.conv2d, x=zeros(4, 64, 28, 28, dtype=FP16),
                                            w=zeros(128, 64, 3, 3, dtype=FP16)),
    "cuDNN, 3D convolution": lambda: call(F.conv3d, x=zeros(1, 8, 16, 32, 32),
                                          w=zeros(16, 8, 3, 3, 3)),
    "cuDNN, transposed convolution": lambda: call(
        functools.partial(F.conv_transpose2d, stride=2), x=zeros(2, 32, 14, 14),
        w=zeros(32, 16, 4, 4)),
    "depthwise convolution": lambda: call(functools.partial(F.conv2d, groups=32, padding=1),
                                          x=zeros(2, 32, 28, 28), w=zeros(32, 1, 3, 3)),
    "cuFFT, 1D of 2^16": lambda: call(torch.fft.fft, x=zeros(1 << 16, dtype=torch.complex64)),
    "cuFFT, 1D of a prime": lambda: call(torch.fft.fft, x=zeros(10007, dtype=torch.complex64)),
    "cuFFT, real 2D and back": lambda: call(
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 0.5), x=zeros(4, 256, 256)),
    "cuFFT, 3D fp64": lambda: call(torch.fft.fftn, x=zeros(32, 64, 48, dtype=torch.complex128)),
    "cuFFT, short-time transform": lambda: call(
        lambda x, w: torch.stft(x, 512, window=w, return_complex=True), x=zeros(2, 16000),
        w=zeros(512)),
    "sort and top-k": lambda: call(lambda x: [torch.sort(x), torch.topk(x, 17)],
                                   x=zeros(4, 20000)),
    "scans": lambda: call(lambda x: [x.cumsum(-1), x.logcumsumexp(-1), x.cummax(-1).values],
                          x=zeros(8, 5000)),
    "histogram and search": lambda: call(
        lambda x, edges: [torch.histc(x, 50, -3, 3),
                          torch.searchsorted(edges.sort().values, x)],
        x=zeros(10000), edges=zeros(100)),
    "scatter, gather, index": lambda: call(
        lambda x, i: [torch.zeros_like(x).index_add(0, i, x), x.gather(0, i[:, None]),
                      torch.zeros_like(x).index_put((i,), x, accumulate=True)],
        high={"i": 500}, x=zeros(500, 64), i=zeros(500, dtype=torch.int64)),
    "embedding bag": lambda: call(
        lambda i, w: F.embedding_bag(i, w, mode="mean"), high={"i": 1000},
        i=zeros(32, 20, dtype=torch.int64), w=zeros(1000, 64)),
    "grid sample and bicubic": lambda: call(
        lambda x, g: [F.grid_sample(x, g.tanh(), align_corners=False),
                      F.interpolate(x, scale_factor=1.7, mode="bicubic")],
        x=zeros(2, 3, 40, 40), g=zeros(2, 30, 30, 2)),
    "norms and activations": lambda: call(
        lambda x: [F.group_norm(F.silu(x), 4), F.layer_norm(x, x.shape[1:]),
                   F.local_response_norm(x, 3), F.rms_norm(x, x.shape[-1:])],
        x=zeros(4, 16, 20, 20)),
    "distances and pooling": lambda: call(
        lambda a, b: [torch.cdist(a, b), F.adaptive_avg_pool1d(a, 5),
                      F.fractional_max_pool2d(a[None, None], 3, output_ratio=(0.5, 0.5))],
        a=zeros(200, 48), b=zeros(150, 48)),
    "einsum": lambda: call(lambda a, b: torch.einsum("bij,bjk->bki", a, b), a=zeros(4, 32, 24),
                           b=zeros(4, 24, 40)),
}
for _name, _make in PLAIN.items():
    declare(_name, _make)


@program("cuBLASLt, fp8 product")
def fp8():
    scale = torch.tensor(0.5)

    def step(a, b):
        return torch._scaled_mm(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t(), scale,
                                scale, out_dtype=BF16)
    return call(step, a=zeros(64, 128), b=zeros(96, 128))


@program("cuBLAS, fp32 product with TF32")
def tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    return call(torch.mm, a=zeros(512, 512), b=zeros(512, 512))


@program("cuBLAS, products in parallel on three streams")
def streams():
    a = zeros(3, 256, 256)
    sides = [torch.cuda.Stream() for _ in range(2)] if torch.cuda.is_available() else []

    def step():
        here = torch.cuda.current_stream() if sides else None
        results = [a[0] @ a[0]]
        for i, side in enumerate(sides, 1):
            side.wait_stream(here)
            with torch.cuda.stream(side):
                results.append(a[i] @ a[i])
        for side in sides:
            here.wait_stream(side)
        return sum(results)
    return Work(step, {"a": a})


def attention(kind, dtype, backward):
    backend = getattr(torch.nn.attention.SDPBackend, kind)
    shape = (2, 8, 256, 64)
    q, k, v = (zeros(*shape, dtype=dtype).requires_grad_(backward) for _ in range(3))

    def step():
        with torch.nn.attention.sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if not backward:
            return out
        return [out.detach(), *torch.autograd.grad(out.float().square().sum(), (q, k, v))]
    inputs = {"q": q.detach(), "k": k.detach(), "v": v.detach()}
    return Work(step, inputs, grad=backward)


for _kind, _dtype in (("FLASH_ATTENTION", BF16), ("EFFICIENT_ATTENTION", FP32),
                      ("CUDNN_ATTENTION", BF16), ("MATH", FP32)):
    for _backward in (False, True):
        declare(f"attention, {_kind}{', backward' * _backward}",
                functools.partial(attention, _kind, _dtype, _backward))


@program("attention with a mask and dropout")
def masked_attention():
    q = zeros(2, 4, 64, 32, dtype=FP16)
    mask = zeros(2, 1, 64, 64, dtype=FP16)
    return call(lambda q, mask: F.scaled_dot_product_attention(q, q, q, mask, dropout_p=0.2), q=q,
                mask=mask)


@program("cuSPARSE, CSR by dense")
def csr():
    made = torch.randn(500, 400).relu_().mul_(torch.rand(500, 400) > 0.8).to_sparse_csr()
    return call(lambda b: made @ b, b=zeros(400, 64))


@program("cuSPARSE, CSR by vector")
def csr_vector():
    made = torch.randn(500, 400).mul_(torch.rand(500, 400) > 0.8).to_sparse_csr()
    return call(lambda b: made @ b, b=zeros(400))


@program("cuSPARSE, COO by dense")
def coo():
    made = torch.randn(300, 400).mul_(torch.rand(300, 400) > 0.8).to_sparse().coalesce()
    return call(lambda b: torch.sparse.mm(made, b), b=zeros(400, 32))


@program("cuSPARSELt, 2:4 by dense")
def semi_structured():
    weight = torch.randn(256, 256, dtype=FP16)
    weight *= torch.tensor([0, 0, 1, 1], dtype=FP16).tile(256, 64)
    made = torch.sparse.to_sparse_semi_structured(weight)
    return call(lambda b: F.linear(b, made), b=zeros(128, 256, dtype=FP16))


def definite(x):
    return x @ x.mT + 64 * torch.eye(x.shape[-1], device=x.device, dtype=x.dtype)


SOLVERS = {
    "Cholesky": lambda x: torch.linalg.cholesky_ex(definite(x)).L,
    "LU": lambda x: torch.linalg.lu_factor_ex(x).LU,
    "inverse": lambda x: torch.linalg.inv_ex(definite(x)).inverse,
    "linear system": lambda x: torch.linalg.solve_ex(definite(x), x).result,
    "triangular system": lambda x: torch.linalg.solve_triangular(definite(x).triu(), x, upper=True),
    "QR": torch.linalg.qr,
    "eigenvalues": lambda x: torch.linalg.eigvalsh(definite(x)),
    "matrix exponential": lambda x: torch.linalg.matrix_power(x * 0.01, 5),
}
for _name, _step in SOLVERS.items():
    declare(f"cuSOLVER, {_name}", lambda step=_step: call(step, x=zeros(96, 96)))
declare("cuSOLVER, batched Cholesky",
        lambda: call(SOLVERS["Cholesky"], x=zeros(16, 32, 32)))


@program("random numbers of many distributions")
def draws():
    def step(p):
        return [torch.rand_like(p), torch.randn_like(p), torch.bernoulli(p.sigmoid()),
                torch.empty_like(p).exponential_(), torch.empty_like(p).log_normal_(),
                torch.randint_like(p, 100)]
    return call(step, p=zeros(5000))


@program("sampling of tokens: top-k, top-p, multinomial")
def sampling():
    def step(logits):
        values, order = (logits / 0.7).topk(50)
        p = values.softmax(-1)
        p = p.masked_fill(p.cumsum(-1) - p > 0.9, 0)
        return order.gather(1, torch.multinomial(p, 1))
    return call(step, logits=zeros(8, 32000))


@program("sampling of tokens: Gumbel")
def gumbel():
    return call(lambda x: (x - torch.empty_like(x).exponential_().log()).argmax(-1),
                x=zeros(8, 32000))


def recurrent(kind, train, **more):
    model = getattr(torch.nn, kind)(64, 96, 2, batch_first=True, **more).train(train)
    x = zeros(4, 20, 64)

    def step():
        out = model(x)[0]
        if not train:
            return out
        return [out.detach(), *torch.autograd.grad(out.square().sum(), list(model.parameters()))]
    return Work(step, {"x": x}, grad=train)


declare("cuDNN, LSTM", functools.partial(recurrent, "LSTM", False))
declare("cuDNN, GRU in both directions", functools.partial(recurrent, "GRU", False,
                                                           bidirectional=True))
declare("cuDNN, LSTM, backward", functools.partial(recurrent, "LSTM", True))
declare("cuDNN, LSTM, backward with dropout", functools.partial(recurrent, "LSTM", True,
                                                                dropout=0.3))


@program("batch norm in training mode", pinned=True)
def batch_norm():
    norm = torch.nn.BatchNorm2d(16).train()
    work = call(lambda x: norm(x), x=zeros(8, 16, 20, 20))
    work.state = [norm.running_mean, norm.running_var, norm.num_batches_tracked]
    return work


@program("FFT convolution of a state space model")
def long_convolution():
    def step(u, k):
        n = 2 * u.shape[-1]
        return torch.fft.irfft(torch.fft.rfft(u, n) * torch.fft.rfft(k, n), n)[..., :u.shape[-1]]
    return call(step, u=zeros(2, 16, 2048), k=zeros(16, 2048))


@program("torch.func: gradients of each sample")
def per_sample():
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
    params = {k: v.detach() for k, v in model.named_parameters()}

    def loss(p, x, t):
        return F.mse_loss(torch.func.functional_call(model, p, (x[None],)), t[None])
    x, t = zeros(16, 32), zeros(16, 4)
    return Work(lambda: torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(params, x, t),
                {"x": x, "t": t})


@program("torch.func: Jacobian and Hessian")
def jacobian():
    def f(x):
        return (x.sin() * x.roll(1)).square().cumsum(0)
    return call(lambda x: [torch.func.jacrev(f)(x), torch.func.hessian(lambda y: f(y).sum())(x)],
                x=zeros(24))
