# SPDX-License-Identifier: Apache-2.0
"""Tests graphs that copy from and to CUDA arrays: captured in one process, loaded in another, which
compares every byte.

Arrays of one, two and three dimensions, layered ones, one of 48 MiB, and levels of mipmapped
arrays. For each, a graph writes a part of it, and another reads that part; a third copies between
two arrays. The loads are a plain one, one that builds all graphs, and one with a context of its
own. Every array is made, destroyed and made again first, so that most have the handle of a
destroyed array. Arrays from before the capture, destroyed ones, levels of such mipmapped arrays,
and arrays whose graph began before them must be refused by name.
"""
import ctypes
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

HOST, DEVICE, ARRAY = 1, 2, 3  # kinds of memory, as in cuda.h
U8, U16, S32, HALF, FLOAT = 1, 2, 10, 16, 32  # formats
LAYERED, SURFACE = 1, 2
SIZE = 1 << 16  # bytes of the memory that graphs copy from and to
# Keys of graphs; a graph that writes has the array's number.
READ, ACROSS, CLONED, REFUSED = 100, 200, 201, 300
# Name, width, height, depth, format, bytes of it, channels, flags; the part: its first element, row
# and slice, and its elements, rows and slices.
SHAPES = (
    ("line", 5000, 0, 0, U16, 2, 2, 0, (0, 0, 0), (5000, 1, 1)),
    ("bytes", 1001, 0, 0, U8, 1, 1, 0, (13, 0, 0), (900, 1, 1)),
    ("plane", 333, 77, 0, FLOAT, 4, 1, 0, (5, 3, 0), (300, 50, 1)),
    ("box", 65, 33, 17, U8, 1, 4, 0, (2, 1, 4), (60, 20, 11)),
    ("layers", 64, 40, 6, HALF, 2, 2, LAYERED, (0, 0, 1), (64, 40, 4)),
    ("layered-line", 300, 0, 7, S32, 4, 4, LAYERED, (10, 0, 2), (200, 1, 5)),
    ("large", 2048, 1536, 0, FLOAT, 4, 4, SURFACE, (17, 60, 0), (30, 100, 1)),
    ("large-box", 256, 256, 96, U16, 2, 1, 0, (3, 250, 30), (100, 4, 60)),
    ("zero", 100, 100, 0, U8, 1, 1, 0, (0, 0, 0), (100, 100, 1)),
    ("level-1", 333, 77, 0, FLOAT, 4, 1, 0, (5, 3, 0), (300, 50, 1)),
    ("level-3", 83, 19, 0, FLOAT, 4, 1, 0, (0, 0, 0), (83, 19, 1)),
    ("level-of-layers", 32, 20, 6, HALF, 2, 2, LAYERED, (0, 0, 1), (32, 20, 4)),
    ("level-of-box", 16, 5, 1, U8, 1, 4, SURFACE, (1, 0, 0), (12, 5, 1)),
)
# Width, height, depth and number of levels; shapes that are levels: the mipmapped array, the level.
MIPMAPS = ((667, 155, 0, 5), (129, 81, 6, 4), (130, 41, 12, 40))
LEVELS = {"level-1": (0, 1), "level-3": (0, 3), "level-of-layers": (1, 2), "level-of-box": (2, 3)}
U64, PTR = ctypes.c_uint64, ctypes.c_void_p


class Desc(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR."""

    _fields_ = [("width", U64), ("height", U64), ("depth", U64), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]


class Flat(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = [("width", U64), ("height", U64), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint)]


class Side(ctypes.Structure):
    """One side of CUDA_MEMCPY3D."""

    _fields_ = [("x", U64), ("y", U64), ("z", U64), ("level", U64), ("type", ctypes.c_int),
                ("host", PTR), ("device", U64), ("array", PTR), ("reserved", PTR), ("pitch", U64),
                ("height", U64)]


class Copy(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [("src", Side), ("dst", Side), ("width", U64), ("height", U64), ("depth", U64)]


def call(name, *args):
    """Calls the library that this process finds as libcuda.so.1."""
    result = getattr(ctypes.CDLL("libcuda.so.1"), name)(*args)
    assert result == 0, f"{name} answered {result}"


class Shape:
    def __init__(self, number):
        (self.name, self.width, self.height, self.depth, self.format, size, self.channels,
         self.flags, at, part) = SHAPES[number]
        self.number = number
        self.element = size * self.channels
        self.row = self.width * self.element
        self.rows, self.slices = max(self.height, 1), max(self.depth, 1)
        self.x, self.y, self.z = at[0] * self.element, at[1], at[2]
        self.part_row, self.part_rows, self.part_slices = part[0] * self.element, part[1], part[2]
        self.part = self.part_row * self.part_rows * self.part_slices
        assert self.part <= SIZE, self.name

    def make(self, mipmaps=None):
        """Makes the array, or its mipmapped array unless that is in mipmaps, by number."""
        array = PTR()
        if self.name in LEVELS:
            number, level = LEVELS[self.name]
            mipmaps = {} if mipmaps is None else mipmaps
            if number not in mipmaps:
                width, height, depth, levels = MIPMAPS[number]
                mipmap = PTR()
                call("cuMipmappedArrayCreate", ctypes.byref(mipmap), ctypes.byref(Desc(
                    width, height, depth, self.format, self.channels, self.flags)), levels)
                mipmaps[number] = mipmap.value
            call("cuMipmappedArrayGetLevel", ctypes.byref(array), PTR(mipmaps[number]), level)
            return array.value
        if self.depth or self.flags:
            call("cuArray3DCreate_v2", ctypes.byref(array), ctypes.byref(Desc(
                self.width, self.height, self.depth, self.format, self.channels, self.flags)))
        else:
            call("cuArrayCreate_v2", ctypes.byref(array), ctypes.byref(Flat(
                self.width, self.height, self.format, self.channels)))
        return array.value

    def content(self):
        """The bytes of the whole array at the seal."""
        size = self.row * self.rows * self.slices
        if self.name == "zero":
            return bytes(size)
        step = bytes((7 * i + i // 251 + self.number) % 256 for i in range(65521))
        return (step * (size // len(step) + 1))[:size]

    def fill(self, array):
        content = self.content()
        copy = Copy(Side(type=HOST, host=ctypes.cast(content, PTR), pitch=self.row,
                         height=self.rows), Side(type=ARRAY, array=array), self.row, self.rows,
                    self.slices)
        call("cuMemcpy3D_v2", ctypes.byref(copy))

    def of_array(self, array):
        return Side(type=ARRAY, array=array, x=self.x, y=self.y, z=self.z)

    def of_memory(self, address):
        return Side(type=DEVICE, device=address, pitch=self.part_row, height=self.part_rows)

    def copy(self, src, dst):
        return Copy(src, dst, self.part_row, self.part_rows, self.part_slices)

    def sealed_part(self, content):
        rows = []
        for z in range(self.z, self.z + self.part_slices):
            for y in range(self.y, self.y + self.part_rows):
                at = (z * self.rows + y) * self.row + self.x
                rows.append(content[at:at + self.part_row])
        return b"".join(rows)


def shape_named(name):
    return Shape([shape[0] for shape in SHAPES].index(name))


class Memory:
    """Bytes on the device, named by the array interface."""

    def __init__(self):
        address = U64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(SIZE))
        self.address = address.value
        self.__cuda_array_interface__ = {"data": (self.address, False), "shape": (SIZE,),
                                         "typestr": "|u1", "version": 3}


def context():
    """Makes the primary context of device 0 current."""
    device, made = ctypes.c_int(), PTR()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(made), device)
    call("cuCtxSetCurrent", made)


def captured(stream, *copies):
    graph = PTR()
    call("cuStreamBeginCapture_v2", stream, 2)
    for copy in copies:
        call("cuMemcpy3DAsync_v2", ctypes.byref(copy), stream)
    call("cuStreamEndCapture", stream, ctypes.byref(graph))
    return graph.value


def call_graph(name, *args):
    """The graph that a function returns in its first argument."""
    graph = PTR()
    call(name, ctypes.byref(graph), *args)
    return graph.value


def refused(cap, store, graph, words):
    import foundry
    from foundry import _lib
    cap.add_graph(REFUSED, graph)
    try:
        cap.seal(store, "arrays")
    except foundry.Error as e:
        assert words in str(e), e
        print(f"refused: {e}")
    else:
        raise AssertionError(f"a seal did not say: {words}")
    _lib.lib.fdry_capture_graph_remove(cap._handle, REFUSED)


def made_again(shape, mipmaps):
    """Makes the array, destroys it and makes it again. Returns both handles."""
    own = {}
    old = shape.make(own)
    if shape.name in LEVELS:
        call("cuMipmappedArrayDestroy", PTR(own[LEVELS[shape.name][0]]))
    else:
        call("cuArrayDestroy", PTR(old))
    return old, shape.make(mipmaps)


def refusals(cap, store, stream, before, out):
    plane = Shape(2)
    level = shape_named("level-1")

    def reads(array, shape=plane):
        return captured(stream, shape.copy(shape.of_array(array), shape.of_memory(out.address)))

    refused(cap, store, reads(before[0]), "was made before the capture began")
    refused(cap, store, reads(level.make({0: before[1]}), level),
            "was made before the capture began")
    mipmaps = {}
    graph = reads(level.make(mipmaps), level)
    call("cuMipmappedArrayDestroy", PTR(mipmaps[0]))
    refused(cap, store, graph, "was destroyed; keep it until the seal")
    gone = plane.make()
    graph = reads(gone)
    call("cuArrayDestroy", PTR(gone))
    refused(cap, store, graph, "was destroyed; keep it until the seal")
    new = plane.make()
    if new == gone:
        copy = call_graph("cuGraphClone", PTR(graph))
        # Neither of them can mean the new array for certain.
        refused(cap, store, graph, "the graph may have begun before it was made")
        refused(cap, store, copy, "the graph may have begun before it was made")
    else:
        print("a new array does not have the handle of the last destroyed one")


def capture(store):
    import foundry
    context()
    mipmaps = {}
    shape_named("level-1").make(mipmaps)
    before = Shape(2).make(), mipmaps[0]
    with foundry.Capture() as cap:
        data, out = Memory(), Memory()
        stream = PTR()
        call("cuStreamCreate", ctypes.byref(stream), 1)
        shapes = [Shape(i) for i in range(len(SHAPES))]
        mipmaps = {}
        pairs = [made_again(shape, mipmaps) for shape in shapes]
        gone, arrays = (list(handles) for handles in zip(*pairs))
        print(f"{len(set(gone) & set(arrays))} of {len(arrays)} arrays have the handle of a "
              "destroyed one")
        for shape, array in zip(shapes, arrays):
            shape.fill(array)
            cap.add_graph(shape.number, captured(stream, shape.copy(
                shape.of_memory(data.address), shape.of_array(array))), name=f"write-{shape.name}")
            cap.add_graph(READ + shape.number, captured(stream, shape.copy(
                shape.of_array(array), shape.of_memory(out.address))), name=f"read-{shape.name}")
        # 50 rows of 60 elements, which have 4 bytes in both.
        across = Copy(Side(type=ARRAY, array=arrays[2], y=1), Side(type=ARRAY, array=arrays[3]),
                      240, 30, 1)
        cap.add_graph(ACROSS, captured(stream, across), name="across")
        box = shapes[3]
        cap.add_graph(CLONED, call_graph("cuGraphClone", PTR(captured(stream, box.copy(
            box.of_array(arrays[3]), box.of_memory(out.address))))), name="cloned")
        call("cuCtxSynchronize")
        cap.tensor("data", data, use="input")
        cap.tensor("out", out, use="output")
        began = time.monotonic()
        sealed = cap.seal(store, "arrays")
        print(f"sealed {sealed.id} with {sealed.nodes} nodes in "
              f"{(time.monotonic() - began) * 1e3:.0f} ms")
        refusals(cap, store, stream, before, out)
        again = cap.seal(store, "again")
        assert again.id == sealed.id, "a seal after refused ones differs"


def free_memory():
    free, whole = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(whole))
    return free.value


def read(img, key):
    img.write("out", b"\xcc" * SIZE)
    img.launch(key)
    return img.read("out")


def compare(img, shapes, contents, what):
    assert read(img, CLONED) == read(img, READ + 3), f"a clone: {what}"
    for shape, content in zip(shapes, contents):
        want = shape.sealed_part(content)
        got = read(img, READ + shape.number)
        assert got[:len(want)] == want, f"{shape.name}: {what}"
        assert got[len(want):] == b"\xcc" * (SIZE - len(want)), f"{shape.name}: behind the part"


def checked(store, options, shapes, contents):
    import foundry
    began = time.monotonic()
    img = foundry.load("arrays", store=store, **options)
    took = (time.monotonic() - began) * 1e3
    compare(img, shapes, contents, "after the load")
    img.launch(ACROSS)
    for salt in range(2):
        for shape in shapes:
            data = bytes((i * 31 + i // 249 + salt + shape.number) % 256 for i in range(SIZE))
            img.write("data", data)
            img.launch(shape.number)
            got = read(img, READ + shape.number)
            assert got[:shape.part] == data[:shape.part], f"{shape.name}: what a graph wrote"
    img.restore()
    compare(img, shapes, contents, "after a restore")
    img.launch(ACROSS)
    box, plane = shapes[3], shapes[2]
    got = read(img, READ + box.number)
    want = bytearray(contents[3])
    for y in range(30):
        want[y * box.row:y * box.row + 240] = \
            contents[2][(y + 1) * plane.row:(y + 1) * plane.row + 240]
    want = box.sealed_part(bytes(want))
    assert got[:len(want)] == want, "what was copied between arrays"
    img.close()
    print(f"load({', '.join(options)}): {took:.0f} ms; every byte is right")


def load(store):
    import foundry
    context()
    for line in foundry.Store(store).describe("arrays").split("\n"):
        if "array" in line.lower() or "mipmap" in line:
            print(line)
    shapes = [Shape(i) for i in range(len(SHAPES))]
    contents = [shape.content() for shape in shapes]
    for options in ({}, {"build": True}, {"own_context": True}):
        checked(store, options, shapes, contents)
    before = free_memory()
    for _ in range(5):
        checked(store, {}, shapes, contents)
    lost = before - free_memory()
    assert lost < 32 << 20, f"five loads lost {lost} bytes of device memory"
    print(f"five loads lost {lost} bytes of device memory")


PARTS = (capture, load)

if __name__ == "__main__":
    parts.main(PARTS, parts.captured_then_loaded)
