# SPDX-License-Identifier: Apache-2.0
"""A payload of ways.py for PyTorch: a few kernels, a cuBLAS one among them."""
import torch

from ways import saved

N = 4096


def compute(x, w):
    y = torch.sin(x) * 1.5 + x
    y = (y.reshape(64, 64) @ w).softmax(-1)
    return torch.cat([y.reshape(N), x.cumsum(0)])


def work(store, ref, loader=None):
    """Captures and seals. `loader` is a torch.utils.data.DataLoader with workers, which feeds the
    input during the capture.
    """
    import foundry
    with foundry.Capture() as cap:
        stream = torch.cuda.Stream()
        x = torch.zeros(N, device="cuda")
        w = torch.linspace(-1, 1, N, device="cuda").reshape(64, 64)
        for batch in loader or [torch.linspace(-2, 2, N)]:
            x.copy_(batch.reshape(N), non_blocking=True)
            with torch.cuda.stream(stream):
                compute(x, w)
        torch.cuda.synchronize()
        with cap.graph(1, stream=stream):
            y = compute(x, w)
        cap.tensor("x", x, use="input")
        cap.tensor("y", y, use="output")
        cap.seal(store, ref)
        x.copy_(torch.linspace(-3, len(ref), N))
        want = compute(x, w)
        saved(store, ref, "x", x.cpu().numpy().tobytes())
        saved(store, ref, "y", want.cpu().numpy().tobytes())


class Numbers(torch.utils.data.Dataset):
    """The items that workers of a DataLoader make, without CUDA."""

    def __len__(self):
        return 16

    def __getitem__(self, i):
        return torch.full((N // 4,), float(i))
