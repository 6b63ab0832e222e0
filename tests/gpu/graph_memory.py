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

PTX = b"""
.version 8.3
.target sm_80
.address_size 64
.visible .entry mix(.param .u64 out, .param .u64 salt)
{
    .reg .b64 %o, %v, %s;
    ld.param.u64 %o, [out];
    ld.param.u64 %s, [salt];
    cvta.to.global.u64 %o, %o;
    ld.volatile.global.u64 %v, [%o];
    mad.lo.u64 %v, %v, 31, %s;
    st.volatile.global.u64 [%o], %v;
    ret;
}
"""
SET_DEPENDENCIES = 1
SIZES = (512, 65536, 8 << 20)
LAUNCHES = 4


class Params(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int),
                ("device", ctypes.c_int), ("rest", ctypes.c_uint8 * 72),
                ("descs", ctypes.c_void_p), ("count", ctypes.c_size_t),
                ("size", ctypes.c_size_t), ("address", ctypes.c_uint64)]


def call(name, *args):
    """Calls the library that this process finds as libcuda.so.1: the interposer."""
    result = getattr(ctypes.CDLL("libcuda.so.1"), name)(*args)
    assert result == 0, f"{name} answered {result}"


class Program:
    def __init__(self):
        import torch
        # Word 0 is the input, words 1 and 2 are results.
        self.words = torch.zeros(4, dtype=torch.int64, device="cuda")
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(self.module), PTX)
        call("cuModuleGetFunction", ctypes.byref(self.function), self.module, b"mix")
        self.left = None  # the address that graph_left leaves

    def mix(self, stream, address, salt):
        words = [ctypes.c_uint64(v) for v in (address, salt)]
        params = (ctypes.c_void_p * 2)(*(ctypes.addressof(w) for w in words))
        call("cuLaunchKernel", self.function, 1, 1, 1, 1, 1, 1, 0, stream, params, None)

    def copy(self, stream, to, source):
        call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source),
             ctypes.c_size_t(8), stream)

    def word(self, i):
        return self.words.data_ptr() + 8 * i

    def node(self, stream, name, last):
        """Adds a node with `name` and the last parameter after the newest node of the stream."""
        status, number = ctypes.c_int(), ctypes.c_uint64()
        graph, deps, data = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        count, node = ctypes.c_size_t(), ctypes.c_void_p()
        call("cuStreamGetCaptureInfo_v3", stream, *map(ctypes.byref, (
            status, number, graph, deps, data, count)))
        call(name, ctypes.byref(node), graph, deps, count, last)
        call("cuStreamUpdateCaptureDependencies_v2", stream, ctypes.byref(node), None,
             ctypes.c_size_t(1), SET_DEPENDENCIES)
        return node

    def alloc(self, stream, size):
        params = Params(type=1, location=1, size=size)
        node = self.node(stream, "cuGraphAddMemAllocNode", ctypes.byref(params))
        kind, told = ctypes.c_int(), Params()
        call("cuGraphNodeGetType", node, ctypes.byref(kind))
        call("cuGraphMemAllocNodeGetParams", node, ctypes.byref(told))
        assert kind.value == 10 and told.address == params.address and told.size == size
        return params.address

    def free(self, stream, address):
        node, told = self.node(stream, "cuGraphAddMemFreeNode", ctypes.c_uint64(address)), \
            ctypes.c_uint64()
        call("cuGraphMemFreeNodeGetParams", node, ctypes.byref(told))
        assert told.value == address

    def graph_freed(self, s):
        for salt, size in enumerate(SIZES):
            p = self.alloc(s, size) + size - 8
            self.copy(s, p, self.word(1 if salt else 0))
            self.mix(s, p, salt)
            self.copy(s, self.word(1), p)
            self.free(s, p + 8 - size)

    def graph_two(self, s):
        a, b = self.alloc(s, SIZES[1]), self.alloc(s, SIZES[1])
        self.copy(s, a, self.word(0))
        self.mix(s, a, 5)
        self.copy(s, b, a)
        self.free(s, a)
        c = self.alloc(s, SIZES[1])
        self.copy(s, c, b)
        self.mix(s, b, 6)
        self.mix(s, c, 7)
        self.copy(s, self.word(1), b)
        self.copy(s, self.word(2), c)
        self.free(s, b)
        self.free(s, c)

    def graph_left(self, s):
        self.left = self.alloc(s, SIZES[2])
        self.copy(s, self.left, self.word(0))
        self.mix(s, self.left, 9)

    def graph_reads(self, s):
        self.copy(s, self.word(1), self.left)


GRAPHS = ("graph_freed", "graph_two", "graph_left", "graph_reads")


def expected(key, x, left):
    """Returns words 1 and 2 after a launch, and what is left, from word 0 and what was left."""
    def mixed(x, *salts):
        for salt in salts:
            x = (x * 31 + salt) % 2**64
        return x
    return ((mixed(x, 0, 1, 2), 0, left), (mixed(x, 5, 6), mixed(x, 5, 7), left),
            (0, 0, mixed(x, 9)), (left, 0, left))[key]


def capture(store):
    import foundry
    import torch
    with foundry.Capture() as cap:
        program = Program()
        stream = torch.cuda.Stream()
        program.mix(ctypes.c_void_p(stream.cuda_stream), program.word(3), 0)
        torch.cuda.synchronize()
        for key, name in enumerate(GRAPHS):
            with cap.graph(key, name=name, stream=stream):
                getattr(program, name)(ctypes.c_void_p(stream.cuda_stream))
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
    for launch in range(LAUNCHES):
        for key in (0, 1, 2, 3) if launch else (2, 0, 1, 3):
            words = (1000 + launches, 0, 0, 0)
            img.write("words", b"".join(w.to_bytes(8, "little") for w in words))
            img.launch(key)
            got = img.read("words")
            got = tuple(int.from_bytes(got[i:i + 8], "little") for i in (8, 16))
            *want, left = expected(key, words[0], left)
            assert got == tuple(want), f"{GRAPHS[key]}: {got} and not {want}"
            launches += 1
    print(f"{launches} launches of 4 graphs: every word is right")


PARTS = (capture, load)

if __name__ == "__main__":
    parts.main(PARTS, parts.captured_then_loaded)
