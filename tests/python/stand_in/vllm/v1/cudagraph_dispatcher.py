# SPDX-License-Identifier: Apache-2.0
from vllm.forward_context import BatchDescriptor


class CudagraphDispatcher:
    def __init__(self, mode, sizes):
        self._descs = [(each, [BatchDescriptor(size) for size in sizes]) for each in mode.modes()]

    def get_capture_descs(self):
        return self._descs
