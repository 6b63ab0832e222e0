# SPDX-License-Identifier: Apache-2.0
"""The files of caches that a start reads and writes, also while its engine serves."""
import os
import sys
import threading
import time
import weakref

from . import deepgemm, jit, log

QUIET = 3.0  # seconds without another file, then those of a request are complete
ROUNDS = 10  # of QUIET seconds; after these, files are attached though others come
# Files that compilers leave and no start reads.
_LEFT = (".o", ".d", ".log", ".lock", ".ninja_deps", ".ninja_log")
_MAPS = "/proc/self/maps"


def _below(folder):
    """Return the paths of all files in a folder."""
    return {os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names}


def _hook(watch):
    """A hook for audit events, which cannot be removed. watch: a weak reference to the Watch.

    An interpreter that ends frees its hooks last. Python 3.14 crashes if that also frees classes
    and functions of the program, so a hook must not keep them. There are many events, so it looks
    at the name first.
    """
    # The number of the argument that is a path. Compilers rename a file when it is whole.
    paths = {"open": 0, "ctypes.dlopen": 0, "import": 1, "os.rename": 1}

    def event(name, args):
        if name in paths:
            found = watch()
            if found is not None:
                found._note(args[paths[name]])
    return event


def plain(path):
    """Return a path without parts such as "/./", which the variable of a folder may have."""
    return os.path.normpath(path) if "/." in path or "//" in path else path


def stamp(path):
    """Return the size of a file and when it changed, or None if it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


class Watch:
    """Files of some folders. Until stop(): those that this process reads or that any process
    writes. After it: those that this process reads or writes.
    """

    def __init__(self, places, also=(), loaded=list):
        """also: paths of files that count as read. loaded: returns the paths, without links, of
        further ones, which something else than Python has read.
        """
        self.places, self._loaded = places, loaded
        self._before = {path for each in places.values() for path in _below(each)}
        self._opened, self._on = set(also), True  # a thread may add while another one reads
        self._count, self.follower = 0, None  # events of all threads except the follower
        self._used = None    # what used() has found when this was stopped
        self.seen = None     # what state() was then
        self.waits = set()   # folders with a file that may not be complete
        self._starts = tuple(each + os.sep for each in places.values())
        sys.addaudithook(_hook(weakref.ref(self)))

    def _note(self, path):
        """Called before a file is opened, imported, loaded or renamed."""
        if not self._on:
            return
        if isinstance(path, os.PathLike):
            path = os.fspath(path)
        if isinstance(path, str):
            path = plain(path)
            if path.startswith(self._starts):
                self._opened.add(path)
                self._count += threading.get_ident() != self.follower

    def stop(self):
        """Note only what this process uses: files that others write from now on are not its own."""
        if self._used is None:
            self.seen = self.state()
            self._used = self.used()

    def end(self):
        """Note nothing more."""
        self._on = False

    def state(self):
        """Return something that changes when this process uses a file."""
        with open(_MAPS, "rb") as f:
            maps = f.read()
        return self._count, len(self._loaded()), [
            maps.count(os.fsencode(os.path.realpath(each) + os.sep))
            for each in self.places.values()]

    def add_late(self, stamps):
        """Also use the files that this process has read or written since stop(), except in folders
        where a file has changed less than QUIET seconds ago. Return whether there is none.

        stamps: {name in the image: stamp() of a file that may stay as it is}.
        """
        known, now = set(self._used), time.time_ns()
        found = [each for each in self._files(own=True) if each not in known]
        self.waits = {os.path.dirname(path) for name, path in (*found, *self._used)
                      for changed in [stamp(path)]
                      if changed and changed != stamps.get(name)
                      and 0 <= now - changed[1] < QUIET * 1e9}
        self._used += [each for each in found if os.path.dirname(each[1]) not in self.waits]
        return not self.waits

    def add(self, path):
        """Also use a file of one of the folders, after stop()."""
        path = plain(path)
        found = [(f"{name}/{os.path.relpath(path, folder)}", path)
                 for name, folder in self.places.items() if path.startswith(folder + os.sep)]
        self._used += [each for each in found if each not in self._used]

    def _note_loaded(self):
        """Note the libraries that this process has mapped, and the files that `loaded` returns."""
        with open(_MAPS, encoding="utf-8", errors="surrogateescape") as f:
            paths = {line.split(None, 5)[-1].rstrip("\n") for line in f}
        paths.update(self._loaded())
        for folder in self.places.values():
            real = os.path.realpath(folder)  # the paths have no links
            self._opened |= {folder + path.removeprefix(real) for path in paths
                             if path.startswith(real + os.sep)}

    def _is_used(self, name, path, own):
        """Return whether a file counts. name: of its folder in the image. own: only what this
        process has used counts.
        """
        if name == deepgemm.FOLDER:
            return deepgemm.is_used(path, self._opened)
        if path.endswith(_LEFT) or name == jit.FOLDER and not path.endswith(jit.CARRIED):
            return False
        # Another process may not have finished a library; this one maps those it uses.
        library = name == jit.FOLDER and path.endswith(".so")
        return path in self._opened or not (own or library or path in self._before)

    def used(self):
        """Return [(name in the image, path)], the smallest first."""
        return self._files(own=False) if self._used is None else self._used

    def _files(self, own):
        """Return what used() returns, of the files that count now."""
        self._note_loaded()
        found = []
        for name, folder in self.places.items():
            for path in _below(folder):
                if self._is_used(name, path, own):
                    try:
                        size = os.path.getsize(path)
                    except OSError:
                        continue  # another engine's temporary file
                    found.append((size, f"{name}/{os.path.relpath(path, folder)}", path))
        return [(name, path) for _, name, path in sorted(found)]


def follow(session):
    """Attach the files that a start uses while its engine serves, in a thread of their own, as long
    as the session is there and its image takes them.
    """
    thread = threading.Thread(target=_follow, args=(weakref.ref(session), session.watch.seen),
                              name="foundry-served", daemon=True)
    thread.start()
    session.watch.follower = thread.ident


def _follow(kept, done):
    """The thread. done: the state() of the Watch whose files are attached."""
    before, rounds = None, 0
    while True:
        time.sleep(QUIET)
        session = kept()
        if session is None:
            return
        try:
            state = session.watch.state()
            rounds = rounds + 1 if state != done else 0
            if state != done and (state == before or rounds >= ROUNDS):
                complete = session.watch.add_late(session.carried.stamps)
                if not session.attach_files(late=True):
                    session.watch.end()
                    return
                done, rounds = state if complete else done, 0
            before = state
        except OSError as e:  # such as too many open files
            log.debug("Foundry: files of caches are looked for later: %s", e)
        except Exception as e:
            session.log_bug(e)
            session.watch.end()
            return
        del session
