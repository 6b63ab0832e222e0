# SPDX-License-Identifier: Apache-2.0
"""Host work of a later start that a thread does beside the loading of weights.

Triton finds a kernel in its cache by a hash of its own files, 400 MB, and of the version of an
assembler that it asks. An engine computes them while it profiles or captures, which a later start
omits. They would delay the first kernel by half a second.
"""
import threading

from . import log


def _run(arch):
    try:
        from triton.backends.nvidia.compiler import get_ptxas_version
        from triton.runtime.cache import triton_key
        triton_key()
        get_ptxas_version(arch)
    except Exception as e:  # Triton computes them when it needs them
        log.debug("Foundry: nothing was done ahead: %r", e)


def begin(arch):
    """Begin, for kernels of an architecture such as 90. Returns the thread."""
    thread = threading.Thread(target=_run, args=(arch,), name="foundry-ahead", daemon=True)
    thread.start()
    return thread
