# SPDX-License-Identifier: Apache-2.0
"""What the handler of a signal raises during a call of the library, such as KeyboardInterrupt, ends
the call or is raised after it. Nothing is lost.
"""
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

import suite
from test_roundtrip import Driver, damage
from test_roundtrip import child as sealed

COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
NUMBERS = (ctypes.c_int * (1 << 15))(*range(1 << 15, 0, -1))
HOLDS = """\
import sys, time
import foundry
def hold(capture):
    print("holds", flush=True)
    time.sleep(60)
foundry.load_or_capture("held", capture=hold, store=sys.argv[1], identity="manual")
"""


class Alarm(Exception):
    """Raised by the handler of a signal."""


def alarmed(*_):
    raise Alarm


def sort(callback):
    """Let the C library call a callback 245,760 times."""
    numbers = type(NUMBERS).from_buffer_copy(NUMBERS)
    ctypes.CDLL(None).qsort(numbers, ctypes.c_size_t(len(numbers)), ctypes.c_size_t(4),
                            callback.fn)


class Callbacks(unittest.TestCase):
    """Of the C library, in the place of those of the library."""

    def setUp(self):
        before = signal.signal(signal.SIGALRM, alarmed)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        self.hook, self.calls = sys.unraisablehook, []
        self.addCleanup(lambda: self.assertEqual(sys.unraisablehook, self.hook))

    def callback(self, function=lambda *_: 1):
        from foundry import _lib
        return _lib.Callback(COMPARE, function, failed=0)

    def test_a_handler_that_raises(self):
        callback = self.callback(lambda *_: self.calls.append(0) or 1)
        with self.assertRaises(Alarm), callback:
            self.assertIsNot(sys.unraisablehook, self.hook)
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            sort(callback)
        self.assertIn(len(self.calls), range(100, 200000))  # the rest was sorted without it

    def test_the_callback_of_an_outer_block(self):
        outer, inner = self.callback(lambda *_: self.calls.append(0) or 1), self.callback()
        with self.assertRaises(Alarm):
            with outer, inner:
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                sort(outer)
                count = len(self.calls)
                sort(outer)
                self.assertEqual(len(self.calls), count)

    def test_other_exceptions_are_reported_as_before(self):
        seen = []
        sys.unraisablehook = lambda lost: seen.append(lost.exc_value)
        self.addCleanup(setattr, sys, "unraisablehook", self.hook)

        class Fails:
            def __del__(self):
                raise KeyError
        with self.callback():
            Fails()
        self.assertEqual(list(map(type, seen)), [KeyError])
        one = COMPARE(lambda *_: [][0])  # a callback of the program
        with self.callback():
            sort(types.SimpleNamespace(fn=one))
        self.assertIn(IndexError, map(type, seen))

    def test_a_callback_without_a_block(self):
        """Such as that of messages: only what is no plain error is raised by the block."""
        seen, lost = [], self.callback()
        sys.unraisablehook = lambda it: seen.append(it.exc_value)
        self.addCleanup(setattr, sys, "unraisablehook", self.hook)
        for error in (KeyboardInterrupt(), ValueError()):
            with self.subTest(error=error):
                try:
                    with self.callback():
                        # as Python 3.13 reports it
                        sys.unraisablehook(types.SimpleNamespace(
                            object=None, exc_value=error, err_msg="Exception ignored on calling "
                            f"ctypes callback function {lost._call!r}"))
                except KeyboardInterrupt as e:
                    self.assertIs(e, error)
        self.assertEqual(list(map(type, seen)), [ValueError])

    def test_blocks_of_other_threads_leave_the_hook_alone(self):
        found = []

        def block():
            with self.callback():
                found.append(sys.unraisablehook)
        thread = threading.Thread(target=block)
        thread.start()
        thread.join()
        self.assertEqual(found, [self.hook])


class CtrlC(unittest.TestCase):
    """Is seen in another thread while the main thread is in a call of a library."""

    def seen(self):
        """What another thread sees after Ctrl-C, while the main thread sleeps in the C library."""
        from foundry import _lib
        found, said = [], _lib.CtrlC()

        def look():
            found.append(bool(said))
            time.sleep(0.1)  # the main thread is in the library now
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # the sleep goes on
            found.append(bool(said))
        looks = threading.Thread(target=look)
        try:
            with said:
                looks.start()
                ctypes.CDLL(None).usleep(500000)
                time.sleep(1)  # where the handler runs at the latest
        finally:
            looks.join()
            self.assertEqual(signal.set_wakeup_fd(-1), -1)
            self.found = found

    def test_with_pythons_handler(self):
        with self.assertRaises(KeyboardInterrupt):
            self.seen()
        self.assertEqual(self.found, [False, True])

    def test_with_a_handler_of_the_program(self):
        came = []
        before = signal.signal(signal.SIGINT, lambda *_: came.append(1))
        self.addCleanup(signal.signal, signal.SIGINT, before)
        self.seen()
        self.assertEqual((self.found, came), ([False, False], [1]))

    def test_a_program_keeps_its_wakeup(self):
        from foundry import _lib
        ends = os.pipe2(os.O_NONBLOCK)
        signal.set_wakeup_fd(ends[1])
        with _lib.CtrlC() as said, self.assertRaises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        self.assertFalse(said)
        self.assertEqual(signal.set_wakeup_fd(-1), ends[1])
        self.assertEqual(os.read(ends[0], 10), bytes([signal.SIGINT]))
        for fd in ends:
            os.close(fd)

    def test_a_wakeup_that_is_set_meanwhile_stays(self):
        from foundry import _lib
        ends = os.pipe2(os.O_NONBLOCK)
        with _lib.CtrlC():
            signal.set_wakeup_fd(ends[1])
        self.assertEqual(signal.set_wakeup_fd(-1), ends[1])
        for fd in ends:
            os.close(fd)

    def test_a_wakeup_whose_descriptor_is_closed(self):
        from foundry import _lib
        ends = os.pipe2(os.O_NONBLOCK)
        self.addCleanup(os.close, ends[0])
        far = os.dup2(ends[1], 200, inheritable=False)
        for fd in (far, ends[1]):  # the number of the second one is used again
            signal.set_wakeup_fd(fd)
            os.close(fd)
            files = os.listdir("/proc/self/fd")
            with _lib.CtrlC() as said:
                with self.assertRaises(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
                    time.sleep(1)
                self.assertTrue(said)
            self.assertEqual(os.listdir("/proc/self/fd"), files)
            self.assertEqual(signal.set_wakeup_fd(-1), -1)

    def test_a_handler_that_raises_as_it_begins_leaves_nothing(self):
        from foundry import _lib
        files = os.listdir("/proc/self/fd")
        real = signal.set_wakeup_fd

        def interrupted(*args, **options):
            real(*args, **options)
            raise KeyboardInterrupt
        with unittest.mock.patch.object(signal, "set_wakeup_fd", interrupted), \
                self.assertRaises(KeyboardInterrupt), _lib.CtrlC():
            pass
        self.assertEqual(signal.set_wakeup_fd(-1), -1)
        self.assertEqual(os.listdir("/proc/self/fd"), files)

    def test_what_the_program_handled_is_forgotten(self):
        from foundry import _lib
        with _lib.CtrlC() as said:
            with self.assertRaises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1)
            said.forget()
            self.assertFalse(said)


class Ends:
    """The library, whose evictions raise an error when they have removed the images."""

    error = None

    def __getattr__(self, name):
        from foundry import _lib
        return getattr(_lib.lib, name)

    def fdry_store_evict(self, *args):
        from foundry import _lib
        _lib.lib.fdry_store_evict(*args)
        if self.error:
            raise self.error


class Evictions(suite.Vecadd):
    """What ends an eviction does not lose what was removed until then."""

    def begin(self, store):
        """Returns what all refs are, with the store as it was made."""
        with tempfile.TemporaryFile() as pack:
            pack.write(self.pack)
            pack.seek(0)
            store.import_(pack)
        store.tag("vecadd", "other")
        return sorted((ref.name, ref.id) for ref in store.refs())

    def check(self, store, before, error):
        self.assertEqual(sorted([i[:2] for i in error.eviction.images] + [
            (ref.name, ref.id) for ref in store.refs()]), before)

    def test_what_was_removed_is_told(self):
        import foundry
        from foundry import _lib, store as of_store
        before = signal.signal(signal.SIGALRM, alarmed)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        with foundry.Store(self.store) as store, tempfile.TemporaryFile() as pack, \
             unittest.mock.patch.object(of_store, "lib", Ends()) as library:
            store.export("vecadd", pack)
            pack.seek(0)
            self.pack = pack.read()
            for library.error in (foundry.Error(_lib.STATE, "it failed"), KeyboardInterrupt()):
                refs, used = self.begin(store), store.used
                with self.assertRaises(type(library.error)) as e:
                    store.evict(1)
                found = e.exception.eviction
                self.assertEqual((len(found.images), found.before, found.limit), (2, used, 1))
                self.assertTrue(found.collected and found.objects and found.after < used)
                self.check(store, refs, e.exception)
            library.error = None
            with self.assertRaises(foundry.Error) as e:
                store.evict()  # there is no limit
            self.assertEqual((e.exception.name, e.exception.eviction.images), ("FDRY_E_STATE", []))
            raised = 0
            for i in range(1, 30):  # signals in different parts of the call
                refs = self.begin(store)
                try:
                    signal.setitimer(signal.ITIMER_REAL, i * 2e-4)
                    try:
                        store.evict(1)
                        time.sleep(0.1)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except Alarm as e:
                    if hasattr(e, "eviction"):
                        self.check(store, refs, e)
                        raised += 1
            self.assertGreater(raised, 0)


class Waits(unittest.TestCase):
    """Calls that wait for other processes."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.store = os.path.join(self.folder.name, "store")

    def interrupt(self, *words):
        """Return what a child says that gets Ctrl-C when it has waited for a while."""
        with subprocess.Popen([sys.executable, __file__, "child", self.store, *words],
                              stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as child:
            self.assertEqual(child.stdout.readline(), "waits\n")
            time.sleep(1)
            child.send_signal(signal.SIGINT)
            try:
                return child.communicate(timeout=20)[0]
            finally:
                child.kill()

    def test_for_another_capture(self):
        with subprocess.Popen([sys.executable, "-c", HOLDS, self.store], stdout=subprocess.PIPE,
                              text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(
                                  sys.path)}) as other:
            try:
                self.assertEqual(other.stdout.readline(), "holds\n")
                self.assertEqual(self.interrupt("start"), "KeyboardInterrupt, captured 0 times\n")
            finally:
                other.kill()

    def test_for_a_registry_that_does_not_answer(self):
        for what in ("restore", "launch"):
            with self.subTest(what):
                self.store = os.path.join(self.folder.name, what)
                sealed(self.store)
                self.assertEqual(self.interrupt(what), "KeyboardInterrupt, captured 0 times\n")

    def test_in_the_main_thread_alone(self):
        """Another thread that waits meanwhile asks for the damaged objects in its place."""
        sealed(self.store)
        self.assertEqual(self.interrupt("threads"), "KeyboardInterrupt, captured 0 times\n"
                         "a thread: DamagedError\n")

    def test_for_other_ranks(self):
        import foundry
        foundry.Store(self.store, create=True).close()
        self.assertEqual(self.interrupt("pin"), "KeyboardInterrupt, captured 0 times\n")


def damaged_image(store, late):
    """An image whose content differs, with damage that only a silent registry could repair."""
    import foundry
    silent = socket.create_server(("127.0.0.1", 0))
    os.environ["FOUNDRY_REGISTRY"] = f"oci+http://127.0.0.1:{silent.getsockname()[1]}/images"
    img = foundry.load("adder", store=store, check_at_launch=late)
    img.keeps = silent
    driver = Driver()
    driver("cuMemsetD8_v2", ctypes.c_uint64(img["b"].addr), ctypes.c_ubyte(1),
           ctypes.c_size_t(32))
    driver("cuCtxSynchronize")  # the comparison is on a stream of its own
    damage(store)
    return img


def launch_and_say(img):
    try:
        img.launch(7)
    except BaseException as e:
        print(f"a thread: {type(e).__name__}", flush=True)


def wait(store, what):
    """Wait for what never comes."""
    import foundry
    captured = []
    if what in ("restore", "launch", "threads"):
        img = damaged_image(store, what != "restore")
    if what == "threads":
        os.environ["FOUNDRY_REGISTRY_TIMEOUT"] = "3"
        threading.Timer(0.3, launch_and_say, (img,)).start()
    print("waits", flush=True)
    try:
        if what == "restore":
            img.restore()
        elif what in ("launch", "threads"):
            img.launch(7)
        elif what == "pin":
            foundry.pin("held", store=store, group="never", rank=0, ranks=2)
        else:
            Driver()
            foundry.load_or_capture("held", capture=captured.append, store=store,
                                    identity="manual")
    except BaseException as e:
        print(f"{type(e).__name__}, captured {len(captured)} times", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        wait(*sys.argv[2:])
    else:
        suite.main()
