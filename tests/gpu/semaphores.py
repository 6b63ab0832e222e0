# SPDX-License-Identifier: Apache-2.0
"""Tests semaphores of Vulkan in graphs: a graph waits for one and signals another, is captured in
one process and launched in another with semaphores of that process.

Vulkan is used by the functions of libvulkan.so.1, without headers. The script is skipped if this
machine has none, or if Vulkan does not see the GPU. Graphs: timeline semaphores, the same in a
child graph, and a binary semaphore that each launch takes and gives back.
"""
import ctypes
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import (MIX, PTR, U32, U64, call, function, launch, mixed,  # noqa: E402
                         module_load, stream_new)

TIMELINE, CHILD, BINARY = 0, 1, 2  # keys of graphs
GRAPHS = ("timeline", "child", "binary")
OPAQUE_FD, TIMELINE_FD = 1, 9  # kinds of handles, as in cuda.h
LAUNCHES = 4
ANSWER = 7  # the salt of each launch of the kernel


# --- Vulkan ---

def struct(*fields):
    """A class of a structure of Vulkan, which begins with its type and a pointer to the next."""
    return type("Info", (ctypes.Structure,), {"_fields_": [
        ("type", ctypes.c_uint32), ("next", ctypes.c_void_p), *fields]})


Application = struct(("name", ctypes.c_char_p), ("version", U32), ("engine", ctypes.c_char_p),
                     ("engine_version", U32), ("api", U32))
Instance = struct(("flags", U32), ("application", PTR), ("layers", U32), ("layer_names", PTR),
                  ("extensions", U32), ("names", PTR))
Queue = struct(("flags", U32), ("family", U32), ("count", U32), ("priorities", PTR))
Device = struct(("flags", U32), ("queues", U32), ("queue", PTR), ("layers", U32),
                ("layer_names", PTR), ("extensions", U32), ("names", PTR), ("features", PTR))
Timeline = struct(("on", U32))
Ids = struct(("device", ctypes.c_ubyte * 16), ("driver", ctypes.c_ubyte * 16),
             ("luid", ctypes.c_ubyte * 8), ("mask", U32), ("valid", U32))
Properties = struct(("all", ctypes.c_ubyte * 2048))
Kind = struct(("kind", U32), ("value", U64))
Export = struct(("types", U32))
Create = struct(("flags", U32))
GetFd = struct(("semaphore", U64), ("kind", U32))
Signal = struct(("semaphore", U64), ("value", U64))


class Absent(Exception):
    """Vulkan, or the GPU in it, is not there."""


class Vulkan:
    """A device of Vulkan: the one with these 16 bytes as its number, or any for None."""

    def __init__(self, uuid):
        try:
            self.lib = ctypes.CDLL("libvulkan.so.1")
        except OSError as e:
            raise Absent(f"no Vulkan: {e}") from e
        self.instance, self.device = PTR(), PTR()
        application = Application(type=0, name=b"foundry", api=1 << 22 | 2 << 12)
        self.make("vkCreateInstance", None, Instance(
            type=1, application=ctypes.addressof(application)), self.instance)
        physical = self.find(uuid)
        priority = ctypes.c_float(1)
        queue = Queue(type=2, count=1, priorities=ctypes.addressof(priority))
        name = ctypes.c_char_p(b"VK_KHR_external_semaphore_fd")
        timeline = Timeline(type=1000207000, on=1)
        self.make("vkCreateDevice", physical, Device(
            type=3, next=ctypes.addressof(timeline), queues=1, queue=ctypes.addressof(queue),
            extensions=1, names=ctypes.addressof(name)), self.device)
        self.lib.vkGetDeviceProcAddr.restype = PTR
        self.get_fd = ctypes.CFUNCTYPE(ctypes.c_int, PTR, PTR, PTR)(
            self.lib.vkGetDeviceProcAddr(self.device, b"vkGetSemaphoreFdKHR"))

    def make(self, name, parent, info, made):
        args = ([parent] if parent else []) + [ctypes.byref(info), None, ctypes.byref(made)]
        result = getattr(self.lib, name)(*args)
        if result:
            raise Absent(f"{name} answered {result}")

    def find(self, uuid):
        count = U32(16)
        found = (PTR * 16)()
        if self.lib.vkEnumeratePhysicalDevices(self.instance, ctypes.byref(count), found):
            raise Absent("Vulkan lists no devices")
        for physical in found[:count.value]:
            ids = Ids(type=1000071004)
            properties = Properties(type=1000059001, next=ctypes.addressof(ids))
            self.lib.vkGetPhysicalDeviceProperties2(PTR(physical), ctypes.byref(properties))
            if uuid in (None, bytes(ids.device)):
                return PTR(physical)
        raise Absent(f"Vulkan has {count.value} devices, and none is the GPU")

    def semaphore(self, timeline):
        """A semaphore that can be exported, as an integer."""
        kind = Kind(type=1000207002, kind=int(timeline))
        export = Export(type=1000077000, next=ctypes.addressof(kind), types=1)
        made = U64()
        self.make("vkCreateSemaphore", self.device, Create(type=9, next=ctypes.addressof(export)),
                  made)
        return made.value

    def fd(self, semaphore):
        info, fd = GetFd(type=1000079001, semaphore=semaphore, kind=1), ctypes.c_int(-1)
        result = self.get_fd(self.device, ctypes.addressof(info), ctypes.addressof(fd))
        assert result == 0 and fd.value >= 0, f"vkGetSemaphoreFdKHR answered {result}"
        return fd.value

    def signal(self, semaphore, value):
        info = Signal(type=1000207005, semaphore=semaphore, value=value)
        result = self.lib.vkSignalSemaphore(self.device, ctypes.byref(info))
        assert result == 0, f"vkSignalSemaphore answered {result}"

    def value(self, semaphore):
        value = U64()
        result = self.lib.vkGetSemaphoreCounterValue(self.device, U64(semaphore),
                                                     ctypes.byref(value))
        assert result == 0, f"vkGetSemaphoreCounterValue answered {result}"
        return value.value


# --- CUDA ---

class Desc(ctypes.Structure):
    """CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, of a file."""

    _fields_ = [("type", ctypes.c_int), ("fd", U64 * 2), ("flags", ctypes.c_uint),
                ("reserved", ctypes.c_uint * 16)]


class Params(ctypes.Structure):
    """The parameters of a signal or a wait; their size is the same."""

    _fields_ = [("value", U64), ("sync", U64), ("key", U64), ("rest", U32 * 30)]


class Nodes(ctypes.Structure):
    """The parameters of a node of either kind."""

    _fields_ = [("semaphores", ctypes.POINTER(PTR)), ("params", ctypes.POINTER(Params)),
                ("count", ctypes.c_uint)]


class Semaphores:
    """The semaphores of a process: of Vulkan, and imported by CUDA."""

    def __init__(self):
        import torch
        torch.zeros(1, device="cuda")
        uuid = (ctypes.c_ubyte * 16)()
        call("cuDeviceGetUuid_v2", uuid, torch.cuda.current_device())
        self.vulkan = Vulkan(bytes(uuid))
        self.vk = {name: self.vulkan.semaphore(name != "turn")
                   for name in ("ready", "done", "turn")}
        self.cuda = {name: self.imported(name) for name in self.vk}

    def imported(self, name):
        kind = OPAQUE_FD if name == "turn" else TIMELINE_FD
        desc, handle = Desc(type=kind, fd=(self.vulkan.fd(self.vk[name]), 0)), PTR()
        call("cuImportExternalSemaphore", ctypes.byref(handle), ctypes.byref(desc))
        return handle.value

    def use(self, how, name, value, stream):
        """how: "Signal" or "Wait"."""
        call(f"cu{how}ExternalSemaphoresAsync", ctypes.byref(PTR(self.cuda[name])),
             ctypes.byref(Params(value=value)), 1, stream)


def reported(graph):
    """Lines about the nodes of semaphores, as the driver reports them."""
    count, kind, told = ctypes.c_size_t(16), ctypes.c_int(), Nodes()
    nodes = (PTR * 16)()
    call("cuGraphGetNodes", PTR(graph), nodes, ctypes.byref(count))
    for node in nodes[:count.value]:
        call("cuGraphNodeGetType", PTR(node), ctypes.byref(kind))
        if kind.value in (8, 9):
            how = "Signal" if kind.value == 8 else "Wait"
            call(f"cuGraphExternalSemaphores{how}NodeGetParams", PTR(node), ctypes.byref(told))
            p = told.params[0]
            yield (f"{how}: {told.count} semaphores, the first with value {p.value}, fence "
                   f"{p.sync:#x}, key {p.key}, other words that are not 0: "
                   f"{sum(map(bool, p.rest))}")


def capture(store):
    import foundry
    import torch
    with foundry.Capture() as cap:
        try:
            s = Semaphores()
        except Absent as e:
            print(f"SKIP: no GPU with Vulkan: {e}")
            sys.exit(77)
        words = torch.zeros(4, dtype=torch.int64, device="cuda")
        mix = function(module_load(MIX), "mix")
        stream = stream_new()

        def captured(ready, done):
            graph = PTR()
            call("cuStreamBeginCapture_v2", stream, 2)
            s.use("Wait", ready, 1, stream)
            launch(mix, stream, words.data_ptr(), ANSWER)
            s.use("Signal", done, 2, stream)
            call("cuStreamEndCapture", stream, ctypes.byref(graph))
            return graph.value

        graphs = [captured("ready", "done"), PTR(), captured("turn", "turn")]
        for key in (TIMELINE, BINARY):
            for line in reported(graphs[key]):
                print(f"{GRAPHS[key]}: {line}")
        call("cuGraphCreate", ctypes.byref(graphs[CHILD]), 0)
        node = PTR()
        call("cuGraphAddChildGraphNode", ctypes.byref(node), graphs[CHILD], None,
             ctypes.c_size_t(0), PTR(graphs[TIMELINE]))
        graphs[CHILD] = graphs[CHILD].value
        for key, graph in enumerate(graphs):
            cap.add_graph(key, graph, name=GRAPHS[key])
        cap.tensor("words", words, use="state")
        try:
            cap.seal(store, "semaphores")
        except foundry.Error as e:
            assert "has no name for other processes" in str(e), e
            print(f"without names: {e}")
        else:
            raise AssertionError("semaphores without names were sealed")
        for name, handle in s.cuda.items():
            cap.semaphore(f"frame.{name}", handle)
        print("sealed", cap.seal(store, "semaphores").nodes, "nodes")


def word(img):
    return int.from_bytes(img.read("words")[:8], "little")


def step(img, s, key, number):
    """Launches a graph that waits for `number` + 1, and checks what it did and when."""
    img.semaphore_add("frame.ready", number)
    img.semaphore_add("frame.done", number)
    img.write("words", number.to_bytes(8, "little") + bytes(24))
    built, stream = img.report().graphs_built, stream_new()
    began = time.monotonic()
    img.launch(key, stream.value)
    time.sleep(0.05)
    assert s.vulkan.value(s.vk["done"]) < number + 2, "the graph did not wait"
    s.vulkan.signal(s.vk["ready"], number + 1)
    call("cuStreamSynchronize", stream)
    waited = time.monotonic() - began
    assert s.vulkan.value(s.vk["done"]) == number + 2, s.vulkan.value(s.vk["done"])
    assert word(img) == mixed(number, ANSWER), word(img)
    print(f"{GRAPHS[key]:9} waits for {number + 1:3}, signals {number + 2:3}: {waited * 1e3:.0f} "
          f"ms; built {img.report().graphs_built - built}")


def load(store):
    import foundry
    s = Semaphores()
    try:
        foundry.load("semaphores", store=store, semaphores={"frame.ready": s.cuda["ready"]})
    except foundry.Error as e:
        assert "'frame.done', which the load does not name" in str(e), e
        print(f"without a semaphore: {e}")
    else:
        raise AssertionError("a semaphore was not named, and the image was loaded")
    img = foundry.load("semaphores", store=store,
                       semaphores={f"frame.{name}": handle for name, handle in s.cuda.items()})
    for i in range(LAUNCHES):
        step(img, s, TIMELINE, 4 * i)
        step(img, s, CHILD, 4 * i + 2)
    stream = stream_new()
    img.write("words", bytes(32))
    s.use("Signal", "turn", 0, stream)
    want = 0
    for _ in range(LAUNCHES):
        img.launch(BINARY, stream.value)
        want = mixed(want, ANSWER)
    s.use("Wait", "turn", 0, stream)  # the last launch has signalled it
    call("cuStreamSynchronize", stream)
    assert word(img) == want, f"{word(img)} and not {want}"
    print(f"binary: {LAUNCHES} launches, each after the signal of the one before")
    img.close()


def whole():
    parts.need()
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError as e:
        parts.skip(f"no GPU with Vulkan: {e}")
    results = parts.captured_then_loaded()
    if any("ended with 77" in line for line in parts.errors):
        parts.skip("no GPU that Vulkan sees")
    return results


PARTS = (capture, load)

if __name__ == "__main__":
    parts.main(PARTS, whole)
