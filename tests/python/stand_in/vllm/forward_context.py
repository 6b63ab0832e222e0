# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
import types

_now = []


@dataclasses.dataclass(frozen=True)
class BatchDescriptor:
    num_tokens: int
    num_reqs: int | None = None
    uniform: bool = False
    has_lora: bool = False
    num_active_loras: int = 0


@contextlib.contextmanager
def set_forward_context(mode, batch):
    _now.append(types.SimpleNamespace(cudagraph_runtime_mode=mode, batch_descriptor=batch))
    try:
        yield
    finally:
        _now.pop()


def get_forward_context():
    return _now[-1]
