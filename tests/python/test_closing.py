# SPDX-License-Identifier: Apache-2.0
"""Tests of objects that are closed while they are in use: every public method of every class that
can be closed. The test finds the classes and methods by inspection.

A new class needs a line in MAKERS; a new method needs one only if a parameter of it has a name that
PARAMETERS lacks.
"""
import collections.abc
import contextlib
import functools
import gc
import inspect
import itertools
import os
import subprocess
import sys
import threading

import suite
import foundry
from foundry import _lib, telemetry

BUILD = os.environ.get("BUILD", "build")
LIMIT = 60  # seconds, after which a thread or a process hangs
CLASSES = [cls for cls in (getattr(foundry, name) for name in foundry.__all__)
           if isinstance(cls, type) and issubclass(cls, _lib.Closing)]


class Beside:
    """A context in which another thread closes the object before the library's call number `at`
    that receives the object's pointer.

    freed: the number of the library's calls that free the object. early: the calls during which it
    was freed.
    """

    def __init__(self, handle, close, at):
        self.pointer, self.closing, self.close, self.at = handle.raw, handle.kind.closing, close, at
        self.freed, self.early, self.calls, self._kept = 0, [], [], {}

    def _call(self, function, original, *args):
        mine = self.pointer in args
        if function.name == self.closing and mine:
            self.freed += 1
            return original(*args)
        if mine:
            self.calls.append(function.name)
        if mine and len(self.calls) == self.at + 1:
            thread = threading.Thread(target=self._close)
            thread.start()
            thread.join(LIMIT)
            if thread.is_alive():
                self.early.append(f"{function.name}: close() waits")
        try:
            return original(*args)
        finally:
            if mine and self.freed:
                self.early.append(function.name)

    def _close(self):
        with contextlib.suppress(RuntimeError):  # the image is in a slot
            self.close()

    def __enter__(self):
        for name in _lib.SIGNATURES:
            function = getattr(_lib.lib, name)
            self._kept[name] = original = function.call
            function.call = functools.partial(self._call, function, original)
        return self

    def __exit__(self, *_):
        for name, original in self._kept.items():
            getattr(_lib.lib, name).call = original


class Closing(suite.Vecadd):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pack = os.path.join(cls.folder.name, "pack")
        with foundry.Store(cls.store) as store:
            store.export("vecadd", cls.pack)
        with open(os.path.join(BUILD, "sim", "kernels.ptx"), encoding="ascii") as f:
            cls.code = f.read()
        gc.freeze()  # so that a collection visits few objects

    # --- how each class is made, and the arguments of its methods ---

    def makers(self):
        return {
            "Capture": lambda: foundry.Capture(name="closing", size=1 << 30),
            "DecodeState": foundry.DecodeState, "Device": foundry.Device,
            "DeviceScalar": lambda: foundry.DeviceScalar("int32"), "Image": self.load,
            "Kernels": foundry.Kernels,
            "Slots": self.slots, "Store": lambda: foundry.Store(self.store),
        }

    def slots(self):
        slots, slots.image = foundry.Slots(), self.load()
        slots.install_image(1, slots.image, 1)
        slots.profile()
        return slots

    def value(self, cls, parameter, subject):
        """Returns a value for a parameter of the class's method."""
        values = {
            "Capture": {"name": lambda: "t", "graph": lambda: 4096, "tensor": Array,
                        "function": lambda: 4096, "semaphore": lambda: 4096,
                        "addr": lambda: 1 << 40},
            "Device": {"handle": lambda: subject.new(4096), "what": lambda: subject.get_sync(),
                       "addr": lambda: subject.get(4096), "data": lambda: b"12"},
            "Image": {"data": lambda: bytes(subject["a"].nbytes), "name": lambda: "a",
                      "nbytes": lambda: subject["a"].nbytes,
                      "src": lambda: subject["out"].addr},
            "Kernels": {"code": lambda: foundry.Code(self.code), "key": lambda: bytes(32),
                        "requests": lambda: [foundry.Code(self.code)]},
            "Slots": {"image": lambda: subject.image, "graph": lambda: 1},
            "Store": {"name": lambda: "vecadd", "names": lambda: ["vecadd"],
                      "image": lambda: "vecadd",
                      "ref": lambda: subject.tag("vecadd", "other") or "other",
                      "file": lambda: self.pack,
                      "registry": lambda: "oci://no-repository",
                      "files": lambda: [foundry.File("a", b"x")]},
        }
        common = {"key": 1, "nbytes": 4096, "stream": None, "entry": "vecadd", "value": 0,
                  "token": 1, "step": 1, "seed": 1, "ref": "other",
                  "generator": None, "max_bytes": 4 << 20, "add": 1}
        found = values.get(cls, {}).get(parameter)
        self.assertTrue(found or parameter in common,
                        f"say in tests/python/test_closing.py what methods of {cls} are given for "
                        f"'{parameter}'")
        return found() if found else common[parameter]

    def uses(self, cls):
        """Returns {name: (function that uses an object of the class with its arguments, {parameter:
        default})} for each public method and property, and for other functions that receive the
        object.
        """
        found, owner = {}, getattr(foundry, cls)
        special = ("__getitem__", "__contains__", "__len__", "__repr__")
        for name in sorted({name for each in owner.__mro__[:-1] for name in vars(each)}):
            static = inspect.getattr_static(owner, name)
            if isinstance(static, property) and not name.startswith("_"):
                found[name] = functools.partial(self.get_property, name), {}
                if static.fset:
                    found[f"{name} ="] = (functools.partial(self.set_property, name),
                                          {"value": static.fset})
            elif (callable(static) and (not name.startswith("_") or name in special)
                  and name not in ("close", "end", "settle")):
                given = {"key" if p.name == "name" and name == "__getitem__" else p.name: p.default
                         for p in inspect.signature(static).parameters.values()
                         if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
                         and (p.default is p.empty or p.name == "stream")}
                found[name] = functools.partial(self.call_method, name), given
        found.update(self.others().get(cls, {}))
        return found

    @staticmethod
    def get_property(name, subject, _):
        found = getattr(subject, name)
        return dict(found) if isinstance(found, collections.abc.Mapping) else found

    def set_property(self, name, subject, given):
        setattr(subject, name, given["value"])

    def call_method(self, name, subject, given):
        return self.call(getattr(subject, name), given)

    def load_or_capture(self, store, _):
        return foundry.load_or_capture("vecadd", store=store, strict=True)

    def launch(self, kernels, given):
        kernels.function(self.code, "nothing").launch(1, 1, **given)

    def others(self):
        """Returns functions that receive an object of the class and are no methods of it."""
        none = {}
        return {
            "Store": {
                "load()": (lambda store, _: foundry.load("vecadd", store=store), none),
                "load_or_capture()": (self.load_or_capture, none),
                "pin()": (lambda store, _: foundry.pin("vecadd", store), none),
                "Kernels()": (lambda store, _: foundry.Kernels(store=store), none),
                "telemetry.text()": (lambda store, _: telemetry.text(store), none),
                "Capture.seal()": (lambda store, _: self.seal(store), none)},
            "Image": {
                "Slots.install_image()": (lambda image,
                                          _: foundry.Slots().install_image(1, image, 1), none),
                "fact(str)": (lambda image, _: image.fact("none"), none),
                "write(wait=False)": (lambda image,
                                      _: image.write("a", bytes(image["a"].nbytes), wait=False),
                                      none),
                "write(array)": (lambda image, _: image.write("a", image["out"]), none),
                "read(out=)": (lambda image, _: image.read("a", out=image["out"]), none),
                "Tensor.__dlpack__()": (lambda image, _: image["a"].__dlpack__(), none)},
            "Capture": {
                "fact(str)": (lambda capture, _: capture.fact("key", "value"), none),
                "load(into=)": (lambda capture,
                                _: foundry.load("vecadd", store=self.store, into=capture), none)},
            "Slots": {"invalidate(key)": (lambda slots, _: slots.invalidate(1), none)},
            "Kernels": {"Function.launch()": (self.launch, {"stream": None})},
        }

    @staticmethod
    def call(method, given):
        found = method(*given.values()) if method.__name__.startswith("__") else method(**given)
        if (isinstance(found, contextlib.AbstractContextManager)
            and not isinstance(found, _lib.Closing)):
            with found:
                pass

    @staticmethod
    def seal(store):
        with foundry.Capture(name="closing", size=1 << 30) as capture:
            capture.seal(store)

    def each_use(self, check):
        """Calls check(class, use, new object, arguments of the use, number) for each use, with
        numbers from 0 as long as it returns true.
        """
        for cls, make in self.makers().items():
            for name, (use, parameters) in self.uses(cls).items():
                for number in itertools.count():
                    with self.subTest(cls=cls, use=name, number=number):
                        if not self.one_use(make(), lambda *what: check(cls, use, *what),
                                            parameters, number):
                            break
                        continue
                    break

    def one_use(self, subject, check, parameters, number):
        cls, pointer = type(subject).__name__, subject._handle._pointer
        given = {each: self.value(cls, each, subject) for each in parameters}
        again = check(subject, given, number)
        given.clear()
        with contextlib.suppress(RuntimeError):  # a view of the image is alive, or a slot has it
            subject.close()
        del subject
        gc.collect()
        self.assertEqual(pointer, [], "it is freed in the end")
        return again

    # --- tests ---

    def test_every_class_is_made_here(self):
        self.assertEqual({cls.__name__ for cls in CLASSES}, set(self.makers()))

    def test_closed_by_another_thread_beside_each_call(self):
        called = set()

        def check(cls, use, subject, given, number):
            beside = Beside(subject._handle, subject.close, number)
            with beside, contextlib.suppress(*MAY_RAISE):
                use(subject, given)
            called.update(beside.calls)
            self.assertEqual(beside.early, [], "freed beside a call")
            if len(beside.calls) <= number:
                return False
            if cls != "Image":  # an image stays while a view is alive
                self.assertFalse(subject._handle)
            return True

        self.each_use(check)
        self.assertEqual(set(), self.functions() - called - NEVER)

    def test_closed_while_arguments_are_converted(self):
        closed = 0

        class Number:
            """An integer that closes the object that receives it when its value is read."""

            def __init__(self, close, value):
                self.close, self.value = close, value

            def __index__(self):
                with contextlib.suppress(RuntimeError):
                    self.close()
                return self.value

            @property
            def cuda_stream(self):
                return self.__index__()

        def check(_, use, subject, given, number):
            nonlocal closed
            names = [name for name, value in given.items() if isinstance(value, int)
                     or name == "stream"]
            if number >= len(names):
                return False
            given[names[number]] = Number(subject.close, given[names[number]] or 0)
            beside = Beside(subject._handle, subject.close, -1)
            with beside, contextlib.suppress(*MAY_RAISE):
                use(subject, given)
            self.assertEqual(beside.early, [], "freed beside a call")
            closed += not subject._handle
            return True

        self.each_use(check)
        self.assertGreater(closed, 30)

    def test_objects_closed_in_their_callbacks(self):
        def export(store, close):
            store.export("vecadd", self.pack + "2", progress=close)

        def replay(slots, close):
            slots.profile(every=1, callback=close)
            slots.image.write("a", bytes(slots.image["a"].nbytes))
            slots.replay(1)

        def other_profile(slots, close):
            refused = []
            for change in (slots.profile_stop, slots.profile, slots.invalidate,
                           lambda: slots.install(1, 4096)):
                replay(slots, lambda *_: refused.append(raised(change)))
            self.assertEqual([error.name for error in refused], ["FDRY_E_STATE"] * 4)
            slots.close()

        for cls, use in (("Store", export), ("Store", lambda store,
                                             close: store.import_(self.pack, progress=close)),
                         ("Store", lambda store, close: store.gc(progress=close)),
                         ("Store", lambda store,
                          close: foundry.load("vecadd", store=store, progress=close).close()),
                         ("Slots", replay), ("Slots", other_profile)):
            subject = self.makers()[cls]()
            pointer, beside = subject._handle._pointer, Beside(subject._handle, subject.close, -1)
            with beside, contextlib.suppress(ValueError):
                use(subject, lambda *_: subject.close())
            self.assertEqual((beside.early, beside.freed, pointer), ([], 1, []), cls)
            subject = beside = None
            gc.collect()

    def test_in_a_callback_of_the_thread_that_builds(self):
        """Calls that wait for that thread are refused in it; close() takes effect when the thread
        has ended.
        """
        script = """
import sys, threading, time, foundry
known, begun, done = threading.Event(), threading.Event(), threading.Event()
found, images = [], []

def progress(phase, *_):
    if phase != "graphs" or done.is_set():
        return
    begun.set()
    known.wait(60)
    for name, call in calls(images[0]).items():
        try:
            call()
            found.append(name)
        except Exception as e:
            found.append(f"{name}: {e}")
    done.set()

def calls(image):
    if sys.argv[2] == "wait":
        return {"wait": image.wait, "build_stop": image.build_stop, "restore": image.restore,
                "build": lambda: image.build(1)}
    return {"close": image.close, "again": image.close, "launch": lambda: image.launch(1)}

if sys.argv[2] == "early":  # the callback is called before load() has made its Image
    import foundry.image as module
    module.Image = lambda *args, make=module.Image: begun.wait(60) and make(*args)

images.append(foundry.load("vecadd", store=sys.argv[1], background=True, progress=progress))
known.set()
assert done.wait(60)
print(*found, sep=chr(10))
images[0].close()
end = time.monotonic() + 60
while True:  # the image's addresses are free some time after the callback has returned
    try:
        foundry.load("vecadd", store=sys.argv[1]).close()
        break
    except foundry.Error as e:
        if e.name != "FDRY_E_TAKEN" or time.monotonic() > end:
            raise
        time.sleep(0.01)
"""
        refused = ": .*own progress function.*\n"
        closed = "close\nagain\nlaunch: the image is closed; load it again\n"
        for what, says in (("wait", f"wait{refused}build_stop{refused}restore{refused}build\n"),
                           ("close", closed), ("early", closed)):
            with self.subTest(what):
                done = subprocess.run([sys.executable, "-c", script, self.store, what],
                                      capture_output=True, text=True, check=False, timeout=LIMIT)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertRegex(done.stdout, f"\\A{says}\\Z")

    def test_a_consumer_that_outlives_python(self):
        """One consumer of DLPack releases its tensor after the interpreter has ended, another one
        during its end.
        """
        library = os.path.join(self.folder.name, "late.so")
        command = [os.environ.get("CC", "cc"), "-x", "c", "-shared", "-fPIC", "-o", library, "-"]
        subprocess.run(command, check=True, text=True, input="""
            #include <stdio.h>
            struct managed { char tensor[48]; void *context; void (*deleter)(struct managed *); };
            extern void *PyCapsule_GetPointer(void *, const char *);
            extern int PyCapsule_SetName(void *, const char *);
            static struct managed *kept;
            void take(void *capsule)
            {
                kept = PyCapsule_GetPointer(capsule, "dltensor");
                PyCapsule_SetName(capsule, "used_dltensor");
            }
            __attribute__((destructor)) static void end(void)
            {
                if (kept)
                    kept->deleter(kept);
                puts("let go");
                fflush(stdout);
            }
            """)
        script = """
import atexit, ctypes, sys
library = ctypes.PyDLL(sys.argv[2])
library.take.argtypes = [ctypes.py_object]
late = []
if sys.argv[3] == "late":
    atexit.register(lambda: library.take(late[0].__dlpack__()))  # runs after the package's own
import foundry
image = foundry.load("vecadd", store=sys.argv[1])
late.append(image["a"])
unused = sys.unused = image["a"].__dlpack__()
if sys.argv[3] == "early":
    library.take(image["a"].__dlpack__())
"""
        for when in ("early", "late", "never"):
            with self.subTest(when):
                done = subprocess.run([sys.executable, "-c", script, self.store, library, when],
                                      capture_output=True, text=True, check=False, timeout=LIMIT)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "let go\n", ""))

    @staticmethod
    def functions():
        """Returns functions that receive an object that can be closed, without those that close it.
        """
        kinds = [kind for kind in vars(_lib).values() if isinstance(kind, type)
                 and issubclass(kind, _lib.Object)]
        return {name for name, (_, arguments) in _lib.SIGNATURES.items()
                if any(issubclass(kind, _lib.Object)
                       for kind in arguments)} - {kind.closing for kind in kinds}


# Errors that an object closed by another thread may raise, and those of methods with unsuitable
# arguments.
MAY_RAISE = (ValueError, KeyError, TypeError, ImportError, foundry.Error)
# Functions of the library that none of these methods calls: they are called when the object is
# made, need torch, or are for C.
NEVER = {name for name in _lib.SIGNATURES
         if name.startswith(("fdry_cudagraph_", "fdry_graphpool_"))} | {
    "fdry_device_caps", "fdry_image_rng_count", "fdry_scalars_addr", "fdry_capture_allocs",
    "fdry_capture_origin", "fdry_capture_code_files",
             "fdry_capture_graph_remove",
    "fdry_capture_graph_fixed", "fdry_capture_graph_skip", "fdry_capture_rng_slots",
    "fdry_capture_free_preallocated", "fdry_capture_rng_use", "fdry_capture_hold",
    "fdry_capture_preallocate", "fdry_capture_rng", "fdry_device_launch_cooperative",
             "fdry_image_rng_use", "fdry_image_rng",
    "fdry_image_host", "fdry_image_launch_rng", "fdry_image_rng_advance", "fdry_image_rng_seed",
             "fdry_resident_count",
    "fdry_scalars_count", "fdry_scalars_dtype", "fdry_sync_count"}


def raised(call):
    try:
        call()
    except foundry.Error as e:
        return e
    return None


class Array:
    __cuda_array_interface__ = {"data": (4096, False), "typestr": "<f4", "shape": (4,),
                                "strides": None, "version": 3}


if __name__ == "__main__":
    suite.main()
