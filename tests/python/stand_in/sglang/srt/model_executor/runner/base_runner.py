# SPDX-License-Identifier: Apache-2.0
from sglang.srt.model_executor.counts import COUNTS, collective


class BaseRunner:
    def _dummy_run(self, batch_size, *, buffers):
        assert batch_size in self.capture_bs and buffers is self.buffers
        COUNTS["dummy_run"] += 1
        collective(self.model_runner)
        self.model_runner.model.forward(batch_size)
