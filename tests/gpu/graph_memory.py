# SPDX-License-Identifier: Apache-2.0
"""Tests nodes that allocate and free memory: captured in one process, loaded and launched in
another.

The program adds such nodes to the graph that captures, as CUDA C programs do. The graphs: memory
that the graph frees, two allocations of which one is freed between, memory that it leaves to the
program, and a graph that reads what another one left. Each result is compared with Python's.
"""
import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import (MIX, U64, AllocNode, call, function, launch, memory_node,  # noqa: E402
                         mixed, module_load, stream_of, word_copy)

SIZES = (512, 65536, 8 << 20)
LAUNCHES = 4


class Program:
    def __init__(self):
        import torch
        # Word 0 is the input, words 1 and 2 are results.
        self.words = torch.zeros(4, dtype=torch.int64, device="cuda")
        self.function = function(module_load(MIX), "mix")
        self.left = None  # the address that graph_left leaves

    def mix(self, stream, address, salt):
        launch(self.function, stream, address, salt)

    def word(self, i):
        return self.words.data_ptr() + 8 * i

    def alloc(self, stream, size):
        params = AllocNode(type=1, location=1, size=size)
        node = memory_node(stream, "cuGraphAddMemAllocNode", ctypes.byref(params))
        kind, told = ctypes.c_int(), AllocNode()
        call("cuGraphNodeGetType", node, ctypes.byref(kind))
        call("cuGraphMemAllocNodeGetParams", node, ctypes.byref(told))
        assert kind.value == 10 and told.address == params.address and told.size == size
        return params.address

    def free(self, stream, address):
        node, told = memory_node(stream, "cuGraphAddMemFreeNode", U64(address)), U64()
        call("cuGraphMemFreeNodeGetParams", node, ctypes.byref(told))
        assert told.value == address

    def graph_freed(self, s):
        for salt, size in enumerate(SIZES):
            p = self.alloc(s, size) + size - 8
            word_copy(s, p, self.word(1 if salt else 0))
            self.mix(s, p, salt)
            word_copy(s, self.word(1), p)
            self.free(s, p + 8 - size)

    def graph_two(self, s):
        a, b = self.alloc(s, SIZES[1]), self.alloc(s, SIZES[1])
        word_copy(s, a, self.word(0))
        self.mix(s, a, 5)
        word_copy(s, b, a)
        self.free(s, a)
        c = self.alloc(s, SIZES[1])
        word_copy(s, c, b)
        self.mix(s, b, 6)
        self.mix(s, c, 7)
        word_copy(s, self.word(1), b)
        word_copy(s, self.word(2), c)
        self.free(s, b)
        self.free(s, c)

    def graph_left(self, s):
        self.left = self.alloc(s, SIZES[2])
        word_copy(s, self.left, self.word(0))
        self.mix(s, self.left, 9)

    def graph_reads(self, s):
        word_copy(s, self.word(1), self.left)


GRAPHS = ("graph_freed", "graph_two", "graph_left", "graph_reads")


def expected(key, x, left):
    """Returns words 1 and 2 after a launch, and what is left, from word 0 and what was left."""
    return ((mixed(x, 0, 1, 2), 0, left), (mixed(x, 5, 6), mixed(x, 5, 7), left),
            (0, 0, mixed(x, 9)), (left, 0, left))[key]


def capture(store):
    import foundry
    import torch
    with foundry.Capture() as cap:
        program = Program()
        stream = torch.cuda.Stream()
        program.mix(stream_of(stream), program.word(3), 0)
        torch.cuda.synchronize()
        for key, name in enumerate(GRAPHS):
            with cap.graph(key, name=name, stream=stream):
                getattr(program, name)(stream_of(stream))
        program.words.zero_()
        torch.cuda.synchronize()
        cap.tensor("words", program.words, use="state")
        sealed = cap.seal(store, "memory")
        print("sealed", sealed.id, sealed.nodes, "nodes")


def load(store):
    import foundry
    img = foundry.load("memory", store=store, poison=True)
    print(foundry.Store(store).describe("memory"))
    left, launches = 0, 0
    for i in range(LAUNCHES):
        for key in (0, 1, 2, 3) if i else (2, 0, 1, 3):
            words = (1000 + launches, 0, 0, 0)
            img.write("words", b"".join(w.to_bytes(8, "little") for w in words))
            img.launch(key)
            got = img.read("words")
            got = tuple(int.from_bytes(got[at:at + 8], "little") for at in (8, 16))
            *want, left = expected(key, words[0], left)
            assert got == tuple(want), f"{GRAPHS[key]}: {got} and not {want}"
            launches += 1
    print(f"{launches} launches of 4 graphs: every word is right")


PARTS = (capture, load)

if __name__ == "__main__":
    parts.main(PARTS, parts.captured_then_loaded)
