# SPDX-License-Identifier: Apache-2.0
"""Tests module variables that a program or a kernel wrote, captured in one process and loaded in
another.

A constant set by cuMemcpyHtoD, a counter of two kernels, a variable that points into the region,
and cuFFT, whose kernels read a table that the host writes (lut_sp). Pointers to variables: in
arguments, to a counter and to a constant; in memory, to a table that no kernel names; in a
variable, to that table. Constant memory of CuPy, if it is installed.
"""
import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import (SIZE, U64, call, current_stream, function, launch,  # noqa: E402
                         module_load, variable)

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 8 .u64 counter = 7;
.visible .global .align 8 .u64 pointer;
.visible .const .align 8 .u64 weights[4] = {1, 2, 3, 4};
.visible .global .align 8 .u64 table[4] = {5, 6, 7, 8};
.visible .global .align 8 .u64 second;
.visible .entry bump(.param .u64 out, .param .u64 by)
{
    .reg .b64 %o, %v, %b;
    ld.param.u64 %o, [out];
    cvta.to.global.u64 %o, %o;
    ld.param.u64 %b, [by];
    ld.global.u64 %v, [counter];
    add.u64 %v, %v, %b;
    st.global.u64 [counter], %v;
    st.global.u64 [%o], %v;
    ret;
}
.visible .entry bump_twice(.param .u64 out, .param .u64 by)
{
    .reg .b64 %o, %v, %b;
    ld.param.u64 %o, [out];
    cvta.to.global.u64 %o, %o;
    ld.param.u64 %b, [by];
    ld.global.u64 %v, [counter];
    add.u64 %v, %v, %b;
    add.u64 %v, %v, %b;
    st.global.u64 [counter], %v;
    st.global.u64 [%o], %v;
    ret;
}
.visible .entry pick(.param .u64 out, .param .u64 i)
{
    .reg .b64 %o, %v, %i, %w;
    ld.param.u64 %o, [out];
    cvta.to.global.u64 %o, %o;
    ld.param.u64 %i, [i];
    shl.b64 %i, %i, 3;
    mov.u64 %w, weights;
    add.u64 %w, %w, %i;
    ld.const.u64 %v, [%w];
    st.global.u64 [%o], %v;
    ret;
}
.visible .entry follow(.param .u64 out, .param .u64 unused)
{
    .reg .b64 %o, %v, %p;
    ld.param.u64 %o, [out];
    cvta.to.global.u64 %o, %o;
    ld.global.u64 %p, [pointer];
    cvta.to.global.u64 %p, %p;
    ld.global.u64 %v, [%p];
    st.global.u64 [%o], %v;
    ret;
}
.visible .entry follow_second(.param .u64 out, .param .u64 unused)
{
    .reg .b64 %o, %v, %p;
    ld.param.u64 %o, [out];
    cvta.to.global.u64 %o, %o;
    ld.global.u64 %p, [second];
    cvta.to.global.u64 %p, %p;
    ld.global.u64 %v, [%p];
    st.global.u64 [%o], %v;
    ret;
}
.visible .entry read_at(.param .u64 out, .param .u64 at)
{
    .reg .b64 %o, %v, %p;
    ld.param.u64 %o, [out];
    cvta.to.global.u64 %o, %o;
    ld.param.u64 %p, [at];
    cvta.to.global.u64 %p, %p;
    ld.global.u64 %v, [%p];
    st.global.u64 [%o], %v;
    ret;
}
.visible .entry deref(.param .u64 out, .param .u64 cell)
{
    .reg .b64 %o, %v, %p;
    ld.param.u64 %o, [out];
    cvta.to.global.u64 %o, %o;
    ld.param.u64 %p, [cell];
    cvta.to.global.u64 %p, %p;
    ld.global.u64 %p, [%p];
    cvta.to.global.u64 %p, %p;
    ld.global.u64 %v, [%p];
    st.global.u64 [%o], %v;
    ret;
}
"""
KERNELS = (("bump", 1), ("bump_twice", 5), ("pick", 2), ("follow", 0))
# By pointers: the counter, the last weight, the table by content and by a variable.
POINTED = (("read_at", "counter", 0), ("read_at", "weights", 24), ("deref", "table", 16),
           ("follow_second", "table", 8))
FIRST_POINTED = 4
FFTS = ((1 << 10, "complex64"), (1000, "complex64"), (1 << 15, "complex64"), (4099, "complex64"),
        (1 << 12, "complex128"))
INPUTS = 3
FIRST_FFT = 10


def address(module, name):
    """Returns the address of a variable."""
    return variable(module, name)[0]


def word_set(addr, value):
    call("cuMemcpyHtoD_v2", U64(addr), ctypes.byref(U64(value)), SIZE(8))


def fft_input(i, n, dtype):
    """Returns input i of a transform, the same in both processes."""
    import torch
    g = torch.Generator().manual_seed(1000 * n + i)
    return torch.randn(n, generator=g, dtype=getattr(torch, dtype))


CUPY = r"""
extern "C" __constant__ long long numbers[3];
extern "C" __global__ void sum(long long *out) { *out = numbers[0] + numbers[1] + numbers[2]; }
"""
CUPY_KEY = 9


def cupy_kernel():
    """Returns a launch of a CuPy kernel that adds the numbers in constant memory, or None."""
    try:
        import cupy
    except ImportError:
        print("CuPy is not installed: its part is left out")
        return None
    module = cupy.RawModule(code=CUPY)
    at = module.get_global("numbers")
    numbers = cupy.ndarray((3,), cupy.int64, at)
    numbers[...] = cupy.asarray([1000, 200, 30])
    kernel = module.get_function("sum")

    def launch(out, stream):
        with cupy.cuda.ExternalStream(stream.cuda_stream):
            kernel((1,), (1,), (cupy.uint64(out.data_ptr()),))
    return launch


def capture(store):
    import foundry
    import torch
    with foundry.Capture() as cap:
        out = torch.zeros(1, dtype=torch.int64, device="cuda")  # makes the context current
        module = module_load(PTX)
        cell = torch.full((1,), 77, device="cuda")
        x = [torch.zeros(n, dtype=getattr(torch, d), device="cuda") for n, d in FFTS]
        y = [torch.zeros_like(t) for t in x]
        word_set(address(module, "pointer"), cell.data_ptr())
        word_set(address(module, "second"), address(module, "table") + 8)
        cells = torch.full((64,), address(module, "table") + 16, device="cuda")
        cupy_sum = cupy_kernel()
        functions = [function(module, name) for name, _ in KERNELS]
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):  # the driver loads code at the first launch
            for (_, value), f in zip(KERNELS, functions):
                launch(f, current_stream(), out.data_ptr(), value)
            if cupy_sum:
                cupy_sum(out, stream)
            for a, b in zip(x, y):
                b.copy_(torch.fft.fft(a))
        torch.cuda.synchronize()
        for key, (name, value) in enumerate(KERNELS):
            with cap.graph(key, name=name, stream=stream):
                launch(functions[key], current_stream(), out.data_ptr(), value)
        for key, (name, to, offset) in enumerate(POINTED, FIRST_POINTED):
            at = cells.data_ptr() + 64 if name == "deref" else address(module, to) + offset
            with cap.graph(key, name=f"{name}-{to}", stream=stream):
                launch(function(module, name), current_stream(), out.data_ptr(), at)
        if cupy_sum:
            with cap.graph(CUPY_KEY, name="cupy", stream=stream):
                cupy_sum(out, stream)
        for key, (a, b) in enumerate(zip(x, y)):
            with cap.graph(FIRST_FFT + key, name=f"fft-{len(a)}", stream=stream):
                b.copy_(torch.fft.fft(a))
        word_set(address(module, "counter"), 50)
        for i in range(4):
            word_set(address(module, "weights") + 8 * i, 100 + i)
        torch.cuda.synchronize()
        cap.tensor("out", out, use="output")
        for i, (a, b) in enumerate(zip(x, y)):
            cap.tensor(f"x{i}", a, use="input")
            cap.tensor(f"y{i}", b, use="output")
        want = [[torch.fft.fft(fft_input(i, n, d).cuda()).cpu() for i in range(INPUTS)]
                for n, d in FFTS]
        torch.save(want, store + ".want")
        sealed = cap.seal(store, "variables")
        print("sealed", sealed.id, sealed.nodes, "nodes")


def run(img, key, stream):
    img.launch(key, stream)
    return int.from_bytes(img.read("out", stream), "little")


def load(store):
    import foundry
    img = foundry.load("variables", store=store, poison=True)
    for line in foundry.Store(store).describe("variables").split("\n"):
        if line.startswith(("variable", "pointer")):
            print(line)
    import torch
    stream = torch.cuda.Stream()
    has_cupy = CUPY_KEY in img.graphs()
    img.filled()
    for _ in range(2):
        got = [run(img, key, stream) for key in range(len(KERNELS))]
        assert got == [51, 61, 102, 77], got
        assert run(img, 0, stream) == 62
        got = [run(img, key, stream) for key in range(FIRST_POINTED, FIRST_POINTED + len(POINTED))]
        assert got == [62, 103, 7, 6], got
        if has_cupy:
            assert run(img, CUPY_KEY, stream) == 1230
        img.restore(stream)
    want = torch.load(store + ".want")
    for key, (n, dtype) in enumerate(FFTS):
        for i in range(INPUTS):
            img.write(f"x{key}", fft_input(i, n, dtype).numpy().tobytes(), stream)
            img.launch(FIRST_FFT + key, stream)
            got = img.read(f"y{key}", stream)
            assert got == want[key][i].numpy().tobytes(), f"fft of {n} {dtype}, input {i}"
    print("every byte is right")


PARTS = (capture, load)

if __name__ == "__main__":
    parts.main(PARTS, parts.captured_then_loaded)
