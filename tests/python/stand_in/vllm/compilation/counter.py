# SPDX-License-Identifier: Apache-2.0
import types

compilation_counter = types.SimpleNamespace(num_inductor_compiles=0, num_compiled_artifacts_saved=0)
