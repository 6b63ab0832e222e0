# SPDX-License-Identifier: Apache-2.0
"""The log of the engine in this process."""
import logging

_logger = logging.getLogger("foundry.engines")


def use(logger):
    """Write to a logger of the engine from now on."""
    global _logger
    _logger = logger


def debug(*args):
    _logger.debug(*args)


def info(*args):
    _logger.info(*args)


def warning(*args):
    _logger.warning(*args)


def error(*args):
    _logger.error(*args)
