# SPDX-License-Identifier: Apache-2.0
"""Images in the region: sealed from it, or placed among the allocations of the process.

An image has graphs that were captured in the region and are alive, and memory as it is at the seal.
A placed image does not write the memory that the process allocated itself. One segment of
torch may have tensors of the process and of the image. Foundry allocates the image's part from
torch's free blocks, so that torch does not use it.
"""
import hashlib
import os
import weakref

from . import _file, _lib, _segments, _torch
from ._lib import Error, lib
from .generators import recognise
from .image import load
from .tensor import Tensor


saved = {}  # (store, id) of every image that this process sealed, in that order

# --- sealing ---


def _ref(path):
    """The ref of a file's image in a store. It keeps the image until another one is saved to that
    file.
    """
    path = os.path.abspath(os.fsdecode(path))
    word = "".join(c if c.isalnum() and c.isascii() else "_" for c in os.path.basename(path))[:64]
    whole = os.path.realpath(path).encode(errors="surrogateescape")
    return f"saved/{word}-{hashlib.sha256(whole).hexdigest()[:12]}"


def _find_random(region):
    """Declare to the capture the random generators that each graph uses.

    If that cannot be recognised for a graph, the seal is refused.
    """
    for key, made in list(region.graphs.items()):
        # the garbage collector may free any graph during the loop
        if made.watched is not None and key in region.graphs:
            recognise(region.capture._handle, made.key, made.graph, made.watched)
            made.watched = None  # only now: after an exception the graph is examined again


def choose(region, keys):
    """Choose the graphs of the next seal, which must have `keys`.

    If no image has any of `keys`, the seal leaves out the graphs that an image has. So a graph that
    is saved when it was captured does not cost all graphs before it.
    """
    new = not any(region.graphs[key].sealed for key in keys)
    for key, made in list(region.graphs.items()):
        # the garbage collector may free any graph during the loop
        if made.skipped != (new and made.sealed) and key in region.graphs:
            made.skipped = not made.skipped
            lib.fdry_capture_graph_skip(region.capture._handle, key, made.skipped)


def seal(region, paths):
    """Seal the chosen graphs and memory as it is now, one image for each store of `paths`. Returns
    {path: id}.
    """
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
    for made in list(region.graphs.values()):
        made.sealed |= not made.skipped
    return found


def torch_of(region):
    """Torch's segments in the region, in the form of a file."""
    return [[s.addr, s.size, sorted(map(list, s.live))] for s in region.segments()]


# --- placing ---


class Placed:
    """An image in the region. users: its graphs that are alive, tokens that will make some, and
    outputs that were not made yet.
    """

    def __init__(self, region, file, store, **options):
        memory, allocs = region.memory, region.allocs()
        own = memory.torch(allocs)
        self.region, self.users = region, weakref.WeakSet()
        self.segments = _segments.of_file(file.torch)
        missing = _segments.compare(own, self.segments)
        _torch.synchronize()
        self.image = load(file.image, store=store, into=region.capture, device=region.device,
                          keep=memory.kept(own, allocs), **options)
        self.held = None
        try:
            _segments.compare_sizes(own, self.segments)
            if missing:
                self.held = _torch.Held(region.device)
                self.held.hold(missing)
        except BaseException:
            self.image.close()
            raise

    def check(self, file, raw):
        """Raise an error if an output does not lie in the region."""
        end = raw["addr"] + _file.extent(raw)
        if (end > raw["addr"]
            and not self.region.base <= raw["addr"] <= end <= self.region.base + self.region.size):
            raise _file.bad(file.path, "an output lies outside of the region")

    def tensor(self, raw):
        """An output, as a tensor at the address that the graph writes."""
        return _torch.view(Tensor.at(self.image, raw["addr"], raw["dtype"], raw["shape"],
                                     raw["stride"]))

    def leave(self):
        """Unload the image if no graph of it is in use and no tensor shows its memory."""
        if self.users or self.image._exports:
            return
        images = {key: p for key, p in self.region.images.items() if p is not self}
        self.region.images = images
        self.region.memory.reset([p.segments for p in images.values()])
        self.image.close()
        if self.held:
            self.held.release()


def place(region, file, **options):
    """The image of `file`, loaded into the region unless it is there already.

    Unloads images that nothing uses any more: graphs may end without reset(), and tensors later
    than their graph.
    """
    for each in list(region.images.values()):
        each.leave()
    if file.base != region.base:
        raise Error(_lib.LAYOUT, f"'{os.fsdecode(file.path)}' was saved in a region at "
                    f"{file.base:#x}, and the region of this process begins at {region.base:#x}; "
                    "use the same base")
    for store in _file.stores_of(file):
        key = (store, file.image)
        try:
            if key not in region.images:
                region.images[key] = _place_among(region, file, store, options)
                region.memory.add(region.images[key].segments)
            return region.images[key]
        except Error as e:
            if e.name != "FDRY_E_NOENT" or _file.holds(store, file.image):
                raise
    raise _file.nowhere(file)


def _place_among(region, file, store, options):
    """Load an image among the allocations of the process.

    Cached segments of torch without a tensor may be in its way. Only then torch frees them. It
    reuses freed addresses, so later allocations would lie at other addresses than in a process that
    kept its segments.
    """
    try:
        return Placed(region, file, store, **options)
    except Error as e:
        region.memory.forget()
        if e.name not in ("FDRY_E_LAYOUT", "FDRY_E_TAKEN") or not _torch.empty_cache():
            raise
    return Placed(region, file, store, **options)
