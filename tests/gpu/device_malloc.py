# SPDX-License-Identifier: Apache-2.0
"""Tests kernels that call malloc and free, captured in one process and loaded in another.

The code is the golden cubin for sm_90. The loading process gets a heap of the size that the
capturing process had, and inputs that the capture never saw. A seal refuses pointers into the heap.
"""
import ctypes
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "python"))
import parts  # noqa: E402
from cuda_driver import SIZE, call, function, launch, module_load, stream_of  # noqa: E402

CUBIN = os.path.join(HERE, os.pardir, "golden", "cubin", "heap.90.cubin")
HEAP = 2  # CU_LIMIT_MALLOC_HEAP_SIZE
HEAP_BYTES = 64 << 20  # the default is 8 MiB
LARGE_BYTES = 40 << 20
ITEMS, THREADS = 20, 32
LISTS, LARGE, COUNTS, READS = 1, 2, 3, 4
WHERE = "which points to the device's heap, which is empty in a loading process; "


def limit():
    value = SIZE()
    call("cuCtxGetLimit", ctypes.byref(value), HEAP)
    return value.value


def lists_of(numbers):
    """What the kernel lists computes."""
    return [sum(numbers) * (thread + 1) % 2**32 for thread in range(THREADS)]


def large_of(number):
    return sum(i + number for i in range(0, LARGE_BYTES // 4, 1024)) % 2**32


class Captured:
    """A capture. allocates: with the graphs of the kernels lists, large and counts; otherwise with
    one that allocates nothing."""

    def __init__(self, cap, allocates=True):
        import torch
        self.cap = cap
        self.given = torch.arange(1, ITEMS + 1, dtype=torch.int32, device="cuda")
        self.out = torch.zeros(THREADS, dtype=torch.int32, device="cuda")
        self.slot = torch.zeros(2, dtype=torch.int64, device="cuda")
        call("cuCtxSetLimit", HEAP, SIZE(HEAP_BYTES))
        with open(CUBIN, "rb") as file:
            self.module = module_load(file.read())
        self.stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        if not allocates:
            self.graph(READS, "reads", self.given.data_ptr(), self.out.data_ptr())
            return
        self.graph(LISTS, "lists", self.given.data_ptr(), self.out.data_ptr(),
                   ctypes.c_int(ITEMS), threads=THREADS)
        self.graph(LARGE, "large", self.given.data_ptr(), self.out.data_ptr(), SIZE(LARGE_BYTES))
        self.graph(COUNTS, "counts", self.out.data_ptr())
        torch.cuda.synchronize()
        cap.tensor("given", self.given, use="input")
        cap.tensor("out", self.out, use="output")

    def graph(self, key, name, *args, threads=1):
        with self.cap.graph(key, name=name, stream=self.stream):
            launch(function(self.module, name), stream_of(self.stream), *args, threads=threads)

    def run(self, name, *args):
        import torch
        launch(function(self.module, name), stream_of(self.stream), *args)
        torch.cuda.synchronize()

    def refused(self, store, *texts):
        import foundry
        try:
            self.cap.seal(store, "heap")
        except foundry.Error as e:
            print(f"refused: {e}")
            for text in texts:
                assert text in str(e), text
            return
        raise AssertionError("the seal succeeded")


def capture(store):
    import foundry
    with foundry.Capture() as cap:
        c = Captured(cap)
        sealed = c.cap.seal(store, "heap")
        print("sealed", sealed.id, sealed.nodes, "nodes; the limit is", limit())


def load(store):
    import foundry
    img = foundry.load("heap", store=store, poison=True)
    import torch
    stream = torch.cuda.Stream()
    img.filled()
    print("the limit is", limit())
    assert limit() >= HEAP_BYTES, limit()

    def out(key, words):
        img.launch(key, stream)
        return list(memoryview(bytearray(img.read("out", stream))).cast("I"))[:words]
    for number in (5, 2**31 - 9):
        numbers = [(number * i + 3) % 2**31 for i in range(ITEMS)]
        img.write("given", b"".join(n.to_bytes(4, "little") for n in numbers), stream)
        for _ in range(3):
            assert out(LISTS, THREADS) == lists_of(numbers)
            assert out(LARGE, 1) == [large_of(numbers[0])]
    for count in (1, 2, 3):
        assert out(COUNTS, 1) == [count]
    print("lists, a block of", LARGE_BYTES, "bytes, and a block that stays allocated")


def content(store):
    """Pointers into the heap that content, a variable and arguments hold."""
    import foundry
    with foundry.Capture() as cap:
        c = Captured(cap)
        c.run("keeps", c.slot.data_ptr() + 8)
        print("the block is at", hex(c.slot[1].item()))
        c.refused(store, "the word at byte ", WHERE + "let a kernel free the block, and clear the "
                  "word before the seal")
        address = c.slot[1].item()
        c.run("drops", c.slot.data_ptr() + 8)
        c.run("counts", c.out.data_ptr())
        c.refused(store, "of the module variable kept is 0x",
                  WHERE + "keep such pointers out of variables")
        c.run("forgets")
        sealed = cap.seal(store, "freed")
        print("sealed", sealed.id, "without such pointers")
        c.graph(READS, "reads", ctypes.c_uint64(address), c.out.data_ptr())
        c.refused(store, "byte 0 of its parameter 0 is 0x",
                  WHERE + "pass memory of the region instead")


def outside(store):
    """Pointers that a kernel outside of all graphs has stored."""
    import foundry
    with foundry.Capture() as cap:
        c = Captured(cap, allocates=False)
        sealed = cap.seal(store, "unused")
        print("sealed", sealed.id, "before a kernel used the heap")
        call("cuCtxSetLimit", HEAP, SIZE(2 * HEAP_BYTES))  # the seal has left it unused
        c.run("keeps", c.slot.data_ptr())
        c.refused(store, "the word at byte ", WHERE)
        c.run("drops", c.slot.data_ptr())
        sealed = cap.seal(store, "used")
        print("sealed", sealed.id, "without such pointers")


def beside(store):
    """A load into a process whose kernels have used a smaller heap."""
    import foundry
    import torch
    torch.cuda.init()
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    with open(CUBIN, "rb") as file:
        module = module_load(file.read())
    launch(function(module, "counts"), stream_of(torch.cuda.current_stream()), out.data_ptr())
    assert out.item() == 1
    try:
        foundry.load("heap", store=store)
    except foundry.Error as e:
        print(f"refused: {e}")
        assert f"is {limit()} bytes, and the image needs {HEAP_BYTES}" in str(e), e
    else:
        raise AssertionError(f"loaded beside a heap of {limit()} bytes")
    img = foundry.load("heap", store=store, own_context=True)
    img.filled()
    img.write("given", b"".join(n.to_bytes(4, "little") for n in range(7, 7 + ITEMS)))
    img.launch(LISTS)
    found = list(memoryview(bytearray(img.read("out"))).cast("I"))[:THREADS]
    assert found == lists_of(range(7, 7 + ITEMS)), found
    img.launch(LARGE)
    found = memoryview(bytearray(img.read("out"))).cast("I")[0]
    assert found == large_of(7), found
    print("loaded in a context of its own, with a heap of", HEAP_BYTES, "bytes")


PARTS = (capture, load, beside, content, outside)


def whole():
    parts.need()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        captured = parts.run("capture", store)
        return [captured, captured and parts.run("load", store),
                captured and parts.run("beside", store), parts.run("content", store),
                parts.run("outside", store)]


if __name__ == "__main__":
    parts.main(PARTS, whole)
