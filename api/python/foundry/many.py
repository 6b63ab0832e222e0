# SPDX-License-Identifier: Apache-2.0
"""Many graphs at once, and folders of them, with the names of the original API."""
import atexit
import json
import os

from . import _file, _lib, placed, region
from ._lib import Error

MANIFEST, PACK, WORKSPACE = "foundry-graphs.json", "foundry-graphs.pack", "hook_workspace"
_FORMAT, _VERSION = "foundry graphs", 1
_on_exit = None  # the id of the process that packs at its end; not its children


class Pending:
    """Graphs that are being built: start_graph_builds() returns it for finish_graph_loads()."""

    def __init__(self, opened, where, files):
        self._open, self._where, self._files, self._found = opened, where, files, []
        self._done = [None] * len(files)

    def _place(self, num_threads):
        """Place the images. They stay until all of their graphs are finished."""
        orders = {}
        for file in self._files:
            orders.setdefault(file.image, {})[file.key] = None
        for file in self._files:
            found = placed.place(self._where, file, background=True, ordered=True,
                                 threads=num_threads, order=list(orders[file.image]))
            found.users.add(self)
            self._found.append(found)

    def __len__(self):
        return len(self._files)

    def __repr__(self):
        return f"<Pending {sum(each is not None for each in self._done)} of {len(self)} graphs>"

    def _finish(self, i):
        if self._done[i] is None:
            with region.lock:
                if region.find() is not self._where:
                    raise Error(_lib.STATE,
                                "the region in which these loads began has ended; call "
                                "start_graph_builds() again")
                file, found = self._files[i], self._found[i]
                if found.image._has(file.key):
                    found.image.build(file.key)
                self._done[i] = self._open(self._where, file, found)
                if all(f is not found or done for f, done in zip(self._found, self._done)):
                    found.users.discard(self)
        return self._done[i]


def start(opened, paths, num_threads):
    """Place the images of `paths`; opened(region, file, placed) makes each graph."""
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError("start_graph_builds() takes a list of paths; CUDAGraph.load() loads one")
    if not isinstance(num_threads, int) or isinstance(num_threads, bool) or num_threads < 1:
        raise ValueError(
            f"num_threads, the number of threads for the load, must be 1 or more, not "
            f"{num_threads!r}")
    files = [_file.read(path) for path in paths]
    with region.lock:
        pending = Pending(opened, region.current("start_graph_builds()"), files)
        pending._place(num_threads)
    return pending


# --- folders ---


def _graph_files(folder):
    """The saved graphs in a folder, by name."""
    found = []
    for name in sorted(os.listdir(folder)):
        if (name.endswith(".json") and name != MANIFEST
            and os.path.isfile(os.path.join(folder, name))):
            try:
                found.append(_file.read(os.path.join(folder, name)))
            except Error as e:
                if e.name != "FDRY_E_BADIMAGE":
                    raise
    return found


def save_graph_manifest(folder):
    """Write FOLDER/foundry-graphs.json, a list of the graphs saved in the folder, with their
    images.

    load_cuda_modules_and_libraries() of that folder then checks that all are there. The list leaves
    out files of other programs. Raises Error FDRY_E_NOENT if an image is in no store.
    """
    folder = os.fsdecode(folder)
    graphs = []
    for file in _graph_files(folder):
        _file.store_of(file)
        graphs.append({"file": os.path.basename(file.path), "image": file.image, "key": file.key})
    _file.write_text(os.path.join(folder, MANIFEST),
                     json.dumps({"format": _FORMAT, "version": _VERSION, "graphs": graphs},
                                indent=1))


def pack_fatbins_to_folder(folder):
    """Write FOLDER/foundry-graphs.pack: the images that this process saved, with kernels and
    memory.

    The folder is created if it does not exist. The pack and the graphs' files are all that another
    host needs: load_cuda_modules_and_libraries(folder) imports the pack into the default store. If
    nothing was saved, nothing is written.
    """
    folder = os.fsdecode(folder)
    os.makedirs(folder, exist_ok=True)
    stores = {}
    for store, image in placed.saved:
        stores.setdefault(store, []).append(image)
    for i, (store, images) in enumerate(stores.items()):
        store.export(images, os.path.join(folder, f"{i}-{PACK}" if i else PACK), refs=False)


def set_pack_fatbins_on_exit(enabled):
    """Whether the process calls pack_fatbins_to_folder("hook_workspace") at its end; not by
    default.
    """
    global _on_exit
    _on_exit = os.getpid() if enabled else None


@atexit.register
def _pack_on_exit():
    if _on_exit == os.getpid() and placed.saved:
        pack_fatbins_to_folder(WORKSPACE)


def load_cuda_modules_and_libraries(workspace_dir):
    """Import what saved graphs need, before they are loaded.

    The image of each graph has its kernels, so nothing else is loaded here, and a missing folder is
    no error. If the folder exists, the packs of pack_fatbins_to_folder() in it are imported into
    the default store. If it has the list of save_graph_manifest(), every graph on it must exist
    with its image. Errors: FDRY_E_NOENT names what is missing; FDRY_E_BADIMAGE: the list is
    malformed or a pack is damaged. NotADirectoryError if it is a file.
    """
    folder = os.fsdecode(workspace_dir)
    if not os.path.lexists(folder):
        return
    names = sorted(os.listdir(folder))
    for name in names:
        if name == PACK or name.endswith("-" + PACK):
            _file.default_store().import_(os.path.join(folder, name), refs=False)
    if MANIFEST in names:
        _check(folder)


def _is_file_name(name):
    """Whether a file in a folder can have this name."""
    if (not isinstance(name, str) or name in ("", ".", "..") or os.path.basename(name) != name
        or "\0" in name):
        return False
    try:
        return bool(os.fsencode(name))
    except UnicodeEncodeError:
        return False


def _check(folder):
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, "rb") as f:
            raw = json.load(f)
        version = raw["version"]
        listed = raw["format"] == _FORMAT and isinstance(raw["graphs"], list)
        graphs = [(g["file"], g["image"], g["key"]) for g in raw["graphs"]] if listed else None
    except (ValueError, KeyError, TypeError, RecursionError):
        graphs = None
    if graphs is None or not all(_is_file_name(name) for name, _, _ in graphs):
        raise Error(_lib.BADIMAGE,
                    f"'{path}' is not a list of graphs; write it with save_graph_manifest()")
    if version != _VERSION:
        raise Error(_lib.BADIMAGE,
                    f"'{path}' has version {version!r}, and this Foundry reads {_VERSION}")
    for name, image, key in graphs:
        file = _file.read(os.path.join(folder, name))
        if (file.image, file.key) != (image, key):
            raise Error(_lib.BADIMAGE,
                        f"'{file.path}' names another graph than '{path}' lists; call "
                        "save_graph_manifest() after saving")
        _file.store_of(file)
