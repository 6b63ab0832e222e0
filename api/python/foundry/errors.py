# SPDX-License-Identifier: Apache-2.0
"""Errors: one class for each way to remove the cause.

    Error                      every error of the library; a RuntimeError
      UsageError               the program: mend the call, or its order
        InvalidError             an argument, an option or a name; a ValueError
        NoKeyError               no graph, tensor or fact has that key; a KeyError
        NotFoundError            no such image, ref, store or file; a FileNotFoundError
      MismatchError            the image does not fit this program, GPU or version: capture again
      DamagedError             an image, a store or code is damaged: verify, repair, pull again
      UntrustedError           no signature that the policy asks for
      LimitError               a limit of the format, of the disk or of memory
        OutOfMemoryError         of the host or the device; a MemoryError
        FullError                the disk or the store; an OSError
      PlatformError            the driver, the GPU, the host or the network
        AccessError              permissions; a PermissionError
        BusyError                another process holds the store; a TimeoutError
        NetworkError             a registry cannot be reached; a ConnectionError
      InternalError            a defect of Foundry: please report it

The code decides the class, by the table BY_CODE. Objects that were closed raise ValueError, and
arguments of wrong types TypeError, as usual in Python.
"""


class Error(RuntimeError):
    """A call of the library failed. The message says what was wrong and what to do.

    name: of the code, such as "FDRY_E_NOENT"; code: its number, negative; errno: its class, an
    errno value. Error(code, text) makes an object of the subclass for the code.
    """

    def __new__(cls, code, text):
        if cls is Error:
            cls = BY_CODE.get(-code, Error)
        new = OSError.__new__ if issubclass(cls, OSError) else RuntimeError.__new__
        return new(cls, text)

    def __init__(self, code, text):
        from . import _lib
        # The __init__() that follows in a subclass' order may be OSError's, which keeps other text.
        self.args = (_lib.shown(text),)
        self.code = code
        self.name = _lib.lib.fdry_error_name(code).decode()
        self.errno = _lib.lib.fdry_error_errno(code)

    def __str__(self):
        return self.args[0]  # KeyError and OSError show something else

    def __reduce__(self):
        return type(self), (self.code, *self.args)


class UsageError(Error):
    """The program made a wrong call, or a call at a wrong time."""


class InvalidError(UsageError, ValueError):
    """An argument, an option, a name or an environment variable is not valid."""


class NoKeyError(UsageError, KeyError):
    """No graph, tensor or fact has that key."""


class NotFoundError(UsageError, FileNotFoundError):
    """There is no such image, ref, store or file."""


class MismatchError(Error):
    """The image was made for something else: another program, GPU, address or version."""


class DamagedError(Error):
    """An image, an object, a file or code is damaged or malformed."""


class UntrustedError(Error):
    """An image lacks the signature that the policy asks for."""


class LimitError(Error):
    """A count or a size exceeds a limit."""


class OutOfMemoryError(LimitError, MemoryError):
    """The host or the device has not enough memory."""


class FullError(LimitError, OSError):
    """The disk or the store is full."""


class PlatformError(Error):
    """The driver, the GPU, the host or the file system failed, or cannot do that."""


class AccessError(PlatformError, PermissionError):
    """Permissions do not allow it, or allow too much."""


class BusyError(PlatformError, TimeoutError):
    """Another process holds the store."""


class NetworkError(PlatformError, ConnectionError):
    """A registry could not be reached, or it failed."""


class InternalError(Error):
    """A broken invariant in the library; please report it."""


for _class in [each for each in vars().values() if isinstance(each, type)]:
    _class.__module__ = __package__  # as programs name them, and as tracebacks show them
del _class

# The class of each code of include/foundry/errcode.def.
BY_CODE = {code: cls for cls, codes in {
    UsageError: (102, 104, 105, 108, 109, 110, 111, 113, 114, 203, 206, 307),
    InvalidError: (100, 101, 103, 107, 308, 502),
    NoKeyError: (106,),
    NotFoundError: (300, 303),
    MismatchError: (112, 201, 202, 405),
    DamagedError: (200, 205, 301),
    UntrustedError: (207,),
    LimitError: (204,),
    OutOfMemoryError: (404, 500),
    FullError: (304,),
    PlatformError: (302, 306, 309, 400, 401, 402, 403, 406, 501, 503, 505, 507),
    AccessError: (504,),
    BusyError: (305,),
    NetworkError: (506,),
    InternalError: (900,),
}.items() for code in codes}
