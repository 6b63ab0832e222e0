# SPDX-License-Identifier: Apache-2.0
"""Stores, which keep images."""
import collections
import contextlib
import ctypes
import os

from . import _lib, _log, _progress
from ._lib import lib, libc, STORE

_CREATE, _READONLY, _GROUP = 1, 2, 4
_EXPORT_PLAIN, _EXPORT_NO_REFS, _EXPORT_ALL = 1, 2, 4
_IMPORT_DRY_RUN, _IMPORT_NO_REFS = 1, 2
_REGISTRY_NO_REFS, _REGISTRY_PRIVATE, _REGISTRY_PLAIN_HTTP = 1, 2, 4
_EVICT_DRY_RUN = _GC_DRY_RUN = 1
_EXECUTABLE = 1
_PHASES = ("mark", "list", "sweep")
_KINDS = ("chunk", "kernel", "graph", "manifest")


class Requirements(_lib.Record):
    """What a load needs: the fields of fdry_requirements.

    externals: {name: bytes} of external tensors; capacities: {name: bytes} that they may have at
    most.
    """

    def __init__(self, raw):
        for name, _ in _lib.Requirements._fields_:
            if not name.endswith("externals"):
                setattr(self, name, getattr(raw, name))
        self.externals = {_lib.foreign(e.name): e.bytes for e in raw.externals[:raw.nexternals]}
        self.capacities = {_lib.foreign(e.name): e.max_bytes
                           for e in raw.externals[:raw.nexternals]}


class Pack(_lib.Record):
    """What was exported or imported: the fields of fdry_pack_report, id as text; `images` of an
    import.
    """

    def __init__(self, raw, images):
        for name, _ in _lib.PackReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.id = raw.id.decode()
        self.images = images


def optional_name(path):
    """A path for the library, or None."""
    return None if path is None else _lib.file_name(path)


class Transfer(_lib.Record):
    """What was pushed or pulled: the fields of fdry_registry_report, id as text; `images` as of an
    import, or the number of images that were pushed.
    """

    def __init__(self, raw, images=None):
        for name, _ in _lib.RegistryReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.id = raw.id.decode()
        if images is not None:
            self.images = images


class Progress(_lib.Record):
    """How far a push or pull is: the fields of fdry_registry_progress. left_s is None until it is
    known.
    """

    def __init__(self, raw):
        for name, _ in _lib.RegistryProgress._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.left_s = raw.left_s if raw.left_s >= 0 else None


class Eviction(_lib.Record):
    """The report of an eviction: the fields of fdry_evict_report.

    images: [(ref, id, seconds since 1970 of the last use, or 0 if unknown)], the oldest use first.
    collected: True or False.
    """

    def __init__(self, raw, images):
        for name, _ in _lib.EvictReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.images = images
        self.collected = bool(raw.collected)


class Collection(_lib.Record):
    """The report of a collection: the fields of fdry_gc_report.

    stopped: True or False. by_kind: {kind: (number of removed objects, their stored bytes)} for
    "chunk", "kernel", "graph" and "manifest".
    """

    def __init__(self, raw):
        for name, _ in _lib.GcReport._fields_[1:]:
            setattr(self, name, getattr(raw, name))
        self.stopped = bool(raw.stopped)
        self.by_kind = {name: (kind.dead, kind.stored)
                        for name, kind in zip(_KINDS, raw.by_kind[1:])}


def bytes_callback(progress, what):
    """A Callback for progress(done, total). what: of the work, for a bar."""
    progress, ends = _progress.opened(progress, what)
    return _lib.Callback(_lib.BYTES_FN, progress and (lambda _, done, total: progress(done, total)),
                         ends=ends)


def _imported_callback(images):
    """A Callback that appends a tuple to `images` for each image that is read."""
    return _lib.Callback(_lib.IMPORTED_FN, lambda _, *words: images.append(
        tuple(word.decode() if word else None for word in words)))


def watch_callback(watch):
    """A Callback for watch(Progress)."""
    return _lib.Callback(_lib.WATCH_FN, watch and (lambda _, raw: watch(Progress(raw.contents))))


@contextlib.contextmanager
def replacing(path):
    """A binary file to write; it replaces `path` at the end of the with block, unless the block
    raises.
    """
    path = os.path.realpath(os.fsdecode(path))
    name = None
    try:
        # an unnamed file, if /proc lets us name it at the end: so a killed process leaves nothing
        # behind
        try:
            os.stat("/proc/self/fd")
            handle = _opener(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR, 0o666)
        except OSError:
            name = _beside(path)
            handle = _opener(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb", buffering=0) as f:
            yield f
            os.fsync(handle)
            if name is None:
                name = _beside(path)
                os.link(f"/proc/self/fd/{handle}", name, src_dir_fd=handle, follow_symlinks=True)
        os.replace(name, path)
    except BaseException:
        if name is not None and os.path.exists(name):
            os.unlink(name)
        raise


def _beside(path):
    return os.path.join(os.path.dirname(path), f".foundry-{os.urandom(8).hex()}")


def _opener(path, flags, mode=0o666):
    """os.open(), but never with descriptor 0, 1 or 2.

    A process may have closed these; the file would then receive what the process prints.
    """
    low = []
    try:
        handle = os.open(path, flags | os.O_CLOEXEC, mode)
        while handle <= 2:
            low.append(handle)
            handle = os.dup(handle)
        return handle
    finally:
        for handle in low:
            os.close(handle)


@contextlib.contextmanager
def _output(file):
    """A descriptor to write to."""
    if not isinstance(file, (str, bytes, os.PathLike)):
        yield _lib.descriptor(file)
    elif os.path.exists(file) and not os.path.isfile(file):  # such as a pipe or a device
        with open(file, "wb", buffering=0, opener=_opener) as f:
            yield f.fileno()
    else:
        with replacing(file) as f:
            yield f.fileno()


@contextlib.contextmanager
def _input(file):
    if isinstance(file, (str, bytes, os.PathLike)):
        with open(file, "rb", buffering=0, opener=_opener) as f:
            yield f.fileno()
    else:
        yield _lib.descriptor(file)


class File(collections.namedtuple("File", "name data executable", defaults=(False,))):
    """A file that an image carries. name: parts between slashes; data: bytes."""

    __slots__ = ()


class Ref(collections.namedtuple("Ref", "name id used pinned")):
    """An image under a name, as Store.refs() lists it.

    name: the ref. id: of the image, 64 digits. used: when it was last loaded or sealed, in seconds
    since 1970, or 0 if that is not known. pinned: whether it is never evicted.
    """

    __slots__ = ()


class StoredImage:
    """An image in a store, which is not loaded.

    store: the Store. id: 64 digits. refs: its names, a list of str. used: when it was last loaded
    or sealed, in seconds since 1970, or 0 if that is not known. pinned: whether one of its names
    is pinned.
    """

    def __init__(self, store, refs):
        self.store, self.id, self.refs = store, refs[0].id, [ref.name for ref in refs]
        self.used, self.pinned = refs[0].used, any(ref.pinned for ref in refs)

    def __repr__(self):
        return f"<StoredImage {self.id[:12]}: {', '.join(self.refs)}>"

    def _repr_html_(self):
        from . import _show
        return _show.mapping(repr(self).strip("<>"), self.facts)

    @property
    def facts(self):
        """{key: value} of the facts that the image states."""
        return self.store.facts(self.id)

    @property
    def requirements(self):
        """What a load needs, as Requirements."""
        return self.store.requirements(self.id)

    def describe(self):
        """A text about the image, as Store.describe() returns it."""
        return self.store.describe(self.id)

    def load(self, **options):
        """Load the image; the options are those of load(). Returns an Image."""
        from .image import load
        return load(self.id, store=self.store, **options)


class Store(_lib.Closing):
    """A store: a directory that every process of a host may share.

    Any thread may use it; a forked child opens its own. It is closed by a with block, by close() or
    with its last reference; images that were loaded from it stay.

    path: the directory; None: FOUNDRY_STORE, else $XDG_CACHE_HOME/foundry/store, else
    ~/.cache/foundry/store. create: create it if it does not exist. readonly: never write. group:
    with create, give all of the directory's group access, not its owner alone.

    If the store's files are removed or replaced (by a restored backup), later calls raise Error
    STALE and change nothing: close the Store and open it again.
    """

    def __init__(self, path=None, create=False, readonly=False, group=False):
        flags = (_CREATE if create else 0) | (_READONLY if readonly else 0) | (_GROUP if group
                                                                               else 0)
        raw = STORE()
        _log.follow()
        lib.fdry_store_open(_lib.file_name(path) if path is not None else None, flags,
                            ctypes.byref(raw))
        self._handle = _lib.Handle(raw)
        self._shown = f" {os.fsdecode(path)!r}" if path is not None else ", the default one"

    def describe(self, name):
        """A text about the image `name` (a ref, an id or a prefix of one).

        It shows identity, memory, tensors, graphs and kernels.
        """
        text = ctypes.c_void_p()
        lib.fdry_image_describe(self._handle, _lib.text(name), ctypes.byref(text))
        try:
            return ctypes.string_at(text).decode()
        finally:
            libc.free(text)

    def refs(self):
        """The images that refs name, as a list of Ref: by name, and the newest of a name first."""
        found = []
        each = _lib.Callback(_lib.REF_FN, lambda _, raw: found.append(
            Ref(raw.contents.name.decode(), raw.contents.id.decode(), raw.contents.used,
                bool(raw.contents.pinned))))
        with each:
            lib.fdry_store_refs(self._handle, each.fn, None)
        return found

    def images(self):
        """The images that refs name, as a list of StoredImage, each once, in the order of refs().
        """
        found = {}
        for ref in self.refs():
            found.setdefault(ref.id, []).append(ref)
        return [StoredImage(self, refs) for refs in found.values()]

    def _repr_html_(self):
        from . import _show
        return _show.store(self)

    def remove(self, ref):
        """Remove `ref` with all of its images, or one of them (REF:DIGITS).

        The next gc() frees the space of images that no other ref reaches; loaded ones stay.
        """
        lib.fdry_store_remove(self._handle, _lib.text(ref))

    def facts(self, name):
        """{key: value} of the facts of the image `name` (a ref, an id or a prefix of one).

        Of a ref with several images, it is the image that was set last.
        """
        found = {}

        def each(_, fact):
            found[_lib.foreign(fact.contents.key)] = _lib.foreign(fact.contents.value)
        callback = _lib.Callback(_lib.FACT_FN, each)
        with callback:
            lib.fdry_image_facts(self._handle, _lib.text(name), callback.fn, None)
        return found

    def requirements(self, name, externals=None):
        """What a load of the image `name` needs, as Requirements. Uses neither a GPU nor a driver.

        externals: as for load().
        """
        sizes = [_lib.External(_lib.text(key), size) for key, size in _lib.pairs(externals)]
        opts = _lib.LoadOpts(sz=ctypes.sizeof(_lib.LoadOpts),
                             externals=(_lib.External * len(sizes))(*sizes), nexternals=len(sizes))
        raw = ctypes.POINTER(_lib.Requirements)()
        lib.fdry_image_requirements(self._handle, _lib.text(name), ctypes.byref(opts),
                                    ctypes.byref(raw))
        try:
            return Requirements(raw.contents)
        finally:
            libc.free(raw)

    def export(self, names, file, plain=False, refs=True, progress=None, threads=0):
        """Write images, with all objects that they need, as one pack. Returns a Pack.

        names: refs, ids or prefixes of ids; None: every image that has a ref. file: a path, a
        descriptor, or an object with fileno(), such as a pipe. A file at a path does not change if
        the export fails. plain: do not compress. refs: write the refs of the images, too. progress:
        True: a bar on standard error; tqdm's class, or an object of it: that bar; or a function
        that is called with (bytes done, bytes in all).
        """
        every = names is None
        names = [names] if isinstance(names, str) else list(names or ())
        callback = bytes_callback(progress, "exporting")
        flags = ((_EXPORT_PLAIN if plain else 0) | (0 if refs else _EXPORT_NO_REFS)
                 | (_EXPORT_ALL if every else 0))
        opts = _lib.ExportOpts(sz=ctypes.sizeof(_lib.ExportOpts), flags=flags, threads=threads,
                               progress=callback.fn)
        texts = (ctypes.c_char_p * len(names))(*[_lib.text(name) for name in names])
        report = _lib.PackReport(sz=ctypes.sizeof(_lib.PackReport))
        with _output(file) as fd, callback:
            lib.fdry_store_export(self._handle, texts, len(names), fd, ctypes.byref(opts),
                                  ctypes.byref(report))
        return Pack(report, [])

    def import_(self, file, dry_run=False, refs=True, progress=None, threads=0):
        """Read the images of a pack that the store does not have. Returns a Pack.

        file: as for export(). dry_run: read and check, write nothing. refs: set the pack's refs.
        The Pack's `images` are (id, ref or None, id of the image that had the ref before, or None).
        """
        images = []
        found = _imported_callback(images)
        callback = bytes_callback(progress, "importing")
        flags = (_IMPORT_DRY_RUN if dry_run else 0) | (0 if refs else _IMPORT_NO_REFS)
        opts = _lib.ImportOpts(sz=ctypes.sizeof(_lib.ImportOpts), flags=flags, threads=threads,
                               progress=callback.fn, image=found.fn)
        report = _lib.PackReport(sz=ctypes.sizeof(_lib.PackReport))
        with _input(file) as fd, callback, found:
            lib.fdry_store_import(self._handle, fd, ctypes.byref(opts), ctypes.byref(report))
        return Pack(report, images)

    def attach(self, name, files):
        """Add files to the image `name`, and return the id of the image that has them.

        files: of File, with different names. An image never changes, so this is another image. If
        `name` is a ref or REF:DIGITS, the new image replaces the other one there. If the image has
        files already, it keeps them, but for those whose name one of `files` has. Loads ignore
        files.
        """
        files = list(files)
        raw = (_lib.File * len(files))(*(
            _lib.File(_lib.text(f.name), ctypes.cast(ctypes.c_char_p(f.data), ctypes.c_void_p),
                      len(f.data), _EXECUTABLE if f.executable else 0) for f in files))
        ident = ctypes.create_string_buffer(_lib.ID_SIZE)
        lib.fdry_image_attach(self._handle, _lib.text(name), raw, len(files), ident)
        return ident.value.decode()

    def files(self, name, wanted=None):
        """Return the files that the image `name` carries, by ascending name, as a list of File.

        wanted: a set of names; None: all. The bytes are verified. Trust the image before you use
        them: a kernel is code.
        """
        found = []

        def each(_, file):
            file = file.contents
            if wanted is None or _lib.foreign(file.name) in wanted:
                found.append(File(_lib.foreign(file.name), ctypes.string_at(file.data, file.len),
                                  bool(file.flags & _EXECUTABLE)))
            return 0
        callback = _lib.Callback(_lib.FILE_FN, each, failed=-1)
        with callback:
            lib.fdry_image_files(self._handle, _lib.text(name), callback.fn, None)
        return found

    def push(self, names, registry=None, private=False, mounts=(), refs=True, plain_http=False,
             progress=None, requests=0, sign_key=None, watch=None):
        """Send images to a container registry. Returns a Transfer.

        names: refs, ids or prefixes of ids. registry: "oci://HOST[:PORT]/REPOSITORY[:TAG]";
        None: the repository of FOUNDRY_REGISTRY, where loads look for the one image by its name.
        private: also files, and content that was not declared constant. mounts: repositories of the
        registry that may have the objects. refs: the names of the images, too. plain_http: HTTP
        without TLS.
        progress: as for export(). requests: how many at a time; 0: 16. sign_key: the path of a
        private key that signs the images; None: that of FOUNDRY_SIGN_KEY. watch: a function that is
        called meanwhile with a Progress, which has the rate and the time left. What progress() or
        watch() raises stops the transfer, and so does Ctrl-C; another call goes on from there.
        """
        names = [names] if isinstance(names, str) else list(names)
        mounts = list(mounts)
        callback, watching = bytes_callback(progress, "pushing"), watch_callback(watch)
        stop = _lib.stop(callback, watching)
        flags = ((_REGISTRY_PRIVATE if private else 0) | (0 if refs else _REGISTRY_NO_REFS)
                 | (_REGISTRY_PLAIN_HTTP if plain_http else 0))
        repositories = (ctypes.c_char_p * len(mounts))(*[_lib.text(name) for name in mounts])
        opts = _lib.RegistryOpts(sz=ctypes.sizeof(_lib.RegistryOpts), flags=flags,
                                 requests=requests, mounts=repositories, count_mounts=len(mounts),
                                 progress=callback.fn, watch=watching.fn, stop=stop.fn,
                                 sign_key=optional_name(sign_key))
        texts = (ctypes.c_char_p * len(names))(*[_lib.text(name) for name in names])
        report = _lib.RegistryReport(sz=ctypes.sizeof(_lib.RegistryReport))
        with callback, watching, stop:
            lib.fdry_store_push(self._handle, texts, len(names),
                                None if registry is None else _lib.text(registry),
                                ctypes.byref(opts), ctypes.byref(report))
        return Transfer(report)

    def sign(self, names, registry=None, sign_key=None, refs=True, plain_http=False):
        """Sign images that were pushed to a container registry. Returns a Transfer.

        The registry must have exactly these images under that name, as push() sent them. sign_key:
        the path of a private key; None: that of FOUNDRY_SIGN_KEY. The rest: as for push().
        """
        names = [names] if isinstance(names, str) else list(names)
        flags = (0 if refs else _REGISTRY_NO_REFS) | (_REGISTRY_PLAIN_HTTP if plain_http else 0)
        opts = _lib.RegistryOpts(sz=ctypes.sizeof(_lib.RegistryOpts), flags=flags,
                                 sign_key=optional_name(sign_key))
        texts = (ctypes.c_char_p * len(names))(*[_lib.text(name) for name in names])
        report = _lib.RegistryReport(sz=ctypes.sizeof(_lib.RegistryReport))
        lib.fdry_store_sign(self._handle, texts, len(names),
                            None if registry is None else _lib.text(registry), ctypes.byref(opts),
                            ctypes.byref(report))
        return Transfer(report)

    def pull(self, registry=None, ref=None, refs=True, plain_http=False, progress=None, requests=0,
             policy=None, watch=None):
        """Fetch the images of "oci://HOST[:PORT]/REPOSITORY[:TAG]", or with "@sha256:DIGEST".
        Returns a Transfer, whose `images` are those of import_().

        registry: None: the repository of FOUNDRY_REGISTRY, and there what push() has sent as `ref`.
        ref: the name for them; None: the names that they were pushed with. refs: without a ref, set
        those names. plain_http, progress, requests, watch: as for push(). policy: the path of a
        file that says which keys must have signed the images; None: that of FOUNDRY_POLICY.
        """
        images = []
        found = _imported_callback(images)
        callback, watching = bytes_callback(progress, "pulling"), watch_callback(watch)
        stop = _lib.stop(callback, watching)
        flags = ((0 if refs else _REGISTRY_NO_REFS)
                 | (_REGISTRY_PLAIN_HTTP if plain_http else 0))
        opts = _lib.RegistryOpts(sz=ctypes.sizeof(_lib.RegistryOpts), flags=flags,
                                 requests=requests, ref=None if ref is None else _lib.text(ref),
                                 progress=callback.fn, watch=watching.fn, image=found.fn,
                                 policy=optional_name(policy), stop=stop.fn)
        report = _lib.RegistryReport(sz=ctypes.sizeof(_lib.RegistryReport))
        with callback, watching, found, stop:
            lib.fdry_store_pull(self._handle, None if registry is None else _lib.text(registry),
                                ctypes.byref(opts), ctypes.byref(report))
        return Transfer(report, images)

    def tag(self, image, ref):
        """Set `ref` to an image as well: a ref (all its images), REF:DIGITS, an id or a prefix of
        one.
        """
        lib.fdry_image_tag(self._handle, _lib.text(image), _lib.text(ref))

    def pin(self, name):
        """Protect all images of the ref `name`, or one of them (REF:DIGITS), from eviction."""
        lib.fdry_store_pin(self._handle, _lib.text(name))

    def unpin(self, name):
        """End the protection of pin()."""
        lib.fdry_store_unpin(self._handle, _lib.text(name))

    @property
    def limit(self):
        """The bytes that the store may use; 0: no limit.

        This is FOUNDRY_STORE_LIMIT if it is set, else the store's own limit. Setting the property
        sets the store's own; nothing is evicted before the next seal, import or evict().
        """
        limit = ctypes.c_uint64()
        lib.fdry_store_limit(self._handle, ctypes.byref(limit), None)
        return limit.value

    @limit.setter
    def limit(self, limit):
        lib.fdry_store_set_limit(self._handle, limit)

    @property
    def used(self):
        """The bytes that the store's tables use."""
        used = ctypes.c_uint64()
        lib.fdry_store_limit(self._handle, None, ctypes.byref(used))
        return used.value

    def evict(self, size=0, dry_run=False):
        """Remove the refs with the oldest last use, and the objects that only these refs reach.

        It stops when the store fits into `size` bytes (0: its limit). Pinned images stay. dry_run:
        report what it would remove. Returns an Eviction. An exception, also KeyboardInterrupt, has
        an attribute `eviction`: what was removed until then.
        """
        images = []
        callback = _lib.Callback(_lib.EVICT_FN, lambda _, ref, name, used: images.append(
            (ref.decode(), name.decode(), used)))
        opts = _lib.EvictOpts(sz=ctypes.sizeof(_lib.EvictOpts),
                              flags=_EVICT_DRY_RUN if dry_run else 0, bytes=size,
                              evicted=callback.fn)
        info = _lib.EvictReport(sz=ctypes.sizeof(_lib.EvictReport))

        def evict():
            with callback:
                lib.fdry_store_evict(self._handle, ctypes.byref(opts), ctypes.byref(info))
        try:
            _lib.unbroken(evict)
        except BaseException as e:
            e.eviction = Eviction(info, images)
            raise
        return Eviction(info, images)

    def gc(self, dry_run=False, progress=None):
        """Remove the objects that no ref and no session reaches. Returns a Collection.

        dry_run: report what it would remove. progress: True: a bar on standard error; tqdm's class,
        or an object of it: that bar; or a function that is called with (phase, done, total), which
        count objects. Phases are "mark", "list" and "sweep". If it returns a true
        value, the collection stops.
        """
        progress, ends = _progress.opened(progress, "collecting", _PHASES, "objects")
        callback = _lib.Callback(_lib.GC_FN, progress and (
            lambda _, phase, done, total: int(bool(progress(_PHASES[phase], done, total)))),
                                 failed=1, ends=ends)
        opts = _lib.GcOpts(sz=ctypes.sizeof(_lib.GcOpts), flags=_GC_DRY_RUN if dry_run else 0,
                           progress=callback.fn)
        report = _lib.GcReport(sz=ctypes.sizeof(_lib.GcReport))
        with callback:
            lib.fdry_store_gc(self._handle, ctypes.byref(opts), ctypes.byref(report))
        return Collection(report)

    def close(self):
        """Close the handle; a second call does nothing.

        Loaded images stay, and so does a Kernels that keeps code there. If calls are under way,
        close() returns at once, and the handle is closed after them.
        """
        super().close()


def as_store(store):
    """The Store itself; a path or None is opened."""
    return store if isinstance(store, Store) else Store(store)
