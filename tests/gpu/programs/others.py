# SPDX-License-Identifier: Apache-2.0
"""Programs of other packages: CuPy, Numba, audio, graphs, equivariant networks, differential
equations, collectives.
"""
import functools
import os
import tempfile

import torch

from .base import Work, forward, program


def on_torch(step):
    """Runs a step of CuPy on torch's current stream."""
    import cupy

    def run():
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            step(cupy)
    return run


def with_cupy(step, inputs, outputs):
    """A Work whose step gets the inputs and outputs as CuPy's arrays."""
    import cupy
    if not torch.cuda.is_available():
        raise ImportError("CuPy needs a GPU")
    arrays = [cupy.from_dlpack(t) for t in (*inputs.values(), *outputs)]
    run = on_torch(lambda cp: step(cp, *arrays))

    def whole():
        run()
        return outputs
    return Work(whole, inputs)


@program("CuPy, elementwise kernel", ("cupy",))
def cupy_elementwise():
    import cupy
    kernel = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * exp(y)",
                                    "workload")
    return with_cupy(lambda cp, x, y, z: kernel(x, y, z),
                     {"x": torch.zeros(5000), "y": torch.zeros(5000)}, [torch.zeros(5000)])


@program("CuPy, reduction kernel", ("cupy",))
def cupy_reduction():
    import cupy
    kernel = cupy.ReductionKernel("float32 x", "float32 y", "x * x", "a + b", "y = sqrt(a)", "0",
                                  "workload_norm")
    return with_cupy(lambda cp, x, y: kernel(x, axis=1, out=y), {"x": torch.zeros(64, 1000)},
                     [torch.zeros(64)])


@program("CuPy, own CUDA code", ("cupy",))
def cupy_raw():
    import cupy
    kernel = cupy.RawKernel(
        'extern "C" __global__ void rolled(const float *x, float *y, int n) {'
        " __shared__ float part[256];"
        " int i = blockIdx.x * blockDim.x + threadIdx.x;"
        " part[threadIdx.x] = i < n ? x[i] : 0; __syncthreads();"
        " if (i < n) y[i] = part[(threadIdx.x + 1) % blockDim.x] * 3; }", "rolled")
    return with_cupy(lambda cp, x, y: kernel((8,), (256,), (x, y, cp.int32(2000))),
                     {"x": torch.zeros(2000)}, [torch.zeros(2000)])


@program("CuPy, matrix product", ("cupy",))
def cupy_product():
    return with_cupy(lambda cp, a, b, c: cp.matmul(a, b, out=c),
                     {"a": torch.zeros(128, 96), "b": torch.zeros(96, 64)},
                     [torch.zeros(128, 64)])


@program("CuPy, sums and scans", ("cupy",))
def cupy_sums():
    def step(cp, x, total, scan):
        cp.sum(x, axis=0, out=total)
        cp.cumsum(x, axis=1, out=scan)
    return with_cupy(step, {"x": torch.zeros(50, 400)}, [torch.zeros(400), torch.zeros(50, 400)])


def with_numba(kernel, grid, block, inputs, outputs, *scalars):
    from numba import cuda
    if not torch.cuda.is_available():
        raise ImportError("Numba needs a GPU here")
    arrays = [cuda.as_cuda_array(t) for t in (*inputs.values(), *outputs)]

    def step():
        stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
        kernel[grid, block, stream](*arrays, *scalars)
        return outputs
    return Work(step, inputs)


@program("Numba, elementwise kernel", ("numba",))
def numba_elementwise():
    from numba import cuda

    @cuda.jit
    def saxpy(x, y, out, a):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = a * x[i] + y[i]
    return with_numba(saxpy, 20, 256, {"x": torch.zeros(5000), "y": torch.zeros(5000)},
                      [torch.zeros(5000)], 1.5)


@program("Numba, sum in shared memory", ("numba",))
def numba_sum():
    from numba import cuda, float32

    @cuda.jit
    def sums(x, out):
        part = cuda.shared.array(128, float32)
        t = cuda.threadIdx.x
        part[t] = x[cuda.blockIdx.x, t]
        cuda.syncthreads()
        half = 64
        while half:
            if t < half:
                part[t] += part[t + half]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            out[cuda.blockIdx.x] = part[0]
    return with_numba(sums, 40, 128, {"x": torch.zeros(40, 128)}, [torch.zeros(40)])


@program("Numba, matrix product", ("numba",))
def numba_product():
    from numba import cuda

    @cuda.jit
    def product(a, b, out):
        i, j = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            out[i, j] = total
    return with_numba(product, (8, 8), (16, 16),
                      {"a": torch.zeros(100, 60), "b": torch.zeros(60, 120)},
                      [torch.zeros(100, 120)])


@program("torchaudio, mel spectrogram", ("torchaudio",))
def mel():
    import torchaudio
    return forward(torchaudio.transforms.MelSpectrogram(16000, n_mels=40), "x",
                   x=torch.zeros(2, 16000))


@program("torchaudio, conformer", ("torchaudio",))
def conformer():
    import torchaudio
    model = torchaudio.models.Conformer(80, 4, 128, 2, 31)
    lengths = torch.tensor([40, 40])
    return forward(lambda x: model.eval()(x, lengths)[0], "x", x=torch.zeros(2, 40, 80))


@program("torchaudio, resampling", ("torchaudio",))
def resampling():
    import torchaudio
    return forward(torchaudio.transforms.Resample(16000, 11025), "x", x=torch.zeros(2, 16000))


def graph_network(kind, *settings):
    import torch_geometric.nn as nets
    if kind == "GINConv":
        model = nets.GINConv(torch.nn.Linear(32, 64))
    else:
        model = getattr(nets, kind)(32, 64, *settings)
    edges = torch.randint(100, (2, 600), generator=torch.Generator("cpu").manual_seed(1),
                          device="cpu").to(torch.get_default_device())
    return forward(lambda x: model.eval()(x, edges), "x", x=torch.zeros(100, 32))


for _kind in ("GCNConv", "GATConv", "SAGEConv", "GINConv"):
    program("torch_geometric." + _kind, ("torch_geometric",))(
        functools.partial(graph_network, _kind))


@program("e3nn, spherical harmonics and tensor product", ("e3nn",), limit=150)
def equivariant():
    from e3nn import o3
    with torch.device("cpu"):  # its constants come from a file
        product = o3.FullyConnectedTensorProduct("8x0e + 8x1o", "1x0e + 1x1o", "8x0e + 8x1o")
    product = product.to(torch.get_default_device())

    def step(x, r):
        return product(x, o3.spherical_harmonics("1x0e + 1x1o", r, normalize=True))
    return forward(step, "x", "r", x=torch.zeros(64, 32), r=torch.zeros(64, 3))


@program("torchdiffeq, Runge-Kutta", ("torchdiffeq",))
def equation():
    from torchdiffeq import odeint
    field = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 16))
    t = torch.linspace(0, 1, 8)
    return forward(lambda x: odeint(lambda _, y: field(y), x, t, method="rk4")[-1], "x",
                   x=torch.zeros(32, 16))


@program("NCCL, one rank", pinned=True)
def collective():
    from torch import distributed
    if not torch.cuda.is_available():
        raise ImportError("NCCL needs a GPU")
    where = os.path.join(tempfile.mkdtemp(), "rendezvous")
    distributed.init_process_group("nccl", init_method="file://" + where, rank=0, world_size=1,
                                   device_id=torch.device("cuda:0"))
    x, gathered = torch.zeros(1000), torch.zeros(1, 1000)

    def step():
        y = x * 2
        distributed.all_reduce(y)
        distributed.all_gather_into_tensor(gathered, y[None])
        return gathered + 1
    return Work(step, {"x": x})
