# SPDX-License-Identifier: Apache-2.0
import dataclasses


@dataclasses.dataclass
class LogitsProcessorOutput:
    next_token_logits: object
    hidden_states: object = None
