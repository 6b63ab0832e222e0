# SPDX-License-Identifier: Apache-2.0
"""Tests of wrong calls: each raises a Python error at once. No number is truncated, and no closed
object reaches the library.
"""
import copy
import ctypes
import gc
import os
import pickle
import subprocess
import sys
import types
import unittest
import unittest.mock
import weakref

import suite
import foundry

BUILD = os.environ.get("BUILD", "build")
TOO_MUCH = (1 << 64) + 1  # C would read this as 1


class Misuse(suite.Vecadd):
    name = "a störe"

    def refused(self, error, says, call, *args, **kwargs):
        with self.assertRaisesRegex(error, says):
            call(*args, **kwargs)

    def test_numbers_are_not_truncated(self):
        wrong = (OverflowError, ctypes.ArgumentError)
        with self.load() as image, foundry.Slots() as slots, foundry.Store(self.store) as store:
            size = image["a"].nbytes
            image.launch(1)
            for call in (lambda: image.launch(TOO_MUCH), lambda: image.build(TOO_MUCH),
                         lambda: slots.replay(TOO_MUCH),
                         lambda: slots.install_image(TOO_MUCH, image, 1),
                         lambda: slots.install_image(1, image, TOO_MUCH),
                         lambda: image.copy("a", image["out"].addr, (1 << 64) + size),
                         lambda: image.launch(-1),
                         lambda: setattr(store, "limit", 1 << 64), lambda: store.evict(1 << 64),
                         lambda: store.evict(-1),
                         lambda: foundry.Device(1 << 32), lambda: foundry.Slots(device=1 << 32),
                         lambda: foundry.Capture(device=1 << 32),
                         lambda: foundry.Capture(size=(1 << 64) + (2 << 20))):
                self.refused(wrong, "out of range", call)
            self.assertEqual((store.limit, slots.keys()), (0, []))
        for options in ({"device": 1 << 32}, {"threads": 1 << 32}, {"order": [TOO_MUCH]},
                        {"order": [-1]},
                        {"externals": {"a": TOO_MUCH}}):
            self.refused(OverflowError, "out of range", self.load, **options)

    def test_numbers_of_other_types_are_not_truncated(self):
        class Number:
            """An integer like numpy's: it is no int, but has __index__()."""

            def __init__(self, value):
                self.value = value

            def __index__(self):
                return self.value

        with self.load(order=[Number(1)], threads=Number(1),
                       device=Number(0)) as image, foundry.Slots(device=Number(0)) as slots:
            image.launch(Number(1))
            for call in (lambda: image.launch(Number(TOO_MUCH)),
                         lambda: slots.replay(Number(TOO_MUCH)),
                         lambda: foundry.Device(Number(1 << 32)),
                         lambda: foundry.Slots(device=Number(1 << 32)),
                         lambda: self.load(order=[Number(TOO_MUCH)])):
                self.refused((OverflowError, ctypes.ArgumentError), "out of range", call)
            self.refused((TypeError, ctypes.ArgumentError), "", image.launch, 1.0)
        self.assertEqual(foundry.parse_size(Number(4096)), 4096)
        self.refused(ValueError, "is not a size", foundry.parse_size, Number(-1))

    def test_texts_end_where_they_end(self):
        with self.load() as image, foundry.Store(self.store) as store:
            for call in (lambda: foundry.load("vecadd\0x", store=store), lambda: image["a\0b"],
                         lambda: store.describe("vecadd\0x"),
                         lambda: store.tag("vecadd", "b\0c"),
                         lambda: foundry.Store(self.store + "\0x"),
                         lambda: foundry.verify(os.fsencode(self.store) + b"\0x"),
                         lambda: store.export(["vecadd\0x"], "pack"),
                         lambda: foundry.load_or_capture("vecadd\0x", strict=True, store=store),
                         lambda: foundry.load("vecadd", store=store, facts={"a": "b\0c"}),
                         lambda: foundry.Capture(name="a\0b")):
                self.refused(ValueError, "NUL", call)
            for call in (lambda: foundry.load(None, store=store), lambda: image[0],
                         lambda: store.describe(b"vecadd"),
                         lambda: image.fact(None),
                         lambda: foundry.load("vecadd", store=store, facts={1: 2}),
                         lambda: foundry.load_or_capture([None], strict=True, store=store)):
                self.refused(TypeError, "must be a str", call)
        self.assertFalse(os.path.exists("pack"))

    def test_wrong_streams_and_graphs(self):
        with self.load() as image, foundry.Slots() as slots:
            slots.install_image(1, image, 1)
            for stream in ("x", b"x", 1.0, object()):
                self.refused(TypeError, "is not a stream", image.launch, 1, stream)
                self.refused(TypeError, "is not a stream", slots.replay, 1, stream)
            for graph in (None, "x", b"x", 1.0):
                self.refused(TypeError, "is not a graph", slots.install, 2, graph)
                self.refused(TypeError, "is not a graph", slots.install_graph, 2, graph)

    def test_buffers_are_released(self):
        class Bytes(bytearray):
            """A bytearray that a weak reference can watch."""

        with self.load() as image:
            size = image["a"].nbytes
            gc.disable()
            self.addCleanup(gc.enable)
            for readonly, wait in ((False, True), (False, False), (True, True), (True, False)):
                data = Bytes(b"\1" * size)
                image.write("a", memoryview(data).toreadonly() if readonly else data, wait=wait)
                data.append(1)  # refused while a buffer of it is in use
                kept = weakref.ref(data)
                del data
                self.assertTrue(kept() is None, (readonly, wait))
            found = image.read("a")
            found.append(2)
            self.assertTrue(found == b"\1" * size + b"\2")

    def test_paths_of_every_kind(self):
        with foundry.Store(os.fsencode(self.store)) as store:
            for name in ("p 1", b"p \xff", os.path.join(self.folder.name, "ü")):
                path = os.path.join(os.fsencode(self.folder.name), os.fsencode(name))
                store.export("vecadd", path)
                self.assertEqual(store.import_(path).objects_new, 0)

    def test_closed(self):
        image, slots, store, device = self.load(), foundry.Slots(), foundry.Store(
            self.store), foundry.Device()
        capture = foundry.Capture(name="other")
        tensor = image["a"]
        for each in (image, slots, store, device):
            each.close()
            each.close()
        capture.end()
        for what, calls in (
                ("image", (lambda: image.launch(1), lambda: image.id, image.graphs, image.tensors,
                           lambda: image["a"], lambda: image.read("out"),
                           image.report, image.synchronize, image.restore, image.wait,
                           lambda: image.build(1), image.rng_state,
                           image.generators, tensor.__dlpack__,
                           lambda: foundry.Slots().install_image(1, image, 1))),
                ("slots", (lambda: slots.replay(1), slots.keys, lambda: len(slots),
                           lambda: 1 in slots, slots.invalidate, slots.stats)),
                ("device", (device.pool, device.warm_up, lambda: device.get(4),
                            lambda: device.new(4), device.syncs)),
                ("store", (lambda: store.describe("vecadd"), lambda: store.used, store.gc,
                           lambda: foundry.load("vecadd", store=store),
                           lambda: foundry.Kernels(store=store),
                           lambda: foundry.telemetry.text(store))),
                ("capture", (capture.seal, capture.pause, lambda: capture.offset,
                             lambda: capture.add_graph(1, 1)))):
            for i, call in enumerate(calls):
                with self.subTest(what, nr=i):
                    self.refused(ValueError, f"the {what} (is|are|has) (closed|ended)", call)

    def test_a_progress_callback_does_not_keep_the_image(self):
        for options, done in (({}, lambda image: None), ({"background": True}, foundry.Image.wait),
                              ({"background": True}, foundry.Image.build_stop)):
            done(self.load(progress=lambda *_: None, **options))
            self.load().close()

    def test_a_child_of_a_fork_ends_in_silence(self):
        script = """
import os, sys, foundry
image = foundry.load("vecadd", store=sys.argv[1], background=True, progress=lambda *_: None)
sys.exit(os.waitpid(child, 0)[1] if (child := os.fork()) else 0)
"""
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", script, self.store],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_an_image_is_freed_with_its_last_reference(self):
        for keep in (lambda image: None, lambda image: image["a"],
                     lambda image: image["a"].__dlpack__()):
            held = keep(self.load())
            gc.collect()
            if held:
                self.refused(foundry.Error, "lies there", self.load)
                del held
            self.load().close()

    def test_a_consumer_that_raises(self):
        """numpy does this with GPU memory: it releases the capsule while its own exception is set.
        """
        library = os.path.join(self.folder.name, "consumer.so")
        command = [os.environ.get("CC", "cc"), "-x", "c", "-shared", "-fPIC", "-o", library, "-"]
        subprocess.run(command, check=True, text=True, input="""
            extern void *PyExc_KeyError;
            void PyErr_SetString(void *, const char *);
            void Py_DecRef(void *);
            void *PyCapsule_GetPointer(void *, const char *);
            struct managed { char tensor[48]; void *context; void (*deleter)(struct managed *); };
            void refuse(void *capsule)
            {
                PyErr_SetString(PyExc_KeyError, "refused");
                Py_DecRef(capsule);
            }
            void take(void *capsule)
            {
                struct managed *m = PyCapsule_GetPointer(capsule, "dltensor");
                PyErr_SetString(PyExc_KeyError, "taken, and refused");
                m->deleter(m);
            }
            """)
        consumer, raised_seen = ctypes.PyDLL(library), []
        image = self.load()
        kept = ctypes.py_object(image["a"].__dlpack__())
        with unittest.mock.patch.object(sys, "unraisablehook",
                                        lambda raised: raised_seen.append(repr(raised.exc_value))):
            consumer.take(kept)
            ctypes.pythonapi.PyCapsule_SetName(kept, b"used_dltensor")
            capsule = image["a"].__dlpack__()
            raw = ctypes.c_void_p(id(capsule))
            ctypes.pythonapi.Py_IncRef(raw)
            del capsule
            consumer.refuse(raw)
        self.assertEqual(raised_seen, ["KeyError('taken, and refused')", "KeyError('refused')"])
        image.close()

    def test_a_block_that_raises_beside_a_view(self):
        view = None
        with self.assertRaises(KeyError), self.load() as image:
            view = image["a"].__dlpack__()
            raise KeyError
        self.assertEqual(len(image.read("a")), image["a"].nbytes)
        del view, image
        self.load().close()

    def test_objects_cannot_be_copied(self):
        with self.load() as image, foundry.Store(self.store) as store, foundry.Slots(
            ) as slots, foundry.Device() as device, \
                foundry.Kernels() as kernels, foundry.DeviceScalar(
                    "int8") as scalar, foundry.DecodeState() as state, \
                foundry.Capture(name="other") as capture:
            for each in (image, image["a"], store, slots, device, kernels, scalar, state, capture,
                         foundry.CUDAGraph()):
                shallow = () if isinstance(each, type(image["a"])) else (copy.copy,)
                for copied in (copy.deepcopy, pickle.dumps, *shallow):
                    with self.subTest(each=each, how=copied):
                        self.refused(TypeError, "cannot be copied or pickled", copied, each)
            image.launch(1)

    def test_a_capture_is_freed_with_its_last_reference(self):
        for _ in range(2):
            capture = foundry.Capture(name="other")
            self.refused(foundry.Error, "begun already", foundry.Capture)
            del capture

    def test_an_image_in_a_slot_stays(self):
        image = self.load()
        with foundry.Slots() as slots:
            slots.install_image(1, image, 1)
            slots.install_image(2, image, 1)
            slots.invalidate(1)
            self.refused(RuntimeError, "invalidate the slot", image.close)
            self.assertTrue(slots.replay(2))
            slots.invalidate(2)
            image.close()

    def test_an_image_that_only_a_slot_refers_to_is_freed_with_it(self):
        script = """
import sys, foundry
with foundry.Slots() as slots:
    for let_go in (lambda: slots.invalidate(1), slots.invalidate, slots.close):
        slots.install_image(1, foundry.load("vecadd", store=sys.argv[1]), 1)
        assert slots.replay(1)
        let_go()
"""
        done = subprocess.run([sys.executable, "-c", script, self.store], capture_output=True,
                              text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_kernels_keep_their_store_open(self):
        with open(os.path.join(BUILD, "sim", "kernels.ptx"), encoding="ascii") as f:
            code = f.read()
        paths = [os.path.join(self.folder.name, name) for name in ("kernels", "other")]
        store = foundry.Store(paths[0], create=True)
        with foundry.Kernels(store=store) as kernels:
            store.close()
            # its handle may have the address of the first one's
            with foundry.Store(paths[1], create=True):
                self.assertTrue(kernels.function(code, "nothing").handle)
                self.assertEqual(kernels.stats().store_saves, 1)
        self.assertEqual([foundry.verify(path).objects for path in paths], [2, 0])

    def test_tensors_whose_memory_is_something_else(self):
        class Array:
            def __init__(self, typestr="<f4", strides=None):
                self.__array_interface__ = {"data": (4096, False), "typestr": typestr,
                                            "shape": (4, 4), "strides": strides, "version": 3}

        class Lazy:
            dtype, shape, device = "torch.complex64", (4,), types.SimpleNamespace(type="cuda")

            def __init__(self, bit):
                setattr(self, bit, lambda: True)

            def data_ptr(self):
                return 4096

            def stride(self):
                return (1,)

        with foundry.Capture(name="other") as capture:
            for typestr in (">f4", "|O8", "|S4", "<U4", "<M8", "|V8", "<f16"):
                self.refused(ValueError, "which images cannot hold", capture.tensor, "x",
                             Array(typestr))
            self.refused(ValueError, "do not divide", capture.tensor, "x", Array(strides=(18, 4)))
            for bit in ("is_conj", "is_neg"):
                self.refused(TypeError, "resolve_" + bit[3:], capture.tensor, "x", Lazy(bit))

    def test_exceptions_of_callbacks(self):
        class Midway(Exception):
            pass

        def fails(*_):
            calls.append(1)
            raise Midway

        with foundry.Store(self.store) as store:
            path = os.path.join(self.folder.name, "raised")
            for call in (lambda: store.gc(progress=fails),
                         lambda: store.export("vecadd", path, progress=fails),
                         lambda: foundry.verify(self.store, progress=fails),
                         lambda: self.load(progress=fails),
                         lambda: foundry.repair(store=self.store, progress=fails)):
                calls = []
                self.refused(Midway, "", call)
                self.assertEqual(len(calls), 1)
            self.assertFalse(os.path.exists(path))
        self.load().close()

    def test_errors_travel_between_processes(self):
        with self.assertRaises(foundry.Error) as raised:
            foundry.load("nobody", store=self.store)
        error = raised.exception
        for travelled in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            self.assertEqual((type(travelled), str(travelled), travelled.code, travelled.name,
                              travelled.errno),
                             (foundry.NotFoundError, str(error), error.code, "FDRY_E_NOENT",
                              error.errno))

    def test_a_borrowed_capture_is_not_ended(self):
        for call in (lambda capture: capture.end(), lambda capture: capture.__exit__()):
            self.refused(foundry.Error, "ends this capture itself", foundry.load_or_capture, "none",
                         store=self.store, capture=call)
        with foundry.Capture() as capture:
            self.assertEqual(capture.offset, 0)

    def test_a_missing_or_wrong_library(self):
        for library, says in (("/nowhere/libfoundry.so.0.2", "cannot be loaded.*FOUNDRY_LIBRARY"),
                              ("libc.so.6", "has another version")):
            done = subprocess.run([sys.executable, "-c", "import foundry"],
                                  env={**os.environ, "FOUNDRY_LIBRARY": library},
                                  capture_output=True, text=True, check=False)
            self.assertRegex(done.stderr.splitlines()[-1], f"ImportError: .*{says}")


if __name__ == "__main__":
    suite.main()
