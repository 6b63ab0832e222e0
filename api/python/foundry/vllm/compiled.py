# SPDX-License-Identifier: Apache-2.0
"""Code that vLLM compiles with torch.compile, and loads from its cache in later starts.

vLLM compiles a model, or loads the compiled code, at the model's first call. This is the call that
profiles the memory, which a start from an image leaves out. load() does what the first call does,
and stops before the code runs.
"""
import contextlib
import hashlib
import json
import os

import torch

from ..engines import ahead

NONE = "none"  # the identity() of no code


class _Stop(BaseException):
    """Ends the first call of a part when its code is loaded. vLLM catches Exception alone."""

    def __init__(self, found):
        super().__init__()
        self.found = found


def parts(model):
    """Return the modules of a model that vLLM compiles."""
    from vllm.compilation.wrapper import TorchCompileWithNoGuardsWrapper
    return [each for each in model.modules() if isinstance(each, TorchCompileWithNoGuardsWrapper)
            and not each.do_not_compile]


class Files(list):
    """The paths of files from which vLLM loaded compiled code, or to which it was to write some."""

    def __init__(self):
        super().__init__()
        self.unusable = {}  # {path: the _file() there, whose code vLLM could not load, or None}


def is_kept(model, files):
    """Return whether a later start can load the code of all parts of a model, which vLLM has
    compiled or loaded. files: the Files of that. vLLM only warns if it cannot write a file.
    """
    return all(getattr(each, "aot_compiled_fn", None) is not None for each in parts(model)) and (
        all(map(os.path.exists, files)) and
        all(_file(path) != before for path, before in files.unusable.items()))


@contextlib.contextmanager
def watched(*beside, and_stop=False):
    """Yield the Files from which vLLM loads compiled code inside the with block, or to which it
    writes code that it compiles.

    beside: functions that a thread calls while vLLM loads the first file. and_stop: end the call of
    a model with _Stop after a file.
    """
    from vllm.compilation import decorators
    original, files = decorators._try_load_aot_compiled_fn, Files()

    def load_code(part, path):
        files.append(path)
        with ahead.beside(*(beside if len(files) == 1 else ())):
            found = original(part, path)
        if found is None:
            files.unusable[path] = _file(path)
        if and_stop:
            raise _Stop(found)
        return found

    decorators._try_load_aot_compiled_fn = load_code
    try:
        yield files
    finally:
        decorators._try_load_aot_compiled_fn = original


class Shared:
    """The pieces of a model that have equal code: {range of sizes: {piece: the first of them}}.

    vLLM keeps such code once, and looks in each start for the pieces that have it. The search takes
    as long as tracing them.
    """

    def __init__(self, text="{}"):
        self.first = json.loads(text)

    def text(self):
        """Return what the constructor takes, or "{}" if that is too long for a fact."""
        text = json.dumps(self.first, separators=(",", ":"))
        return text if len(text) < 4000 else "{}"

    @contextlib.contextmanager
    def noted(self):
        """Note what vLLM finds inside the with block. Code of several models is not noted."""
        managers, codes = [], {}

        def compile_piece(original, manager, *args, **kwargs):
            found = original(manager, *args, **kwargs)
            sizes, piece = str(kwargs["compile_range"]), kwargs["graph_index"]
            if manager not in managers:
                managers.append(manager)
            first, _ = codes.setdefault((sizes, id(found)), (piece, found))
            if first != piece:
                self.first.setdefault(sizes, {})[str(piece)] = first
            return found

        with _replaced("compile", compile_piece):
            yield
        if len(managers) > 1:
            self.first = {}

    @contextlib.contextmanager
    def used(self, is_known):
        """Give each piece the code of the first one with equal code inside the with block, if
        is_known() returns true when vLLM has found its cache.
        """
        made, known = {}, []

        def load_piece(original, manager, graph, inputs, piece, sizes):
            found = original(manager, graph, inputs, piece, sizes)
            if found is None:
                known[:] = known or [is_known()]
                first = self.first.get(str(sizes), {}).get(str(piece))
                found = made.get((str(sizes), first)) if known[0] else None
            made[str(sizes), piece] = found
            return found

        with _replaced("load", load_piece):
            yield


@contextlib.contextmanager
def _replaced(name, function):
    """Call function(original, ...) in place of a method of vLLM's CompilerManager."""
    from vllm.compilation.backends import CompilerManager
    original = getattr(CompilerManager, name)
    setattr(CompilerManager, name, lambda *args, **kwargs: function(original, *args, **kwargs))
    try:
        yield
    finally:
        setattr(CompilerManager, name, original)


def load(model, config, shared, wanted, *beside):
    """Load the code of all parts of a model from vLLM's cache, without running it.

    shared: a Shared, which is used if the identity() of the code is `wanted`. beside: functions
    that a thread calls while vLLM loads. Returns (the files, a reason). The reason is None if all
    code was loaded and nothing compiled.
    """
    from vllm.compilation.counter import compilation_counter as counter
    before = counter.num_compiled_artifacts_saved
    with watched(*beside, and_stop=True) as files, shared.used(
            lambda: identity(files, config) == wanted):
        for part in parts(model):
            if getattr(part, "aot_compiled_fn", None) is not None:
                continue
            try:
                with torch.inference_mode():  # as in the profile run
                    part()
            except _Stop as stop:
                if stop.found is None:
                    return files, "vLLM's cache has no compiled code for this start"
                part.aot_compiled_fn, part.was_aot_compile_fn_loaded_from_disk = stop.found, True
            else:
                return files, "vLLM has no compiled code to load"
    if counter.num_compiled_artifacts_saved != before:
        return files, "vLLM's cache had a part of the compiled code only"
    return files, None


def identity(files, config):
    """Return a hash of compiled code: of `files`, and of vLLM's artifacts in the cache folder of a
    configuration. NONE if there is no compiled code. Raises OSError if a file is missing.
    """
    if not files:
        return NONE
    hashes = map(_hash, paths(files, config))
    return hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:16]


_HASHES = {}  # {path: (its _file(), its hash)}


def _file(path):
    """Return what tells the file at a path, or an open one, from others; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _hash(path):
    """Return the hash of a file, which is read once if it stays the same."""
    with open(path, "rb") as f:
        file, known = _file(f.fileno()), _HASHES.get(path)
        if known is None or known[0] != file:
            known = _HASHES[path] = file, hashlib.sha256(f.read()).hexdigest()
    return known[1]


def paths(files, config):
    """Return the paths of compiled code: `files`, and vLLM's artifacts, if there is any code."""
    return [os.path.abspath(path) for path in (*files, *_artifacts(config))] if files else []


def _artifacts(config):
    """Return the paths of the code that Inductor has compiled for this rank, sorted."""
    folder, ranks = config.compilation_config.cache_dir, config.parallel_config
    rank = f"rank_{ranks.rank}_{ranks.data_parallel_index}"
    return sorted(os.path.join(above, name) for above, _, names in os.walk(
        os.path.join(folder, rank)) for name in names if name.startswith("artifact_")
        ) if folder else []


def constants():
    """Return the tensors that belong to compiled code, which nothing writes after their making."""
    from torch._inductor.codecache import PyCodeCache
    return [each for module in PyCodeCache.modules for each in vars(module).values()
            if isinstance(each, torch.Tensor)]
