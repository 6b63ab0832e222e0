# SPDX-License-Identifier: Apache-2.0


class TritonAttnBackend:
    """It keeps nothing for a batch size."""

    forward_metadata = None

    def init_cuda_graph_state(self):
        pass

    def init_forward_metadata_out_graph(self, size, in_capture=False):
        pass
