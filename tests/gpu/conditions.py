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
from cuda_driver import (MIX, PTR, SIZE, U64, AllocNode, call, capture_info, driver,  # noqa: E402
                         function, launch, memory_node, mixed, module_load, newest_set,
                         stream_new, stream_of, word_copy)

PTX = MIX + b"""
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
"""
IF, WHILE, SWITCH = range(3)
NODE_CONDITIONAL = 13
BYTES = 65536  # of the memory that a body allocates
RELAXED = 2
STEPS = 4


class Params(ctypes.Structure):
    """CUgraphNodeParams with the members of a conditional node."""

    _fields_ = [("type", ctypes.c_int), ("reserved0", ctypes.c_int * 3),
                ("handle", U64), ("kind", ctypes.c_int), ("size", ctypes.c_uint),
                ("bodies", ctypes.POINTER(PTR)), ("ctx", PTR),
                ("rest", ctypes.c_uint8 * 200), ("reserved2", ctypes.c_int64)]


class Program:
    def __init__(self):
        import torch
        self.torch = torch
        # Word 0 is the result, words 1 and 2 are what conditions are set from.
        self.words = torch.zeros(4, dtype=torch.int64, device="cuda")
        module = module_load(PTX)
        self.functions = {name: function(module, name) for name in ("decide", "mix")}
        self.ctx = PTR()
        call("cuCtxGetCurrent", ctypes.byref(self.ctx))
        self.streams = [stream_new() for _ in range(2)]  # for bodies, by depth

    def mix(self, stream, salt):
        launch(self.functions["mix"], stream, self.words.data_ptr(), salt)

    def decide(self, stream, handle, word, down=0):
        launch(self.functions["decide"], stream, handle.value, self.words.data_ptr() + 8 * word,
               down)

    def handle(self, stream):
        handle = U64()
        call("cuGraphConditionalHandleCreate", ctypes.byref(handle), capture_info(stream)[0],
             self.ctx, 0, 0)
        return handle

    def node(self, stream, kind, handle, *bodies):
        """Adds a conditional node; each of `bodies` is called with the stream of its capture."""
        params = Params(type=NODE_CONDITIONAL, handle=handle.value, kind=kind, size=len(bodies),
                        ctx=self.ctx)
        node, graph = PTR(), PTR()
        call("cuGraphAddNode_v2", ctypes.byref(node), *capture_info(stream), ctypes.byref(params))
        newest_set(stream, node)
        inner = self.streams.pop()
        for i, body in enumerate(bodies):
            call("cuStreamBeginCaptureToGraph", inner, PTR(params.bodies[i]), None, None, SIZE(0),
                 RELAXED)
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

    def graph_memory(self, s):
        h = self.handle(s)
        self.decide(s, h, 1)

        def body(t):
            memory = AllocNode(type=1, location=1, size=BYTES)
            memory_node(t, "cuGraphAddMemAllocNode", ctypes.byref(memory))
            at = memory.address + BYTES - 8
            word_copy(t, at, self.words.data_ptr())
            launch(self.functions["mix"], t, at, 4)
            word_copy(t, self.words.data_ptr(), at)
            memory_node(t, "cuGraphAddMemFreeNode", U64(memory.address))
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
        program.mix(stream_of(stream), 0)
        torch.cuda.synchronize()
        graphs = (program.graph_if, program.graph_while, program.graph_switch,
                  program.graph_nested, program.graph_memory)
        for key, make in enumerate(graphs):
            with cap.graph(key, name=make.__name__, stream=stream):
                make(stream_of(stream))
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
    cuda = driver()
    ctx, graph, node, run = (PTR() for _ in range(4))
    handle, memory = U64(), AllocNode(type=1, location=1, size=BYTES)
    call("cuCtxGetCurrent", ctypes.byref(ctx))
    call("cuGraphCreate", ctypes.byref(graph), 0)
    call("cuGraphConditionalHandleCreate", ctypes.byref(handle), graph, ctx, 1, 1)
    params = Params(type=NODE_CONDITIONAL, handle=handle.value, kind=IF, size=1, ctx=ctx)
    call("cuGraphAddNode_v2", ctypes.byref(node), graph, None, None, SIZE(0),
         ctypes.byref(params))
    body = PTR(params.bodies[0])
    added = cuda.cuGraphAddMemAllocNode(ctypes.byref(node), body, None, SIZE(0),
                                        ctypes.byref(memory))
    last = PTR()
    freed = added or cuda.cuGraphAddMemFreeNode(ctypes.byref(last), body, ctypes.byref(node),
                                                SIZE(1), U64(memory.address))
    made = cuda.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, U64(0))
    print(f"note: without Foundry, an allocation node in a body: {added}, its free node: {freed}, "
          f"the instantiation: {made}")


def whole():
    results = parts.captured_then_loaded()
    return [*results, parts.run("alone")]


PARTS = (capture, load, alone)

if __name__ == "__main__":
    parts.main(PARTS, whole)
