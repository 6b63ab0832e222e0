# SPDX-License-Identifier: Apache-2.0
"""Two ranks of the small engine in vLLM's place, each in a process of its own, on the software
driver: all load, or none does.
"""
import os

import engine_tests
import suite
from vllm_scripts import ENGINE, Engine


class Ranks(engine_tests.Ranks, Engine):
    SCRIPT = ENGINE.replace("{", "{{").replace("}", "}}") + """
{before}
worker = start(ranks=2, {options})
decodes(worker)
assert gpu_worker.COUNTS == {counts}, gpu_worker.COUNTS
"""
    VARIABLES, COUNTS = {"FOUNDRY_VLLM": "test"}, "ONCE"
    FAILING = """
        from foundry.vllm import worker as w
        def compare(*_):
            raise w.Unfit("of a test")
        w.Session.compare = compare
        """
    GROWING = """
        def grow(worker):
            original(worker)
            torch.distributed.map_memory()
        original, gpu_worker.kernel_warmup = gpu_worker.kernel_warmup, grow
        """

    def test_weights_of_all_ranks_come_from_images_or_none(self):
        os.makedirs(self.path("some/model"))
        with open(self.path("some/model/weight"), "w", encoding="ascii") as f:
            f.write("3.0")
        options = "load_format='foundry'"
        self.both(options=options)
        for rank, log in enumerate(self.both("LOADED", options=options)):
            self.assertIn(f"weights from 'test.rank{rank}.weights'", log)
        self.store("rm", "test.rank0.weights")
        for log in self.both("LOADED", options=options):
            self.assertIn("weights by the loader 'auto'", log)

    def test_what_is_not_supported_is_named(self):
        for options, variables, what in (
                ("custom=True", {}, "custom all-reduce"),
                ("", {"VLLM_ALLREDUCE_USE_SYMM_MEM": "1"}, "all-reduce by symmetric memory"),
                ("", {"STAND_IN_DEVICES": "1"}, "ranks on several hosts"),
                ("", {"NCCL_RUNTIME_CONNECT": "1"}, "NCCL that connects later"),
                ("", {"NCCL_CUMEM_ENABLE": "0"}, "NCCL that does not map its memory"),
                ("", {"NCCL_GRAPH_REGISTER": "1"}, "graphs that use buffers of other ranks")):
            for log in self.both(options=options, **variables):
                self.assertIn(f"started without an image, because images do not support {what}",
                              log)


if __name__ == "__main__":
    suite.main()
