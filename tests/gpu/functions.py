# SPDX-License-Identifier: Apache-2.0
"""Tests functions that kernels call through pointers, in code linked from several files.

A graph whose kernel reads tables of functions gives the same numbers in a process that loads the
image. These are refused, by name: a pointer to a function as an argument, or in memory that a graph
reads; a table that the program has changed; code with a function that no table has. A table that
holds other addresses than those of code is refused, too, and the GPU still works afterwards. The
kernels are those of tests/golden/cubin/tables.cu.
"""
import ctypes
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import (SIZE, U64, call, current_stream, function, launch,  # noqa: E402
                         module_load, variable)

CUBINS = os.path.join(parts.ROOT, "tests", "golden", "cubin")
X = 5
WANT = {0: 26 + 130, 1: 130 + 130}  # table[which](5) + again[0](5): 5 * 5 + 1, and that times 5


class Code:
    """A cubin that is loaded."""

    def __init__(self, name):
        with open(os.path.join(CUBINS, name), "rb") as f:
            self.module = module_load(f.read())

    def table(self, name):
        """The address of a variable, and its words."""
        addr, size = variable(self.module, name)
        words = ctypes.create_string_buffer(size)
        call("cuMemcpyDtoH_v2", words, U64(addr), SIZE(size))
        return addr, list(struct.unpack(f"<{size // 8}Q", words.raw))

    def write(self, name, words):
        addr, before = self.table(name)
        call("cuMemcpyHtoD_v2", U64(addr), struct.pack(f"<{len(before)}Q", *words),
             SIZE(8 * len(before)))

    def launch(self, name, out, third):
        launch(function(self.module, name), current_stream(), out.data_ptr(), ctypes.c_int32(X),
               third, threads=4)


def captured(cap, code, launches):
    """Captures launches (kernel, third argument) as graphs 0, 1, ... Returns their output."""
    import torch
    out = torch.zeros(4, dtype=torch.int32, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for name, third in launches:  # the driver loads code at the first launch
            code.launch(name, out, third)
    torch.cuda.synchronize()
    for key, (name, third) in enumerate(launches):
        with cap.graph(key, stream=stream):
            code.launch(name, out, third)
    cap.tensor("out", out, use="output")
    return out


TABLE = [("by_table", ctypes.c_int32(which)) for which in WANT]


def capture(store):
    import foundry
    import torch
    with foundry.Capture() as cap:
        torch.zeros(1, device="cuda")  # makes the context current
        code = Code("tables.90.cubin")
        print("tables:", {name: list(map(hex, code.table(name)[1])) for name in ("table", "again")})
        captured(cap, code, TABLE)
        sealed = cap.seal(store, "functions")
        print("sealed", sealed.id[:12], sealed.kernels, "kernel,", sealed.kernels_whole, "whole")
        assert sealed.kernels_whole == 1


def load(store):
    import foundry
    import torch
    held = torch.zeros(1 << 20, device="cuda")
    other = Code("linked.90.cubin")  # the image's code gets another place
    image = foundry.load("functions", store=store, poison=True)
    for _ in range(3):
        for key, want in WANT.items():
            image.launch(key)
            found = struct.unpack("<4i", image.read("out"))
            assert found == (want,) * 4, (key, found)
    print("every number is right", len(held), bool(other.module))


def refused(store, kind):
    """Seals one thing that is refused. Prints the message."""
    import foundry
    import torch
    with foundry.Capture() as cap:
        torch.zeros(1, device="cuda")
        code = Code("untabled.90.cubin" if kind == "untabled" else "tables.90.cubin")
        one, two = code.table("table")[1]
        launches = TABLE
        if kind == "argument":
            launches = [("by_argument", ctypes.c_uint64(one)), *TABLE]
        kept = torch.tensor([7, two, 7], device="cuda") if kind == "memory" else None
        out = captured(cap, code, launches)
        if kind == "swapped":
            code.write("table", [two, one])
            code.write("again", [one])
        if kind == "foreign":
            code.write("table", [out.data_ptr(), two])
        torch.cuda.synchronize()
        try:
            cap.seal(store, "refused")
        except foundry.Error as e:
            print(f"{kind}: {e}", flush=True)
            message = str(e)
        else:
            raise AssertionError(f"{kind} was sealed")
        for word in {"argument": ("graph 0", "by_argument", "_Z3onei"),
                     "memory": ("_Z3twoi", "allocation"), "swapped": ("is not there",),
                     "foreign": ("no address of code",), "untabled": ("no table",)}[kind]:
            assert word in message, (kind, word)
        code.write("table", [one, two])
        code.write("again", [two])
        if kind == "memory":
            kept.zero_()
        out.fill_(1)
        torch.cuda.synchronize()
        assert out.tolist() == [1] * 4  # the context works


KINDS = ("argument", "memory", "swapped", "foreign", "untabled")


def whole():
    results = parts.captured_then_loaded()
    with tempfile.TemporaryDirectory() as folder:
        return [*results, *(parts.run("refused", folder, kind) for kind in KINDS)]


if __name__ == "__main__":
    parts.main((capture, load, refused), whole)
