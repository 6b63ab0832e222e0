# SPDX-License-Identifier: Apache-2.0
"""The log of the engine in this process, which also gets the messages of the library."""
import logging

_logger = logging.getLogger("foundry.engines")
_library = logging.getLogger("foundry")


class _Relay(logging.Handler):
    """Passes messages of the library on to the engine's logger."""

    def emit(self, record):
        _logger.log(record.levelno, "Foundry: %s", record.getMessage())


def use(logger):
    """Write to a logger of the engine from now on, and let the library do so, too.

    Engines configure only loggers of their own. So nobody would see that the library has repaired
    an image, or how far a fetch is.
    """
    global _logger
    _logger = logger
    if any(isinstance(handler, _Relay) for handler in _library.handlers):
        return
    _library.addHandler(_Relay())
    _library.propagate = False  # otherwise a root logger with handlers would have each line twice
    if _library.level == logging.NOTSET:  # an engine may choose its level later
        _library.setLevel(min(logging.INFO, logger.getEffectiveLevel()))


def debug(*args):
    _logger.debug(*args)


def info(*args):
    _logger.info(*args)


def warning(*args):
    _logger.warning(*args)


def error(*args):
    _logger.error(*args)
