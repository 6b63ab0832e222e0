# SPDX-License-Identifier: Apache-2.0
"""Messages of the library as messages of Python's logging, logger "foundry".

Without FOUNDRY_LOG the library passes its messages to this module, and the logger and its handlers
choose what is shown: by default nothing, as of any library. With FOUNDRY_LOG the library prints
them to standard error itself, as in every language, and this module does nothing.

Importing logging takes longer than importing foundry, so the first message imports it.
"""
import atexit
import os
import sys

from . import _lib

_LEVELS = (40, 30, 20, 10)  # of logging, by the library's: error, warn, info, debug
_WARN = 1
_pass = None  # fdry_log_set() of the library
_set = None  # the library's level at present; None: the messages do not come here


def _logger():
    import logging
    logger = logging.getLogger("foundry")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger


def _message(_, level, text):
    if not sys.is_finalizing():
        _logger().log(_LEVELS[level], "%s", text.decode(errors="replace"))


_callback = _lib.Callback(_lib.LOG_FN, _message)


def _level():
    """The library's level for the level of the logger."""
    if "logging" not in sys.modules:
        return _WARN
    least = _logger().getEffectiveLevel()
    return sum(level >= least for level in _LEVELS) - 1


def follow():
    """Let the library write the messages that the logger wants now.

    Store(), load(), Capture and other constructors call it, since the level of a logger may change.
    """
    global _set
    if _set is None:
        return
    level = _level()
    if level != _set:
        _set = level
        _pass(_callback.fn, None, level)


def begin():
    """Receive the messages of the library, unless FOUNDRY_LOG is set."""
    global _pass, _set
    if os.environ.get("FOUNDRY_LOG"):
        return
    _pass, _set = _lib.raw["fdry_log_set"], _WARN
    _pass.argtypes, _pass.restype = [_lib.LOG_FN, _lib.c_void_p, _lib.c_int], None
    _pass(_callback.fn, None, _WARN)


@atexit.register
def _end():
    global _set
    if _set is not None:
        _set = None
        _pass(_lib.LOG_FN(), None, 0)
