# SPDX-License-Identifier: Apache-2.0
import enum


class CUDAGraphMode(enum.Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (FULL, NONE)
    FULL_AND_PIECEWISE = (FULL, PIECEWISE)

    def modes(self):
        """The modes of the graphs that are captured, in this order."""
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        return [CUDAGraphMode(value) for value in sorted(values) if value]
