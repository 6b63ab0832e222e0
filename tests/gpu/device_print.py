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

CUBIN = os.path.join(HERE, os.pardir, "golden", "cubin", "syscalls.90.cubin")
FIFO = 1  # CU_LIMIT_PRINTF_FIFO_SIZE
FIFO_BYTES = 9 << 20
SAYS, CHECKS, FAILS = 1, 2, 3


def driver():
    """Returns the library that this process finds as libcuda.so.1."""
    return ctypes.CDLL("libcuda.so.1")


def check(result):
    assert result == 0, f"the driver answered {result}"


def launch(module, name, stream, *values):
    found = ctypes.c_void_p()
    check(driver().cuModuleGetFunction(ctypes.byref(found), module, name))
    params = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
    check(driver().cuLaunchKernel(found, 1, 1, 1, 1, 1, 1, 0, ctypes.c_void_p(stream.cuda_stream),
                                  params, None))


def limit():
    value = ctypes.c_size_t()
    check(driver().cuCtxGetLimit(ctypes.byref(value), FIFO))
    return value.value


def capture(store):
    import foundry
    import torch
    with foundry.Capture() as cap:
        out = torch.zeros(1, dtype=torch.int32, device="cuda")  # makes the context current
        check(driver().cuCtxSetLimit(FIFO, ctypes.c_size_t(FIFO_BYTES)))
        module = ctypes.c_void_p()
        with open(CUBIN, "rb") as file:
            check(driver().cuModuleLoadData(ctypes.byref(module), file.read()))
        at = ctypes.c_uint64(out.data_ptr())
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with cap.graph(SAYS, name="says", stream=stream):
            launch(module, b"says", stream, ctypes.c_int(4711))
        with cap.graph(CHECKS, name="checks", stream=stream):
            launch(module, b"checks", stream, at, ctypes.c_int(5))
        with cap.graph(FAILS, name="fails", stream=stream):
            launch(module, b"checks", stream, at, ctypes.c_int(500))
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
