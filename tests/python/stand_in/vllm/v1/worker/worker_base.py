# SPDX-License-Identifier: Apache-2.0


class WorkerWrapperBase:
    def init_worker(self, config):
        from vllm.v1.worker.gpu_worker import Worker
        self.worker = Worker(config)
