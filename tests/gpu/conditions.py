# SPDX-License-Identifier: Apache-2.0
"""Tests conditional nodes: captured in one process, loaded and launched in another.

Kernels set conditions from tensors, as torch.cond() and torch.while_loop() would within a graph.
The graphs: an if with two bodies, a loop, a switch with three bodies, a loop around an if, and a
loop whose body allocates memory and frees it. Each result is compared with Python's. The calls of
the driver are those that PyTorch and CUDA C make: a handle, a node in the graph that captures, and
a capture to each body on a stream of its own.

A part without Foundry prints what the driver alone does with allocation nodes in bodies.
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
.extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);
.visible .entry decide(.param .u64 handle, .param .u64 value, .param .u64 down)
{
    .reg .b64 %h, %p, %v, %d;
    .reg .b32 %w;
    ld.param.u64 %h, [handle];
    ld.param.u64 %p, [value];
    ld.param.u64 %d, [down];
    cvta.to.global.u64 %p, %p;
    ld.volatile.global.u64 %v, [%p];
    sub.u64 %v, %v, %d;
    st.volatile.global.u64 [%p], %v;
    cvt.u32.u64 %w, %v;
    { .param .b64 a; .param .b32 b; st.param.b64 [a+0], %h; st.param.b32 [b+0], %w;
    call.uni cudaGraphSetConditional, (a, b); }
    ret;
}
.visible .entry mix(.param .u64 out, .param .u64 salt, .param .u64 unused)
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
IF, WHILE, SWITCH = range(3)
NODE_CONDITIONAL = 13
SIZE = 65536  # of the memory that a body allocates
RELAXED = 2
STEPS = 4


class Params(ctypes.Structure):
    """CUgraphNodeParams with the members of a conditional node."""

    _fields_ = [("type", ctypes.c_int), ("reserved0", ctypes.c_int * 3),
                ("handle", ctypes.c_uint64), ("kind", ctypes.c_int), ("size", ctypes.c_uint),
                ("bodies", ctypes.POINTER(ctypes.c_void_p)), ("ctx", ctypes.c_void_p),
                ("rest", ctypes.c_uint8 * 200), ("reserved2", ctypes.c_int64)]


class Memory(ctypes.Structure):
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
        self.torch = torch
        # Word 0 is the result, words 1 and 2 are what conditions are set from.
        self.words = torch.zeros(4, dtype=torch.int64, device="cuda")
        self.module = ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(self.module), PTX)
        self.functions = {}
        for name in ("decide", "mix"):
            self.functions[name] = ctypes.c_void_p()
            call("cuModuleGetFunction", ctypes.byref(self.functions[name]), self.module,
                 name.encode())
        self.ctx = ctypes.c_void_p()
        call("cuCtxGetCurrent", ctypes.byref(self.ctx))
        self.streams = [ctypes.c_void_p() for _ in range(2)]  # for bodies, by depth
        for stream in self.streams:
            call("cuStreamCreate", ctypes.byref(stream), 1)

    def launch(self, stream, name, *values):
        words = [ctypes.c_uint64(v) for v in (*values, 0, 0)[:3]]
        params = (ctypes.c_void_p * 3)(*(ctypes.addressof(w) for w in words))
        call("cuLaunchKernel", self.functions[name], 1, 1, 1, 1, 1, 1, 0, stream, params, None)

    def mix(self, stream, salt):
        self.launch(stream, "mix", self.words.data_ptr(), salt)

    def decide(self, stream, handle, word, down=0):
        self.launch(stream, "decide", handle.value, self.words.data_ptr() + 8 * word, down)

    def info(self, stream):
        status, number = ctypes.c_int(), ctypes.c_uint64()
        graph, deps, data = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        count = ctypes.c_size_t()
        call("cuStreamGetCaptureInfo_v3", stream, *map(ctypes.byref, (
            status, number, graph, deps, data, count)))
        return graph, deps, data, count

    def handle(self, stream):
        handle = ctypes.c_uint64()
        call("cuGraphConditionalHandleCreate", ctypes.byref(handle), self.info(stream)[0],
             self.ctx, 0, 0)
        return handle

    def node(self, stream, kind, handle, *bodies):
        """Adds a conditional node; each of `bodies` is called with the stream of its capture."""
        params = Params(type=NODE_CONDITIONAL, handle=handle.value, kind=kind, size=len(bodies),
                        ctx=self.ctx)
        node, graph = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuGraphAddNode_v2", ctypes.byref(node), *self.info(stream), ctypes.byref(params))
        call("cuStreamUpdateCaptureDependencies_v2", stream, ctypes.byref(node), None,
             ctypes.c_size_t(1), 1)
        inner = self.streams.pop()
        for i, body in enumerate(bodies):
            call("cuStreamBeginCaptureToGraph", inner, ctypes.c_void_p(params.bodies[i]), None,
                 None, ctypes.c_size_t(0), RELAXED)
            body(inner)
            call("cuStreamEndCapture", inner, ctypes.byref(graph))
        self.streams.append(inner)

    def graph_if(self, s):
        h = self.handle(s)
        self.decide(s, h, 1)
        self.node(s, IF, h, lambda t: self.mix(t, 1), lambda t: self.mix(t, 2))
        self.mix(s, 3)

    def graph_while(self, s):
        h = self.handle(s)
        self.decide(s, h, 1)

        def body(t):
            self.mix(t, 5)
            self.decide(t, h, 1, 1)
        self.node(s, WHILE, h, body)
        self.mix(s, 3)

    def graph_switch(self, s):
        h = self.handle(s)
        self.decide(s, h, 1)
        self.node(s, SWITCH, h, *(lambda t, i=i: self.mix(t, 10 + i) for i in range(3)))
        self.mix(s, 3)

    def memory_node(self, stream, name, last):
        """Adds a node of memory with `name` and the last parameter after the stream's newest."""
        graph, deps, _, count = self.info(stream)
        node = ctypes.c_void_p()
        call(name, ctypes.byref(node), graph, deps, count, last)
        call("cuStreamUpdateCaptureDependencies_v2", stream, ctypes.byref(node), None,
             ctypes.c_size_t(1), 1)

    def copy(self, stream, to, source):
        call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source),
             ctypes.c_size_t(8), stream)

    def graph_memory(self, s):
        h = self.handle(s)
        self.decide(s, h, 1)

        def body(t):
            memory = Memory(type=1, location=1, size=SIZE)
            self.memory_node(t, "cuGraphAddMemAllocNode", ctypes.byref(memory))
            at = memory.address + SIZE - 8
            self.copy(t, at, self.words.data_ptr())
            self.launch(t, "mix", at, 4)
            self.copy(t, self.words.data_ptr(), at)
            self.memory_node(t, "cuGraphAddMemFreeNode", ctypes.c_uint64(memory.address))
            self.decide(t, h, 1, 1)
        self.node(s, WHILE, h, body)
        self.mix(s, 3)

    def graph_nested(self, s):
        h = self.handle(s)
        self.decide(s, h, 1)

        def body(t):
            inner = self.handle(t)
            self.decide(t, inner, 2)
            self.node(t, IF, inner, lambda u: self.mix(u, 7))
            self.mix(t, 8)
            self.decide(t, h, 1, 1)
        self.node(s, WHILE, h, body)


def expected(key, x, a, b):
    """Returns the words after a launch with these words before."""
    def mixed(x, *salts):
        for salt in salts:
            x = (x * 31 + salt) % 2**64
        return x
    if key == 0:
        return mixed(x, 1 if a else 2, 3), a, b
    if key == 1:
        return mixed(x, *([5] * a), 3), 0, b
    if key == 2:
        return mixed(x, *([10 + a] if a < 3 else []), 3), a, b
    if key == 3:
        return mixed(x, *((7, 8) if b else (8,)) * a), 0, b
    return mixed(x, *([4] * a), 3), 0, b


def capture(store):
    import foundry
    import torch
    with foundry.Capture() as cap:
        program = Program()
        stream = torch.cuda.Stream()
        program.mix(ctypes.c_void_p(stream.cuda_stream), 0)
        torch.cuda.synchronize()
        graphs = (program.graph_if, program.graph_while, program.graph_switch,
                  program.graph_nested, program.graph_memory)
        for key, make in enumerate(graphs):
            with cap.graph(key, name=make.__name__, stream=stream):
                make(ctypes.c_void_p(stream.cuda_stream))
        program.words.zero_()
        torch.cuda.synchronize()
        cap.tensor("words", program.words, use="state")
        sealed = cap.seal(store, "conditions")
        print("sealed", sealed.id, sealed.nodes, "nodes")


def load(store):
    import foundry
    img = foundry.load("conditions", store=store, poison=True)
    print(foundry.Store(store).describe("conditions"))
    launches = 0
    for key in range(5):
        for a in range(STEPS):
            for b in range(2):
                before = (1000 + launches, a, b, 0)
                words = b"".join(w.to_bytes(8, "little") for w in before)
                img.write("words", words)
                img.launch(key)
                got = img.read("words")
                got = tuple(int.from_bytes(got[i:i + 8], "little") for i in range(0, 24, 8))
                want = expected(key, *before[:3])
                assert got == want, f"graph {key} with {a}, {b}: {got} and not {want}"
                launches += 1
    print(f"{launches} launches of 5 graphs: every word is right")


def alone():
    """Prints what the driver does without the interposer, which is not checked."""
    import torch
    torch.zeros(1, device="cuda")
    cuda = ctypes.CDLL("libcuda.so.1")
    ctx, graph, node, run = (ctypes.c_void_p() for _ in range(4))
    handle, memory = ctypes.c_uint64(), Memory(type=1, location=1, size=SIZE)
    call("cuCtxGetCurrent", ctypes.byref(ctx))
    call("cuGraphCreate", ctypes.byref(graph), 0)
    call("cuGraphConditionalHandleCreate", ctypes.byref(handle), graph, ctx, 1, 1)
    params = Params(type=NODE_CONDITIONAL, handle=handle.value, kind=IF, size=1, ctx=ctx)
    call("cuGraphAddNode_v2", ctypes.byref(node), graph, None, None, ctypes.c_size_t(0),
         ctypes.byref(params))
    body = ctypes.c_void_p(params.bodies[0])
    added = cuda.cuGraphAddMemAllocNode(ctypes.byref(node), body, None, ctypes.c_size_t(0),
                                        ctypes.byref(memory))
    last = ctypes.c_void_p()
    freed = added or cuda.cuGraphAddMemFreeNode(ctypes.byref(last), body, ctypes.byref(node),
                                                ctypes.c_size_t(1),
                                                ctypes.c_uint64(memory.address))
    made = cuda.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, ctypes.c_uint64(0))
    print(f"note: without Foundry, an allocation node in a body: {added}, its free node: {freed}, "
          f"the instantiation: {made}")


def whole():
    results = parts.captured_then_loaded()
    return [*results, parts.run("alone")]


PARTS = (capture, load, alone)

if __name__ == "__main__":
    parts.main(PARTS, whole)
