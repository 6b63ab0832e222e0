# SPDX-License-Identifier: Apache-2.0
import os

from vllm import envs
from vllm.compilation import backends, caching
from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper


def _try_load_aot_compiled_fn(model, path):
    if caching.read(path) is None:
        return None
    return backends.build(model.config)


class Compiled(TorchCompileWithNoGuardsWrapper):
    """A model whose first call compiles it, or loads the code of an earlier start. Without
    VLLM_USE_AOT_COMPILE it compiles in each process, and needs the arguments for that.
    """
    compiled = None

    def __call__(self, *args):
        if self.do_not_compile:
            return self.forward(*args)
        if not envs.VLLM_USE_AOT_COMPILE:
            size, = args
            self.compiled = self.compiled or backends.build(self.config)
            return self.compiled(self, size)
        if self.aot_compiled_fn is None:
            path = os.path.join(envs.VLLM_CACHE_ROOT, "aot", "model")
            self.aot_compiled_fn = _try_load_aot_compiled_fn(self, path)
            if self.aot_compiled_fn is None:
                self.aot_compiled_fn = backends.build(self.config)
                caching.write(path, backends.CODE)
        return self.aot_compiled_fn(self, *args)
