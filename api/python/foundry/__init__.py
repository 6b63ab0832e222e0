# SPDX-License-Identifier: Apache-2.0
"""Foundry: capture GPU work once, load it by hash in milliseconds.

Import it before anything that loads CUDA (torch, cupy, ...): importing puts the stand-in for
libcuda.so.1 in place, which passes every call on and notes what a seal needs. A process that
only loads images does not need that, and may import foundry at any time.

A program that imports torch first starts with `python -m foundry run program.py`.

    capturing:  Capture, activate, environment     loading:  load, Image     both:  Store, Error,
    load_or_capture
"""
from ._lib import Error, lib
from .activate import activate, environment
from .capture import Capture, Sealed, base_for_name
from .image import Image, load
from .start import Start, Unused, load_or_capture
from .store import Needs, Store

__all__ = ["Capture", "Error", "Image", "Needs", "Sealed", "Start", "Store", "Unused", "activate",
           "base_for_name", "environment", "load", "load_or_capture"]
__version__ = lib.fdry_version().decode()


try:
    activate()
except Error:
    pass  # too late, or no stand-in here: only a capture needs it, and says so then
