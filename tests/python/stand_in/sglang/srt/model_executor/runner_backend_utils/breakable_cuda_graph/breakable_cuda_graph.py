# SPDX-License-Identifier: Apache-2.0
import torch

_capturing = []


def weak(value):
    if not isinstance(value, torch.Tensor):
        return value
    return torch.Tensor(value.data_ptr(), value.shape, keep=lambda: None)


def _copy_output(dst, src):
    assert dst is None
    return src


def eager_on_graph(inner):
    def wrapper(*args, **kwargs):
        if not _capturing:
            return inner(*args, **kwargs)
        capture = _capturing[-1]
        capture.end()
        output = inner(*args, **kwargs)
        captured_inner, captured_output = inner, weak(output)
        captured_args = tuple(map(weak, args))
        captured_kwargs = {key: weak(value) for key, value in kwargs.items()}

        def replay_fn():
            return _copy_output(captured_output, captured_inner(*captured_args, **captured_kwargs))
        capture.graph._break_fns.append(replay_fn)
        capture.begin()
        return output
    return wrapper


class BreakableCUDAGraph:
    def __init__(self):
        self._segments, self._break_fns = [], []

    def replay(self):
        for i, each in enumerate(self._segments):
            each.replay()
            if i < len(self._break_fns):
                self._break_fns[i]()


class Capture:
    def __init__(self, graph, pool):
        self.graph, self.pool, self.stream = graph, pool, torch.cuda.stream(torch.cuda.Stream())

    def begin(self):
        self.current = torch.cuda.CUDAGraph()
        self.current.capture_begin(pool=self.pool)

    def end(self):
        self.current.capture_end()
        self.graph._segments.append(self.current)

    def __enter__(self):
        self.stream.__enter__()
        _capturing.append(self)
        self.begin()

    def __exit__(self, *_):
        self.end()
        _capturing.pop()
        self.stream.__exit__()
