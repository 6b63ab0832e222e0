# SPDX-License-Identifier: Apache-2.0
"""Tests of tensors whose elements have any order in memory, written and read from Python: bytes,
buffers, DLPack on the host and on the device.
"""
import array
import ctypes
import itertools
import os
import struct
import sys
import tempfile
import types
import unittest

import suite
from test_roundtrip import Driver

SHAPE = (2, 3, 4, 5)
LAYOUTS = {  # name: (dtype, shape, strides, offset in the buffer in elements)
    "channels_last": ("float32", SHAPE, (60, 1, 15, 3), 0),
    "plain": ("float32", SHAPE, (60, 20, 5, 1), 0),
    "columns": ("float32", (6, 4), (16, 3), 2),
    "halves": ("bfloat16", (8, 10), (1, 8), 0),
    "small": ("float8_e4m3fn", (3, 7), (1, 3), 5),
    "flags": ("bool", (4, 6), (12, 2), 1),
    "whole": ("int64", (5, 3), (6, 2), 0),
    "expanded": ("float32", (4, 5), (0, 1), 0),
    "empty": ("float32", (3, 0, 2), (9, 5, 1), 0),
    "one": ("float32", (), (), 7),
}
SIZES = {"float32": 4, "bfloat16": 2, "float8_e4m3fn": 1, "bool": 1, "int64": 8, "uint8": 1,
         "int32": 4, "uint16": 2}
CODES = {"float32": 2, "bfloat16": 4, "float8_e4m3fn": 10, "bool": 6, "int64": 0, "uint8": 1,
         "int32": 0, "uint16": 1}
BUF = 4096


class Torchish:
    """The attributes of a torch tensor that the package reads to name it."""

    def __init__(self, addr, dtype, shape, stride):
        self.data_ptr, self.dtype = lambda: addr, f"torch.{dtype}"
        self.shape, self.stride = shape, lambda: stride
        self.device = types.SimpleNamespace(type="cuda")


class Exported:
    """A DLPack producer for memory at an address. `streams` lists the streams that consumers
    passed.
    """

    def __init__(self, addr, dtype, shape, strides, device=None, keep=None):
        self.addr, self.dtype, self.shape, self.strides = addr, dtype, shape, strides
        self.device, self.keep = device, keep
        self.streams = []

    def __dlpack_device__(self):
        return (1, 0) if self.device is None else (2, self.device)

    def __dlpack__(self, **options):
        from foundry import tensor
        self.streams.append(options.get("stream"))
        dims = (ctypes.c_int64 * (2 * len(self.shape) or 1))(*self.shape, *self.strides)
        shape, strides = (ctypes.cast(ctypes.addressof(dims) + at, ctypes.POINTER(ctypes.c_int64))
                          for at in (0, 8 * len(self.shape)))
        managed = tensor.Managed(tensor._DLTensor(self.addr, *self.__dlpack_device__(),
                                                  len(self.shape), CODES[self.dtype],
                                                  8 * SIZES[self.dtype], 1, shape, strides, 0),
                                 None, None)
        self.made = dims, managed
        return new_capsule(ctypes.addressof(managed), b"dltensor", None)


new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p,
                                ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))


def host(data, dtype, shape, strides, first=0):
    """Returns an Exported for a bytearray."""
    keep = (ctypes.c_char * len(data)).from_buffer(data)
    return Exported(ctypes.addressof(keep) + first * SIZES[dtype], dtype, shape, strides, keep=keep)


def offsets(shape, strides):
    """Returns each element's offset, row by row, in elements."""
    return [sum(i * s for i, s in zip(index, strides))
            for index in itertools.product(*map(range, shape))]


def rows(shape):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return tuple(strides)


def noise(n, salt=0):
    return bytes((37 * i + i // 251 + salt) % 256 for i in range(n))


def gathered(data, dtype, shape, strides, first=0):
    size = SIZES[dtype]
    return b"".join(data[size * (first + o):size * (first + o + 1)]
                    for o in offsets(shape, strides))


def scattered(data, values, dtype, shape, strides, first=0):
    size, data = SIZES[dtype], bytearray(data)
    for i, o in enumerate(offsets(shape, strides)):
        data[size * (first + o):size * (first + o + 1)] = values[size * i:size * (i + 1)]
    return bytes(data)


def count(shape):
    return len(offsets(shape, (0,) * len(shape)))


def capture(store):
    import foundry
    with foundry.Capture() as cap:
        cuda = Driver()
        graph = cuda.graph(*(cuda.alloc([0.0] * 1000) for _ in range(3)))
        buf, side, ext = (cuda.alloc_bytes(BUF) for _ in range(3))
        for addr, name in ((buf, "buf"), (side, "side")):
            cuda("cuMemsetD8_v2", ctypes.c_uint64(addr), 0, ctypes.c_size_t(BUF))
            cap.tensor(name, Torchish(addr, "uint8", (BUF,), (1,)), use="state")
        for name, (dtype, shape, strides, first) in LAYOUTS.items():
            cap.tensor(name, Torchish(buf + SIZES[dtype] * first, dtype, shape, strides),
                       use="state")
        cap.tensor("input", Torchish(ext, "float32", SHAPE, LAYOUTS["channels_last"][2]),
                   use="input", external=True)
        for strides in ((1, 8, 32, 128), (0, 20, 5, 1)):
            try:
                cap.tensor("gaps", Torchish(ext, "float32", SHAPE, strides), external=True)
            except foundry.Error as e:
                assert e.name == "FDRY_E_INVAL" and "gaps" in str(e), e
            else:
                raise AssertionError("an external tensor with gaps was taken")
        cap.add_graph(1, graph)
        cap.seal(store, "layouts")


class Tensors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import foundry
        cls.folder = tempfile.TemporaryDirectory()
        store = os.path.join(cls.folder.name, "store")
        suite.child(__file__, store)
        cls.img = foundry.load("layouts", store=store)

    @classmethod
    def tearDownClass(cls):
        cls.img.close()
        cls.folder.cleanup()

    def setUp(self):
        self.before = noise(BUF)
        self.img.write("buf", self.before)

    def memory(self):
        return bytes(self.img.read("buf"))

    def test_bytes_are_in_row_order(self):
        for name, (dtype, shape, strides, first) in LAYOUTS.items():
            with self.subTest(name):
                self.setUp()
                self.assertEqual(bytes(self.img.read(name)),
                                 gathered(self.before, dtype, shape, strides, first))
                if name == "expanded":
                    continue
                data = noise(SIZES[dtype] * count(shape), 5)
                for wait in (True, False):
                    self.setUp()
                    self.img.write(name, data, wait=wait)
                    self.assertEqual(self.memory(),
                                     scattered(self.before, data, dtype, shape, strides, first))
                    self.assertEqual(bytes(self.img.read(name)), data)

    def test_arrays_that_overlap_themselves_are_only_read(self):
        import foundry
        for data in (bytes(80), host(bytearray(80), "float32", (4, 5), (5, 1))):
            with self.assertRaisesRegex(foundry.Error, "'expanded' share memory") as raised:
                self.img.write("expanded", data)
            self.assertEqual(raised.exception.name, "FDRY_E_INVAL")
        with self.assertRaisesRegex(foundry.Error, "share memory"):
            self.img.read("plain", out=host(bytearray(480), "float32", SHAPE, (0, 20, 5, 1)))
        self.assertEqual(self.memory(), self.before)

    def arrays(self, shape):
        """Yields strides and first elements of arrays of that shape: transposed, with gaps,
        backwards, repeating.
        """
        turned = rows(shape[::-1])[::-1]
        apart = tuple(3 * s for s in rows(shape))
        back = tuple(-s for s in turned)
        yield turned, 0
        yield apart, 1
        yield back, -sum((n - 1) * s for n, s in zip(shape, back))
        yield (0,) + rows(shape)[1:], 0

    def test_arrays_element_by_element(self):
        for name in ("channels_last", "plain", "columns", "halves", "small", "flags", "whole"):
            dtype, shape, strides, first = LAYOUTS[name]
            for (theirs, begin), wait in itertools.product(self.arrays(shape), (True, False)):
                with self.subTest(name, theirs=theirs, wait=wait):
                    self.setUp()
                    data = bytearray(noise(BUF, 9))
                    values = gathered(data, dtype, shape, theirs, begin)
                    self.img.write(name, host(data, dtype, shape, theirs, begin), wait=wait)
                    data[:] = bytes(BUF)
                    self.assertEqual(self.memory(),
                                     scattered(self.before, values, dtype, shape, strides, first))

    def test_read_into_arrays(self):
        for name in LAYOUTS:
            dtype, shape, strides, first = LAYOUTS[name]
            for theirs, begin in list(self.arrays(shape))[:3] if shape and 0 not in shape else ():
                with self.subTest(name, theirs=theirs):
                    data = bytearray(noise(BUF, 3))
                    into = host(data, dtype, shape, theirs, begin)
                    self.assertIs(self.img.read(name, out=into), into)
                    want = scattered(noise(BUF, 3),
                                     gathered(self.before, dtype, shape, strides, first), dtype,
                                     shape, theirs, begin)
                    self.assertEqual(bytes(data), want)
        flat = bytearray(480)
        self.assertIs(self.img.read("channels_last", out=flat), flat)
        self.assertEqual(flat, self.img.read("channels_last"))
        with self.assertRaises(BufferError):
            self.img.read("channels_last", out=bytes(480))

    def test_buffers(self):
        """Tests the buffer protocol with several dimensions, steps, backwards and read-only."""
        values = array.array("q", range(15))
        for data in (values, memoryview(values).cast("B").cast("q", (5, 3)),
                     memoryview(values).toreadonly()):
            self.img.write("whole", data)
            self.assertEqual(struct.unpack("15q", self.img.read("whole")), tuple(range(15)))
        self.img.write("one", memoryview(array.array("f", [3.5])))
        self.assertEqual(struct.unpack("f", self.img.read("one")), (3.5,))

    def test_buffers_with_steps(self):
        import foundry
        from foundry import array as arrays
        values = array.array("q", range(30))
        for view in (memoryview(values)[::2], memoryview(values)[::-1]):
            with arrays.opened(self.img, self.img["whole"], view, None) as found:
                self.assertFalse(found.flat)
                self.assertEqual(found.raw.stride[0], view.strides[0] // 8)
        with self.assertRaisesRegex(foundry.Error, "2 dimensions, and the array has 1"):
            self.img.write("whole", memoryview(values)[::2])
        with self.assertRaisesRegex(TypeError, "float32, and the array of type q"):
            self.img.write("one", memoryview(values)[::2])

    def test_device_arrays(self):
        """Tests that copies follow the stream that the producer receives, and that the capsule is
        released after its use.
        """
        side = self.img["side"].addr
        for name in ("channels_last", "plain", "columns", "halves", "small", "whole"):
            dtype, shape, strides, first = LAYOUTS[name]
            for (theirs, begin), wait in itertools.product(self.arrays(shape), (True, False)):
                with self.subTest(name, theirs=theirs, wait=wait):
                    self.setUp()
                    self.img.write("side", noise(BUF, 9))
                    source = Exported(side + SIZES[dtype] * begin, dtype, shape, theirs, device=0)
                    self.img.write(name, source, wait=wait)
                    self.assertEqual(source.streams, [1])
                    values = gathered(noise(BUF, 9), dtype, shape, theirs, begin)
                    self.assertEqual(self.memory(),
                                     scattered(self.before, values, dtype, shape, strides, first))
        for stream, asked in ((1, 1), (ctypes.c_void_p(2), 2), (ctypes.c_void_p(), 1), (0, 1)):
            source = Exported(side, "float32", SHAPE, LAYOUTS["plain"][2], device=0)
            self.img.write("plain", source, stream=stream)
            self.assertEqual(source.streams, [asked])
        turned = (1, 2, 6, 24)
        self.img.read("channels_last", out=Exported(side, "float32", SHAPE, turned, device=0))
        self.assertEqual(gathered(self.img.read("side"), "float32", SHAPE, turned),
                         bytes(self.img.read("channels_last")))
        with self.assertRaisesRegex(ValueError, "device 3 of DLPack's kind 2"):
            self.img.write("plain", Exported(side, "float32", SHAPE, turned, device=3))

    def test_an_images_own_tensors(self):
        """Tests that the package accepts the tensors that it exports."""
        self.img.write("channels_last", self.img["channels_last"])
        self.assertEqual(self.memory(), self.before)
        self.img.write("input", self.img["plain"])
        self.assertEqual(self.img.read("input"), self.img.read("plain"))
        self.assertEqual(self.img._exports, 0)

    def test_types_and_shapes(self):
        import foundry
        data = bytearray(BUF)
        for dtype, ok in (("float32", True), ("int32", False)):
            if ok:
                self.img.write("plain", host(data, dtype, SHAPE, (1, 2, 6, 24)))
            else:
                with self.assertRaisesRegex(TypeError,
                                            "'plain' has elements of type float32, and the array "
                                            "of "
                                            "type int32"):
                    self.img.write("plain", host(data, dtype, SHAPE, (1, 2, 6, 24)))
        for name, bits in (("halves", "uint16"), ("small", "uint8"), ("flags", "uint8"),
                           ("whole", "int64")):
            shape = LAYOUTS[name][1]
            self.img.write(name, host(data, bits, shape, rows(shape)))
        with self.assertRaisesRegex(foundry.Error, "dimension 2, and the array has 5"):
            self.img.write("plain", host(data, "float32", (2, 3, 5, 4), (1, 2, 6, 30)))
        with self.assertRaisesRegex(foundry.Error, "has 480 bytes, and 479 were given"):
            self.img.write("channels_last", bytes(479))
        for thing in (None, 7, "text", [1.0]):
            with self.assertRaises(TypeError):
                self.img.write("plain", thing)

    def test_external(self):
        """Tests that an external tensor may have any order."""
        import foundry
        self.img.write("input", noise(480))
        self.assertEqual(bytes(self.img.read("input")), noise(480))
        self.img.launch(1)
        self.assertIsInstance(self.img["input"], foundry.tensor.Tensor)

    def test_numpy(self):
        try:
            import numpy
        except ModuleNotFoundError:
            return
        values = numpy.arange(120, dtype="f4").reshape(SHAPE)
        for each in (values, values[:, :, ::-1], numpy.asfortranarray(values),
                     numpy.broadcast_to(values[:1], SHAPE),
                     numpy.repeat(values, 2, axis=3)[..., ::2]):
            self.img.write("channels_last", each)
            got = numpy.frombuffer(self.img.read("channels_last"), "f4").reshape(SHAPE)
            self.assertTrue((got == each).all())
            into = numpy.zeros(SHAPE[::-1], "f4").T
            self.img.read("channels_last", out=into)
            self.assertTrue((into == each).all())
        with self.assertRaisesRegex(TypeError, "in the other order"):
            self.img.write("plain", values.astype(">f4"))
        with self.assertRaisesRegex(TypeError, "float32, and the array of type i"):
            self.img.write("plain", values.astype("i4").T.copy().T)


if __name__ == "__main__":
    if "child" in sys.argv:
        capture(sys.argv[-1])
    else:
        suite.main()
