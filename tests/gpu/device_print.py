# SPDX-License-Identifier: Apache-2.0
"""Tests kernels that print and kernels with assertions, captured in one process and loaded in
another.

The code is the golden cubin for sm_90. The loading process shows what the kernel prints. Its
context gets the buffer of the capturing process' printf. A failed assertion ends the context.
"""
import ctypes
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import (SIZE, call, driver, function, launch, module_load,  # noqa: E402
                         stream_of)

CUBIN = os.path.join(HERE, os.pardir, "golden", "cubin", "syscalls.90.cubin")
FIFO = 1  # CU_LIMIT_PRINTF_FIFO_SIZE
FIFO_BYTES = 9 << 20
SAYS, CHECKS, FAILS = 1, 2, 3


def limit():
    value = SIZE()
    call("cuCtxGetLimit", ctypes.byref(value), FIFO)
    return value.value


def capture(store):
    import foundry
    import torch
    with foundry.Capture() as cap:
        out = torch.zeros(1, dtype=torch.int32, device="cuda")  # makes the context current
        call("cuCtxSetLimit", FIFO, SIZE(FIFO_BYTES))
        with open(CUBIN, "rb") as file:
            module = module_load(file.read())
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with cap.graph(SAYS, name="says", stream=stream):
            launch(function(module, "says"), stream_of(stream), ctypes.c_int(4711))
        with cap.graph(CHECKS, name="checks", stream=stream):
            launch(function(module, "checks"), stream_of(stream), out.data_ptr(), ctypes.c_int(5))
        with cap.graph(FAILS, name="fails", stream=stream):
            launch(function(module, "checks"), stream_of(stream), out.data_ptr(),
                   ctypes.c_int(500))
        torch.cuda.synchronize()
        cap.tensor("out", out, use="output")
        sealed = cap.seal(store, "print")
        print("sealed", sealed.id, sealed.nodes, "nodes")


def printed(img, key, stream):
    """Returns what a launch of a graph prints: the driver writes to the process' output."""
    import torch
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        img.launch(key, stream)
        torch.cuda.synchronize()
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
        file.seek(0)
        return file.read().decode()


def load(store):
    import foundry
    img = foundry.load("print", store=store, poison=True)
    import torch
    stream = torch.cuda.Stream()
    img.filled()
    assert limit() >= FIFO_BYTES, limit()
    for _ in range(3):
        text = printed(img, SAYS, stream)
        assert text == "n is 4711\n", repr(text)
    img.launch(CHECKS, stream)
    assert int.from_bytes(img.read("out", stream), "little") == 5
    img.launch(FAILS, stream)
    result = driver().cuCtxSynchronize()
    assert result == 710, f"the driver answered {result}, not CUDA_ERROR_ASSERT"
    print("printed, and the assertion ended the context")
    sys.stdout.flush()
    os._exit(0)  # nothing works in this context any more


PARTS = (capture, load)

if __name__ == "__main__":
    parts.main(PARTS, parts.captured_then_loaded)
