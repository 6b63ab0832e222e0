# SPDX-License-Identifier: Apache-2.0
"""Files of the engine's caches that an image carries, so that another host compiles nothing.

An engine compiles kernels while it starts, and keeps them in folders. A first start notes which
files of these folders it reads or writes (watch.py), and attaches them to its image. A later start
writes those that are missing, before the engine looks for them. It never changes a file that is
there.

The name of a file in the image begins with the name of its folder: "triton/KEY/kernel.cubin".
Triton's lists of files have absolute paths; in the image they have names alone. Other files may
have paths, too, so they are used only if their folder is at the same place as it was.
"""
import contextlib
import functools
import json
import os
import secrets

from ..store import File
from . import deepgemm, jit, log
from .watch import plain, stamp

SIZE_MAX = 256 << 20   # bytes of all files of an image
PLACES = "places.json"  # a file of the image: {folder's name: its path in the first start}
GROUP = "__grp__"       # Triton's lists of files begin with it
# Folders whose files have no paths, except Triton's lists.
MOVABLE = ("triton", "tvm-ffi", "infos", jit.FOLDER, deepgemm.FOLDER)
_SUFFIX = " (executable)"


def triton():
    """Return {name: path} of Triton's cache folder, or nothing if it has none."""
    import triton as package
    knobs = getattr(package, "knobs", None)
    return {} if knobs is None else {"triton": knobs.cache.dir}


def _portable(path, data, used, carried):
    """Return one of Triton's lists with names in place of paths, of the files that this start used.
    Return None if it is not such a list, or if the image does not carry one of the files.
    """
    try:
        paths = {name: plain(each) for name, each in json.loads(data)["child_paths"].items()}
        if any(each != os.path.join(os.path.dirname(path), name) for name, each in paths.items()):
            return None
        names = [name for name, each in paths.items() if each in used]
        if any(paths[name] not in carried for name in names):
            return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return json.dumps({"child_paths": {name: name for name in names}}).encode()


def _local(path, data):
    """Return such a list with the paths of this host. Return None if it has other names than those
    of files beside it: Triton would fail if one of them were missing.
    """
    folder = os.path.dirname(path)
    try:
        paths = {name: os.path.join(folder, name) for name in json.loads(data)["child_paths"]}
        if any(os.sep in name or not os.path.isfile(each) for name, each in paths.items()):
            return None
    except (ValueError, KeyError, TypeError):
        return None
    return json.dumps({"child_paths": paths}).encode()


def _is_list(path):
    return os.path.basename(path).startswith(GROUP)


class Carried:
    """What the image of a start carries of the files that the start has used."""

    def __init__(self, watch):
        """watch: the Watch that has noted these files."""
        self.watch = watch
        # By the name in the image: sizes of files, and stamp() of them; the bytes of lists;
        # descriptions of modules.
        self.sizes, self.stamps, self.lists, self.modules = {}, {}, {}, {}
        self._left = {}  # {path of a file that the image does not carry: stamp() of it}
        self._read = {}  # {name: stamp() of a file when more() read it}

    def more(self):
        """Return what the start used and the image does not carry yet, as a list of File.

        A changed file is returned again, and MODULES and PLACES with every other file. Call add()
        when the image has them.
        """
        used, left = self.watch.used(), SIZE_MAX - sum(self.sizes.values())
        found, paths = [], {path for _, path in used}
        carried = {path for name, path in used if name in self.sizes}
        for name, path in sorted(used, key=lambda each: _is_list(each[0])):  # lists come last
            read = stamp(path)
            if os.path.dirname(path) in self.watch.waits or not _is_list(path) and read in (
                    self.stamps.get(name), self._left.get(path)):
                continue
            try:
                with open(path, "rb") as f:
                    data = f.read()
                mode = os.stat(path).st_mode
            except OSError:
                continue  # a temporary file
            if _is_list(path):
                data = _portable(path, data, paths, carried)
                if data is not None and data == self.lists.get(name):
                    continue
            elif name.startswith(jit.FOLDER + "/") and name.endswith(".so"):
                self.modules[name] = jit.describe(path, data)
                data = self.modules[name] and data
            if data is None or len(data) > left:
                if path not in self._left:
                    log.info("Foundry: the image does not carry %s", path)
                self._left[path] = read
                continue
            left -= len(data)
            carried.add(path)
            self._read[name] = read
            found.append(File(name, data, bool(mode & 0o100)))
        found = deepgemm.complete(found)
        return [*found, *self._described(found)] if found else []

    def _described(self, found):
        """Return the files that describe the image's others, which will be `found`, too."""
        there = {*self.sizes, *(each.name for each in found)}
        modules = {name: each for name, each in self.modules.items() if each and name in there}
        texts = {**({jit.MODULES: modules} if modules else {}), PLACES: self.watch.places}
        return [File(name, json.dumps(each, sort_keys=True).encode())
                for name, each in texts.items()]

    def add(self, files):
        """Note that the image carries files that more() has returned."""
        self.sizes.update({each.name: len(each.data) for each in files})
        self.stamps.update({each.name: self._read[each.name] for each in files
                            if each.name in self._read})
        self.lists.update({each.name: each.data for each in files if _is_list(each.name)})


def names(text):
    """Return the names of the files in the description of an image."""
    found = set()
    for line in text.splitlines():
        if line.startswith("file "):
            found.add(line.split(" ", 2)[2].removesuffix(_SUFFIX))
    return found


def _target(places, name):
    """Return the path of a file of the image on this host, or None if it has no place here."""
    folder, _, rest = name.partition("/")
    if folder not in places or not rest or any(
            part in ("", ".", "..") for part in rest.split("/")):
        return None
    return os.path.join(places[folder], rest)


def _make_folder(path, root):
    """Make a file's folder below `root`, if this user owns that and no link leads out of it. Return
    whether it was made.
    """
    os.makedirs(root, exist_ok=True)
    real = os.path.realpath(root)
    if os.stat(real).st_uid != os.geteuid() or not (
            os.path.realpath(path) + os.sep).startswith(real + os.sep):
        return False
    os.makedirs(path, exist_ok=True)
    return True


def _write(path, file):
    """Create a file as a whole, unless it exists. Returns whether it was created.

    It gets the permissions that the umask leaves. Its bytes are on the disk before it has its name:
    after a crash, a file without them would stay, since no start changes a file that is there.
    """
    temporary = os.path.join(os.path.dirname(path), f".foundry-{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                     0o777 if file.executable else 0o666)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(file.data)
            f.flush()
            os.fsync(handle)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            if os.path.lexists(path):
                return False
            os.rename(temporary, path)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _usable(places, there):
    """Return the folders whose files may be used here: those without paths in their files, and
    those at the same place.
    """
    return {name: path for name, path in places.items()
            if name in MOVABLE or there.get(name) == path}


def _writes(files, paths, roots):
    """Yield (root, folder, write). write() creates files in `folder`, which is `root` or below it,
    and returns how many it has created.

    files: of an image. paths: {name: path}. roots: {name of a cache's folder: path}.
    """
    for kernel, each in deepgemm.of(files).items():
        root = roots[deepgemm.FOLDER]
        yield root, root, functools.partial(deepgemm.write, root, kernel, each)
    # Triton's lists come last: a list stands for files that are there.
    for file in sorted(files, key=lambda f: GROUP in f.name):
        folder, path = file.name.partition("/")[0], paths[file.name]
        if os.path.basename(path).startswith(GROUP):
            file = file._replace(data=_local(path, file.data))
        if folder != deepgemm.FOLDER and file.data is not None:
            yield roots[folder], os.path.dirname(path), functools.partial(_write, path, file)


def unpack(store, ref, places, carried):
    """Write the files of an image that are missing here. Returns (files of the image, written).

    carried: their names.
    """
    if PLACES not in carried:
        return 0, 0
    usable = _usable(places, json.loads(store.files(ref, {PLACES})[0].data))
    missing = {name: path for name in carried for path in [_target(usable, name)]
               if path and not os.path.lexists(path)
               and not (name.startswith(jit.FOLDER + "/") and jit.is_built(path))}
    if not missing:
        return len(carried), 0
    written, left = 0, set()
    for root, folder, write in _writes(store.files(ref, set(missing)), missing, usable):
        try:
            if _make_folder(folder, root):
                written += write()
            else:
                left.add(root)
        except OSError as e:
            log.warning("Foundry: a file of the image could not be written: %s", e)
    for root in sorted(left):
        log.warning("Foundry: files of the image are not written below %s: another user owns it, "
                    "or a link leads out of it", root)
    return len(carried), written
