# SPDX-License-Identifier: Apache-2.0
import dataclasses


@dataclasses.dataclass(frozen=True)
class ShapeKey:
    size: int
    stream_idx: int = None
