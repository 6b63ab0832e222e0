# SPDX-License-Identifier: Apache-2.0
"""Images in the region: sealed from it, and placed among what the process allocated in it.

An image holds every graph that was captured in the region and is alive, and memory as it is at the
seal. When one is placed, what the process allocated itself keeps its bytes, all else is the
image's; of torch's segments, which hold tensors of both, the image's part is held so that torch
gives it to nobody.
"""
import hashlib
import os
import weakref

from . import _file, _lib, _torch
from ._lib import Error
from .generators import recognise
from .image import load
from .tensor import Tensor


saved = {}  # (store, id) of every image that this process sealed, in that order

# --- sealing ---


def _ref(path):
    """What the image of a file is called in a store, so that no collection takes it: it stays as long as no other is saved there."""
    path = os.path.abspath(os.fsdecode(path))
    word = "".join(c if c.isalnum() and c.isascii() else "_" for c in os.path.basename(path))[:64]
    return f"saved/{word}-{hashlib.sha256(os.path.realpath(path).encode(errors='surrogateescape')).hexdigest()[:12]}"


def _find_random(region):
    """Tell the capture what graphs draw from which generators. Of a graph that draws from what was not recognised the seal is refused."""
    for key, made in list(region.graphs.items()):
        if made.watched is not None and key in region.graphs:  # the garbage collector may take any of them meanwhile
            recognise(region.capture._handle, made.key, made.graph, made.watched)
            made.watched = None  # not before: what is not known to draw nothing is looked at again


def seal(region, paths):
    """{path: id} of images of the region as it is now, named for `paths`: one image in each of the stores that they go to."""
    stores, found = {}, {}
    for path in paths:
        stores.setdefault(_file.store_for(path), []).append(path)
    _torch.synchronize()
    _torch.empty_cache()
    _find_random(region)
    for store, each in stores.items():
        ident = region.capture.seal(store, _ref(each[0])).id
        for path in each[1:]:
            store.tag(ident, _ref(path))
        saved[store, ident] = True
        found.update(dict.fromkeys(each, ident))
    return found


def torch_of(region):
    """Torch's segments in the region, as a file lists them."""
    return [[s.addr, s.size, [list(b) for b in s.live()]] for s in region.segments()]


# --- placing ---


def _minus(ranges, holes):
    """[(addr, size)] less [(addr, size)], ascending."""
    left, holes = [], sorted(holes)
    for addr, size in sorted(ranges):
        end = addr + size
        for hole, length in holes:
            if hole >= end:
                break
            if hole + length > addr:
                if hole > addr:
                    left.append((addr, hole - addr))
                addr = hole + length
        if addr < end:
            left.append((addr, end - addr))
    return left


def _gaps(segments):
    """What was free of a file's segments."""
    return [hole for addr, size, live in segments for hole in _minus([(addr, size)], live)]


def _compare(segments, wanted):
    """What of the image's tensors in `segments`, which the process has, is not the process' own.

    segments: the process'; wanted: the file's. A tensor of the process that overlaps one of the sealing
    process must be the same one.
    """
    saved = {addr: (size, live) for addr, size, live in wanted}
    missing = []
    for s in segments:
        size, live = saved.get(s.addr, (0, []))
        if size != s.size:
            continue  # whatever that is: allocations are compared when the image is loaded, and sizes afterwards
        own, known = set(s.live()), {tuple(b) for b in live}
        for addr, length in sorted(own - known):
            other = next((b for b in live if b[0] < addr + length and addr < b[0] + b[1]), None)
            if other:
                raise Error(_lib.LAYOUT, f"a tensor of this process has {length} bytes at {addr:#x}, where the process that saved the "
                            f"graph had one of {other[1]} bytes at {other[0]:#x}; make the same allocations in the same order, and no "
                            "others before the graph is loaded")
        missing += sorted(known - own)
    return missing


def _compare_sizes(segments, wanted):
    """Allocations are the same; so are torch's segments, unless it makes larger ones of several."""
    sizes = {addr: size for addr, size, _ in wanted}
    for s in segments:
        if sizes.get(s.addr, s.size) != s.size:
            raise Error(_lib.LAYOUT, f"torch's segment at {s.addr:#x} has {s.size} bytes, and had {sizes[s.addr]} in the process that saved "
                        "the graph: segments that grow cannot be shared with an image; do without expandable_segments "
                        "(PYTORCH_CUDA_ALLOC_CONF), or load the graph before torch allocates")


class Placed:
    """An image in the region. users: the graphs of it that are alive, and who is about to make one."""

    def __init__(self, region, file, store, **options):
        segments = region.segments()
        missing = _compare(segments, file.torch)
        mine = {s.addr for s in segments}
        before = [hole for p in region.images.values() for hole in _gaps([s for s in p.segments if s[0] not in mine])]
        free = [b for s in segments for b in s.free()]
        _torch.synchronize()
        self.region, self.segments, self.users = region, file.torch, weakref.WeakSet()
        self.image = load(file.image, store=store, into=region.capture, keep=_minus(region.allocs(), free + before),
                          device=region.device, **options)
        self.held = None
        try:
            _compare_sizes(segments, file.torch)
            if missing:
                self.held = _torch.Held(region.device)
                self.held.hold(missing)
        except BaseException:
            self.image.close()
            raise

    def tensor(self, file, raw):
        """An output, where the graph writes it."""
        end = raw["addr"] + _file.extent(raw)
        if end > raw["addr"] and not self.region.base <= raw["addr"] <= end <= self.region.base + self.region.size:
            raise _file.bad(file.path, "an output lies outside of the region")
        return _torch.view(Tensor.at(self.image, raw["addr"], raw["dtype"], raw["shape"], raw["stride"]))

    def leave(self):
        """The image goes where no graph of it is in use, unless tensors still look at its memory."""
        if self.users or self.image._exports:
            return
        self.region.images = {key: p for key, p in self.region.images.items() if p is not self}
        self.image.close()
        if self.held:
            self.held.release()


def place(region, file, **options):
    """The image of `file` in the region; loaded where it is not yet. Those that nothing uses any more go: graphs go without a
    reset(), and tensors after it.
    """
    for each in list(region.images.values()):
        each.leave()
    store = _file.store_of(file)
    key = (store, file.image)
    if key not in region.images:
        if file.base != region.base:
            raise Error(_lib.LAYOUT, f"'{os.fsdecode(file.path)}' was saved in a region at {file.base:#x}, the one of this process begins at "
                        f"{region.base:#x}; use the same base")
        region.images[key] = _place_among(region, file, store, options)
    return region.images[key]


def _place_among(region, file, store, options):
    """An image among the allocations of the process. Segments in which no tensor lives any more may be in its way.

    Torch gives those back only if they are: freed addresses are used again, so later allocations of the process would
    lie elsewhere than in a process that kept its segments.
    """
    try:
        return Placed(region, file, store, **options)
    except Error as e:
        if e.name not in ("FDRY_E_LAYOUT", "FDRY_E_TAKEN") or not _torch.empty_cache():
            raise
    return Placed(region, file, store, **options)
