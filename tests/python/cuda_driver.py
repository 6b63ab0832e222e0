# SPDX-License-Identifier: Apache-2.0
"""The driver API through ctypes, for scripts of tests/gpu that call it beside PyTorch: calls that
must succeed, code and launches, nodes of the graph that captures, and a kernel.

Handles are ctypes.c_void_p, addresses are integers. It imports neither foundry nor torch.
"""
import ctypes

U32, U64, PTR, SIZE = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
SET_DEPENDENCIES = 1  # CU_STREAM_SET_CAPTURE_DEPENDENCIES

# A module with the kernel mix: a word becomes mixed(word, salt). More kernels may follow it.
MIX = b"""
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


def mixed(word, *salts):
    """Returns a word after launches of mix with these salts."""
    for salt in salts:
        word = (word * 31 + salt) % 2**64
    return word


class AllocNode(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", ctypes.c_int),
                ("device", ctypes.c_int), ("rest", ctypes.c_uint8 * 72), ("descs", PTR),
                ("count", SIZE), ("size", SIZE), ("address", U64)]


def driver():
    """Returns the library that this process finds as libcuda.so.1: the interposer, if it is there.
    """
    return ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    """Calls a function of driver(), which must succeed."""
    result = getattr(driver(), name)(*args)
    assert result == 0, f"{name} answered {result}"


def context_set():
    """Makes the primary context of device 0 current."""
    context = PTR()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


class Bytes:
    """Device memory with the interface of array libraries."""

    def __init__(self, addr, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (addr, False),
                                         "version": 2}


# --- code ---

def module_load(code):
    """Loads PTX or a cubin."""
    module = PTR()
    call("cuModuleLoadData", ctypes.byref(module), code)
    return module


def function(module, name):
    found = PTR()
    call("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
    return found


def variable(module, name):
    """Returns the address and the size of a variable."""
    addr, size = U64(), SIZE()
    call("cuModuleGetGlobal_v2", ctypes.byref(addr), ctypes.byref(size), module, name.encode())
    return addr.value, size.value


# --- streams ---

def stream_new():
    stream = PTR()
    call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
    return stream


def stream_of(torch_stream):
    return PTR(torch_stream.cuda_stream)


def current_stream():
    """Returns PyTorch's current stream."""
    import torch
    return stream_of(torch.cuda.current_stream())


def launch(kernel, stream, *values, threads=1):
    """Launches one block of a kernel. An integer becomes an argument of 64 bits."""
    args = [U64(v) if isinstance(v, int) else v for v in values]
    params = (PTR * len(args))(*map(ctypes.addressof, args))
    call("cuLaunchKernel", kernel, 1, 1, 1, threads, 1, 1, 0, stream, params, None)


def word_copy(stream, to, source):
    """Copies 8 bytes of device memory."""
    call("cuMemcpyDtoDAsync_v2", U64(to), U64(source), SIZE(8), stream)


# --- nodes of the graph that captures ---

def capture_info(stream):
    """Returns the graph that a stream captures, the stream's newest nodes, the data of the edges
    from them, and their count, as cuGraphAddNode_v2() takes them.
    """
    status, number = ctypes.c_int(), U64()
    graph, nodes, data, count = PTR(), PTR(), PTR(), SIZE()
    call("cuStreamGetCaptureInfo_v3", stream, *map(ctypes.byref, (
        status, number, graph, nodes, data, count)))
    return graph, nodes, data, count


def newest_set(stream, node):
    """Makes a node the newest of a stream that captures."""
    call("cuStreamUpdateCaptureDependencies_v2", stream, ctypes.byref(node), None, SIZE(1),
         SET_DEPENDENCIES)


def memory_node(stream, name, last):
    """Adds a node of memory after the newest node of a stream that captures. name, last: the
    driver's function that adds it, and its last argument.
    """
    graph, nodes, _, count = capture_info(stream)
    node = PTR()
    call(name, ctypes.byref(node), graph, nodes, count, last)
    newest_set(stream, node)
    return node
