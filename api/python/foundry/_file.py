# SPDX-License-Identifier: Apache-2.0
"""The file of a saved graph: it names an image and a graph in it, and describes the outputs.

It is JSON. The image lies in a store: the one that FOUNDRY_STORE names, else the folder STORE
beside the file. A load looks in both, and then in the default store.
"""
import json
import os

from . import _lib
from ._lib import Error
from .store import Store, replacing
from .tensor import DTYPES, NUMBERS

FORMAT, VERSION = "foundry graph", 1
STORE = "foundry-store"
_SIZE_MAX = 256 << 20   # bytes of a file
_DEPTH_MAX = 64
# path -> (result of _which(), Store); open until the process ends, or another store is at the path
_stores = {}


class File:
    """A saved graph, as its file describes it.

    image: 64 digits. key: of the graph. base: of the region. outputs: their structure. torch:
    [[addr, bytes, [[addr, bytes], ...]], ...], torch's segments with the tensors in each.
    """

    def __init__(self, path, image, key, base, outputs, torch):
        self.path, self.image, self.key, self.base = path, image, key, base
        self.outputs, self.torch = outputs, torch

    def write(self):
        """Write the file as a whole, or leave the old one."""
        write_text(self.path,
                   json.dumps({"format": FORMAT, "version": VERSION, "image": self.image,
                               "key": self.key,
                                          "base": f"{self.base:#x}", "outputs": self.outputs,
                               "torch": self.torch}))


def check_place(path):
    """Raise an error if no file can be written at `path`, before anything is sealed for it."""
    _lib.file_name(path)
    if not path or os.path.isdir(path):
        raise IsADirectoryError(f"'{os.fsdecode(path)}' names no file; a graph is saved to a file")


def write_text(path, text):
    """Write a file as a whole, or not at all."""
    with replacing(path) as f:
        f.write(f"{text}\n".encode("ascii"))


def bad(path, why):
    return Error(_lib.BADIMAGE, f"'{os.fsdecode(path)}' is not a graph that Foundry saved: {why}")


def _content(file):
    """The bytes of an open file, up to _SIZE_MAX + 1. One large read() would allocate that much."""
    found = bytearray()
    while len(found) <= _SIZE_MAX:
        part = file.read(min(1 << 16, _SIZE_MAX + 1 - len(found)))
        if not part:
            break
        found += part
    return found


def read(path):
    """Read and check the file at `path`.

    Errors: FDRY_E_NOENT if there is no file, FDRY_E_BADIMAGE if it is something else.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb", buffering=0) as f:
            data = _content(f)
    except FileNotFoundError:
        raise Error(_lib.NOENT,
                    f"there is no file '{os.fsdecode(path)}'; save a graph there first, with "
                    "CUDAGraph.save()") from None
    if len(data) > _SIZE_MAX:
        raise bad(path, f"it is larger than {_SIZE_MAX} bytes")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise bad(path, f"it is not JSON ({e})") from None
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise bad(path,
                  "it is not marked as one; files of other programs, and of the Foundry that "
                  "keeps whole graphs in JSON, cannot be loaded: capture and save again")
    if raw.get("version") != VERSION:
        raise Error(_lib.BADIMAGE,
                    f"'{os.fsdecode(path)}' has version {raw.get('version')!r}, and this Foundry "
                    f"reads {VERSION}")
    return _checked(path, raw)


def _checked(path, raw):
    image, base = raw.get("image"), raw.get("base")
    if not isinstance(image, str) or len(image) != 64 or image.strip("0123456789abcdef"):
        raise bad(path, "it names no image")
    if not _is_count(raw.get("key")):
        raise bad(path, "it names no graph")
    if (not isinstance(base, str) or not base.startswith("0x")
        or base[2:].strip("0123456789abcdef") or not 2 < len(base) < 19):
        raise bad(path, "it names no base")
    if not isinstance(raw.get("torch"), list) or not all(_is_segment(s) for s in raw["torch"]):
        raise bad(path, "its list of segments is malformed")
    if "outputs" not in raw:
        raise bad(path, "it does not list its outputs")
    _check_outputs(path, raw["outputs"], 0)
    return File(path, image, raw["key"], int(base, 16), raw["outputs"], raw["torch"])


def _is_count(value, limit=1 << 63):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def _is_segment(raw):
    if not isinstance(raw, list) or len(raw) != 3 or not isinstance(raw[2], list):
        return False
    start, size, tensors = raw
    return _is_count(start) and _is_count(size) and _are_within(tensors, start, start + size)


def _are_within(tensors, start, end):
    for each in tensors:  # in one loop, as there may be thousands
        if type(each) is not list or len(each) != 2:
            return False
        addr, size = each
        if type(addr) is not int or type(size) is not int:  # a bool is an int, too
            return False
        if addr < start or size < 0 or addr + size > end:
            return False
    return True


# --- outputs: None, {"tensor": ...}, {"list": [...]}, {"tuple": [...]}, {"dict": [[key, ...],
# ...]}, {"value": ...} ---


def _check_outputs(path, raw, depth):
    if raw is None:
        return
    if depth > _DEPTH_MAX or not isinstance(raw, dict) or len(raw) != 1:
        raise bad(path, "its outputs are malformed")
    (kind, value), = raw.items()
    if kind == "tensor":
        if not _is_tensor(value):
            raise bad(path, "an output's description is malformed")
    elif kind in ("list", "tuple") and isinstance(value, list):
        for each in value:
            _check_outputs(path, each, depth + 1)
    elif kind == "dict" and isinstance(value, list) and all(isinstance(p, list) and len(p) == 2
                                                            and isinstance(p[0], (str, int))
                                                            for p in value):
        for _, each in value:
            _check_outputs(path, each, depth + 1)
    elif kind != "value" or not (value is None or isinstance(value, (bool, int, float, str))):
        raise bad(path, "its outputs are malformed")


def _is_tensor(raw):
    if not isinstance(raw, dict) or set(raw) != {"addr", "dtype", "shape", "stride"}:
        return False
    if not isinstance(raw["dtype"], str) or raw["dtype"] not in NUMBERS:
        return False
    shape, stride = raw["shape"], raw["stride"]
    return (_is_count(raw["addr"]) and isinstance(shape, list) and isinstance(stride, list)
            and len(shape) == len(stride)
            and len(shape) <= _lib.RANK_MAX and all(_is_count(n, 1 << 48) for n in shape + stride))


def extent(raw):
    """Bytes from the first byte of an output to the end of its last."""
    size = DTYPES[NUMBERS[raw["dtype"]]][1]
    if 0 in raw["shape"]:
        return 0
    return size * (1 + sum((n - 1) * s for n, s in zip(raw["shape"], raw["stride"])))


def walk(raw, leaf):
    """The structure, with leaf(description) in place of each tensor."""
    if raw is None:
        return None
    (kind, value), = raw.items()
    if kind == "tensor":
        return leaf(value)
    if kind == "dict":
        return {key: walk(each, leaf) for key, each in value}
    if kind == "value":
        return value
    return (list if kind == "list" else tuple)(walk(each, leaf) for each in value)


def pack(value, describe, where="output_tensors", depth=0):
    """The structure of `value`, with describe(tensor, where) in place of each tensor.

    Raises TypeError, which names the part that no file can describe.
    """
    if depth > _DEPTH_MAX:
        raise TypeError(
            f"output_tensors are nested more than {_DEPTH_MAX} deep, which a saved graph cannot "
            "keep")
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return {"list" if isinstance(value, list) else "tuple":
                [pack(v, describe, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]}
    if type(value) is dict:
        if not all(isinstance(key, (str, int)) and not isinstance(key, bool) for key in value):
            raise TypeError(
                f"{where} has a key that is neither str nor int, which a saved graph cannot keep")
        return {"dict": [[key, pack(v, describe, f"{where}[{key!r}]", depth + 1)]
                         for key, v in value.items()]}
    return {"tensor": describe(value, where)}


# --- stores ---


def _which(name):
    """Numbers that change if another store takes the place of the store; None if they cannot be
    read.
    """
    try:
        return ([os.stat(path).st_ino for path in (name, os.path.join(name, "data.mdb"))]
                if name else None)
    except OSError:
        return None


def _open(path, create):
    """The store at `path` (None: the default one), opened once.

    Without `create`, None if there is no store.
    """
    path = path or os.environ.get("FOUNDRY_STORE")
    name = os.path.abspath(path) if path else None
    which, store = _stores.get(name, (None, None))
    if not store or which != _which(name):
        try:
            store = Store(name, create=create)
        except Error as e:
            if create or e.name not in ("FDRY_E_NOSTORE", "FDRY_E_NOHOME"):
                raise
            return None
        _stores[name] = _which(name), store
    return store


def store_for(path):
    """The store of a graph that is saved at `path`. Created if it does not exist."""
    if "FOUNDRY_STORE" in os.environ:
        return _open(None, True)
    return _open(os.path.join(os.path.dirname(os.path.abspath(os.fsdecode(path))), STORE), True)


def default_store():
    return _open(None, True)


def holds(store, image):
    try:
        store.requirements(image)
    except Error as e:
        if e.name == "FDRY_E_NOENT":
            return False
        raise
    return True


def _beside(file):
    return os.path.join(os.path.dirname(os.path.abspath(os.fsdecode(file.path))), STORE)


def stores_of(file):
    """The stores that may have the file's image, in the order in which a load tries them."""
    places = [None, _beside(file)]
    for path in places if "FOUNDRY_STORE" in os.environ else reversed(places):
        store = _open(path, False)
        if store:
            yield store


def store_of(file):
    """The store that has the file's image, or Error FDRY_E_NOENT."""
    for store in stores_of(file):
        if holds(store, file.image):
            return store
    raise nowhere(file)


def nowhere(file):
    """The error that names the stores in which a load looked for the file's image."""
    named = "store that FOUNDRY_STORE names" if "FOUNDRY_STORE" in os.environ else "default store"
    return Error(_lib.NOENT, f"the image {file.image[:12]} of '{os.fsdecode(file.path)}' is "
                 f"neither in '{_beside(file)}' nor in the {named}; copy that folder together with "
                 "the file, or set FOUNDRY_STORE")
