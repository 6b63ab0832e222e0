# SPDX-License-Identifier: Apache-2.0
"""Steps of training with each of PyTorch's optimizers, and with what programs put around them."""
import functools

import torch
from torch.nn import functional as F

from . import base
from .base import Training, program

ROWS, WIDE, OUT = 32, 64, 16
# by name: the optimizer's class and settings
OPTIMIZERS = {
    "SGD": ("SGD", {"lr": 0.05}),
    "SGD, Nesterov, weight decay": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True,
                                            "weight_decay": 1e-4}),
    "SGD, fused": ("SGD", {"lr": 0.05, "momentum": 0.9, "fused": True}),
    "Adam": ("Adam", {"capturable": True}),
    "Adam, AMSGrad, one tensor at a time": ("Adam", {"capturable": True, "amsgrad": True,
                                                     "foreach": False}),
    "AdamW, fused": ("AdamW", {"capturable": True, "fused": True}),
    "AdamW, learning rate in a tensor": ("AdamW", {"capturable": True, "lr": "tensor"}),
    "Adamax": ("Adamax", {"capturable": True}),
    "NAdam": ("NAdam", {"capturable": True}),
    "RAdam": ("RAdam", {"capturable": True}),
    "RMSprop": ("RMSprop", {"capturable": True, "momentum": 0.5, "centered": True}),
    "Rprop": ("Rprop", {"capturable": True}),
    "Adadelta": ("Adadelta", {"capturable": True}),
    "ASGD": ("ASGD", {"capturable": True}),
    "Adagrad": ("Adagrad", {"lr": 0.05}),
    "Adafactor": ("Adafactor", {}),
    "Muon": ("Muon", {"lr": 0.01}),
}


def mlp(*more, bias=True):
    return torch.nn.Sequential(torch.nn.Linear(WIDE, 128, bias), *more, torch.nn.GELU(),
                               torch.nn.Linear(128, OUT, bias))


def regression(model, optimizer, between=None, wrap=None):
    x, t = torch.zeros(ROWS, WIDE), torch.zeros(ROWS, OUT)
    return Training(model, optimizer, lambda m: F.mse_loss(wrap(m, x) if wrap else m(x), t),
                    {"x": x, "t": t}, between=between)


def with_optimizer(name):
    kind, settings = OPTIMIZERS[name]
    if "capturable" in settings:
        settings = dict(settings, capturable=base.CAPTURABLE)
    if settings.get("lr") == "tensor":
        settings = dict(settings, lr=torch.tensor(1e-3))
    model = mlp(bias=kind != "Muon")
    return regression(model, getattr(torch.optim, kind)(model.parameters(), **settings))


for _name in OPTIMIZERS:
    program("training with " + _name)(functools.partial(with_optimizer, _name))


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3, capturable=base.CAPTURABLE)


@program("training with dropout")
def dropout():
    model = mlp(torch.nn.Dropout(0.3))
    return regression(model, adam(model))


@program("training with clipped gradients")
def clipped():
    model = mlp()
    return regression(model, adam(model), lambda: torch.nn.utils.clip_grad_norm_(
        model.parameters(), 0.5))


@program("training in bfloat16 by autocast")
def autocast():
    model = mlp()

    def run(m, x):
        with torch.autocast(x.device.type, torch.bfloat16):
            return m(x).float()
    return regression(model, adam(model), wrap=run)


@program("training with a scaled loss and fused Adam")
def scaled():
    model = mlp()
    scaler = torch.amp.GradScaler("cuda" if torch.cuda.is_available() else "cpu", init_scale=256.0)
    optimizer = torch.optim.Adam(model.parameters(), capturable=base.CAPTURABLE, fused=True)
    x, t = torch.zeros(ROWS, WIDE), torch.zeros(ROWS, OUT)

    class Scaled:
        state = optimizer.state

        @staticmethod
        def zero_grad(set_to_none=True):
            optimizer.zero_grad(set_to_none)

        @staticmethod
        def step():
            scaler.step(optimizer)
            scaler.update()

    work = Training(model, Scaled, lambda m: scaler.scale(F.mse_loss(m(x), t)),
                    {"x": x, "t": t})
    scaler.scale(torch.zeros(1))  # makes the scale
    own = [scaler._scale, scaler._growth_tracker]
    settle = work.settle

    def settle_all():
        settle()
        work.state = work.state + own
    work.settle = settle_all
    return work


@program("training with checkpointed activations")
def checkpointed():
    from torch.utils.checkpoint import checkpoint
    model = mlp(torch.nn.Dropout(0.1))

    def run(m, x):
        return checkpoint(m, x, use_reentrant=False, preserve_rng_state=False)
    return regression(model, adam(model), wrap=run)


@program("training with averaged weights")
def averaged():
    model = mlp()
    mean = [p.detach().clone() for p in model.parameters()]

    def average():
        torch._foreach_lerp_(mean, [p.detach() for p in model.parameters()], 0.01)
    work = regression(model, adam(model), average)
    settle = work.settle

    def settle_all():
        settle()
        work.state = work.state + mean
    work.settle = settle_all
    return work


@program("training with weight norm and spectral norm")
def normalised():
    from torch.nn.utils import parametrizations
    model = mlp()
    parametrizations.weight_norm(model[0])
    parametrizations.spectral_norm(model[-1])
    return regression(model, adam(model))


@program("training of a transformer encoder layer")
def transformer():
    model = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    x, t = torch.zeros(4, 24, 64), torch.zeros(4, 24, 64)
    return Training(model, adam(model), lambda m: F.mse_loss(m(x), t), {"x": x, "t": t})


@program("training of an LSTM")
def lstm():
    model = torch.nn.LSTM(32, 64, batch_first=True)
    x, t = torch.zeros(4, 16, 32), torch.zeros(4, 16, 64)
    return Training(model, torch.optim.RMSprop(model.parameters(), capturable=base.CAPTURABLE),
                    lambda m: F.mse_loss(m(x)[0], t), {"x": x, "t": t})


@program("training of a convolutional autoencoder")
def autoencoder():
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1))
    x = torch.zeros(4, 3, 32, 32)
    return Training(model, adam(model), lambda m: F.mse_loss(m(x), x), {"x": x})


@program("training with batch norm", pinned=True)
def batch_norm():
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
                          nn.Linear(16 * 30 * 30, 10))
    x, t = torch.zeros(8, 3, 32, 32), torch.zeros(8, dtype=torch.int64)
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01),
                    lambda m: F.cross_entropy(m(x), t), {"x": x, "t": t})
