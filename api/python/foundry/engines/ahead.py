# SPDX-License-Identifier: Apache-2.0
"""Host work of a later start that a thread does beside the loading of weights.

Triton finds a kernel in its cache by a hash of its own files, 400 MB, and of the version of an
assembler that it asks. Inductor finds compiled code by the same hash and one of torch's sources. An
engine computes them while it profiles or captures, which a later start omits. They would delay the
first kernel by half a second, and compiled code by 0.2 s more.
"""
import sys
import threading

from . import log


def triton(arch):
    """Let Triton compute what it needs to find kernels for an architecture such as 90."""
    from triton.backends.nvidia.compiler import get_ptxas_version
    from triton.runtime.cache import triton_key
    triton_key()
    get_ptxas_version(arch)


def inductor():
    """Let Inductor compute what it needs to find compiled code, if it was imported. To import it
    here could disturb an import of the main thread, since its modules import each other.
    """
    codecache = sys.modules.get("torch._inductor.codecache")
    if codecache:
        codecache.torch_key()
    else:
        log.debug("Foundry: torch's hash is not computed ahead, because Inductor is not imported")


def _run(steps):
    for step in steps:
        try:
            step()
        except Exception as e:  # the engine does it when it needs it
            log.debug("Foundry: nothing was done ahead: %r", e)


def begin(*steps):
    """Begin to call functions without arguments. Returns the thread."""
    thread = threading.Thread(target=_run, args=(steps,), name="foundry-ahead", daemon=True)
    thread.start()
    return thread
