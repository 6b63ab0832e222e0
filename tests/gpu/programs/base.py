# SPDX-License-Identifier: Apache-2.0
"""The parts of every program: a step, its inputs, its state.

A builder runs while the default device is the GPU, so tensors and parameters are made there. The
step runs without that default, as it would in the program that it was taken from.
"""
import collections
import dataclasses
import typing

import torch

CAPTURABLE = True  # what optimizers are asked for; on the CPU they refuse it
PROGRAMS = {}  # by name, in the order in which they are declared


class Unavailable(Exception):
    """This machine lacks what the program needs."""


@dataclasses.dataclass
class Program:
    name: str
    build: typing.Callable
    needs: tuple    # modules that must be installed
    limit: int      # seconds for the capturing process
    pinned: bool    # whether pinned memory gets fixed addresses
    slow: bool      # starts before the others


@dataclasses.dataclass
class Work:
    """A step and the tensors that it reads and changes.

    inputs: by name. high: by name of an integer input, the number that its values stay below.
    state: tensors that a step changes and later steps read. before: called once, before the
    capture.
    """
    step: typing.Callable
    inputs: dict
    high: dict = dataclasses.field(default_factory=dict)
    state: typing.Sequence = ()
    before: typing.Callable = None
    grad: bool = False  # whether the step computes gradients


def program(name, needs=(), limit=100, pinned=False, slow=False):
    """Declares the builder below it as a program."""
    def declare(build):
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Program(name, build, needs, limit, pinned, slow)
        return build
    return declare


def random_values(tensor, seed, high=10):
    """Values for an input, on the host, equal in every process: numbers of the normal distribution,
    or integers below `high`.
    """
    numbers = torch.Generator("cpu").manual_seed(seed)
    if tensor.dtype == torch.bool:
        return torch.randint(2, tensor.shape, generator=numbers, device="cpu").bool()
    if not tensor.dtype.is_floating_point and not tensor.dtype.is_complex:
        return torch.randint(high, tensor.shape, generator=numbers, device="cpu").to(tensor.dtype)
    kind = tensor.dtype if tensor.dtype.is_complex else torch.float32
    return torch.randn(tensor.shape, generator=numbers, dtype=kind, device="cpu").to(tensor.dtype)


def values_of(work, seed):
    """{name: values on the host} of all inputs for the set of inputs `seed`."""
    return {name: random_values(t, 1000 * seed + i, work.high.get(name, 10))
            for i, (name, t) in enumerate(sorted(work.inputs.items()))}


def flat(result):
    """The tensors in what a step returned, in a fixed order."""
    if isinstance(result, torch.Tensor):
        return [result.detach()]
    if isinstance(result, collections.abc.Mapping):
        return [t for key in result for t in flat(result[key])]
    if isinstance(result, (list, tuple)):
        return [t for each in result for t in flat(each)]
    return []


def without_zeros(model):
    """Some layers begin as zeros, which would hide what is before them."""
    for p in model.parameters():
        if not p.any():
            torch.nn.init.normal_(p, 0, 0.05)
    return model


def forward(module, *names, dtype=None, high=None, pick=None, **inputs):
    """A step that calls `module` with the inputs, in evaluation mode. Inputs in `names` pass by
    position, all others by keyword.
    """
    if isinstance(module, torch.nn.Module):
        module = module.eval().to(dtype=dtype) if dtype else module.eval()

    def step():
        rest = {k: v for k, v in inputs.items() if k not in names}
        result = module(*(inputs[n] for n in names), **rest)
        return pick(result) if pick else result
    return Work(step, inputs, high or {})


def changed_by(model, optimizer):
    """The parameters, buffers and the optimizer's tensors on the model's device."""
    found = [*model.parameters(), *model.buffers()]
    for p in model.parameters():
        kept = optimizer.state.get(p, {})
        found += [kept[name] for name in sorted(kept) if isinstance(kept[name], torch.Tensor)]
    device = next(model.parameters()).device
    return [t.detach() for t in found if t.device == device and t.numel()]


class Training(Work):
    """A step of training: forward, backward, optimizer. Returns the loss."""

    def __init__(self, model, optimizer, loss, inputs, high=None, between=None):
        model.train()

        def step():
            optimizer.zero_grad(set_to_none=True)
            value = loss(model)
            value.backward()
            if between:
                between()
            optimizer.step()
            return value.detach()
        super().__init__(step, inputs, high or {}, (), optimizer.zero_grad, True)
        self.model, self.optimizer = model, optimizer

    def settle(self):
        """Note the state, which optimizers make in their first step."""
        self.state = changed_by(self.model, self.optimizer)
