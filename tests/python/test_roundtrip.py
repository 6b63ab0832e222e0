# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package on the software driver: one process captures, another one loads.

A small array class stands in for a framework's tensor; everything else is the package.
"""
import ctypes
import gc
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
import weakref

import suite

BUILD = os.environ.get("BUILD", "build")
N = 1000


class Array:
    """Device memory with the interface of array libraries."""

    def __init__(self, addr, n, strides=None):
        self.__cuda_array_interface__ = {"data": (addr, False), "typestr": "<f4", "shape": (n,),
                                         "strides": strides, "version": 3}


class HostArray:
    """Pinned host memory with numpy's interface."""

    def __init__(self, addr, n, typestr="<f4"):
        self.__array_interface__ = {"data": (addr, False), "typestr": typestr, "shape": (n,),
                                    "version": 3}


class SemaphoreDesc(ctypes.Structure):
    """CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, of a file."""
    _fields_ = [("type", ctypes.c_int), ("fd", ctypes.c_uint64 * 2), ("flags", ctypes.c_uint),
                ("reserved", ctypes.c_uint * 16)]


class SemaphoreParams(ctypes.Structure):
    """The parameters of a signal or a wait."""
    _fields_ = [("value", ctypes.c_uint64), ("others", ctypes.c_uint32 * 34)]


class Driver:
    """The driver API by ctypes, through the library that dlopen() finds as libcuda.so.1 unless
    another one is given.
    """

    def __init__(self, lib=None):
        self.lib = lib or ctypes.CDLL("libcuda.so.1")
        ctx = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(ctx), 0)
        self("cuCtxSetCurrent", ctx)

    def __call__(self, name, *args):
        result = getattr(self.lib, name)(*args)
        if result:
            raise RuntimeError(f"{name}: {result}")

    def alloc(self, values):
        addr, data = ctypes.c_uint64(), struct.pack(f"{N}f", *values)
        self("cuMemAlloc_v2", ctypes.byref(addr), ctypes.c_size_t(len(data)))
        self("cuMemcpyHtoD_v2", addr, data, ctypes.c_size_t(len(data)))
        return addr.value

    def pinned(self, values):
        addr, data = ctypes.c_void_p(), struct.pack(f"{N}f", *values)
        self("cuMemAllocHost_v2", ctypes.byref(addr), ctypes.c_size_t(len(data)))
        ctypes.memmove(addr, data, len(data))
        return addr.value

    def alloc_bytes(self, size):
        addr = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(addr), ctypes.c_size_t(size))
        return addr.value

    def semaphore(self):
        """A timeline semaphore, and the mapping of its value."""
        fd, handle = os.memfd_create("semaphore"), ctypes.c_void_p()
        os.truncate(fd, 8)
        value = mmap.mmap(fd, 8)
        self("cuImportExternalSemaphore", ctypes.byref(handle),
             ctypes.byref(SemaphoreDesc(type=9, fd=(fd, 0))))
        return handle.value, value

    def graph(self, a, b, c, host_a=None, host_c=None, calls=(), signals=()):
        """Captures c = a + b; copies a from and c to host memory if that is given. calls: addresses
        of functions without arguments, called afterwards. signals: pairs of semaphores and values.
        """
        stream, module, kernel, graph = (ctypes.c_void_p() for _ in range(4))
        with open(os.path.join(BUILD, "sim", "kernels.cubin"), "rb") as f:
            self("cuModuleLoadData", ctypes.byref(module), f.read())
        self("cuModuleGetFunction", ctypes.byref(kernel), module, b"vecadd")
        self("cuStreamCreate", ctypes.byref(stream), 1)
        values = [ctypes.c_uint64(a), ctypes.c_uint64(b), ctypes.c_uint64(c), ctypes.c_int(N)]
        args = (ctypes.c_void_p * 4)(*(ctypes.addressof(v) for v in values))
        self("cuStreamBeginCapture_v2", stream, 2)
        if host_a:
            self("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(a), ctypes.c_uint64(host_a),
                 ctypes.c_size_t(4 * N), stream)
        self("cuLaunchKernel", kernel, (N + 63) // 64, 1, 1, 64, 1, 1, 0, stream, args, None)
        if host_c:
            self("cuMemcpyDtoHAsync_v2", ctypes.c_uint64(host_c), ctypes.c_uint64(c),
                 ctypes.c_size_t(4 * N), stream)
        for function in calls:
            self("cuLaunchHostFunc", stream, ctypes.c_void_p(function), None)
        for semaphore, value in signals:
            self("cuSignalExternalSemaphoresAsync", ctypes.byref(ctypes.c_void_p(semaphore)),
                 ctypes.byref(SemaphoreParams(value)), 1, stream)
        self("cuStreamEndCapture", stream, ctypes.byref(graph))
        return graph.value


def capture(store):
    import foundry
    cuda = None
    with foundry.Capture(name="adder" if "named" in sys.argv else None) as cap:
        cuda = Driver()
        a, b, c = (cuda.alloc(v) for v in ([0.0] * N, [float(i) for i in range(N)], [0.0] * N))
        cap.add_graph(7, cuda.graph(a, b, c), name="add")
        cap.tensor("a", Array(a, N), use="input")
        cap.tensor("b", Array(b, N), use="const", external="external" in sys.argv)
        cap.tensor("c", Array(c, N), use="output")
        for bad, error in (("a", foundry.Error), ("bad name", foundry.Error)):
            try:
                cap.tensor(bad, Array(a, N))
            except error as e:
                assert e.name in ("FDRY_E_EXISTS", "FDRY_E_NAME"), e.name
            else:
                raise AssertionError(bad)
        cap.fact("model", "adder")
        if "room" in sys.argv:
            kv = cuda.alloc_bytes(4 << 20)
            cap.tensor("kv", Array(kv, 1 << 20), use="state", external=True)
            cap.capacity("kv", 64 << 20)
        sealed = cap.seal(store, "adder")
        assert cap.offset > 0 and sealed.graphs == 1 and sealed.nodes == 1 and sealed.kernels == 1
        print(sealed.id)


def capture_host(store):
    """The same, with a copied from pinned memory at the beginning of each replay, and c copied to
    it at the end.
    """
    import foundry
    with foundry.Capture() as cap:
        cuda = Driver()
        a, b, c = (cuda.alloc(v) for v in ([0.0] * N, [float(i) for i in range(N)], [0.0] * N))
        host_a, host_c = cuda.pinned([5.0] * N), cuda.pinned([6.0] * N)
        cap.add_graph(7, cuda.graph(a, b, c, host_a, host_c))
        try:
            cap.seal(store, "host")
        except foundry.Error as e:
            assert e.name == "FDRY_E_REFUSED" and "as a tensor in host memory" in str(e), e
        else:
            raise AssertionError("host memory that nobody named was sealed")
        cap.tensor("a", HostArray(host_a, N), use="input")
        cap.tensor("c", HostArray(host_c, N), use="output")
        print(cap.seal(store, "host").id)


def capture_functions(store):
    import foundry
    called = []
    with foundry.Capture() as cap:
        cuda = Driver()
        a, b, c = (cuda.alloc([float(i) for i in range(N)]) for _ in range(3))
        done = cap.host_function("done", lambda: called.append(1))
        gc.collect()
        for name, function in (("done", done), ("other", done)):
            try:
                cap.host_function(name, function)
            except foundry.Error as e:
                assert e.name == "FDRY_E_EXISTS", e
            else:
                raise AssertionError(name)
        cap.add_graph(7, cuda.graph(a, b, c, calls=[done, done]))
        named = Array(c, N)
        cap.tensor("c", named, use="output")
        living = weakref.ref(named)
        del named
        identity = cap.seal(store, "functions").id
        assert living()  # its memory would be another tensor's
    assert not called
    del cap
    gc.collect()
    assert living() is None
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(done)(None)  # as a graph that outlives the capture
    assert called == [1]
    print(identity)


def capture_semaphores(store):
    import foundry
    with foundry.Capture() as cap:
        cuda = Driver()
        a, b, c = (cuda.alloc([float(i) for i in range(N)]) for _ in range(3))
        done, _ = cuda.semaphore()
        cap.semaphore("done", done)
        for name in ("done", "other"):
            try:
                cap.semaphore(name, done)
            except foundry.Error as e:
                assert e.name == "FDRY_E_EXISTS", e
            else:
                raise AssertionError(name)
        cap.add_graph(7, cuda.graph(a, b, c, signals=[(done, 3)]))
        cap.tensor("c", Array(c, N), use="output")
        print(cap.seal(store, "semaphores").id)


def damage(store):
    """Overwrites b's content in data.mdb, where it is stored uncompressed."""
    content = struct.pack("8f", *range(1, 9))
    with open(os.path.join(store, "data.mdb"), "r+b") as f:
        f.seek(f.read().index(content))
        f.write(bytes(byte ^ 0xff for byte in content))


def child(*args):
    return suite.child(__file__, *args).split()[-1]


class Roundtrip(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.store = os.path.join(self.folder.name, "store")

    def tearDown(self):
        self.folder.cleanup()

    def numbers(self, img, salt):
        img.write("a", struct.pack(f"{N}f", *(salt + i for i in range(N))))
        img.write("c", b"\xff" * (4 * N))
        img.launch(7)
        return list(struct.unpack(f"{N}f", img.read("c")))

    def test_numbers_come_back(self):
        import foundry
        ident = child(self.store)
        with foundry.load("adder", store=self.store, facts={"model": "adder"}, poison=True) as img:
            self.assertEqual(img.id, ident)
            self.assertEqual(img.graphs(), {7: "add"})
            self.assertEqual([t.name for t in img.tensors()], ["a", "b", "c"])
            self.assertEqual(img["a"].shape, (N,))
            self.assertEqual(img["a"].dtype, "float32")
            self.assertEqual(img.fact("model"), "adder")
            for salt in (1.0, 2.0):
                self.assertEqual(self.numbers(img, salt), [salt + 2 * i for i in range(N)])
            img.write("b", bytearray(4 * N))
            self.assertEqual(self.numbers(img, 1.0), [1.0 + i for i in range(N)])
            img.restore()
            self.assertEqual(self.numbers(img, 1.0), [1.0 + 2 * i for i in range(N)])
            self.assertEqual(img.report().graphs_built, 1)
        with foundry.Store(self.store) as store:
            self.assertIn("tensor b F32 const", store.describe(ident[:12]))
            store.tag(ident[:12], "tagged/here")
            self.assertEqual(store.describe("tagged/here"), store.describe(ident))
            with self.assertRaises(foundry.Error):
                store.tag("nothing", "x")

    def test_functions(self):
        import foundry
        child(self.store, "functions")
        called = []
        with foundry.load("functions", store=self.store,
                          functions={"done": lambda: called.append(1)}) as img:
            gc.collect()
            img.launch(7)
            self.assertEqual(struct.unpack("3f", img.read("c")[:12]), (0.0, 2.0, 4.0))
            self.assertEqual(called, [1, 1])
        with self.assertRaisesRegex(foundry.Error, "'done', which the load does not name; name it "
                                                   "in functions"):
            foundry.load("functions", store=self.store, functions={"dome": print})
        for bad in ("done", 1.5, (print, "x")):
            with self.assertRaises((TypeError, ctypes.ArgumentError)):
                foundry.load("functions", store=self.store, functions={"done": bad})

    def test_semaphores(self):
        import foundry
        child(self.store, "semaphores")
        cuda = Driver(ctypes.CDLL(os.path.join(BUILD, "foundry", "sim", "libcuda.so.1")))
        done, value = cuda.semaphore()
        with foundry.load("semaphores", store=self.store, semaphores={"done": done}) as img:
            for add in (0, 1, 10):
                img.semaphore_add("done", add)
                img.launch(7)
                self.assertEqual(struct.unpack("3f", img.read("c")[:12]), (0.0, 2.0, 4.0))
                self.assertEqual(value[:], struct.pack("Q", 3 + add))
            with self.assertRaisesRegex(foundry.Error, "no semaphore 'dome'; name it in "
                                                       "semaphores"):
                img.semaphore_add("dome", 1)
        with foundry.load("semaphores", store=self.store, semaphores={"done": (done, 100)}) as img:
            img.launch(7)
            img.synchronize()
            self.assertEqual(value[:], struct.pack("Q", 103))
        with self.assertRaisesRegex(foundry.Error, "'done', which the load does not name; name it "
                                                   "in semaphores"):
            foundry.load("semaphores", store=self.store)
        for bad in ("done", 1.5, (done, "x"), (done, -1)):
            with self.assertRaises((TypeError, ctypes.ArgumentError, OverflowError, ValueError)):
                foundry.load("semaphores", store=self.store, semaphores={"done": bad})

    def test_close_in_a_function(self):
        """A function of a graph must not use CUDA, so another thread unloads the image."""
        import foundry
        from foundry import _lib
        child(self.store, "functions")
        launched, closed, freed = threading.Event(), threading.Event(), threading.Event()
        threads, held = [], []

        def done():
            launched.wait(10)
            while held:
                held.pop().close()
            closed.set()

        def unload(pointer):
            threads.append(threading.current_thread().name)
            if threads[0] == "foundry-close":
                original(pointer)
            freed.set()

        function = _lib.lib.fdry_image_unload
        original = function.call
        held.append(foundry.load("functions", store=self.store, functions={"done": done}))
        with unittest.mock.patch.object(function, "call", unload):
            held[0].launch(7)
            launched.set()
            self.assertTrue(closed.wait(10) and freed.wait(10))
        self.assertEqual(threads, ["foundry-close"])

    def test_in_the_background(self):
        import foundry
        child(self.store)
        heard = []
        img = foundry.load("adder", store=self.store, background=True, order=[7], threads=2,
                           progress=lambda *what: heard.append(what))
        img.wait()
        self.assertEqual(self.numbers(img, 1.0), [1.0 + 2 * i for i in range(N)])
        img.build_stop()
        report = img.report()
        img.close()
        self.assertEqual({what[0] for what in heard},
                         {"manifest", "driver", "memory", "content", "kernels", "objects",
                          "graphs"})
        self.assertEqual(heard[-1][:3], ("graphs", 1, 1))
        self.assertGreater(heard[-1][3], 0)
        self.assertGreater(report.all_ms, 0)
        with self.assertRaises(foundry.Error) as e:
            foundry.load("adder", store=self.store, order=[8])
        self.assertEqual(e.exception.name, "FDRY_E_NOKEY")

    def test_the_other_flags(self):
        import foundry
        child(self.store)
        for flags in ({"own_context": True}, {"check_overlap": True},
                      {"build": True, "verify": True}):
            with foundry.load("adder", store=self.store, **flags) as img:
                self.assertEqual(self.numbers(img, 1.0), [1.0 + 2 * i for i in range(N)])

    def test_python_ends_first(self):
        child(self.store)
        done = subprocess.run([sys.executable, "-c", "import foundry, time, sys\n"
                               "foundry.load('adder', store=sys.argv[1], background=True,\n"
                               "             progress=lambda *what: time.sleep(0.01))", self.store],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_external(self):
        import foundry
        child(self.store, "external")
        with foundry.load("adder", store=self.store) as img:
            self.assertTrue(img["b"].external)
            with self.assertRaises(foundry.Error) as e:
                img.launch(7)
            self.assertEqual(e.exception.name, "FDRY_E_UNBOUND")
            img.write("b", struct.pack(f"{N}f", *range(N)))
            done = img.check("b")
            self.assertEqual((done.tensors, done.bytes, done.differ, done.skipped),
                             (1, 4 * N, 0, 0))
            self.assertEqual(img.check().tensors, 1)
            img.write("b", struct.pack(f"{N}f", *([10.0] * N)))
            for name in ("b", None):
                with self.assertRaisesRegex(foundry.Error, "'adder'.*tensor 'b' has other bytes"):
                    img.check(name)
            with self.assertRaisesRegex(foundry.Error, "not external"):
                img.check("a")
            self.assertEqual(self.numbers(img, 5.0), [15.0 + i for i in range(N)])

    def test_check_at_launch(self):
        import foundry
        child(self.store)
        with foundry.load("adder", store=self.store, check_at_launch=True) as img:
            self.assertEqual(img.report().checked_bytes, 0)
            img.check_content()
            self.assertGreater(img.report().checked_bytes, 0)
            self.assertEqual(self.numbers(img, 5.0), [5.0 + 2 * i for i in range(N)])
        with foundry.load("adder", store=self.store, check_at_launch=True) as img:
            capsule = img["a"].__dlpack__()
            self.assertGreater(img.report().checked_bytes, 0)
            del capsule

    def test_needs(self):
        import foundry
        child(self.store, "external")
        with foundry.Store(self.store) as store:
            needs = store.requirements("adder")
            self.assertEqual((needs.graphs, needs.nodes, needs.kernels), (1, 1, 1))
            self.assertEqual(needs.mapped_bytes, 2 << 20)
            self.assertEqual(needs.external_bytes, 4 * N)
            self.assertEqual(needs.externals, {"b": 4 * N})
            with self.assertRaises(foundry.Error) as e:
                store.requirements("nobody")
            self.assertEqual(e.exception.name, "FDRY_E_NOENT")

    def test_packs(self):
        import foundry
        child(self.store)
        calls = []
        with foundry.Store(self.store) as store, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pack")
            out = store.export("adder", path, progress=lambda *n: calls.append(n))
            self.assertEqual((out.images, out.packed), ([], os.path.getsize(path)))
            self.assertEqual(calls[-1], (out.bytes, out.bytes))
            with foundry.Store(os.path.join(folder, "other"), create=True) as other:
                self.assertEqual(other.import_(path, dry_run=True).objects_new, out.objects)
                back = other.import_(path)
                self.assertEqual((back.id, back.objects_new, back.bytes),
                                 (out.id, out.objects, out.bytes))
                self.assertEqual([ref for _, ref, _ in back.images], ["adder"])
                with tempfile.TemporaryFile() as file:
                    self.assertEqual(other.export([back.images[0][0]], file, refs=False,
                                                  plain=True).objects, out.objects)
                    file.seek(0)
                    self.assertEqual(store.import_(file.fileno()).images,
                                     [(back.images[0][0], None, None)])
                self.assertEqual(other.describe("adder"), store.describe("adder"))
                with tempfile.TemporaryFile() as file:
                    self.assertEqual(other.export(None, file).id, out.id)  # all: the same image
            with open(path, "rb") as file:
                before = file.read()
            for name in (path, path + "2"):
                with self.assertRaises(foundry.Error) as e:
                    store.export("nobody", name)
                self.assertEqual(e.exception.name, "FDRY_E_NOENT")
            with open(path, "rb") as file:
                self.assertEqual(file.read(), before)
            self.assertEqual(sorted(os.listdir(folder)), ["other", "pack"])
            with self.assertRaises(foundry.Error) as e:
                store.import_(__file__)
            self.assertEqual(e.exception.name, "FDRY_E_BADIMAGE")

    def test_evict_and_gc(self):
        import foundry
        child(self.store)
        with foundry.Store(self.store) as store:
            self.assertEqual(store.limit, 0)
            store.limit = 1 << 30
            self.assertEqual(store.limit, 1 << 30)
            self.assertGreater(store.used, 0)
            store.tag("adder", "other")
            store.pin("other")
            self.assertEqual(store.evict().images, [])
            would = store.evict(1, dry_run=True)
            # a pinned image keeps all its objects
            self.assertEqual([(ref, used > 0) for ref, _, used in would.images], [])
            store.unpin("other")
            would = store.evict(1, dry_run=True)
            self.assertEqual(sorted(ref for ref, _, _ in would.images), ["adder", "other"])
            self.assertTrue(would.images[0][2] > 1600000000 and would.before == store.used)
            phases = []
            self.assertEqual(store.gc(progress=lambda *n: phases.append(n[0])).dead, 0)
            self.assertEqual(sorted(set(phases)), ["list", "mark", "sweep"])
            gone = store.evict(1)
            self.assertTrue(gone.collected and gone.objects and gone.after < would.before)
            self.assertEqual(store.gc(dry_run=True).live, 0)
            with self.assertRaises(foundry.Error) as e:
                store.pin("adder")
            self.assertEqual(e.exception.name, "FDRY_E_NOENT")
            with self.assertRaises(ValueError):
                store.limit = -1

    def test_damage(self):
        import foundry
        child(self.store)
        with tempfile.TemporaryDirectory() as folder:
            pack = os.path.join(folder, "pack")
            with foundry.Store(self.store) as store:
                store.export("adder", pack)
            sound = foundry.verify(self.store)
            self.assertTrue(sound)
            self.assertGreater(sound.objects, 2)
            self.assertEqual(sound.compared, 0)
            fast = foundry.verify(self.store, fast=True)
            self.assertTrue(fast)
            self.assertGreater(fast.compared, 0)
            self.assertLess(fast.compared, sound.objects)
            self.assertEqual((fast.objects, fast.bytes), (sound.objects, sound.bytes))
            damage(self.store)
            self.assertEqual(foundry.verify(self.store, fast=True).damaged, 1)
            calls = []
            found = foundry.verify(self.store, progress=lambda *n: calls.append(n))
            self.assertFalse(found)
            self.assertEqual((found.damaged, found.broken), (1, 1))
            self.assertEqual(sorted(f.kind for f in found.faults), ["damaged", "image"])
            self.assertTrue(all(f.id and f.text for f in found.faults) and calls)
            would = foundry.repair(pack, self.store, dry_run=True)
            self.assertEqual((would.back, would.broken), (1, 0))
            self.assertFalse(foundry.verify(self.store))
            done = foundry.repair([pack], self.store)
            self.assertEqual((done.damaged, done.back, done.lost, done.quarantined, done.broken),
                             (1, 1, 0, 0, 0))
            self.assertEqual([(r.what, r.ref) for r in done.reported], [("back", None)])
            self.assertTrue(foundry.verify(self.store))
            damage(self.store)
            with self.assertRaises(foundry.Error) as e:
                foundry.repair([__file__], self.store)
            self.assertEqual(e.exception.name, "FDRY_E_BADIMAGE")
            with self.assertRaises(foundry.Error) as e:
                foundry.verify(os.path.join(folder, "none"))
            self.assertEqual(e.exception.name, "FDRY_E_NOSTORE")

    def test_tensors_with_a_capacity(self):
        import foundry
        child(self.store, "room")
        with foundry.Store(self.store) as store:
            self.assertEqual(store.requirements("adder").externals["kv"], 4 << 20)
            needs = store.requirements("adder", externals={"kv": 16 << 20})
            self.assertEqual((needs.externals["kv"], needs.capacities["kv"]), (16 << 20, 64 << 20))
            with foundry.load("adder", store=store, externals={"kv": 16 << 20}) as img:
                self.assertEqual(img["kv"].shape, (4 << 20,))
                self.assertEqual(img.report().mapped_bytes, needs.mapped_bytes)
                img.write("kv", b"\x01" * (16 << 20))
                self.assertEqual(img.read("kv")[-1], 1)
                self.assertEqual(self.numbers(img, 3.0), [3.0 + 2 * i for i in range(N)])
            with self.assertRaises(foundry.Error) as e:
                foundry.load("adder", store=store, externals={"kv": 65 << 20})
            self.assertEqual(e.exception.name, "FDRY_E_RANGE")

    def test_bases_by_name(self):
        import foundry
        child(self.store)
        with foundry.Store(self.store) as store:
            self.assertEqual(store.requirements("adder").base, foundry.base_for_name())
            default = foundry.load("adder", store=store)
            child(self.store, "named")
            self.assertEqual(store.requirements("adder").base, foundry.base_for_name("adder"))
            with foundry.load("adder", store=store) as img:
                for each in (default, img):
                    self.assertEqual(self.numbers(each, 3.0), [3.0 + 2 * i for i in range(N)])
            default.close()

    def test_access_to_a_store(self):
        import foundry
        with tempfile.TemporaryDirectory() as folder:
            for name, group, mode in ("own", False, 0o700), ("shared", True, 0o2770):
                path = os.path.join(folder, name)
                foundry.Store(path, create=True, group=group).close()
                self.assertEqual(os.stat(path).st_mode & 0o7777, mode)
            with self.assertRaises(foundry.Error) as e:
                foundry.Store(os.path.join(folder, "own"), create=True, group=True)
            self.assertEqual(e.exception.name, "FDRY_E_PERM")

    def test_errors_have_names(self):
        import foundry
        child(self.store)
        for call, name in (
                (lambda: foundry.load("nobody", store=self.store), "FDRY_E_NOENT"),
                (lambda: foundry.load("adder", store=self.store, facts={"model": "x"}),
                 "FDRY_E_IDENTITY"),
                (lambda: foundry.load("adder", store=self.store, device=5), "FDRY_E_NOGPU"),
                (lambda: foundry.load("adder", store=self.store, driver="/nowhere"),
                 "FDRY_E_NODRIVER"),
                (lambda: foundry.Store(os.path.join(self.folder.name, "none")), "FDRY_E_NOSTORE")):
            with self.assertRaises(foundry.Error) as e:
                call()
            self.assertEqual(e.exception.name, name)
            self.assertLess(e.exception.code, 0)
        with foundry.load("adder", store=self.store) as img:
            with self.assertRaises(foundry.Error) as e:
                img.write("a", b"too short")
            self.assertIn("4000 bytes, and 9 were given", str(e.exception))

    def test_host_memory(self):
        import foundry
        child(self.store, "host")
        with foundry.load("host", store=self.store) as img:
            a, c = img["a"], img["c"]
            self.assertTrue(a.host and a.external and c.host and not c.external)
            with self.assertRaises(foundry.Error) as e:
                img.launch(7)
            self.assertEqual(e.exception.name, "FDRY_E_UNBOUND")
            img.filled("a")
            numbers = (ctypes.c_float * N).from_address(a.addr)
            for salt in (1.0, 2.0):
                numbers[:] = [salt] * N
                img.launch(7)
                img.synchronize()
                self.assertEqual((ctypes.c_float * N).from_address(c.addr)[:],
                                 [salt + i for i in range(N)])
            img.write("a", struct.pack(f"{N}f", *([10.0] * N)))
            img.launch(7)
            self.assertEqual(list(struct.unpack(f"{N}f", img.read("c"))),
                             [10.0 + i for i in range(N)])
            self.assertEqual(a.__dlpack_device__(), (1, 0))
            with self.assertRaises(BufferError):
                a.__dlpack__(dl_device=(2, 0))

    def test_numpy_sees_host_memory(self):
        import foundry
        child(self.store, "host")
        img = foundry.load("host", store=self.store)
        with unittest.mock.patch.dict(sys.modules,
                                      numpy=types.SimpleNamespace(asarray=lambda x: x)):
            seen = img["a"].numpy()
        self.assertEqual(seen.__array_interface__,
                         {"version": 3, "data": (img["a"].addr, False), "typestr": "<f4",
                          "shape": (N,),
                                                    "strides": (4,)})
        with self.assertRaises(RuntimeError):
            img.close()
        del seen
        tensor = img["a"]
        img.close()
        with self.assertRaisesRegex(ValueError, "the image is closed"):
            tensor.numpy()

    def test_numpy_does_not_see_the_gpu(self):
        import foundry
        child(self.store)
        with foundry.load("adder", store=self.store) as img:
            with unittest.mock.patch.dict(sys.modules,
                                          numpy=types.SimpleNamespace(asarray=lambda x: x)):
                with self.assertRaises(TypeError):
                    img["a"].numpy()

    def test_views_keep_the_image(self):
        import foundry
        child(self.store)
        img = foundry.load("adder", store=self.store)
        self.assertEqual(img["a"].__dlpack_device__(), (2, 0))
        capsule = img["a"].__dlpack__()
        with self.assertRaises(RuntimeError):
            img.close()
        del capsule
        with self.assertRaises(BufferError):
            img["a"].__dlpack__(copy=True)
        img.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        kind = {"host": capture_host, "functions": capture_functions,
                "semaphores": capture_semaphores}
        kind.get(sys.argv[-1], capture)(sys.argv[2])
    else:
        suite.main()
