# SPDX-License-Identifier: Apache-2.0
"""One start of an engine on one GPU: a region for its memory, and an image if there is one.

Memory that the engine allocates in the region belongs to the process in every start. The aside area
has all memory that profiling, warming up and capturing leave; the image provides its content. A
plug-in subclasses Session and calls its methods from the engine's phases.
"""
import contextlib
import functools
import gc
import importlib
import itertools
import json
import os
import secrets
import time
import traceback

import torch

from .. import _torch
from .._lib import Error
from ..capture import Capture, base_for_name
from ..errors import NotFoundError
from ..image import load
from ..store import Store
from ..settings import check_variables
from . import (ahead, area, attach, caches, facts, graphs, jit, log, made, numbers, outputs,
               registry, watch)
from .ranks import DIFFERENT, Ranks

SIZE = 1 << 39   # addresses of the region,
ASIDE = 1 << 39  # and of its aside area
INTERPRETER = 1000  # frozen objects that Python may have itself: 3.12 begins with 375
NUMBERS = "numbers.packed"  # a text of images
YOUNG, OLD = 16, 512  # parameters after which garbage of Python's generations 1 and 2 is collected
PART = 4000      # characters of a fact that continues in the next one
DIGITS = 32      # of an image's id, which select it among those of a name


class Unfit(Exception):
    """A reason to start as the engine does without Foundry."""


class Strict(RuntimeError):
    """Ends a strict start that cannot use its image."""


def check_source(plug_in, engine, part, name):
    """Return whether the code of the engine that is wrapped or left out was run with images.

    Raise Unfit if it is not known, or if it was never run and the operator does not allow that.

    plug_in: its module of facts, with source(), SOURCES and COMPARED. engine: its package. part,
    name: for messages.
    """
    try:
        known = facts.known(plug_in)
    except (ImportError, AttributeError, OSError, TypeError, ValueError):
        known = None
    version, run = importlib.import_module(engine).__version__, ", ".join(plug_in.SOURCES)
    if known is None:
        raise Unfit(f"the {part} of this {name} ({version}) differs from that of the versions that "
                    f"images support ({', '.join((*plug_in.SOURCES, *plug_in.COMPARED))})")
    if known == facts.RUN:
        return True
    check_allowed(f"FOUNDRY_{engine.upper()}_COMPARED", f"{name} {version} was compared with "
                  f"{run}, but its tests with images were not run on a GPU")
    return False


def check_allowed(variable, what):
    """Write the warning `what` about a start that was not run, or raise Unfit with it: images are
    used only if the operator has set the variable, and compares the answers.
    """
    check_variables(variable)
    if os.environ.get(variable) != "1":
        raise Unfit(f"{what} (set {variable}=1 to use images nevertheless)")
    log.warning("Foundry: %s", what)


def check_name(store, ref):
    """Raise Error if `ref` cannot be the name of an image. The store compares the name before it
    looks for the image, and has none with this id.
    """
    with contextlib.suppress(NotFoundError):
        store.tag("0" * 64, ref)


def check_configuration(*settings):
    """Raise Unfit for the first of (wrong, what) that is wrong."""
    for wrong, what in settings:
        if wrong:
            raise Unfit(f"images do not support {what} yet")


def _shown(tensor):
    """Return a tensor's type, shape, address and storage, for the log."""
    return (f"{tensor.dtype} {list(tensor.shape)} at {tensor.data_ptr():#x}, in "
            f"{tensor.untyped_storage().data_ptr():#x}")


@contextlib.contextmanager
def _collecting_by_parameters():
    """Inside the with block, Python collects when modules get parameters, and not by itself."""
    count = itertools.count(1)

    def collect(_module, _name, _parameter):
        number = next(count)
        gc.collect(2 if number % OLD == 0 else 1 if number % YOUNG == 0 else 0)
    with contextlib.ExitStack() as undo:
        hook = torch.nn.modules.module.register_module_parameter_registration_hook(collect)
        undo.callback(hook.remove)
        if gc.isenabled():
            gc.disable()
            undo.callback(gc.enable)
        yield


class Session:
    """One start of one worker.

    mode: "plain" (Foundry does nothing), "capture" or "load". why: the reason for the mode.
    ref: the name of the image. chosen: of the images with this name, the one to load. prefix: of
    the facts. packages: of the engine's objects that are searched for tensors, each with a dot at
    its end. ranks: those of the engine.
    """

    deciding = ()  # names of the phases in which the ranks decide together
    settings = ()  # packages whose objects have settings, which are facts, and no numbers of models

    def __init__(self, variable, prefix, packages, ranks=Ranks(0, 1, None)):
        self.variable, self.prefix, self.packages = variable, prefix, packages
        self.mode, self.why = "capture", ""
        for name in (f"{variable}_STRICT", f"{variable}_CACHES"):
            check_variables(name)
        self.strict = os.environ.get(f"{variable}_STRICT") == "1"
        self.ref, self.chosen = os.environ[variable], None
        self.unfetched = ""  # or a part of a sentence: why the registry has given none
        self.seconds = {}
        self.image = self.sealed = self.capture = self.store = None
        self.watch, self.carried, self.files, self.places = None, None, "", {}
        self.modules = {}  # of FlashInfer, that the image carries
        self.named = None  # the id of the image with its files
        self.more = ""  # for the line in the log
        self.also = ()  # files of caches that count as read
        self.placed = contextlib.ExitStack()
        # A process that has used the GPU may have garbage there, which a collection frees.
        self.freezable = not torch.cuda.is_initialized() and gc.get_freeze_count() < INTERPRETER
        self.frozen = False
        self.facts, self.found, self.tensors, self.ahead = {}, {}, None, None
        self.made = None  # what loading the model has made
        self.numbers = {}  # of the model, as numbers.of() returned them
        self.ranks = ranks
        self.start = prefix + "start"  # a fact, the same in all images that were sealed together
        self.together = True   # all ranks may load
        self.connects = False  # the ranks make all communicators in the first phase

    def refuse(self, why):
        """Note why the image is not used. Raises an error if the start is strict."""
        if isinstance(why, Strict):
            raise why
        self.why = str(why) or repr(why)
        if self.strict:
            raise Strict(f"{self.variable}_STRICT is set, and the start cannot use the image "
                         f"'{self.ref}': {self.why}")

    def weights_missing(self, why):
        """Note that the engine's loader has to fill the model. Raises an error if the start is
        strict.
        """
        if self.strict:
            raise Strict(f"{self.variable}_STRICT is set, and the start cannot use the weights of "
                         f"an image: {why}")

    def turn(self, why):
        """Capture in place of the load that was begun."""
        self.mode, self.files = "capture", ""
        self.unfreeze()
        if self.places and not self.watch:
            self.begin_watch()
        self.refuse(why)

    def give_up(self, e):
        """Start as the engine does without Foundry, because of an exception."""
        self.log_bug(e)
        self.mode = "plain"
        self.unfreeze()
        if self.watch:
            self.watch.end()
        if self.capture:
            self.capture.pause()
        self.refuse(e)

    @staticmethod
    def log_bug(e):
        """Log the origin of an exception that no check of Foundry has raised."""
        if not isinstance(e, (Error, Unfit, Strict)):
            log.warning("Foundry: %s", traceback.format_exc())

    def freeze(self):
        """Exclude the objects that exist now, before the GPU is used, from Python's collections.

        Engines collect garbage several times while they start. Each time Python searches all
        objects that imports have made, which takes 0.3 s.
        """
        if self.freezable:
            gc.freeze()
            self.frozen = True

    def unfreeze(self):
        """Include the objects that freeze() has excluded."""
        if self.frozen:
            gc.unfreeze()
            self.frozen = False

    def timed(self, name, function, *args, **kwargs):
        """Call a function and note its seconds."""
        start = time.monotonic()
        try:
            return function(*args, **kwargs)
        finally:
            self.seconds[name] = time.monotonic() - start

    @contextlib.contextmanager
    def placing(self):
        """Inside the with block, where a model is loaded, tensors lie where they do in other
        starts, also if this one compiles what others find in caches.

        Python's automatic collection runs after some number of new objects, and a start that
        compiles makes more of them. So garbage that holds tensors would be freed at other times.
        Here it is freed when modules get parameters, and at the end. A start that compiles also
        measures kernels: see Measurements.
        """
        if self.mode == "plain":
            yield
            return
        with contextlib.ExitStack() as undo:
            try:
                undo.callback(gc.collect)
                undo.enter_context(_collecting_by_parameters())
                undo.enter_context(area.Measurements(self.capture, self.ordinal))
            except Exception as e:  # the engine must start, also if Foundry fails
                log.debug("Foundry: tensors may lie elsewhere in other starts, because %s", e)
            yield

    @staticmethod
    def tidy():
        """Free torch's cached segments, at the same points of every start."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    # --- ranks ---

    def join(self):
        """Begin to decide with the other ranks, if there are several. Each has its own image."""
        self.connects = self.ranks.count > 1
        if self.connects:
            self.ref += f".rank{self.ranks.rank}"

    def decide(self, failed):
        """Decide with the other ranks whether all load. Returns None, or why this one does not.

        failed: the reason of this rank, or None.
        """
        failed = self.ranks.agree(failed, self.found.get(self.start))
        if failed is DIFFERENT and not self.image:
            failed = self.match()
        self.together = failed is None
        if failed is not None and self.ranks.count > 1:
            self.facts[self.start] = self.ranks.first(secrets.token_hex(8))
        return failed

    def match(self):
        """Choose the newest images that were sealed in one start, if the store or the registry has
        such. All ranks call this, or none. Returns None, or DIFFERENT if there are none.
        """
        start, fitting = self.common()
        if start is None and registry.name():
            self.fetch()
            start, fitting = self.common()
        if start is None:
            return DIFFERENT
        self.chosen, self.found = fitting[start]
        return None

    def common(self):
        """Return the start of the newest images that fit and that all ranks have, or None, and
        {start: (image, facts)} of this rank's. All ranks call this, or none.
        """
        fitting = {}
        try:
            for chosen, found, difference in self.candidates(self.wanted()):
                if difference is None:
                    fitting.setdefault(found.get(self.start), (chosen, found))
        except Exception as e:  # the other ranks wait for this one
            self.log_bug(e)
        return self.ranks.common(list(fitting)), fitting

    def take_part(self, phase):
        """Let the other ranks know that this one loads no image, if they decide in this phase."""
        if self.connects and self.together and phase in self.deciding:
            self.decide(self.why)

    def check_ranks(self):
        """Raise Unfit if the image would have the state of NCCL.

        NCCL maps its memory (cuMemMap), and shares some with other ranks. The region has such
        memory, since the ranks are connected. If the aside area has some that is not torch's, NCCL
        has allocated during the warm-up.
        """
        if self.ranks.count == 1:
            return
        start = self.base + SIZE
        known = {each.addr for each in _torch.segments(self.ordinal)}
        found = [(addr, size, self.capture.origin(addr)) for addr, size in self.capture.allocs()
                 if addr not in known]
        if all(addr >= start or origin == "region" for addr, _, origin in found):
            raise Unfit("NCCL does not map its memory, so it cannot be distinguished")
        aside = [size for addr, size, origin in found if addr >= start and origin != "region"]
        if aside:
            raise Unfit(f"NCCL has allocated {sum(aside)} bytes while the engine warmed up")

    # --- begin ---

    def begin(self, ordinal, early, places):
        """Begin the region, and look for an image.

        early: the facts known now. places: a function that returns {name: folder} of the engine's
        caches.
        """
        self.ordinal, self.facts = ordinal, early
        self.store = Store(create=True)
        check_name(self.store, self.ref)
        text, difference = self.look(early)
        if difference:
            self.refuse(difference)
        else:
            self.mode = "load"
            self.freeze()
            log.debug("Foundry: found '%s' in the store", self.chosen)
            self.ahead = ahead.begin(*self.steps_ahead())
        self.base = base_for_name(self.ref)
        torch.cuda.empty_cache()
        self.capture = Capture(base=self.base, size=SIZE, aside=ASIDE, device=ordinal)
        self.begin_caches(text, places)

    def steps_ahead(self):
        """Return what a thread does while the model is loaded, as functions."""
        major, minor = torch.cuda.get_device_capability(self.ordinal)
        return [functools.partial(ahead.triton, 10 * major + minor)]

    def wait_ahead(self):
        """Wait for the thread of steps_ahead(), which usually has ended."""
        if self.ahead.is_alive():
            self.timed("wait for hashes", self.ahead.join)

    def look(self, wanted):
        """Choose the image in the store; if none fits, fetch those of the registry, and choose
        again. Returns what choose() returns.
        """
        text, difference = self.choose(wanted)
        if difference is None or not registry.name():
            return text, difference
        self.fetch()
        text, difference = self.choose(wanted)
        return text, difference and difference + self.unfetched

    def fetch(self):
        """Fetch the images of the name that the registry has. Notes why that failed."""
        self.unfetched = ""
        start = time.monotonic()
        try:
            registry.fetch(self.store, self.ref)
        except Exception as e:  # the engine starts nevertheless
            self.log_bug(e)
            self.unfetched = f", and none was fetched, because {e}"
        finally:
            self.seconds["fetch"] = self.seconds.get("fetch", 0) + time.monotonic() - start

    def choose(self, wanted):
        """Choose the newest of the name's images that states the facts `wanted`. Returns its
        description and None; or "" and why the newest one does not, or why there is none.
        """
        why = None
        try:
            for chosen, found, difference in self.candidates(wanted):
                if difference is None:
                    try:
                        text = self.store.describe(chosen)
                        self.chosen, self.found = chosen, found
                        return text, None
                    except Error as e:  # it was removed meanwhile
                        difference = str(e)
                why = why or difference
            if why is None:
                self.store.describe(self.ref)  # its error names refs that are alike
                why = f"there is no ref '{self.ref}' in the store"  # but such an id
        except Error as e:
            why = why or str(e)
        return "", why

    def wanted(self):
        """Return the facts that an image must state to be used in place of the one chosen first.

        What was checked with that one, such as that its KV cache has a place, holds for another one
        with this size.
        """
        size = self.prefix + "available_bytes"
        return {**self.facts, size: self.found.get(size)}

    def candidates(self, wanted):
        """Yield (NAME:DIGITS, facts, None or why it does not state the facts `wanted`) of each
        image of the name, the newest first.
        """
        for chosen in self.named_images(self.ref):
            found = {}
            try:
                found = facts.beginning(self.store.facts(chosen), self.prefix)
                difference = facts.difference(wanted, found, self.prefix)
            except Error as e:  # it was removed meanwhile, or is damaged
                difference = str(e)
            yield chosen, found, difference

    def named_images(self, ref):
        """Return [NAME:DIGITS] of the images of a name, the newest first."""
        return [f"{each.name}:{each.id[:DIGITS]}" for each in self.store.refs() if each.name == ref]

    def begin_caches(self, text, places):
        """Write the files that the image carries; if it carries none, note which ones are used.

        text: the description of the image.
        """
        start, count = time.monotonic(), 0
        if os.environ.get(f"{self.variable}_CACHES") == "0":
            return
        try:
            self.places = places()
            if self.mode == "load":
                names = caches.names(text)
                count, written = caches.unpack(self.store, self.chosen, self.places, names)
                self.modules = jit.modules(self.store, self.chosen, self.places, names)
                self.files = f"; {count} files for caches, {written} of them were missing"
            if not count:
                self.begin_watch()
        except Exception as e:  # the engine compiles what is missing
            self.log_bug(e)
            log.warning("Foundry: caches are left as they are, because %s", e)
        self.seconds["caches"] = time.monotonic() - start

    def begin_watch(self):
        """Note the files of caches that this start uses."""
        self.watch = watch.Watch(self.places, self.also, self.loaded_files)
        self.carried = caches.Carried(self.watch)

    def use_modules(self):
        """Let FlashInfer load the image's modules. It is imported here if there are any, so this
        comes after the engine has selected its GPU.
        """
        try:
            jit.use(self.modules)
        except Exception as e:  # FlashInfer compiles them
            self.log_bug(e)

    def end_caches(self, late=False):
        """Attach the files that this start used to its image, except those of later requests.
        Return what attach_files() returns.
        """
        try:
            self.watch.stop()
        except Exception as e:  # the image is complete without them
            self.log_bug(e)
            return False
        return self.attach_files(late)

    def follow_caches(self, more):
        """From now on also attach the files that this start uses while the engine serves.

        more: what attach_files() has returned. If that is false, or there is no image, nothing more
        is noted.
        """
        try:
            if not more or not (self.sealed or self.image):
                self.watch.end()
            elif not self.watch.follower:
                watch.follow(self)
        except Exception as e:  # such as too many threads
            self.log_bug(e)
            self.watch.end()

    def loaded_files(self):
        """Return the paths of the files of kernels that the driver has read."""
        try:
            return self.capture.code_files() if self.capture else []
        except Exception as e:  # the image is complete without them
            self.log_bug(e)
            return []

    def attach_files(self, late=False):
        """Attach the files that this start has used until now to its image. A later call adds those
        that have come since. One thread at a time calls this. late: while the engine serves; then
        nothing is attached if the newest image of the name is another start's, which must stay the
        newest. Return whether that succeeded and more can be attached.
        """
        start, image = time.monotonic(), self.sealed or self.image
        try:
            files = self.carried.more() if image else []
            if not files:
                return True
            named = f"{self.ref}:{(self.named or image.id)[:DIGITS]}"
            if late and self.named_images(self.ref)[:1] != [named]:
                log.info("Foundry: files of requests are not attached to '%s' any more, because "
                         "its newest image is another one", self.ref)
                return False
            self.named = self.store.attach(named, files)  # an error if the ref has lost the image
            self.carried.add(files)
            sizes = self.carried.sizes.values()
            self.files = f"; {len(sizes)} files of caches, {sum(sizes) >> 20} MiB"
            if late:
                log.info("Foundry: the image '%s' carries files for caches%s", self.ref, self.files)
            return True
        except Exception as e:  # the image is complete without them
            self.log_bug(e)
            log.warning("Foundry: the image lacks files for caches, because %s", e)
            return False
        finally:
            self.seconds["caches"] += time.monotonic() - start

    def note_model(self, get):
        """Note the tensors and the numbers of a model that was just made. get: returns the model.
        """
        try:
            self.made = made.Made(get, self.ordinal)
            self.numbers = self.find_numbers()
            log.debug("Foundry: numbers of the model: %s", self.numbers)
            self.facts[self.prefix + "numbers"] = numbers.summary(self.numbers)
        except Exception as e:
            self.give_up(e)

    def find_numbers(self):
        """Return the numbers that the model has now."""
        return numbers.of(self.made.model(), self.packages, self.settings)

    def layout(self, model):
        """Return the number of torch's live blocks in the region; a hash of them and of the model's
        tensors; and a hash of all memory of the region, since libraries that graphs use, such as
        NCCL, have some there, too.
        """
        blocks = area.blocks(self.ordinal, self.base, SIZE)
        log.debug("Foundry: torch's blocks in the region: %s", blocks)
        log.debug("Foundry: allocations: %s",
                  [(addr - self.base, size) for addr, size in self.capture.allocs()])
        text = json.dumps([blocks, attach.named(model), self.made.plain])
        own = json.dumps([(addr - self.base, size) for addr, size in self.allocations()])
        return f"{len(blocks)} {facts.hashed(text.encode())} {facts.hashed(own.encode())}"

    # --- a later start ---

    def compare(self, layout):
        """Raise Unfit if the image does not fit what this process has made so far. If an older one
        of the name does, or one that the registry has, that one is chosen.
        """
        name = self.prefix + "layout"
        sealed = self.found.get(name)
        difference = facts.difference(self.facts, self.found, self.prefix, self.which)
        if difference is None and layout == sealed:
            return
        if self.look({**self.wanted(), name: layout})[1] is None:
            log.debug("Foundry: found '%s' in the store, which fits in its place", self.chosen)
            return
        difference = difference or (
            "the tensors of this process lie elsewhere than those of the process that sealed the "
            f"image (blocks and their hash: {layout} here, {sealed} there)")
        raise Unfit(difference + self.unfetched)

    def which(self, key):
        """Return a sentence on the first number that differs, if this is the key of the numbers."""
        if key != "numbers":
            return None
        return numbers.first_difference(self.numbers, self.text(NUMBERS))

    def load(self):
        """Load the image. Its graphs are built in the background."""
        start = time.monotonic()
        self.log_load(self.chosen)
        try:
            self.image = self.load_named(self.chosen)
        except NotFoundError as e:
            # Another start has replaced it, by one with files or by its own. Its objects stay until
            # a collection.
            try:
                self.image = self.load_named(self.chosen.partition(":")[2])
            except Error:
                raise e from None
        self.image.filled()
        if not self.is_found():
            raise Unfit(f"the image '{self.chosen}' states other facts than before")
        self.seconds["load"] = time.monotonic() - start

    def log_load(self, name, stated=None):
        """Log that a load begins, or the fetch that it does first. stated: facts that the image
        must state. If the store has none that does, nothing is logged without a registry.
        """
        ref, _, digits = name.partition(":")
        try:
            if stated:
                name = next(each for each in self.named_images(ref)
                            if stated.items() <= self.store.facts(each).items())
            size = self.store.requirements(name).copied_bytes
        except (Error, StopIteration):
            if registry.name():
                registry.log_fetch(ref)
            return
        log.info("Foundry: loading '%s'%s, content %d MiB", ref,
                 digits and f" ({digits[:12]})", size >> 20)

    def load_named(self, name):
        return load(name, store=self.store, into=self.capture, device=self.ordinal, background=True)

    def written(self):
        """Return the tensors that the image's graphs return, by their numbers."""
        found = {t.name: t for t in self.image.tensors() if t.name.startswith(outputs.OUTPUT)}
        return [_torch.view(found[f"{outputs.OUTPUT}{i}"]) for i in range(len(found))]

    def returned(self):
        """Return {name of a key: what the image states for it, with the image's tensors}."""
        return outputs.restore(self.text("outputs"), self.written(), self.classes())

    def classes(self):
        """Return {name: dataclass} of what graphs return, besides tensors."""
        return {}

    def place(self, roots):
        """Set the image's other tensors at the paths where the first start had them, until drop().
        """
        self.tensors = {t.name: _torch.view(t) for t in self.image.tensors()
                        if not t.external and not t.name.startswith(outputs.OUTPUT)}
        self.placed = attach.place_all(roots, self.tensors)

    def text(self, name):
        """Return a text of the image that add_text() has stated in parts."""
        parts = []
        while f"{self.prefix}{name}.{len(parts)}" in self.found:
            parts.append(self.found[f"{self.prefix}{name}.{len(parts)}"])
        return "".join(parts)

    def is_found(self):
        """Return whether the loaded image states the facts that this start has compared."""
        try:
            return all(self.image.fact(key) == value for key, value in self.found.items())
        except Error:  # it lacks one
            return False

    def drop(self):
        """Unload the image, if it was loaded. Returns whether that succeeded; if not, this start is
        plain.
        """
        try:
            self.placed.close()
            self.tensors = None
            if self.image:
                self.image.close()
        except Exception as e:
            self.give_up(e)
            return False
        self.image = None
        return True

    # --- a first start ---

    def seal(self, captured, returned, roots, omitted=(), known=()):
        """Seal graphs.

        captured: {key: graph}, captured inside graphs.kept(). returned: {key: what the graph
        returns}. roots, omitted: as for attach.find(). known: tensors whose bytes never change.
        """
        start = time.monotonic()
        self.made.end()
        if self.made.changed:
            raise Unfit(self.made.changed)
        self.check_numbers()
        self.check_ranks()
        aside = sum(size for addr, size in self.capture.allocs() if addr >= self.base + SIZE)
        log.info("Foundry: sealing %d graphs as '%s', from %d MiB of memory", len(captured),
                 self.ref, aside >> 20)
        self.tidy()
        area.clear(self.ordinal)
        added = graphs.add(self.capture, captured)
        area.name(self.capture, "region", self.allocations())
        text, written, entire = outputs.describe(
            {graphs.name_of(key): value for key, value in returned.items()}, self.classes())
        for number, tensor in enumerate(written):
            self.capture.tensor(f"{outputs.OUTPUT}{number}", tensor, use="output",
                                external=tensor.data_ptr() < self.base + SIZE)
        self.add_text("outputs", text)
        self.add_text(NUMBERS, numbers.packed(self.numbers))
        self.tensors = self.name_tensors(added.values(), roots, omitted, entire, known)
        for key, value in self.facts.items():
            self.capture.fact(key, value)
        self.seconds["names"] = time.monotonic() - start
        try:
            self.sealed = self.seal_named()
        except NotFoundError:  # a collection has removed the image before it had its name
            self.sealed = self.seal_named()
        self.seconds["seal"] = time.monotonic() - start

    def check_numbers(self):
        """Raise Unfit if the model has got a number since its weights were loaded, which a later
        start would not have.
        """
        name = numbers.made_later(self.numbers, self.find_numbers())
        if name is not None:
            raise Unfit(f"the model's number {numbers.shown(name)} was made after its weights were "
                        "loaded, and a later start omits that")

    def seal_named(self):
        """Seal, and name the image when it was checked."""
        sealed = self.capture.seal(self.store)
        self.check_pinned(sealed.id)
        self.store.tag(sealed.id, self.ref)
        return sealed

    def add_text(self, name, text):
        """State a text as facts, in parts."""
        for number, at in enumerate(range(0, len(text), PART)):
            self.capture.fact(f"{self.prefix}{name}.{number}", text[at:at + PART])

    def not_sealed(self, e):
        """Note that a first start was not sealed. Raises the error again if the start is strict."""
        self.why += f"; not sealed: {e}"
        log.error("Foundry: the start was not sealed:\n%s", traceback.format_exc())
        if self.strict:
            raise e

    def check_pinned(self, image):
        """Raise Unfit if an image holds pinned host memory.

        An engine writes its inputs to such memory. In a later start it writes to memory of its own,
        and graphs would read that of the image.
        """
        if any(line.startswith("pinned ") for line in self.store.describe(image).splitlines()):
            raise Unfit("graphs, or memory that they use, point to pinned host memory")

    def allocations(self):
        """Return [(address, bytes)] of the region, without the aside area."""
        return [each for each in self.capture.allocs() if each[0] < self.base + SIZE]

    def name_tensors(self, numbers, roots, omitted, returned, known):
        """Name the tensors of the aside area, so that a later start can set them at the same paths.

        numbers: of the graphs. returned: tensors that graphs return. Returns {path: tensor}.
        """
        start = self.base + SIZE
        found = attach.find(roots, start, start + ASIDE, self.packages, omitted)
        for path, tensor in found.items():
            log.debug("Foundry: aside: %s %s", path, _shown(tensor))
            self.capture.tensor(path, tensor, use="state")
        placed = [*found.values(), *returned]
        skipped = {id(each) for each in (*placed, *known, *attach.bases(placed))}
        others = [each for each in area.tensors(start, start + ASIDE) if id(each) not in skipped]
        for each in others:
            log.debug("Foundry: aside, no place: %s", _shown(each))
        attach.stale(self.capture, numbers, others, placed)
        return found

    # --- the summary ---

    def summary(self):
        """Write one line to the engine's log."""
        try:
            what = self.outcome()
        except Exception as e:  # the engine must start, also if Foundry fails
            self.log_bug(e)
            what = f"started, but its image cannot be described, because {e}"
        times = ", ".join(f"{name} {value:.2f}" for name, value in self.seconds.items())
        log.info("Foundry: %s; seconds: %s", what, times)

    def outcome(self):
        """Return what the start has done, and why."""
        if self.mode == "load":
            report = self.image.report()
            count = len(self.image.graphs())
            return (f"loaded '{self.ref}' ({self.image.id[:12]}, {count} graphs; "
                    f"content {report.content_bytes >> 20} MiB{self.files}{self.more})")
        if self.sealed:
            return (f"captured and sealed '{self.ref}' ({self.sealed.id[:12]}, "
                    f"{self.sealed.graphs} graphs; content {self.sealed.content_bytes >> 20} MiB, "
                    f"scratch {self.sealed.scratch_bytes >> 20} MiB{self.files}{self.more}), "
                    f"because {self.why}")
        return f"started without an image{self.more}, because {self.why}"
