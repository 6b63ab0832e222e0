# SPDX-License-Identifier: Apache-2.0


class TorchCompileWithNoGuardsWrapper:
    do_not_compile = False
    aot_compiled_fn = None
