# SPDX-License-Identifier: Apache-2.0
"""Stores: where images are kept."""
import ctypes
import os

from . import _lib
from ._lib import lib, libc, STORE

_CREATE, _READONLY = 1, 2


class Needs:
    """What a load will take: the fields of fdry_needs; `externals`, {name: bytes}; `rooms`, the same of the
    most that those may have.
    """

    def __init__(self, raw):
        for name, _ in _lib.Needs._fields_:
            if not name.endswith("externals"):
                setattr(self, name, getattr(raw, name))
        self.externals = {e.name.decode(): e.bytes for e in raw.externals[:raw.nexternals]}
        self.rooms = {e.name.decode(): e.max_bytes for e in raw.externals[:raw.nexternals]}


class Store:
    """A store: a directory that every process of a host may share.

    path: the directory; None: FOUNDRY_STORE, else $XDG_CACHE_HOME/foundry/store, else
    ~/.cache/foundry/store. create: make it where there is none. readonly: never write.
    """

    def __init__(self, path=None, create=False, readonly=False):
        self._handle = STORE()
        flags = (_CREATE if create else 0) | (_READONLY if readonly else 0)
        lib.fdry_store_open(os.fsencode(path) if path is not None else None, flags, ctypes.byref(self._handle))

    def describe(self, name):
        """A text about the image `name` (a ref, an id or a prefix of one): identity, memory, tensors, graphs, kernels."""
        text = ctypes.c_void_p()
        lib.fdry_image_describe(self._handle, name.encode(), ctypes.byref(text))
        try:
            return ctypes.string_at(text).decode()
        finally:
            libc.free(text)

    def needs(self, name, externals=None):
        """What a load of the image `name` will take, as a Needs; asks neither a GPU nor a driver.

        externals: as for load().
        """
        sizes = [_lib.External(key.encode(), size) for key, size in (externals or {}).items()]
        opts = _lib.LoadOpts(sz=ctypes.sizeof(_lib.LoadOpts), externals=(_lib.External * len(sizes))(*sizes),
                             nexternals=len(sizes))
        raw = ctypes.POINTER(_lib.Needs)()
        lib.fdry_image_needs(self._handle, name.encode(), ctypes.byref(opts), ctypes.byref(raw))
        try:
            return Needs(raw.contents)
        finally:
            libc.free(raw)

    def close(self):
        """Give the handle back. Images loaded from it stay."""
        handle, self._handle = self._handle, STORE()
        lib.fdry_store_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()


def as_store(store):
    """A Store as it is; a path or None opened."""
    return store if isinstance(store, Store) else Store(store)
