# SPDX-License-Identifier: Apache-2.0
"""Calls of libfoundry.

Every call goes through Function: it converts the arguments, holds each Handle among them until the
call returns, and translates errors. _tables.py has the signature of every function and the fields
of every struct; they are attributes of this module, too.

Each process that imports foundry waits for this module. So it imports little, and makes each
Function when it is first used.
"""
import ctypes
import os
import sys
import time

# threading.local and other parts, without the rest of that module
from _thread import _local, get_ident, start_new_thread
from ctypes import (c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint, c_uint32, c_uint64,
                    c_void_p)

from .errors import Error

# When foundry was imported: before the packages that a program captures with.
STARTED = time.time()

# The ranges of C's integers: ctypes would cut off numbers that do not fit.
RANGES = {kind: (0, (1 << 8 * ctypes.sizeof(kind)) - 1)
          for kind in (c_uint, c_uint32, c_uint64, c_size_t)}
RANGES.update({kind: (-1 << 8 * ctypes.sizeof(kind) - 1, (1 << 8 * ctypes.sizeof(kind) - 1) - 1)
               for kind in (c_int, c_int32, c_int64)})


# A pointer given as an integer, such as a stream or a device address.
RANGES[c_void_p] = RANGES[c_uint64]


_VARARGS, _VARKEYWORDS = 4, 8  # CO_VARARGS and CO_VARKEYWORDS of inspect, whose import takes long


class OutOfRange(OverflowError, ValueError):
    """An integer that the library's type cannot hold."""


def _parameters(frame):
    """(name, value) of each parameter of a running function; those of **options by their own names.
    """
    code, has = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _VARARGS)
    yield from ((name, has.get(name)) for name in code.co_varnames[:count])
    if code.co_flags & _VARKEYWORDS:
        yield from has.get(code.co_varnames[count], {}).items()


def _holds(given, value):
    """Whether a parameter is the value, or a list, tuple or dict that contains it."""
    if isinstance(given, dict):
        given = (*given, *given.values())
    return (any(each is value for each in given)
            if isinstance(given, (list, tuple)) else given is value)


def argument(value):
    """"name: " of the parameter by which the user passed `value`, or "". For error messages only.
    """
    frame, found = sys._getframe(1), ""
    while frame is not None and frame.f_globals.get("__name__", "").startswith(__package__ + "."):
        if frame.f_globals["__name__"] != __name__:
            found = next((name for name, given in _parameters(frame) if name != "self"
                          and _holds(given, value)), found)
        frame = frame.f_back
    return f"{found}: " if found else ""


def fit(kind, value, name=""):
    """`value` as an int that the ctypes type `kind` can hold; value: an integer of Python or numpy.

    Raises TypeError for anything else, and OutOfRange if it does not fit. name: its name in
    messages if no parameter has it.
    """
    if kind not in RANGES or isinstance(value, ctypes._SimpleCData):
        return value
    if not hasattr(value, "__index__"):
        if kind is c_void_p and not isinstance(value, (str, float)):
            return value  # None, bytes, an array
        raise TypeError(
            f"{argument(value) or name}{value!r} is of type {type(value).__name__}; give an "
            "integer")
    number, (least, most) = value.__index__(), RANGES[kind]
    if not least <= number <= most:
        raise OutOfRange(
            f"{argument(value) or name}{number} is out of range: it may be from {least} to {most}")
    return number


def array(kind, values):
    """An array of ctypes integers."""
    values = [fit(kind, value) for value in values]
    return (kind * len(values))(*values)


def text(value):
    """A str for the library. Raises ValueError if it has a NUL, at which C would end it."""
    if not isinstance(value, str):
        raise TypeError(f"{argument(value)}{value!r} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{argument(value)}{value!r} has a NUL character in it")
    try:
        return value.encode()
    except UnicodeEncodeError as e:
        raise ValueError(
            f"{argument(value)}{value!r} cannot be written as UTF-8: {e.reason}") from None


def foreign(raw):
    """Bytes from other programs, such as a name in an image, as a str. named() returns the same
    bytes.
    """
    return raw.decode(errors="surrogateescape")


def named(value):
    """text() for a name that may come from foreign()."""
    try:
        return (value.encode(errors="surrogateescape")
                if isinstance(value, str) and "\0" not in value else text(value))
    except UnicodeEncodeError:
        return text(value)


def shown(value):
    """Text from other programs, in a form that a terminal only displays, as in the library's
    messages.
    """
    def one(c):
        if c.isprintable():
            return c
        if "\udc80" <= c <= "\udcff":
            return "\\x%02x" % (ord(c) & 0xff)
        return "\\u%04x" % ord(c) if "\x80" <= c <= "\xff" else c.encode("unicode_escape").decode()

    return "".join(map(one, value))


def pairs(value):
    """The pairs of a dict or of a similar object; none for None."""
    if value is None:
        return []
    if not hasattr(value, "items"):
        raise TypeError(
            f"{argument(value)}{value!r} is of type {type(value).__name__}; give a dict")
    return list(value.items())


def descriptor(file):
    """The descriptor of an open file: an int, or an object with fileno()."""
    if not isinstance(file, int) and not hasattr(file, "fileno"):
        raise TypeError(
            f"{argument(file)}{file!r} is of type {type(file).__name__}; give a path, a descriptor "
            "or an open file")
    return file if isinstance(file, int) else file.fileno()


def file_name(path):
    """A path (str, bytes, os.PathLike) for the library. Raises ValueError if it has a NUL."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise ValueError(f"{path!r} has a NUL character in it")
    return raw


class Object(c_void_p):
    """A pointer to an object of the library.

    closing: the function that frees it. closed: the error message if it was freed.
    """

    closing = closed = None


def _object(name, closing, closed):
    return type(name, (Object,), {"closing": closing, "closed": closed})


STORE = _object("STORE", "fdry_store_close", "the store is closed; open it again")
CAPTURE = _object("CAPTURE", "fdry_capture_end", "the capture has ended; begin another one")
IMAGE = _object("IMAGE", "fdry_image_unload", "the image is closed; load it again")
SLOTS = _object("SLOTS", "fdry_slots_free", "the slots are closed; make others")
KERNELS = _object("KERNELS", "fdry_kernels_free", "this Kernels is closed; make another one")
SCALARS = _object("SCALARS", "fdry_scalars_free", "the scalar is closed; make another one")
DECODE = _object("DECODE", "fdry_decode_state_free", "the decode state is closed; make another one")
DEVICE = _object("DEVICE", "fdry_device_put", "the device is closed; open it again")
CUDAGRAPH = _object("CUDAGRAPH", "fdry_cudagraph_free", "the graph is freed; make another one")
POOL = _object("POOL", "fdry_graphpool_put", "the pool is freed; make another one")
# The driver's handles are plain pointers.
GRAPH = STREAM = GRAPH_EXEC = FUNCTION = c_void_p
LOG_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)

_entered = _local()  # .callbacks: see entered()


class Handle:
    """An object of the library. Each call that uses it holds it until the call returns.

    close() refuses later calls. It frees the object at once, or when the last call that uses it
    returns. So a program may close anything at any time: in its own callback, during a call in
    another thread, in the conversion of an argument. An object without references is closed, too.

    There is no lock, because a signal handler or the garbage collector may call any of these
    methods inside another. Each decisive step is one operation on a list, which cannot be
    interrupted.
    """

    def __init__(self, pointer, keeps=(), lent=False):
        """pointer: an Object that the library has set. lent: the library frees it.

        keeps: objects that must live as long as this one; lists and dicts among them are emptied
        afterwards.
        """
        self.kind, self.keeps = type(pointer), list(keeps)
        self._pointer = [pointer.value] if pointer.value else []  # empty when it is freed
        self._closing, self._lent = not pointer.value, lent
        self._holds = []  # None for each call, or the reason for a longer hold
        getattr(lib, self.kind.closing)  # made now: Python may be ending when it is called

    def __bool__(self):
        return not self._closing

    def __del__(self):
        # drop the holds of calls: no call can still be using it
        self._holds = [why for why in self._holds if why]
        self.close()

    def check(self):
        """ValueError if it is closed."""
        if self._closing:
            raise ValueError(self.kind.closed)

    @property
    def raw(self):
        """The pointer as an int. The caller must hold the object."""
        self.check()
        return self._pointer[0]

    def take(self, why=None):
        """Hold the object and return the pointer; leave() ends that."""
        self._holds.append(why)
        if self._closing:
            self.leave(why)
            raise ValueError(self.kind.closed)
        return self._pointer[0]

    def leave(self, why=None):
        """End what take() began."""
        self._holds.remove(why)
        if self._closing and not self._holds:
            self._free()

    def held(self, why):
        """The number of holders for this reason."""
        return self._holds.count(why)

    def close(self):
        """Refuse calls from now on, and free the object when the last call returns. It may be
        called again.
        """
        self._closing = True
        if not self._holds:
            self._free()

    def abandon(self):
        """Never free it, since the process ends."""
        self._lent = True

    def suspend(self):
        """Wait for the calls that hold a lent object, and refuse others until settle()."""
        self._closing = True
        while self._holds:
            time.sleep(0.001)

    def settle(self, ours):
        """End the loan: this package owns the object if `ours` is true, else the library has freed
        it.
        """
        self._lent, self._closing = not ours, not ours

    def _free(self):
        if self._lent:
            return
        try:
            pointer = self._pointer.pop()
        except IndexError:
            return  # another thread frees it
        # if this runs in a callback of the object, the library frees it when the callback has
        # returned
        if any(each.of(self) for each in entered()):
            import threading
            threading.Thread(target=self._free_pointer, args=(pointer,),
                             name="foundry-close").start()
        else:
            self._free_pointer(pointer)

    def _free_pointer(self, pointer):
        getattr(lib, self.kind.closing).call(pointer)
        keeps, self.keeps = self.keeps, []
        for each in keeps:
            if isinstance(each, (list, dict)):
                each.clear()


def entered():
    """The callbacks that this thread runs now, but for those that may wait."""
    return getattr(_entered, "callbacks", ())


class Hold:
    """Holds an object of the library as long as this lives. why: "tensor", "slot", ..."""

    def __init__(self, handle, why):
        self.handle, self._why = None, why
        handle.take(why)
        self.handle = handle

    def __del__(self):
        if self.handle is not None:
            self.handle.leave(self._why)


# Codes of errors that the package raises itself, or to whose messages it adds.
NODRIVER, NOGPU = -401, -402
INVAL, STATE, NOKEY, RANGE, LAYOUT = -100, -102, -106, -107, -112
BADIMAGE, NOENT, REFUSED = -200, -300, -203
IDENTITY = -202


def sentence(raw):
    """A message of the library, in the words of Python."""
    from . import words
    return words.python(raw.decode(errors="replace"))


def _checker(result, _function, _arguments):
    if result:
        text = sentence(lib.fdry_last_error())
        if result in (NODRIVER, NOGPU):
            from . import words
            text += words.software_driver(path())
        raise Error(result, text)
    return result


def path():
    """The library's path: FOUNDRY_LIBRARY, else the one in the package, else the loader's own
    search.
    """
    beside = os.path.join(os.path.dirname(__file__), "lib", "libfoundry.so.0.2")
    return (os.environ.get("FOUNDRY_LIBRARY")
            or (beside if os.path.exists(beside) else "libfoundry.so.0.2"))


class Function:
    """A function of the library, with the checks of this package."""

    def __init__(self, name, call):
        from . import _tables
        result, kinds = _tables.SIGNATURES[name]
        call.restype, call.argtypes = result, kinds
        if name in _tables.CHECKED:
            call.errcheck = _checker
        self.name, self.call, self._count = name, call, len(kinds)
        self._numbers = [(i, kind) for i, kind in enumerate(kinds) if kind in RANGES]
        self._handles = [i for i, kind in enumerate(kinds) if issubclass(kind, Object)]
        self._structs = [i for i, kind in enumerate(kinds) if hasattr(kind, "contents")
                         and issubclass(kind._type_, _tables.Struct)]

    def __call__(self, *given):
        args, held = list(given), []
        if len(args) != self._count:
            raise TypeError(f"{self.name}() takes {self._count} arguments, not {len(args)}")
        for i, kind in self._numbers:
            args[i] = fit(kind, args[i])
        try:
            for i in self._handles:
                if args[i] is not None:
                    args[i] = self._take(args[i], held)
            for i in self._structs:
                for handle in getattr(getattr(args[i], "_obj", args[i]), "handles", ()):
                    self._take(handle, held)
            return self.call(*args)
        except ctypes.ArgumentError as e:
            raise self._wrong(given, e) from None
        finally:
            for handle in held:
                handle.leave()

    @staticmethod
    def _take(handle, held):
        pointer = handle.take()
        held.append(handle)
        return pointer

    @staticmethod
    def _wrong(given, error):
        """The TypeError for an argument that ctypes refused."""
        import re
        found = re.match(r"argument (\d+): ", str(error))
        value = given[int(found[1]) - 1] if found else None
        return TypeError(f"{argument(value)}{value!r} is of a wrong type, {type(value).__name__}")


class _Library:
    """The functions of the library as attributes; each is made when it is first used."""

    def __init__(self, opened):
        self._opened = opened

    def __getattr__(self, name):
        try:
            made = Function(name, self._opened[name])
        except KeyError:
            raise AttributeError(f"the tables have no function {name}") from None
        except AttributeError as e:
            raise ImportError(_other_version(e)) from None
        return self.__dict__.setdefault(name, made)


def _other_version(why):
    return (f"the library {path()} has another version than this package: {why}; install both from "
            "one release, or set FOUNDRY_LIBRARY to the right library")


def _open():
    try:
        opened = ctypes.CDLL(path())
        opened["fdry_version"]  # pylint: disable=pointless-statement
    except OSError as e:
        from . import words
        raise ImportError(words.not_loaded(path(), str(e))) from None
    except AttributeError as e:
        raise ImportError(_other_version(e)) from None
    return opened


def version():
    """The version of the library, such as "0.2.0"."""
    call = raw["fdry_version"]
    call.restype = c_char_p
    return call().decode()


class Single:
    """An object that owns one object of the library. A copy would free that again."""

    def _repr_html_(self):
        from . import _show
        return _show.plain(self)

    def __reduce_ex__(self, _):
        raise TypeError(f"foundry.{type(self).__name__} cannot be copied or pickled")


class Closing(Single):
    """An object with a handle, which a with block closes."""

    _handle = None  # if it could not be made
    _shown = ""     # a part of repr()

    def close(self):
        """Free it; a second call does nothing. If calls are under way, it is freed after them."""
        if self._handle is not None:
            self._handle.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<{type(self).__name__}{self._shown}{'' if self._handle else ', closed'}>"


class Record:
    """A report with fields."""

    def _fields(self):
        return [(name, value) for name, value in vars(self).items() if not name.startswith("_")]

    def __repr__(self):
        fields = ", ".join(
            f"{name}={value:.3f}" if isinstance(value, float) else f"{name}={brief(value)}"
            for name, value in self._fields())
        return f"<{type(self).__name__} {fields}>"

    def _repr_html_(self):
        from . import _show
        return _show.fields(type(self).__name__, self._fields())


def brief(value):
    """repr() of a value, with long parts left out."""
    import reprlib
    form = reprlib.Repr()
    form.maxstring = form.maxother = 120
    return form.repr(value)


class Callback:
    """A function of the caller that the library calls; `fn` is NULL without a function.

    If the function raises inside the with block of this object, the exception is raised at the end
    of the block, the function is not called again, and the library receives `failed`. handle: a
    weak reference to the Handle of the object that calls it, if threads of the library call it,
    too.

    Python runs the handlers of signals that came during a call of the library when a callback
    begins, before its first line. ctypes drops what they raise then, such as KeyboardInterrupt, and
    tells only sys.unraisablehook. In with blocks, such exceptions count as the function's.
    """

    handle = None
    thread = None  # the only one in which the function is called; others get 0

    def __init__(self, kind, function, failed=None, ends=None, waits=False):
        """ends: called at the end of each with block, whatever happens in it. waits: whether the
        function may wait for other calls of the library.
        """
        self._function, self._failed, self._ends, self._waits = function, failed, ends, waits
        self._entered, self._raised = False, None
        self.fn = kind(self._call) if function else kind()

    def _call(self, *args):
        if self.thread not in (None, get_ident()):
            return 0
        if self.raised:
            return self._failed
        outer = entered()
        _entered.callbacks = outer if self._waits else (*outer, self)
        try:
            return self._function(*args)
        except BaseException as e:
            if not self._entered:
                raise  # no block will raise it, so sys.unraisablehook gets it
            self._raised = e
            return self._failed
        finally:
            _entered.callbacks = outer

    def of(self, handle):
        """Whether the object of this handle calls it.

        A thread of the library may call it before the handle is set.
        """
        return self.handle is not None and self.handle() is handle

    def __enter__(self):
        self._entered = True
        try:
            _blocks.enter(self)
        except BaseException:  # of a handler: no __exit__() follows
            self._entered = False
            _blocks.leave(self)
            raise

    def __exit__(self, *_):
        self._entered = False
        _blocks.leave(self)
        if self._ends is not None:
            self._ends()
        if self.raised:
            raise self._raised from None

    @property
    def raised(self):
        """Whether the with block will raise an exception."""
        return self._raised is not None

    def forget(self):
        """Begin another with block, whatever an earlier one has raised."""
        self._raised = None

    def fail(self, error):
        """Raise this error at the end of the with block, unless there is an earlier one."""
        if self._raised is None:
            self._raised = error


def stop(*others, raised=()):
    """A Callback that a long call asks whether to stop: it does if the handler of a signal or one
    of the other callbacks has raised. raised: the list of unbroken(), or a CtrlC.
    """
    from . import _tables
    return Callback(_tables.STOP_FN, lambda _: bool(raised) or any(each.raised for each in others),
                    failed=1)


class CtrlC:
    """Whether Ctrl-C came in this with block, for a stop() that the library asks in other threads.

    Python runs the handlers of signals in the main thread alone, when a call of the library has
    returned. So a byte in a pipe tells of the signal before. That is done only where Ctrl-C will
    raise KeyboardInterrupt then: in the main thread, with Python's own handler, and if nobody else,
    such as asyncio, has called signal.set_wakeup_fd().
    """

    def __init__(self):
        self._pipe, self._came = (), False

    def __enter__(self):
        import signal
        import threading
        if (threading.current_thread() is not threading.main_thread()
                or signal.getsignal(signal.SIGINT) is not signal.default_int_handler):
            return self
        try:
            self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            if before not in (-1, *self._pipe):  # the numbers of closed ones are used again
                self._give_back(before)
        except BaseException:  # a handler's, too
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        import signal
        if not self._pipe:
            return
        try:
            now = signal.set_wakeup_fd(-1)
            if now not in (-1, self._pipe[1]):  # the program set it meanwhile
                signal.set_wakeup_fd(now, warn_on_full_buffer=False)
        finally:
            self._close()

    def _give_back(self, before):
        """Leave signals to the program's descriptor, with those that came meanwhile."""
        import signal
        try:
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
            came = self._read()
            if came:
                os.write(before, came)
        except (OSError, ValueError):
            return  # it is closed or full, so nobody misses it
        self._close()

    def _close(self):
        fds, self._pipe = self._pipe, ()
        for fd in fds:
            os.close(fd)

    def _read(self):
        """The numbers of the signals that came."""
        came = b""
        while self._pipe:
            try:
                came += os.read(self._pipe[0], 4096)
            except BlockingIOError:
                break
        return came

    def __bool__(self):
        import signal
        if signal.SIGINT in self._read():
            self._came = True
        return self._came

    def forget(self):
        """A function of the program ran in the main thread, and handlers in it."""
        self._read()
        self._came = False


def unbroken(call, raised=None):
    """Run call() in a thread of its own, so that no handler of a signal can raise in a callback and
    lose its arguments. What handlers raise meanwhile is raised afterwards; a list `raised` gets it
    at once, so that the call can end early.
    """
    import threading
    if threading.current_thread() is not threading.main_thread() or entered():
        call()
        return
    raised = [] if raised is None else raised
    ended, done = [], threading.Lock()

    def run():
        try:
            call()
        except BaseException as e:
            raised.append(e)
        finally:
            ended.append(True)
            done.release()
    done.acquire()
    start_new_thread(run, ())
    while not ended:
        try:
            done.acquire()
        except BaseException as e:
            raised.append(e)
    if raised:
        raise raised[0]


class _Blocks:
    """The with blocks of callbacks in which the main thread is, the only one that handles signals.

    In them, unraisable() is in the place of sys.unraisablehook.
    """

    def __init__(self):
        self._inside, self._hook = [], None

    def enter(self, callback):
        import threading
        if threading.current_thread() is threading.main_thread():
            if not self._inside:
                self._hook, sys.unraisablehook = sys.unraisablehook, self.unraisable
            self._inside.append(callback)

    def leave(self, callback):
        if callback in self._inside:
            self._inside.remove(callback)
            if not self._inside and sys.unraisablehook == self.unraisable:
                sys.unraisablehook = self._hook

    def unraisable(self, lost):
        """Let the callback that ctypes had to call, and the innermost block, raise the exception.

        lost.object is what ctypes calls; since Python 3.13, only the message has it.
        """
        if self._inside and "ctypes callback" in (lost.err_msg or ""):
            text = f"{lost.object!r} {lost.err_msg}"
            of = [each for each in self._inside if repr(each) in text]
            if of or (repr(self._inside[0]).partition(" at ")[0] in text
                      and not isinstance(lost.exc_value, Exception)):
                for each in (*of, self._inside[-1]):
                    each.fail(lost.exc_value)
                return
        self._hook(lost)


_blocks = _Blocks()


class _Missing:
    """Stands in for a library that cannot be loaded, in a command that reports the reason."""

    def __init__(self, why):
        self.why = why

    def __getattr__(self, name):
        raise ImportError(self.why)


def _is_command():
    """Whether "python -m foundry" imports the package."""
    try:
        with open("/proc/self/cmdline", "rb") as f:
            given = f.read().split(b"\0")
    except OSError:
        return False
    return sys.argv[:1] == ["-m"] and any(each == b"foundry" and before.endswith(b"m")
                                          or each.endswith(b"mfoundry")
                                          for before, each in zip(given, given[1:]))


def _library():
    try:
        return _open()
    except ImportError as e:
        if not _is_command():
            raise
        return _Missing(str(e))


raw = _library()  # the functions as ctypes has them: raw["fdry_version"] is a new one each time
missing = raw.why if isinstance(raw, _Missing) else None
lib = raw if missing else _Library(raw)
libc = ctypes.CDLL(None)
libc.free.argtypes = [c_void_p]
libc.malloc.argtypes, libc.malloc.restype = [c_size_t], c_void_p


def __getattr__(name):
    """The names of _tables.py."""
    if not name.startswith("__"):
        from . import _tables
        if hasattr(_tables, name):
            value = globals()[name] = getattr(_tables, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
