# SPDX-License-Identifier: Apache-2.0


class TritonAttnBackend:
    """It has no state."""
