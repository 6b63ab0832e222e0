# SPDX-License-Identifier: Apache-2.0
"""Images that are loaded: graphs that can be launched, with their memory."""
import array as array_of
import atexit
import contextlib
import ctypes
import itertools
import os
import weakref

from . import _lib, _log, _progress, _torch, array
from ._lib import lib
from .generators import Source
from .host import HostFunction
from .store import as_store
from .views import Facts, Graphs, Tensors

_BACKGROUND, _CHECK_AT_LAUNCH = 1 << 3, 1 << 7
_ASYNC = 1 << 0  # FDRY_ARRAY_ASYNC
_PHASES = ("manifest", "driver", "memory", "content", "kernels", "objects", "graphs")


def _stream(stream):
    """A CUstream as an integer: torch's and CuPy's stream objects, integers, None for the legacy
    default stream.
    """
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return getattr(stream, attribute) or None
    if stream is not None and not isinstance(stream, (int, ctypes.c_void_p)):
        raise TypeError(
            f"{stream!r} is not a stream; pass torch's or CuPy's, a CUstream as an int, or None")
    return stream


class Report(_lib.Record):
    """The times and sizes of a load: the fields of fdry_load_report."""

    def __init__(self, raw):
        for name, _ in _lib.LoadReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))


class Checked(_lib.Record):
    """What Image.check() compared: the fields of fdry_check_report."""

    def __init__(self, raw):
        for name, _ in _lib.CheckReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))


class Selftest(_lib.Record):
    """What Image.selftest() compared: the fields of fdry_selftest_report, and `differences`: one
    sentence for each result that differs.
    """

    def __init__(self, raw, differences):
        self.differences = differences
        for name, _ in _lib.SelftestReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))


class KernelTime(_lib.Record):
    """How long a kernel node takes alone: the fields of fdry_kernel_time."""

    def __init__(self, raw):
        self.node, self.kernel, self.ms = raw.node, raw.kernel, raw.ms
        self.name = _lib.foreign(raw.name)


class GraphTimes(_lib.Record):
    """How long a graph takes, and its kernels: the fields of fdry_graph_times.

    `left_out` is None, or says why the graph was not measured.
    """

    def __init__(self, raw):
        self.key, self.name = raw.key, _lib.foreign(raw.name)
        self.left_out = raw.left_out and _lib.foreign(raw.left_out)
        self.launch_ms, self.alone_ms, self.empty_ms = raw.launch_ms, raw.alone_ms, raw.empty_ms
        self.kernels = [KernelTime(raw.kernels[i]) for i in range(raw.nkernels)]


class Image(_lib.Closing):
    """A loaded image; foundry.load() returns it.

    It is a mapping of its tensors: image[name], name in image, len(image), for name in image. Its
    graphs and facts are mappings, too. Any thread may use it. Graphs of one image share memory, so
    their launches must not overlap: use one stream, or order several by events.

    Use it as a context manager, or call close(). Otherwise it is unloaded when nothing refers to it
    any more: neither the program, nor a Tensor, a slot or a DLPack view. If a progress function
    reports graphs that are built in the background, the image stays until close(), wait() or
    build_stop().
    """

    def __init__(self, pointer, device, opts):
        # opts has the progress function, which may be called as long as the image lives
        self._handle = _lib.Handle(pointer, keeps=[opts])
        self._stop = None  # made by _stoppable()
        opts.calls.handle, opts.handles = weakref.ref(self._handle), ()
        if opts.calls.fn and opts.flags & _BACKGROUND:
            _telling.add(self)
        self._random = Source(self._handle, device)
        self.device = device
        self._late = bool(opts.flags & _CHECK_AT_LAUNCH)
        self._keys, self._unread = set(), lib.fdry_image_graph_count(self._handle)
        self._shown = (f" {self.id[:12]}: {self._unread} graph(s), {len(self)} tensor(s), on "
                       f"device {device}")

    def _repr_html_(self):
        from . import _show
        return _show.image(self)

    @contextlib.contextmanager
    def _stoppable(self):
        """Let what the handler of a signal raises end this thread's waits for damaged objects, in
        this block.

        Only the main thread runs handlers, and only in this block does it raise what they raise. So
        the library has the function during the block alone, and waits of other threads go on.
        """
        import threading
        if threading.current_thread() is not threading.main_thread() or _lib.entered():
            yield
            return
        if self._stop is None:
            self._stop = _lib.stop()
            self._stop.thread = threading.get_ident()
            self._handle.keeps.append(self._stop)  # other threads may still call it
        self._stop.forget()
        with self._stop:
            try:
                lib.fdry_image_stop_set(self._handle, self._stop.fn, None)
                yield
            finally:
                with contextlib.suppress(ValueError, _lib.Error):  # it was closed meanwhile
                    lib.fdry_image_stop_set(self._handle, _lib.STOP_FN(), None)

    @property
    def _source(self):
        self._handle.check()
        return self._random

    @property
    def _exports(self):
        """The number of DLPack views that are alive."""
        return self._handle.held("tensor")

    @property
    def id(self):
        """The image's hash, 64 digits."""
        text = ctypes.create_string_buffer(_lib.ID_SIZE)
        lib.fdry_image_id(self._handle, text)
        return text.value.decode()

    @property
    def graphs(self):
        """The graphs: a mapping {key: Graph}. A call, graphs(), returns a dict {key: name}."""
        return Graphs(self)

    @property
    def tensors(self):
        """The named tensors: a mapping {name: Tensor}, by name. A call, tensors(), returns a list.
        """
        return Tensors(self)

    @property
    def facts(self):
        """The facts that the image states: a mapping {key: value} of str."""
        return Facts(self)

    def _has(self, key):
        """Whether there is a graph `key`.

        Searches from the last graph: if graphs are saved one by one, each image is loaded for its
        last graph.
        """
        found = ctypes.c_uint64()
        while self._unread and key not in self._keys:
            self._unread -= 1
            lib.fdry_image_graph(self._handle, self._unread, found, None, None)
            self._keys.add(found.value)
        return key in self._keys

    def __call__(self, /, *args, **kwargs):
        """Write the inputs, launch the graph that they fit, and return its outputs.

        Inputs are given by name, or by position if compile() sealed the image or there is only one.
        Other images need exactly one graph, and return one output, or {name: output}. Other
        arguments than tensors choose among several graphs; give them by name. With torch,
        which must use CUDA, outputs are new tensors; without it, they are Tensors, views that the
        next launch overwrites. The stream is torch's current one.
        """
        from . import calling
        return calling.call(self, args, kwargs)

    def __getitem__(self, name):
        """The tensor with this name. Raises KeyError (an Error, too) if there is none."""
        return self.tensors[name]

    def __contains__(self, name):
        return name in self.tensors

    def __iter__(self):
        """The names of the tensors."""
        return iter(self.tensors)

    def __len__(self):
        """The number of named tensors."""
        return lib.fdry_image_tensor_count(self._handle)

    def __bool__(self):
        return True  # also without tensors

    def keys(self):
        """The names of the tensors."""
        return self.tensors.keys()

    def _ipython_key_completions_(self):
        return list(self.tensors)

    def fact(self, key):
        """The value of a fact, as facts[key]. Raises KeyError (an Error, too) if there is none."""
        value = ctypes.c_char_p()
        lib.fdry_image_fact(self._handle, _lib.text(key), ctypes.byref(value))
        return _lib.foreign(value.value)

    def write(self, name, data, stream=None, wait=True):
        """Copy `data` into a tensor.

        The copy is complete on return. With wait=False it is complete when `stream` gets there:
        later launches on it see the new elements, and host memory may be reused at once.

        data: an array of the tensor's shape and type, on the host or on this GPU, with any strides:
        element [i, j] goes to element [i, j]. Anything with DLPack (torch's tensors, CuPy's) or the
        buffer protocol (numpy's) will do. Or plain bytes, exactly as many as the tensor has: its
        elements row by row, as numpy's tobytes() returns them, whatever the tensor's own strides
        are.

        `stream` orders the read of an array on the GPU, after the work that its framework has
        enqueued for it; with wait=False nothing may overwrite the array until then. Bytes between a
        tensor's elements do not change. A tensor whose elements share memory, such as an expanded
        one, can only be read.
        """
        stream, tensor = _stream(stream), self[name]
        with array.opened(self, tensor, data, stream) as source:
            if source.flat:
                write = lib.fdry_image_write if wait else lib.fdry_image_write_async
                write(self._handle, _lib.named(name), source.raw.addr, source.nbytes, stream)
                return
            lib.fdry_image_write_array(self._handle, _lib.named(name), ctypes.byref(source.raw),
                                       0 if wait else _ASYNC, stream)
            if not wait and not source.host:
                _torch.used_on(data, array.number(stream), self.device)

    def copy(self, name, src, nbytes, stream=None):
        """Copy `nbytes` of device memory at the address `src` into a tensor, in the order of
        `stream`.

        The bytes are the tensor's elements row by row.
        """
        lib.fdry_image_copy(self._handle, _lib.named(name), src, nbytes, _stream(stream))

    def read(self, name, stream=None, out=None):
        """A tensor's elements on the host, row by row, as a bytearray; after earlier work on
        `stream`.

        out: an array of the tensor's shape and type. Then the elements are copied into it one by
        one, as by write(), and it is returned. Memory between its elements does not change.
        """
        stream, tensor = _stream(stream), self[name]
        data = bytearray(tensor.nbytes) if out is None else out
        with array.opened(self, tensor, data, stream, writable=True) as into:
            if into.flat:
                lib.fdry_image_read(self._handle, _lib.named(name), into.raw.addr, into.nbytes,
                                    stream)
            else:
                lib.fdry_image_read_array(self._handle, _lib.named(name), ctypes.byref(into.raw),
                                          stream)
        return data

    def filled(self, name=None):
        """Declare that an external tensor was filled by other means; without a name, all of them.
        """
        lib.fdry_image_filled(self._handle, _lib.named(name) if name is not None else None)

    def check_content(self):
        """Compare the content now, if load(check_at_launch=True) has left that for later.

        Otherwise the first launch does it, or the first read(), write(), copy() or view of a tensor
        that is not external. Call it before something else writes to content at its address. If
        content differs and cannot be brought back, this and every later use raise Error CORRUPT;
        the image stays loaded, and a restore() that succeeds makes it usable. Ctrl-C ends the wait
        for a registry that is asked for damaged objects; the next use compares then.
        """
        with self._stoppable():
            lib.fdry_image_check_content(self._handle)
        self._late = False

    def check(self, name=None, stream=None):
        """Compare an external tensor with its content at the seal, after earlier work on `stream`;
        without a name, all external constants. Returns a Checked.

        Raises Error CORRUPT if one differs, and Error STATE if the image has no record of its
        bytes; only those of constants are recorded.
        """
        raw = _lib.CheckReport(sz=ctypes.sizeof(_lib.CheckReport))
        with self._stoppable():
            lib.fdry_image_check(self._handle, _lib.named(name) if name is not None else None,
                                 _stream(stream), ctypes.byref(raw))
        return Checked(raw)

    def selftest(self):
        """Replay the graphs as the seal did, after Capture.selftest(), and compare their outputs.

        Returns a Selftest, whose list `differences` is empty if all is equal. Content, state and
        random number generators are as sealed or as before afterwards; external tensors must be
        filled again. Raises Error STATE if the image has no self-test.
        """
        raw, found = _lib.SelftestReport(sz=ctypes.sizeof(_lib.SelftestReport)), []
        note = _lib.Callback(_lib.SELFTEST_FN, lambda _, text: found.append(_lib.foreign(text)))
        try:
            with self._stoppable(), note:
                lib.fdry_image_selftest(self._handle, note.fn, None, ctypes.byref(raw))
        except _lib.Error as e:
            if e.name != "FDRY_E_CORRUPT" or not found:
                raise
        return Selftest(raw, found)

    def kernel_times(self, *keys):
        """Measure how long these graphs take, and each of their kernels alone; without a key, all
        graphs. Returns a list of GraphTimes.

        The graphs are replayed. External tensors that are not filled get numbers from a seed, or
        zeros. Content, state and random number generators are as sealed or as before afterwards;
        external tensors must be filled again.
        """
        found, raw = [], _lib.array(ctypes.c_uint64, keys) if keys else None
        note = _lib.Callback(_lib.GRAPH_TIMES_FN, lambda _, times: found.append(
            GraphTimes(times[0])))
        with self._stoppable(), note:
            lib.fdry_image_kernel_times(self._handle, raw, len(keys), note.fn, None)
        return found

    def build(self, key):
        """Build graph `key` now, not at its first launch.

        Before the process launches its first graph, this also uploads it.
        """
        lib.fdry_image_build(self._handle, key)

    def wait(self):
        """Wait until all graphs are built, and build those that the background has not."""
        lib.fdry_image_wait(self._handle)
        _telling.discard(self)

    def build_stop(self):
        """Stop building in the background. Other graphs are then built at their first launch."""
        lib.fdry_image_build_stop(self._handle)
        _telling.discard(self)

    def launch(self, key, stream=None):
        """Launch graph `key` on `stream`: torch's or CuPy's, an integer, or None (the legacy
        default stream).

        If torch uses CUDA in this process, random numbers come from its default generator, which
        advances as in torch's own replay. Otherwise they come from the image's own state; see
        generator().
        """
        if self._late:
            self.check_content()  # Ctrl-C can end that
        self._source.launch(key, _stream(stream))

    def generators(self):
        """The names of the random number generators that the graphs use; torch's default one is
        "default".
        """
        return list(self._source.names)

    def generator(self, name, generator):
        """Use the state of `generator`, a torch.Generator of this device, for the generator `name`.

        None: use the image's own state.
        """
        self._source.bind(name, generator)

    def rng_state(self, name="default"):
        """(seed, offset) of the next launch's random numbers, in torch's generator if that one is
        used.
        """
        return self._source.get(name)

    def set_rng_state(self, seed, offset=0, name="default"):
        """Set a generator's state: a new seed, as by torch.cuda.manual_seed(), or an earlier
        rng_state().
        """
        self._source.set(name, seed, offset)

    def restore(self, stream=None):
        """Copy all content from the store again, as it was sealed.

        If the image was removed from the store after it was loaded, this raises Error NOENT and
        changes nothing. Ctrl-C ends the wait for a registry that is asked for damaged objects; a
        restore must succeed then before content is used.
        """
        with self._stoppable():
            lib.fdry_image_restore(self._handle, _stream(stream))

    def semaphore_add(self, name, add):
        """Let later launches use a semaphore with larger values: those of the capture and `add`.

        name: of load(..., semaphores=...). The values of a timeline semaphore must grow from launch
        to launch. Other threads must not launch meanwhile.
        """
        lib.fdry_image_semaphore_add(self._handle, _lib.text(name), add)

    def synchronize(self, stream=None):
        """Wait until `stream` has no more work."""
        lib.fdry_image_synchronize(self._handle, _stream(stream))

    def refresh(self):
        """Make replays fast again in a process that has used many streams. Takes 150 ms.

        Call it when all graphs are built.
        """
        lib.fdry_image_refresh(self._handle)

    def report(self):
        """The times and sizes of the load so far, as a Report."""
        raw = _lib.LoadReport(sz=ctypes.sizeof(_lib.LoadReport))
        lib.fdry_image_report(self._handle, ctypes.byref(raw))
        return Report(raw)

    def close(self):
        """Unload the image. Refused while a DLPack view of its memory is alive, or a slot has its
        graph.
        """
        if self._handle.held("slot"):
            raise RuntimeError(
                "a slot still has a graph of the image; invalidate the slot before closing the "
                "image")
        if self._exports:
            raise RuntimeError(
                f"{self._exports} tensor(s) still use the image's memory; delete them before "
                "closing it")
        super().close()
        _telling.discard(self)

    def __exit__(self, kind, *_):
        try:
            self.close()
        except RuntimeError:
            if kind is None:
                raise  # else the block's exception matters more; the image ends with its last view


# Images whose progress function a thread of the library may call. The thread must end before Python
# does. It must not be the thread that frees the image, because freeing waits for it.
_telling = set()


@atexit.register
def _quieten():
    for image in list(_telling):
        # raised in a forked child, where no such thread runs, and for a closed image
        with contextlib.suppress(_lib.Error, ValueError):
            image.build_stop()


def _memory(ranges):
    """[(addr, size)] as an array for the library. It has one element more, since an empty one is
    NULL.
    """
    ranges = [(addr, size) for addr, size in ranges]
    try:
        words = array_of.array("Q", itertools.chain(*ranges, (0, 0)))
    except (TypeError, OverflowError):
        words = [_lib.fit(ctypes.c_uint64, word) for each in ranges for word in each]
        words = array_of.array("Q", (*words, 0, 0))
    return (_lib.Memory * (len(ranges) + 1)).from_buffer(words)


def _semaphore(name, value):
    semaphore, add = value if isinstance(value, tuple) else (value, 0)
    return _lib.Semaphore(_lib.text(name), _lib.fit(ctypes.c_void_p, semaphore),
                          _lib.fit(ctypes.c_uint64, add))


def load_options(facts=None, device=0, verify=False, poison=False, build=False, driver=None,
                 order=(), threads=0, progress=None, background=False, own_context=False,
                 check_overlap=False, externals=None, into=None, keep=None, ordered=False,
                 check_at_launch=False, functions=None, semaphores=None):
    """The options of load() as a struct for the library; the image keeps it."""
    stated = [_lib.Fact(_lib.text(key), _lib.text(str(value))) for key, value in _lib.pairs(facts)]
    sizes = [_lib.External(_lib.text(key), size) for key, size in _lib.pairs(externals)]
    ranges = _memory(keep or ())
    called = [HostFunction(key, function) for key, function in _lib.pairs(functions)]
    waited = [_semaphore(key, value) for key, value in _lib.pairs(semaphores)]
    progress, ends = _progress.opened(progress, "loading", ("content",))
    calls = _lib.Callback(_lib.PROGRESS_FN, progress and (
        lambda _, phase, done, total, ms: progress(_PHASES[phase], done, total, ms)), ends=ends)
    asked = (verify, poison, build, background, own_context, check_overlap, ordered,
             check_at_launch)
    opts = _lib.LoadOpts(sz=ctypes.sizeof(_lib.LoadOpts), device=device, nfacts=len(stated),
                         flags=sum(1 << bit for bit, yes in enumerate(asked) if yes),
                         facts=(_lib.Fact * len(stated))(*stated),
                         driver=_lib.file_name(driver) if driver else None,
                         order=_lib.array(ctypes.c_uint64, order), norder=len(order),
                         threads=threads, progress=calls.fn,
                         externals=(_lib.External * len(sizes))(*sizes), nexternals=len(sizes),
                         into=into._handle if into else None, nkeep=len(ranges) - 1,
                         functions=(_lib.HostFunction * len(called))(*(f.raw for f in called)),
                         nfunctions=len(called),
                         semaphores=(_lib.Semaphore * len(waited))(*waited),
                         nsemaphores=len(waited))
    if keep is not None:
        opts.keep = ranges
    opts.calls, opts.called = calls, called
    return opts


def load(name, store=None, facts=None, device=0, verify=False, poison=False, build=False,
         driver=None, order=(), threads=0, progress=None, background=False, own_context=False,
         check_overlap=False, externals=None, into=None, keep=None, ordered=False,
         check_at_launch=False, functions=None, semaphores=None):
    """Load an image by ref, id or an unambiguous prefix of an id. Returns an Image.

    store: a Store or a path (None: the default store). facts: {key: value} that the image must
    have. verify: hash the content even if it was verified since the host started. poison: fill
    scratch and external memory with 0xA5. build: build every graph now. driver: the path of a
    libcuda. order: keys of graphs, the first one to launch first. threads: how many threads may
    load; 0: as many as help.

    progress: True: a bar on standard error; tqdm's class, or an object of it: that bar; or a
    function that is called with (phase, done, total, milliseconds since the load began). The
    library may call it in its own threads, one call at a time. Phases are "manifest", "driver",
    "memory", "content", "kernels", "objects" and "graphs".

    background: build graphs in the background. ordered: build only the graphs in `order` there.
    own_context: give kernels and graphs a context of their own. check_overlap: find launches that
    may overlap. check_at_launch: compare the content with its fingerprints when it is first used,
    not during the load; Image.check_content() says more. externals: {name: bytes}, how much memory
    an external tensor that was captured with capacity() gets.

    into: a Capture of this process. The image is placed among the allocations in its region. Each
    of those must be one that the sealing process had, too, or touch no memory of the image. keep:
    [(address, bytes)] of memory that the load does not write; None: every allocation.

    functions: {name: function} for the names that the capturing process gave to functions which
    graphs call: Capture.host_function() says what a function may be. The image keeps them.

    semaphores: {name: semaphore} for the names that Capture.semaphore() gave: what
    cuImportExternalSemaphore() returned in the device's primary context, as an integer, or a pair
    (semaphore, add) if the values of its uses are to be larger than in the capture.
    Image.semaphore_add() changes that later. The semaphores must outlive the image.

    If the store lacks the image, the load fetches it from the registry that FOUNDRY_REGISTRY names.
    Ctrl-C ends that: objects that were fetched stay, and the store does not list the image.
    """
    opts = load_options(facts, device, verify, poison, build, driver, order, threads, progress,
                        background, own_context, check_overlap, externals, into, keep, ordered,
                        check_at_launch, functions, semaphores)
    raw, store = _lib.IMAGE(), as_store(store)
    _log.follow()

    def call():
        with opts.calls:
            lib.fdry_image_load(store._handle, _lib.text(name), ctypes.byref(opts),
                                ctypes.byref(raw))
    try:
        if os.environ.get("FOUNDRY_REGISTRY"):
            # The load may fetch, in the library's threads. Python runs handlers of signals in the
            # main thread alone, which therefore waits here.
            raised = []
            opts.stops = _lib.stop(raised=raised)
            opts.stop = opts.stops.fn
            _lib.unbroken(call, raised)
        else:
            call()
    except BaseException:
        _lib.Handle(raw, keeps=[opts]).close()
        raise
    return Image(raw, device, opts)
