# SPDX-License-Identifier: Apache-2.0


class PiecewiseBackend:
    def __init__(self, function, index, backend):
        self.function, self.piecewise_compile_index, self.vllm_backend = function, index, backend

    def __call__(self, *args):
        return self.function(*args)
