# SPDX-License-Identifier: Apache-2.0
"""Weights as the content of an image.

A first start fills the model with a loader of the engine, and seals what this loader has written as
an image of its own, NAME.weights. A later start copies the content of that image into the model,
which has the same addresses. The loader does not run then.

The loader runs outside the region, so that its own memory moves no address. It may write to the
tensors of the model alone: if it replaces one, or changes another attribute of a module or tensor,
the weights are not sealed, since a later start could not repeat that.
"""
import contextlib
import ctypes
import hashlib
import json
import os
import re
import time

import torch

from .. import _lib
from .._lib import Error, lib
from ..image import load
from . import area, attach, log
from .facts import code, hashed
from .session import SIZE, Unfit

REF = ".weights"               # behind the name of the image
IDENTITY = "weights.identity"  # facts
LAYOUT = "weights.layout"
MODEL = "weights.model"
KEY = 1 << 62                  # the number of the graph, since an image has at least one
_SIMPLE = (bool, int, float, str, type(None))
_HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_DEPTH = 4                     # of lists in lists, whose items are compared

_session = None  # of the worker that loads a model


@contextlib.contextmanager
def of(session):
    """Inside the with block, the loader uses the images of a Session."""
    global _session
    before, _session = _session, session
    try:
        yield
    finally:
        _session = before


def current():
    """Return the session whose images a loader uses now, or None."""
    return _session


class Loader:
    """A loader of the engine, for one model. format: its name, for messages."""

    format = ""

    def fill(self):
        """Fill the model."""
        raise NotImplementedError

    def identity(self):
        """Return a text that identifies the weights. Raises Unfit if nothing does."""
        raise NotImplementedError

    def made_by(self):
        """Return values that decide how the tensors are filled, besides the weights and the model's
        code: its configuration, and versions.
        """
        raise NotImplementedError


class Weights:
    """The weights of a model that a session loads. loader: a Loader."""

    def __init__(self, session_of, model, loader):
        self.session, self.model, self.loader = session_of, model, loader
        self.ref = session_of.ref + REF
        self.wanted = None  # facts

    def fill(self):
        """Fill the model, from the image if that is possible in all ranks."""
        if self.session.mode == "plain":
            self.session.ranks.agree(self.session.why)
            self.loader.fill()
            return
        start = time.monotonic()
        why = self.session.ranks.agree(self.restore_failed())
        self.session.tidy()  # as the area of by_loader() does
        if why is None:
            self.session.more = f"; weights from '{self.ref}'"
            self.session.seconds["weights"] = time.monotonic() - start
            return
        self.session.weights_missing(why)
        self.by_loader()
        if self.session.mode == "plain":
            return
        self.session.more = f"; weights by the loader '{self.loader.format}', because {why}"
        start = time.monotonic()
        try:
            if self.changed:
                raise Unfit(f"this loader changes {self.changed}")
            found = self.facts()
            if self.wanted and self.wanted[IDENTITY] != found[IDENTITY]:
                raise Unfit("their files changed while they were read")
            self.seal(found)
        except Exception as e:
            self.session.log_bug(e)
            self.session.more += f"; weights not sealed: {e}"
        self.session.seconds["weights sealed"] = time.monotonic() - start

    def restore_failed(self):
        """Copy the weights from the image. Returns None, or why that was not possible."""
        made = []
        try:
            self.wanted = self.facts()
            made = self.made()
            self.restore(self.wanted)
        except Exception as e:  # the engine can load them
            self.session.log_bug(e)
            for storage, before in made:
                storage.copy_(before)
            return str(e) or repr(e)
        return None

    def by_loader(self):
        """Let the engine's loader fill the model. Notes in `changed` what no load could repeat.
        """
        before = self.state_or_error()
        with contextlib.ExitStack() as outside:
            try:
                if self.in_place():
                    outside.enter_context(
                        area.Area(self.session.capture, self.session.ordinal, outside=True))
            except Exception as e:
                self.session.give_up(e)
            self.loader.fill()
        after = self.state_or_error()
        self.changed = next((name for name in {**before, **after}
                             if before.get(name, self) != after.get(name, self)), None)

    def in_place(self):
        """Return whether the loader fills the parameters that the model has. It may also make them,
        to quantize them while it loads; then they belong into the region.
        """
        return all(each.device.type == "cuda" for each in self.model.parameters())

    def state_or_error(self):
        """Return state(), or an error, so that no image will have the weights."""
        try:
            return self.state()
        except Exception as e:
            return {f"a model that cannot be compared ({e!r})": object()}

    def state(self):
        """Return {name: state} of all attributes of the model's modules."""
        found = {}
        for path, module in self.model.named_modules():
            for name, value in vars(module).items():
                if name in ("_parameters", "_buffers"):
                    found.update({f"{path}.{key}": _state(each) for key, each in value.items()})
                else:
                    found[f"{path}.{name}"] = _state(value)
        return found

    def others(self):
        """Return the model's tensors that are no parameters. Its constructor computes some of
        them, and no file contains these.
        """
        known = {name for name, _ in self.model.named_parameters()}
        return [each for place, each in attach.tensors(self.model).items() if place[0] not in known]

    def made(self):
        """Return [(storage, its copy on the host)] of others(). A load that fails may have written
        damaged content to them, and a loader does not repeat what the constructor did.
        """
        found = {each.untyped_storage().data_ptr(): each.untyped_storage()
                 for each in self.others()}
        return [(each, each.cpu()) for each in found.values()]

    def tensors(self):
        """Return the model's tensors. Raises Unfit if a parameter is in host memory or has none."""
        for name, each in self.model.named_parameters():
            if each.device.type == "meta":
                raise Unfit(f"the parameter {name} has no memory before the files are read")
            if each.device.type != "cuda":
                raise Unfit(f"the parameter {name} is in memory of {each.device}")
        return [*(each for each in self.model.parameters() if area.address(each)), *self.others()]

    def ranges(self):
        """Return [(start, end)] of the memory that the model's tensors use, ascending."""
        base, end = self.session.base, self.session.base + SIZE
        found = set()
        for each in self.tensors():
            storage = each.untyped_storage()
            first = storage.data_ptr()
            if not base <= first < end:
                raise Unfit("a tensor of the model lies outside of the region")
            found.add((first, first + storage.nbytes()))
        return sorted(found)

    def facts(self):
        """Return {key: value} of the facts that an image of the weights must have."""
        made_by = repr([*self.loader.made_by(), code(self.model)])
        return {IDENTITY: self.loader.identity(), LAYOUT: self.layout(),
                MODEL: hashed(made_by.encode())}

    def layout(self):
        """Return a hash of the places of the model's tensors."""
        text = json.dumps([attach.named(self.model), self.ranges()])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def restore(self, facts):
        """Copy the content of the image into the model."""
        self.session.log_load(self.ref, facts)
        load(self.ref, store=self.session.store, into=self.session.capture, keep=[], facts=facts,
             device=self.session.ordinal).close()

    def seal(self, facts):
        """Seal the model's tensors, and name all other memory of the region as external."""
        capture, ranges = self.session.capture, self.ranges()
        log.info("Foundry: sealing the weights as '%s', %d MiB", self.ref,
                 sum(end - start for start, end in ranges) >> 20)
        area.name(capture, "rest", [(start, end - start) for start, end in
                                    _rest(ranges, self.session.allocations())])
        for key, value in facts.items():
            capture.fact(key, value)
        with _graph(capture):
            capture.seal(self.session.store, self.ref)


def identity_of(files):
    """Return an identity of files by their names, sizes and times. In a cache of Hugging Face, the
    name of a file contains its hash.
    """
    found = sorted(map(_file_identity, files))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def _host_content(tensor):
    """Return a hash of a tensor in host memory. An image of weights has none."""
    if tensor.device.type != "cpu" or not tensor.numel():
        return None
    return hashed(bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()))


def _state(value, depth=_DEPTH):
    """Return what differs if a loader replaces a value, or changes it in place: of a tensor, its
    place and its attributes; its content if it lies in host memory.
    """
    if type(value) in _SIMPLE:
        return repr(value)  # not every float equals itself
    if isinstance(value, torch.Tensor):
        # Functions among a parameter's attributes fill it, and nothing uses them after that.
        return (str(value.device), area.address(value), str(value.dtype), tuple(value.shape),
                value.stride(), _host_content(value),
                {name: _state(each, depth - 1) for name, each in vars(value).items()
                 if depth and not callable(each)})
    if isinstance(value, dict) and depth:
        return id(value), [(_state(key, 0), _state(each, depth - 1)) for key, each in value.items()]
    if isinstance(value, (list, tuple)) and depth:
        return id(value), [_state(each, depth - 1) for each in value]
    if isinstance(value, (set, frozenset)) and depth:
        return id(value), {each if type(each) in _SIMPLE else id(each) for each in value}
    return id(value)


def _file_identity(path):
    real = os.path.realpath(path)
    # A cache of Hugging Face's hub names a file by the hash of its content.
    if os.path.basename(os.path.dirname(real)) == "blobs" and _HASH.fullmatch(
            os.path.basename(real)):
        return [os.path.basename(path), os.path.basename(real)]
    found = os.stat(real)
    # A program that copies a file may set the time of its modification; none sets that of its
    # change.
    return [os.path.basename(path), found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _rest(ranges, allocations):
    """Yield (start, end) of the parts of `allocations`, [(address, bytes)], that are in none of
    `ranges`, ascending [(start, end)].
    """
    for start, size in sorted(allocations):
        end = start + size
        for first, last in ranges:
            if first >= end or last <= start:
                continue
            if first > start:
                yield start, first
            start = max(start, last)
        if start < end:
            yield start, end


@contextlib.contextmanager
def _graph(capture):
    """Inside the with block, a capture has a graph with one empty node."""
    driver = ctypes.CDLL("libcuda.so.1")
    graph, node = ctypes.c_void_p(), ctypes.c_void_p()
    for status in (driver.cuGraphCreate(ctypes.byref(graph), 0),
                   driver.cuGraphAddEmptyNode(ctypes.byref(node), graph, None,
                                              ctypes.c_size_t(0))):
        if status:
            raise Error(_lib.DRIVER, f"the driver cannot make a graph: {status}")
    try:
        capture.add_graph(KEY, graph.value, "weights")
        try:
            yield
        finally:
            lib.fdry_capture_graph_remove(capture._handle, KEY)
    finally:
        driver.cuGraphDestroy(graph)
