# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs that torch captures and files keep, with the names of the original API."""
import collections.abc
import os
import weakref

from . import _file, _lib, _torch, many, placed, region
from ._lib import Error, lib
from ._outputs import Loaded, Outputs
from .tensor import refuse_lazy


class _Made:
    """A graph that torch captured in the region and that is alive."""

    def __init__(self, key, graph, watched):
        self.key, self.graph = key, graph
        self.watched = watched  # the generators that it may draw from, until that is determined
        self.sealed = False     # an image has it
        self.skipped = False    # the next seal leaves it out


def _forget(where, key):
    """Remove a graph from its region, before the driver's graph is destroyed."""
    with region.lock:
        if where.graphs.pop(key, None) and where.capture._handle:
            lib.fdry_capture_graph_remove(where.capture._handle, key)


class CUDAGraph(_lib.Single):
    """A CUDA graph: torch.cuda.CUDAGraph, with save() and load().

    If it is captured in a region (set_allocation_region()), it can be saved. Any later process that
    begins a region at the same base can load it, without the model, its kernels or a warm-up.

    keep_graph: do not instantiate the graph after its capture, but at the first replay or at
    instantiate().
    """

    def __init__(self, keep_graph=False):
        self._keep_graph = keep_graph
        self._torch = None       # torch's graph, if this one was captured here
        self._captured = False
        self._generators, self._watched = [], None
        self._region = self._key = self._end = None
        self._placed = self._pool = None  # set if the graph was loaded

    def __repr__(self):
        state = "loaded from a file" if self._placed else "captured" if self._captured else "empty"
        return f"<CUDAGraph {state}{f', key {self._key}' if self._key is not None else ''}>"

    # --- capturing ---

    def _make(self):
        """Torch's graph. It always keeps the driver's graph, which save() reads."""
        if self._placed:
            raise Error(_lib.STATE,
                        "this graph was loaded from a file; call reset(), or make another "
                        "CUDAGraph")
        if self._torch is None:
            self._torch = _torch.module().cuda.CUDAGraph(keep_graph=True)
        return self._torch

    def _begin(self):
        if self._captured:
            raise Error(_lib.STATE,
                        "this graph was captured already; call reset(), or make another CUDAGraph")
        made, where = self._make(), region.find()
        if where and where.active:
            if not where.keys:
                where.capture._clear_free()
            self._watched = where.capture._names.of(_torch.module(), where.device, self._generators)
        return made

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """Begin to capture the current stream, which must not be the default one.

        graph() does this and all around it. pool: the pool() of another graph, or a
        graph_pool_handle(), to share memory with it. capture_error_mode: "global", "thread_local"
        or "relaxed". Raises Error FDRY_E_STATE if this CUDAGraph has a graph already.
        """
        self._begin().capture_begin(*(() if pool is None else (pool,)),
                                    capture_error_mode=capture_error_mode)

    def capture_end(self):
        """End the capture. Without keep_graph this also instantiates the graph."""
        self._make().capture_end()
        self._finish()

    def _finish(self):
        """Record the graph after torch has captured it."""
        self._captured = True
        if not self._keep_graph:
            self._torch.instantiate()
        with region.lock:
            where = region.find()
            if not where or not where.active or self._watched is None:
                return  # not in a region: it cannot be saved
            where.keys += 1
            key = where.keys
            lib.fdry_capture_graph(where.capture._handle, key, None, self._torch.raw_cuda_graph())
            # Torch does not change the graph, and no other code has its handle: see
            # raw_cuda_graph().
            lib.fdry_capture_graph_fixed(where.capture._handle, key, 1)
            where.graphs[key] = _Made(key, weakref.proxy(self._torch), self._watched)
            self._region, self._key = where, key
            self._end = weakref.finalize(self._torch, _forget, where, key)
            self._end.atexit = False

    def register_generator_state(self, generator):
        """Let the graph use this torch.Generator besides torch's default ones. Call it before the
        capture.

        A loaded graph takes the state of the default generator from torch, so manual_seed() has its
        effect; that of other generators comes from foundry.Image.set_rng_state().
        """
        self._make().register_generator_state(generator)
        self._generators.append(generator)

    def enable_debug_mode(self):
        """Do nothing; for programs written for torch. debug_dump() works without it, since the
        captured graph is always kept.
        """
        self._make().enable_debug_mode()

    # --- using ---

    def _need(self, what):
        if not self._captured and not self._placed:
            raise Error(_lib.STATE,
                        f"{what} needs a graph, and there is none; capture or load one first "
                        "(reset() releases it)")

    def _need_own(self, what):
        """Torch's graph, for the method `what` that works on captured graphs alone."""
        self._need(what)
        if self._placed:
            raise Error(_lib.STATE,
                        f"{what} is for graphs that this process captured; this one was loaded "
                        "from a file")
        return self._torch

    def instantiate(self):
        """Make the graph launchable now; otherwise the first replay() does. A loaded graph is also
        uploaded.
        """
        self._need("instantiate()")
        if self._placed:
            self._placed.image.build(self._key)
        else:
            self._torch.instantiate()

    def replay(self):
        """Launch the graph on the current stream, and return at once.

        Replays of graphs that share memory must not overlap: use one stream, or order several
        streams by events. Raises Error FDRY_E_STATE if there is no graph.
        """
        self._need("replay()")
        if self._placed:
            self._placed.image.launch(self._key, _torch.stream(self._region.device) or None)
        else:
            self._torch.replay()

    def reset(self):
        """Release the graph, so that another can be captured. Outputs of a loaded graph stay valid.
        """
        with region.lock:
            if self._end:
                self._end()
            left, self._placed = self._placed, None
            if left:
                left.users.discard(self)
                left.leave()
        if self._torch is not None:
            self._torch.reset()
        self._captured, self._generators, self._watched = False, [], None
        self._region = self._key = self._end = self._pool = None

    def pool(self):
        """A token of the graph's memory pool, which another capture may share.

        For a loaded graph it is the pool that load() was called with, or else a new one; the memory
        of the graph itself is not in it.
        """
        self._need("pool()")
        if not self._placed:
            return self._torch.pool()
        if self._pool is None:
            self._pool = graph_pool_handle()
        return self._pool

    def debug_dump(self, debug_path):
        """Write the graph to `debug_path` as text: a captured graph in Graphviz' language, as torch
        does.
        """
        self._need_own("debug_dump()").debug_dump(debug_path)

    def raw_cuda_graph(self):
        """The driver's CUgraph as an integer. For captured graphs made with keep_graph=True."""
        made = self._need_own("raw_cuda_graph()")
        if not self._keep_graph:
            raise Error(_lib.STATE,
                        "raw_cuda_graph() is for graphs made with CUDAGraph(keep_graph=True)")
        with region.lock:
            if self._end and self._end.alive and self._region.capture._handle:
                lib.fdry_capture_graph_fixed(self._region.capture._handle, self._key, 0)
        return made.raw_cuda_graph()

    def raw_cuda_graph_exec(self):
        """The driver's CUgraphExec as an integer, if the graph was captured here and is
        instantiated.
        """
        return self._need_own("raw_cuda_graph_exec()").raw_cuda_graph_exec()

    # --- saving and loading ---

    def save(self, path, output_tensors=None):
        """Save the graph: an image in a store, and at `path` a small file that names it.

        output_tensors: what load() returns beside the graph: a tensor, or a list, tuple or dict of
        tensors, nested as you like. They keep their addresses, and each replay writes them. The
        store is the one that FOUNDRY_STORE names, else the folder foundry-store beside the file.

        The image has the graph, all others that no earlier save has stored, and memory as it is
        now. If an earlier save has stored this graph, the image has all graphs of the region. A
        save compares all memory with earlier saves, and stores what differs.

        Errors: FDRY_E_STATE if the graph was not captured in the region; FDRY_E_REFUSED names the
        node or the memory that cannot be restored exactly; FDRY_E_RANGE if an output does not lie
        in the region. TypeError for outputs of other kinds. The file is written last, as a whole or
        not at all.
        """
        save_graphs({path: (self, output_tensors)})

    def _description(self, where, output_tensors):
        """The graph's key and its outputs, as a file describes them."""
        self._need_own("save()")
        if self._region is None or where is not self._region:
            of = (f"in the region at {self._region.base:#x}, which ended"
                  if self._region else "in no region")
            raise Error(_lib.STATE,
                        f"this graph was captured {of}, so it cannot be saved; save graphs before "
                        "another region begins, and call set_allocation_region() before "
                        "anything that a graph uses is allocated")
        if output_tensors is None:
            return self._key, None
        allocs = where.allocs()
        return self._key, _file.pack(output_tensors, lambda tensor,
                                     name: _describe(tensor, name, allocs))

    @classmethod
    def load(cls, path, pool=None):
        """Load a saved graph into the region.

        Returns the graph, or (graph, outputs) if outputs were saved, in the structure in which they
        were saved. The pair is a tuple with the attributes `graph` and `outputs`. The outputs are
        made at their first use; until then the pair keeps their memory. The region must have the
        base of the region that the graph was saved from.

        Each allocation that this process has made in the region must be one of the saving process,
        at the same address and of the same size, or touch no memory of the image. Tensors in them
        keep their bytes, so inputs can be filled before or after the load. All other memory comes
        from the image; nothing else can use it while one of the image's graphs is in use. If cached
        segments of torch are in the way, torch frees them. The graph is built at its first replay,
        or by instantiate().

        pool: what pool() returns; the graph's memory keeps its own addresses.

        Errors: FDRY_E_NOENT (there is no such file, or no store has its image), FDRY_E_BADIMAGE
        (the file is not a saved graph), FDRY_E_STATE (no region), FDRY_E_LAYOUT (names the first
        allocation in the way), FDRY_E_IDENTITY (the graph was saved on another kind of GPU), and
        those of foundry.load().
        """
        file = _file.read(path)
        with region.lock:
            where = region.current("CUDAGraph.load()")
            return open_graph(cls, where, file, placed.place(where, file), pool)

    @classmethod
    def start_graph_builds(cls, paths, pool=None, num_threads=4):
        """Begin to load many graphs. Returns a token for finish_graph_loads().

        Their images are placed at once, as by load(), with the same errors; at most `num_threads`
        threads work on that. One thread builds the graphs in the background, in the order of
        `paths`: several would wait for the driver's lock.
        """
        return many.start(lambda *found: open_graph(cls, *found, pool), paths, num_threads)

    @staticmethod
    def finish_graph_loads(pending):
        """All graphs of a token, in the order of the paths, built, each as load() returns it.

        Raises the error of the first graph that cannot be loaded.
        """
        return [pending._finish(i) for i in range(len(pending))]

    @staticmethod
    def finish_one_graph_load(pending, i):
        """Graph `i` of a token, as load() returns it. It is built before others that wait.

        Each call returns the same object.
        """
        return pending._finish(range(len(pending))[i])


def save_graphs(graphs):
    """Save many graphs as they are at one moment. Reads memory once for all of them.

    graphs: {path: graph} or {path: (graph, output_tensors)}. Graphs of one folder share one image.
    The errors are those of CUDAGraph.save(); files are written when all images are stored.
    """
    if not isinstance(graphs, collections.abc.Mapping):
        raise TypeError(
            f"save_graphs() takes {{path: graph}} or {{path: (graph, output_tensors)}}, not "
            f"{graphs!r}")
    asked = {os.fspath(path): each if isinstance(each, tuple) else (each, None)
             for path, each in graphs.items()}
    for path, each in asked.items():
        _file.check_place(path)
        if len(each) != 2 or not isinstance(each[0], CUDAGraph):
            raise TypeError(
                f"'{os.fsdecode(path)}' must have a CUDAGraph, or a pair of a CUDAGraph and its "
                f"outputs, not {each!r}")
    with region.lock:
        where = region.find()
        said = {path: each[0]._description(where, each[1]) for path, each in asked.items()}
        if not said:
            return
        placed.choose(where, {key for key, _ in said.values()})
        images = placed.seal(where, said)
        segments = placed.torch_of(where)
        for path, (key, outputs) in said.items():
            _file.File(path, images[path], key, where.base, outputs, segments).write()


def open_graph(cls, where, file, found, pool):
    if not found.image._has(file.key):
        found.leave()
        raise _file.bad(file.path, "its image does not have that graph")
    graph = cls()
    try:
        outputs = None if file.outputs is None else Outputs(found, file)
    except BaseException:
        found.leave()
        raise
    graph._placed, graph._key, graph._region, graph._pool = found, file.key, where, pool
    found.users.add(graph)
    return graph if outputs is None else Loaded(graph, outputs)


def _describe(tensor, name, allocs):
    """The description of an output in a file."""
    if not _torch.is_tensor(tensor):
        raise TypeError(
            f"{name} is a {type(tensor).__name__}; outputs are tensors, and lists, tuples and "
            "dicts of them")
    refuse_lazy(name, tensor)
    raw = {"addr": tensor.data_ptr(), "dtype": str(tensor.dtype).rpartition(".")[2],
           "shape": list(tensor.shape),
           "stride": list(tensor.stride())}
    if not _file._is_tensor(raw):
        raise TypeError(
            f"{name} is a tensor of {raw['dtype']} with {len(raw['shape'])} dimensions, which a "
            "saved graph cannot keep")
    size = _file.extent(raw)
    if size and not any(addr <= raw["addr"] and raw["addr"] + size <= addr + have
                        for addr, have in allocs):
        raise Error(_lib.RANGE,
                    f"{name} ({size} bytes at {raw['addr']:#x}) does not lie in memory of the "
                    "region; name tensors that the "
                    "graph writes on the GPU")
    return raw


class graph:
    """Capture what happens inside a with block into a CUDAGraph, as torch.cuda.graph does.

    It captures on a stream of its own, after a synchronisation, with torch's cache emptied. pool:
    as for CUDAGraph.capture_begin(). stream: to capture on; None: one that all such captures share.
    If the block raises, the graph is empty and the stream usable.
    """

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        if not isinstance(cuda_graph, CUDAGraph):
            raise TypeError(f"graph() captures into a foundry.CUDAGraph, not into {cuda_graph!r}")
        self._graph = cuda_graph
        options = {"stream": stream, "capture_error_mode": capture_error_mode}
        if pool is not None:
            options["pool"] = pool
        self._context = _torch.module().cuda.graph(cuda_graph._begin(), **options)

    def __repr__(self):
        return f"<graph into {self._graph!r}>"

    def __enter__(self):
        self._graph._begin()
        return self._context.__enter__()

    def __exit__(self, kind, error, trace):
        try:
            done = self._context.__exit__(kind, error, trace)
        except BaseException:
            self._graph.reset()
            raise
        if kind is None:
            self._graph._finish()
        else:
            self._graph.reset()
        return done


def graph_pool_handle():
    """A token of a new memory pool that several captures may share."""
    return _torch.module().cuda.graph_pool_handle()
