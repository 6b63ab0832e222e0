# SPDX-License-Identifier: Apache-2.0
"""The phases of a vLLM worker, with a region for its memory, and with an image if there is one.

    phase                           first start                     later starts
    init_device                     begin the region                the same
    load_model                      vLLM's, in the region           the same
    determine_available_memory      vLLM's, aside                   the sealed number; vLLM's
                                                                    compiled code, from its cache
    initialize_from_config          vLLM's, in the region           the same
    compile_or_warm_up_model        vLLM's, aside; capture, seal    load, then warm up

Memory that vLLM allocates in the region belongs to the process in every start. The aside area has
all memory that profiling, warming up and capturing leave; the image provides its content.
"""
import contextlib
import hashlib
import itertools
import json
import os
import re
import threading
import time
import traceback

import torch
from vllm.logger import init_logger

from .. import _torch
from .._lib import Error
from ..capture import Capture, base_for_name
from ..image import load
from ..store import Store
from ..variables import check_variables
from ..engines import ahead, area, attach, caches, graphs, log
from ..engines import facts as common
from . import compiled, facts, pieces, runners, weights
from .folders import folders

logger = init_logger("vllm.foundry")
log.use(logger)

SIZE = 1 << 39        # addresses of the region,
ASIDE = 1 << 39       # and of its aside area
AVAILABLE = facts.PREFIX + "available_bytes"
LAYOUT = facts.PREFIX + "layout"
PIECES = facts.PREFIX + "pieces."  # and a number: a part of what pieces.describe() returned
SHARED = facts.PREFIX + "code.shared"
PART = 4000                        # characters of such a part
MODES = {0: ("FULL", "FULL_DECODE_ONLY"),
         3: ("FULL", "FULL_DECODE_ONLY", "PIECEWISE", "FULL_AND_PIECEWISE")}
PACKAGES = ("vllm.", "torch.nn.")  # whose objects are searched for tensors, except
COMPILED = ("vllm.compilation.",)  # these, which differ between code compiled and code loaded
PHASES = ("init_device", "load_model", "determine_available_memory", "initialize_from_config",
          "compile_or_warm_up_model")


# A phase replaces functions of vLLM and torch for a while. If another thread of the process starts
# an engine, too, that one must not call the replacements.
_PHASE = threading.RLock()


class Unfit(Exception):
    """A reason to start as vLLM does without Foundry."""


def wrap(worker):
    """Wrap the phases of a worker that vLLM has just made."""
    session = Session(worker)
    for name in PHASES:
        if hasattr(worker, name):
            setattr(worker, name, session.wrapped(name, getattr(worker, name)))


class Session:
    """One start of one worker.

    mode: "plain" (Foundry does nothing), "capture" or "load". why: the reason for the mode.
    """

    def __init__(self, worker):
        self.worker, self.mode, self.why = worker, "capture", ""
        for name in ("FOUNDRY_VLLM_STRICT", "FOUNDRY_VLLM_CACHES"):
            check_variables(name)
        self.strict = os.environ.get("FOUNDRY_VLLM_STRICT") == "1"
        self.seconds = {}
        self.image = self.sealed = self.capture = self.store = None
        self.graphs = self.tensors = self.pieces = None
        self.watch, self.files, self.shared = None, "", compiled.Shared()
        self.ahead, self.places, self.omitted = None, {}, False
        self.facts, self.found, self.code = {}, {}, []
        self.size, self.weights = SIZE, ""
        self.ref = os.environ["FOUNDRY_VLLM"]

    def wrapped(self, name, original):
        """Return the phase `name` of the worker for the session's mode, with a timer."""
        own = getattr(self, name, None)

        def phase(*args, **kwargs):
            start = time.monotonic()
            with _PHASE:
                if own is None or self.mode == "plain":
                    done = original(*args, **kwargs)
                else:
                    done = own(original, *args, **kwargs)
            self.seconds[name] = time.monotonic() - start
            if name == PHASES[-1]:
                self.summary()
            return done
        return phase

    def refuse(self, why):
        """Note why the image is not used. Raises an error if the start is strict."""
        self.why = str(why)
        if self.strict:
            raise RuntimeError(f"FOUNDRY_VLLM_STRICT is set, and the start cannot use the image "
                               f"'{self.ref}': {self.why}")

    def give_up(self, why):
        """Start as vLLM does without Foundry from here on, since an exception was raised."""
        self.log_bug(why)
        self.mode = "plain"
        if self.watch:
            self.watch.stop()
        self.watch = None
        self.capture.pause()
        self.refuse(why)

    def turn(self, why):
        """Capture in place of the load that was begun."""
        self.mode, self.files = "capture", ""
        if self.places and not self.watch:
            self.watch = caches.Watch(self.places)
        self.refuse(why)

    # --- phases ---

    def init_device(self, original):
        try:
            self.begin()
        except Exception as e:  # vLLM must start, also if Foundry fails
            self.log_bug(e)
            self.mode = "plain"
            if self.capture:
                self.capture.end()
            self.refuse(e)
        original()

    @staticmethod
    def log_bug(e):
        """Log where an exception comes from that no check of Foundry has raised."""
        if not isinstance(e, (Error, Unfit, weights.Unfit)):
            logger.warning("Foundry: %s", traceback.format_exc())

    def begin(self):
        """Begin the region, and look for an image."""
        worker = self.worker
        self.check_version()
        self.ordinal = worker.local_rank
        asked = self.ref
        self.ref = asked if asked != "1" else "vllm-" + re.sub(
            r"[^A-Za-z0-9._-]", "_", os.path.basename(worker.vllm_config.model_config.model))
        self.check_supported()
        self.facts = facts.early(worker)
        self.store = Store(create=True)
        self.base = base_for_name(self.ref)
        self.capture = Capture(base=self.base, size=SIZE, aside=ASIDE, device=self.ordinal)
        text = ""
        try:
            text = self.store.describe(self.ref)
            self.found = common.of_image(text, facts.PREFIX)
            difference = common.difference(self.facts, self.found, facts.PREFIX)
        except Error as e:
            difference = str(e)
        if difference:
            self.refuse(difference)
        else:
            self.mode = "load"
            logger.debug("Foundry: found '%s' in the store", self.ref)
            major, minor = torch.cuda.get_device_capability(self.ordinal)
            self.ahead = ahead.begin(10 * major + minor)
        self.begin_caches(text)

    def begin_caches(self, text):
        """Write the files that the image carries; if it carries none, note which ones are used.

        text: the description of the image.
        """
        start, carried = time.monotonic(), 0
        if os.environ.get("FOUNDRY_VLLM_CACHES") == "0":
            return
        try:
            self.places = folders()
            if self.mode == "load":
                carried, written = caches.unpack(self.store, self.ref, self.places,
                                                 caches.names(text))
                self.files = f"; {carried} files for caches, {written} of them were missing"
            if not carried:
                self.watch = caches.Watch(self.places)
        except Exception as e:  # vLLM compiles what is missing
            self.log_bug(e)
            logger.warning("Foundry: caches are left as they are, because %s", e)
        self.seconds["caches"] = time.monotonic() - start

    def end_caches(self):
        """Attach the files that this start used to its image."""
        if not self.watch:
            return
        start, image = time.monotonic(), self.sealed or self.image
        self.watch.stop()
        try:
            files = caches.packed(self.watch) if image else []
            if files:
                self.store.attach(f"{self.ref}:{image.id[:32]}", files)
                size = sum(len(each.data) for each in files)
                self.files = f"; {len(files)} files of caches, {size >> 20} MiB"
        except Exception as e:  # the image is complete without them
            self.log_bug(e)
            logger.warning("Foundry: the image carries no files for caches, because %s", e)
        self.watch = None
        self.seconds["caches"] += time.monotonic() - start

    @staticmethod
    def check_version():
        """Raise Unfit if the code of vLLM that is wrapped or left out is not known."""
        try:
            known = facts.source() in facts.SOURCES.values()
        except (ImportError, AttributeError, OSError, TypeError):
            known = False
        if not known:
            import vllm
            raise Unfit(f"the worker of this vLLM ({vllm.__version__}) differs from that of the "
                        f"versions that images support ({', '.join(facts.SOURCES)})")

    def check_supported(self):
        """Raise Unfit for an unsupported configuration."""
        from vllm import envs
        config = self.worker.vllm_config
        compilation = config.compilation_config
        mode = int(compilation.mode or 0)
        for wrong, what in (
                (config.parallel_config.world_size != 1, "more than one rank"),
                (config.parallel_config.data_parallel_size != 1, "data parallelism"),
                (mode not in MODES, f"the compilation mode {mode}"),
                (config.model_config.enforce_eager, "eager mode, which has no graphs"),
                (compilation.cudagraph_mode.name not in MODES.get(mode, ()),
                 f"the graph mode {compilation.cudagraph_mode.name} with the compilation mode "
                 f"{mode}"),
                (compilation.use_inductor_graph_partition, "graph partitions by Inductor"),
                (compilation.cudagraph_copy_inputs, "graphs that copy their inputs"),
                (compilation.cudagraph_mm_encoder, "graphs of an encoder"),
                (envs.VLLM_USE_BREAKABLE_CUDAGRAPH, "breakable graphs"),
                (mode and compilation.backend != "inductor",
                 f"the compilation backend '{compilation.backend}'"),
                (mode and compilation.compile_cache_save_format != "binary",
                 "compiled code in unpacked form"),
                (mode and (envs.VLLM_DISABLE_COMPILE_CACHE or not envs.VLLM_USE_AOT_COMPILE),
                 "compiled code that vLLM does not keep in its cache"),
                (config.model_config.enable_sleep_mode, "sleep mode"),
                (config.speculative_config is not None, "speculative decoding"),
                (config.lora_config is not None, "LoRA"),
                (config.kv_transfer_config is not None, "a KV connector"),
                # Graphs have scales of such weights and caches as numbers, and the weights may
                # change while their configuration stays.
                (config.model_config.quantization is not None, "quantized weights"),
                (config.cache_config.cache_dtype not in ("auto", "bfloat16", "float16"),
                 "a quantized KV cache"),
                (getattr(config.parallel_config, "assigned_physical_gpu_ids", None),
                 "assigned GPUs")):
            if wrong:
                raise Unfit(f"images do not support {what} yet")

    def load_model(self, original, **kwargs):
        with weights.of(self):
            original(**kwargs)
        self.tidy()

    def weights_missing(self, why):
        """Note that vLLM's loader has to fill the model. Raises an error if the start is strict."""
        self.log_bug(why)
        if self.strict:
            raise RuntimeError("FOUNDRY_VLLM_STRICT is set, and the start cannot use the weights "
                               f"of an image: {why}")

    @staticmethod
    def tidy():
        """Free torch's cached segments, at the same points of every start."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def determine_available_memory(self, original):
        failed = self.omission_failed() if self.mode == "load" else None
        if failed:
            self.turn(failed)
        if self.mode == "load":
            available, self.omitted = int(self.found[AVAILABLE]), True
            self.worker.available_kv_cache_memory_bytes = available
            return available
        with contextlib.ExitStack() as aside:
            try:
                aside.enter_context(area.Area(self.capture, self.ordinal))
            except Exception as e:
                self.give_up(e)
                return original()
            files = aside.enter_context(compiled.watched())
            if compiled.parts(self.worker.model_runner.get_model()):
                aside.enter_context(self.shared.noted())
            available = original()
        self.code = list(dict.fromkeys((*self.code, *files)))
        self.facts[AVAILABLE] = str(available)
        return available

    def omission_failed(self):
        """Returns None, or why the profile cannot be omitted."""
        try:
            return self.not_available() or self.code_missing()
        except Exception as e:
            self.log_bug(e)
            return str(e) or repr(e)

    def profile(self):
        """Run the model at its largest size, if the profile was omitted for an image that was not
        used in the end.

        vLLM's workspaces get their size then. V1 does not enlarge them later, and V2 would free
        memory that graphs use.
        """
        if self.omitted:
            with torch.inference_mode():
                self.worker.model_runner.profile_run()

    def not_available(self):
        """Return None, or why the KV cache of the image has no place."""
        available = int(self.found[AVAILABLE])
        free, _ = torch.cuda.mem_get_info(self.ordinal)
        if available <= free:
            return None
        return f"the KV cache of the image needs {available} bytes, and {free} are free"

    def code_missing(self):
        """Load vLLM's compiled code. Returns None, or why that was not possible."""
        model = self.worker.model_runner.get_model()
        if not compiled.parts(model):
            return None
        start = time.monotonic()
        with area.Area(self.capture, self.ordinal, outside=True):
            self.shared = compiled.Shared(self.found.get(SHARED, "{}"))
            self.code, why = compiled.load(model, self.worker.vllm_config, self.shared,
                                           self.found.get(facts.PREFIX + "compiled"))
        self.seconds["compiled code"] = time.monotonic() - start
        return why

    def initialize_from_config(self, original, config):
        original(config)
        self.tidy()

    def layout(self):
        """Return a hash of torch's live blocks in the region, and of the model's tensors."""
        blocks = area.blocks(self.ordinal, self.base, SIZE)
        logger.debug("Foundry: torch's blocks in the region: %s", blocks)
        logger.debug("Foundry: allocations: %s",
                     [(addr - self.base, size) for addr, size in self.capture.allocs()])
        named = attach.named(self.worker.model_runner.get_model())
        text = json.dumps([blocks, named])
        return f"{len(blocks)} {hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def compile_or_warm_up_model(self, original):
        try:
            self.facts.update(facts.late(self.worker, self.code), **{LAYOUT: self.layout()})
        except Exception as e:
            self.give_up(e)
            self.profile()
            return original()
        failed = self.load_failed() if self.mode == "load" else None
        if failed:
            if self.omitted:
                self.facts[AVAILABLE] = self.found[AVAILABLE]
            self.drop()
            self.turn(failed)
        if self.mode == "load":
            self.ahead.join()
            with self.filling():
                done = original()
            self.capture.pause()
        else:
            done = self.warm_up_aside(original)
        self.end_caches()
        return done

    def warm_up_aside(self, original):
        """Warm up and capture in the area, and seal."""
        left = contextlib.ExitStack()
        inside = area.Area(self.capture, self.ordinal)
        try:
            left.enter_context(inside)
        except Exception as e:
            self.give_up(e)
            self.profile()
            return original()
        with left, self.capturing(inside, left):
            self.profile()
            done = original()
        self.capture.pause()
        return done

    # --- a later start ---

    def load_failed(self):
        """Load the image. Returns None, or the reason why the image is not used.

        The reason is text, because an exception would keep tensors of the image.
        """
        try:
            self.compare()
            self.load()
        except Exception as e:
            self.log_bug(e)
            return str(e) or repr(e)
        return None

    def compare(self):
        """Raise Unfit if the image does not fit what this process has made so far."""
        own, sealed = self.facts.pop(LAYOUT), self.found.get(LAYOUT)
        difference = common.difference(self.facts, self.found, facts.PREFIX)
        self.facts[LAYOUT] = own
        if difference:
            raise Unfit(difference)
        if own != sealed:
            raise Unfit("the tensors of this process lie elsewhere than those of the process that "
                        f"sealed the image (blocks and their hash: {own} here, {sealed} there)")

    def load(self):
        """Load the image, and make the entries of vLLM's tables."""
        tables = runners.of(self.worker)
        start = time.monotonic()
        self.image = load(self.ref, store=self.store, into=self.capture, device=self.ordinal,
                          background=True)
        self.image.filled()
        if not self.is_found():
            raise Unfit(f"another process has sealed another image '{self.ref}' meanwhile")
        self.seconds["load"] = time.monotonic() - start
        self.graphs = graphs.table(self.image, tables.keys(), self.ordinal)
        start = time.monotonic()
        tensors = {t.name: t for t in self.image.tensors()}
        self.pieces = self.load_pieces(tables, tensors)
        self.seconds["pieces"] = time.monotonic() - start
        self.tensors = {name: _torch.view(t) for name, t in tensors.items()
                        if not t.external and not name.startswith(pieces.OUTPUT)}
        attach.place_all(self.roots(), self.tensors)

    def is_found(self):
        """Return whether the loaded image states the facts that this start has compared."""
        try:
            return all(self.image.fact(key) == value for key, value in self.found.items())
        except Error:  # it lacks one
            return False

    def load_pieces(self, tables, tensors):
        """Return {wrapper: {batch: entry}} of the image's pieces."""
        wrappers = pieces.wrappers(self.worker.vllm_config)
        keys = pieces.keys(wrappers, tables.batches())
        text = "".join(self.found[PIECES + str(i)]
                       for i in itertools.takewhile(lambda i: PIECES + str(i) in self.found,
                                                    itertools.count()))
        outputs = sum(name.startswith(pieces.OUTPUT) for name in tensors)
        views = [_torch.view(tensors[f"{pieces.OUTPUT}{i}"]) for i in range(outputs)]
        made = pieces.restore(text, views, graphs.table(self.image, keys, self.ordinal))
        return {wrappers[name]: entries for name, entries in made.items()}

    def drop(self):
        """Unload the image, if it was loaded."""
        self.graphs = self.tensors = self.pieces = None
        if self.image:
            self.image.close()
        self.image = None

    @contextlib.contextmanager
    def filling(self):
        """Inside the with block vLLM gets the image's graphs in place of a capture.

        It omits what prepares the capture. Its steps after a capture, one prefill and one decode,
        remain: they load the kernels that the first request needs.
        """
        from vllm.v1.worker import gpu_worker
        runner = self.worker.model_runner
        before = gpu_worker.kernel_warmup, gpu_worker.warmup_kernels
        gpu_worker.kernel_warmup = lambda *_args, **_kwargs: None
        gpu_worker.warmup_kernels = self.timed("warm up", before[1])
        runner.capture_model = self.fill
        runner._dummy_run = lambda *_args, **_kwargs: (None, None)
        try:
            yield
        finally:
            gpu_worker.kernel_warmup, gpu_worker.warmup_kernels = before
            for name in ("capture_model", "_dummy_run"):
                vars(runner).pop(name, None)

    def timed(self, name, function):
        """Return `function` with a timer."""
        def timed(*args, **kwargs):
            start = time.monotonic()
            done = function(*args, **kwargs)
            self.seconds[name] = time.monotonic() - start
            return done
        return timed

    def roots(self):
        """Return the objects that hold tensors which graphs use."""
        from vllm.v1.worker import workspace
        runner = self.worker.model_runner
        return {"runner": runner, "model": runner.get_model(), "workspace": workspace.__dict__}

    def fill(self):
        """Replaces capture_model()."""
        for wrapper, entries in self.pieces.items():
            wrapper.concrete_cudagraph_entries.update(entries)
        runners.of(self.worker).fill(self.graphs)
        del self.worker.model_runner._dummy_run  # the V1 runner warms up its sampler now
        # From here on memory belongs to requests, as after a capture.
        self.capture.pause()
        return 0

    # --- a first start ---

    @contextlib.contextmanager
    def capturing(self, inside, left):
        """Inside the with block, a capture by vLLM is sealed.

        inside: the area, which `left` leaves after the capture.
        """
        runner = self.worker.model_runner
        original = runner.capture_model

        def capture_model():
            with graphs.kept(inside, self.capture, self.ordinal):
                size = original()
            left.close()
            try:
                self.seal()
            except Exception as e:
                self.why += f"; not sealed: {e}"
                logger.error("Foundry: the start was not sealed:\n%s", traceback.format_exc())
                if self.strict:
                    raise
            return size

        runner.capture_model = capture_model
        try:
            yield
        finally:
            del runner.capture_model

    def seal(self):
        """Seal the graphs that vLLM has captured."""
        start = time.monotonic()
        tables = runners.of(self.worker)
        tables.forget()
        self.tidy()
        area.clear(self.ordinal)
        entries = pieces.captured(pieces.wrappers(self.worker.vllm_config), tables.batches())
        self.check_keys(tables)
        numbers = graphs.add(self.capture, {
            **tables.graphs, **{key: entry.cudagraph for key, entry in entries.items()}})
        for number, (addr, size) in enumerate(self.allocations()):
            self.capture.tensor(f"region.{number}", area.Range(addr, size), external=True)
        outputs = self.name_pieces({numbers[key]: entry for key, entry in entries.items()})
        self.tensors = self.name_tensors(numbers.values(), outputs)
        for key, value in self.facts.items():
            self.capture.fact(key, value)
        self.seconds["names"] = time.monotonic() - start
        sealed = self.capture.seal(self.store)
        self.check_pinned(sealed.id)
        self.store.tag(sealed.id, self.ref)
        self.sealed = sealed
        self.seconds["seal"] = time.monotonic() - start

    def check_pinned(self, image):
        """Raise Unfit if an image holds pinned host memory.

        vLLM writes its inputs to such memory. In a later start it writes to memory of its own, and
        graphs would read that of the image.
        """
        if any(line.startswith("pinned ") for line in self.store.describe(image).splitlines()):
            raise Unfit("graphs, or memory that they use, point to pinned host memory")

    @staticmethod
    def check_keys(tables):
        """Raise Unfit if vLLM has captured other whole graphs than a later start would look for."""
        other = set(tables.keys()) ^ set(tables.graphs)
        if other:
            raise Unfit(f"vLLM has captured other graphs than expected: {other.pop()}")

    def name_pieces(self, entries):
        """Name the tensors that pieces write, and state how the pieces use them.

        entries: {number of the graph: entry}. Returns all tensors of the entries.
        """
        text, outputs, entire = pieces.describe(entries)
        for number, tensor in enumerate(outputs):
            self.capture.tensor(f"{pieces.OUTPUT}{number}", tensor, use="output",
                                external=tensor.data_ptr() < self.base + SIZE)
        self.capture.fact(SHARED, self.shared.text())
        for number, at in enumerate(range(0, len(text), PART)):
            self.capture.fact(PIECES + str(number), text[at:at + PART])
        logger.debug("Foundry: pieces: %d graphs, %d outputs, %d characters", len(entries),
                     len(outputs), len(text))
        return entire

    def allocations(self):
        """Return [(address, bytes)] of the region, without the aside area."""
        return [each for each in self.capture.allocs() if each[0] < self.base + SIZE]

    def name_tensors(self, numbers, outputs):
        """Name the tensors of the aside area, so that a later start can set them at the same paths.

        numbers: of the graphs. outputs: tensors of entries. Returns {path: tensor}.
        """
        start = self.base + SIZE
        found = attach.find(self.roots(), start, start + ASIDE, PACKAGES, COMPILED)
        for path, tensor in found.items():
            logger.debug("Foundry: aside: %s %s %s", path, tensor.dtype, list(tensor.shape))
            self.capture.tensor(path, tensor, use="state")
        placed = [*found.values(), *outputs]
        known = {id(each) for each in (*placed, *self.constants())}
        others = [each for each in area.tensors(start, start + ASIDE) if id(each) not in known]
        for each in others:
            logger.debug("Foundry: aside, no place: %s %s", each.dtype, list(each.shape))
        attach.stale(self.capture, numbers, others, placed)
        return found

    def constants(self):
        """Return the constants of compiled code. An image has their bytes, which never change."""
        return compiled.constants() if self.code else []

    # --- the summary ---

    def summary(self):
        """Write one line to vLLM's log."""
        if self.mode == "load":
            report = self.image.report()
            count = len(self.image.graphs())
            what = (f"loaded '{self.ref}' ({self.image.id[:12]}, {count} graphs; "
                    f"content {report.content_bytes >> 20} MiB{self.files}{self.weights})")
        elif self.sealed:
            what = (f"captured and sealed '{self.ref}' ({self.sealed.id[:12]}, "
                    f"{self.sealed.graphs} graphs; content {self.sealed.content_bytes >> 20} MiB, "
                    f"scratch {self.sealed.scratch_bytes >> 20} MiB{self.files}{self.weights}), "
                    f"because {self.why}")
        else:
            what = f"started without an image{self.weights}, because {self.why}"
        times = ", ".join(f"{name} {value:.2f}" for name, value in self.seconds.items())
        logger.info("Foundry: %s; seconds: %s", what, times)
