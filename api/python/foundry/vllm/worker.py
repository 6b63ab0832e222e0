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
import functools
import os
import re
import threading
import time

import torch
from vllm.logger import init_logger

from .._lib import Error
from ..engines import ahead, area, graphs, log, ranks, session, weights
from ..engines.session import Unfit
from . import compiled, facts, infos, pieces, quantized, runners, supported
from .folders import folders

logger = init_logger("vllm.foundry")
log.use(logger)

AVAILABLE = facts.PREFIX + "available_bytes"
LAYOUT = facts.PREFIX + "layout"
SHARED = facts.PREFIX + "code.shared"
CODE = facts.PREFIX + "compiled"
PHASES = ("init_device", "load_model", "determine_available_memory", "initialize_from_config",
          "compile_or_warm_up_model")
PACKAGES = ("vllm.", "torch.nn.")
ROWS = 256  # of logits, at most, for which kernels are loaded beside compiled code
COMPILED = "vllm.compilation."  # its objects differ between code compiled and code loaded
SETTINGS = (COMPILED, "vllm.config.", "vllm.distributed.", "vllm.transformers_utils.")

# A phase replaces functions of vLLM and torch for a while. If another thread of the process starts
# an engine, too, that one must not call the replacements.
_PHASE = threading.RLock()


def wrap(worker):
    """Wrap the phases of a worker that vLLM has just made."""
    try:
        made = Session(worker)
    except Error as e:  # vLLM must start, also if Foundry's settings are wrong
        log.warning("Foundry: started without an image, because %s", e)
        return
    for name in PHASES:
        if hasattr(worker, name):
            setattr(worker, name, made.wrapped(name, getattr(worker, name)))


@torch.inference_mode()  # vLLM makes some of them in it
def clear_workspaces():
    """Set vLLM's workspaces to zero. What a step has left there means nothing to the next one, and
    an image would hold it: those of mixtures of experts have hundreds of megabytes.
    """
    from vllm.v1.worker import workspace
    for each in getattr(workspace._manager, "_current_workspaces", ()):
        if each is not None:
            each.zero_()


class Session(session.Session):
    """One start of one worker."""

    deciding = ("determine_available_memory", "compile_or_warm_up_model")
    settings = SETTINGS

    def __init__(self, worker):
        super().__init__("FOUNDRY_VLLM", facts.PREFIX, PACKAGES, supported.ranks(worker))
        self.worker = worker
        self.graphs = self.pieces = None
        self.shared, self.code, self.omitted = compiled.Shared(), [], False

    def wrapped(self, name, original):
        """Return the phase `name` of the worker for the session's mode, with a timer."""
        own = getattr(self, name, None)

        def phase(*args, **kwargs):
            with _PHASE, weights.of(self):
                if self.mode == "plain":
                    self.take_part(name)
                if own is None or self.mode == "plain":
                    done = self.timed(name, original, *args, **kwargs)
                else:
                    done = self.timed(name, own, original, *args, **kwargs)
            if name == PHASES[-1]:
                self.summary()
            return done
        return phase

    # --- phases ---

    def init_device(self, original):
        try:
            self.begin_worker()
        except Exception as e:  # vLLM must start, also if Foundry fails
            self.log_bug(e)
            self.mode = "plain"
            if self.capture:
                self.capture.end()
            self.refuse(e)
        with contextlib.nullcontext() if self.mode == "plain" else supported.keeping_code():
            original()
        self.use_modules()
        if self.connects:  # whatever the mode: the other ranks do it, too
            ranks.connect(supported.parallel_state(), self.worker.device)

    def begin_worker(self):
        """Begin the region, and look for an image."""
        was_run = supported.check_version()
        if self.ref == "1":
            self.ref = "vllm-" + re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(
                self.worker.vllm_config.model_config.model.rstrip("/")))
        supported.check(self.worker.vllm_config, self.ranks.count, was_run)
        self.join()
        self.also = infos.files(self.worker.vllm_config.model_config)
        self.begin(self.worker.local_rank, facts.early(self.worker), folders)

    def steps_ahead(self):
        steps = super().steps_ahead()
        if self.found.get(CODE, compiled.NONE) != compiled.NONE:
            steps.insert(0, ahead.inductor)
        return steps

    def load_model(self, original, **kwargs):
        with self.placing():
            original(**kwargs)
        try:
            model = self.worker.model_runner.get_model()
            supported.check_model(self.worker.vllm_config, model)
            self.facts.update(quantized.facts_of(
                model, self.worker.vllm_config.model_config.quantization))
        except Exception as e:
            self.give_up(e)
            return
        self.tidy()
        self.note_model(self.worker.model_runner.get_model)

    def determine_available_memory(self, original):
        failed = self.decide(self.omission_failed() if self.mode == "load" else self.why)
        if failed and self.mode == "load":
            self.turn(failed)
        if self.mode == "load":
            available, self.omitted = int(self.found[AVAILABLE]), True
            self.worker.available_kv_cache_memory_bytes = available
            return available
        with contextlib.ExitStack() as aside:
            try:
                self.made.begin(self.deciding[0])
                aside.enter_context(area.Area(self.capture, self.ordinal))
            except Exception as e:
                self.give_up(e)
                return original()
            files = aside.enter_context(compiled.watched())
            if compiled.parts(self.worker.model_runner.get_model()):
                aside.enter_context(self.shared.noted())
            available = original()
        self.made.end()
        self.code = list(dict.fromkeys((*self.code, *files)))
        self.facts[AVAILABLE] = str(available)
        if not compiled.is_kept(self.worker.model_runner.get_model(), files):
            self.give_up(Unfit(f"images do not support {supported.NOT_KEPT} yet"))
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
        self.wait_ahead()
        start = time.monotonic()
        with contextlib.ExitStack() as left:
            logits = self.logits_ahead(model, left)
            left.enter_context(area.Area(self.capture, self.ordinal, outside=True))
            self.shared = compiled.Shared(self.found.get(SHARED, "{}"))
            self.code, why = compiled.load(model, self.worker.vllm_config, self.shared,
                                           self.found.get(CODE), *logits)
        self.seconds["compiled code"] = time.monotonic() - start
        return why

    def logits_ahead(self, model, left):
        """Return what a thread does while compiled code is loaded, as a list.

        left: an ExitStack, which closes it after all that is entered later.
        """
        try:
            weight = getattr(getattr(model, "lm_head", None), "weight", None)
            # The warm-up has max_num_seqs rows; more than ROWS would take much memory.
            rows = min(self.worker.vllm_config.scheduler_config.max_num_seqs, ROWS)
            if not ahead.Logits.usable(weight, rows):
                return []
            logits = ahead.Logits(self.ordinal, weight, rows)
            left.callback(logits.close)
            return [logits]
        except Exception as e:  # the warm-up loads the kernels
            self.log_bug(e)
            return []

    def initialize_from_config(self, original, config):
        original(config)
        self.tidy()

    def compile_or_warm_up_model(self, original):
        try:
            self.check_names()
            self.facts.update(facts.late(self.worker, self.code))
            layout = self.layout(self.worker.model_runner.get_model())
        except Exception as e:
            self.give_up(e)
            self.take_part(PHASES[-1])
            self.profile()
            return original()
        failed = None
        if self.mode == "load":
            failed = self.decide(self.load_failed(layout))
        else:
            self.take_part(PHASES[-1])  # if vLLM has not asked for the available memory
        self.facts[LAYOUT] = layout
        if failed:
            if self.omitted:
                self.facts[AVAILABLE] = self.found[AVAILABLE]
            if not self.drop():
                self.profile()
                return original()
            # This start has read them, and does not do it again.
            self.also = [*self.also, *compiled.paths(self.code, self.worker.vllm_config)]
            self.turn(failed)
        if self.mode == "load":
            self.wait_ahead()
            with self.filling():
                done = original()
            self.capture.pause()
        else:
            done = self.warm_up_aside(original)
        if self.watch:
            self.follow_caches(self.end_caches())
        return done

    def warm_up_aside(self, original):
        """Warm up and capture in the area, and seal."""
        left = contextlib.ExitStack()
        inside = area.Area(self.capture, self.ordinal)
        try:
            self.made.begin(PHASES[-1])
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

    def load_failed(self, layout):
        """Load the image. Returns None, or the reason why the image is not used.

        The reason is text, because an exception would keep tensors of the image.
        """
        try:
            self.compare(layout)
            self.load()
            self.fill_tables()
        except Exception as e:
            self.log_bug(e)
            return str(e) or repr(e)
        return None

    def fill_tables(self):
        """Make the entries of vLLM's tables, and set the image's tensors where they were."""
        start, tables = time.monotonic(), runners.of(self.worker)
        self.graphs = graphs.table(self.image, tables.keys(), self.ordinal)
        wrappers = pieces.wrappers(self.worker.vllm_config)
        keys = pieces.keys(wrappers, tables.batches())
        returned = self.returned()
        made = pieces.restore(self.text("pieces"), returned,
                              graphs.table(self.image, keys, self.ordinal))
        self.pieces = {wrappers[name]: entries for name, entries in made.items()}
        self.seconds["pieces"] = time.monotonic() - start
        self.place(self.roots())

    def drop(self):
        self.graphs = self.pieces = None
        return super().drop()

    @contextlib.contextmanager
    def filling(self):
        """Inside the with block vLLM gets the image's graphs in place of a capture.

        It omits what prepares the capture, and what prepares Inductor to compile: no request of a
        start from an image compiles. Its steps after a capture, one prefill and one decode, remain:
        they load the kernels that the first request needs.
        """
        from vllm import envs
        from vllm.compilation import compiler_interface
        from vllm.v1.worker import gpu_worker
        runner = self.worker.model_runner
        before = gpu_worker.kernel_warmup, gpu_worker.warmup_kernels
        prepare = getattr(compiler_interface, "trigger_inductor_lazy_init", None)  # since 0.25
        if prepare and not envs.VLLM_GPU_SYNC_CHECK:  # else a later compilation would be an error
            compiler_interface.trigger_inductor_lazy_init = lambda *_args, **_kwargs: None
        gpu_worker.kernel_warmup = lambda *_args, **_kwargs: None
        gpu_worker.warmup_kernels = functools.partial(self.timed, "warm up", before[1])
        runner.capture_model = self.fill
        runner._dummy_run = lambda *_args, **_kwargs: (None, None)
        try:
            yield
        finally:
            gpu_worker.kernel_warmup, gpu_worker.warmup_kernels = before
            if prepare:
                compiler_interface.trigger_inductor_lazy_init = prepare
            for name in ("capture_model", "_dummy_run"):
                vars(runner).pop(name, None)

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
        self.placed.pop_all()  # the image stays
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
                self.seal_graphs()
            except Exception as e:
                self.not_sealed(e)
            return size

        runner.capture_model = capture_model
        try:
            yield
        finally:
            del runner.capture_model

    def seal_graphs(self):
        """Seal the graphs that vLLM has captured."""
        tables = runners.of(self.worker)
        tables.forget()
        entries = pieces.captured(pieces.wrappers(self.worker.vllm_config), tables.batches())
        self.check_keys(tables)
        self.add_text("pieces", pieces.describe(entries))
        self.facts[SHARED] = self.shared.text()
        clear_workspaces()
        self.seal({**tables.graphs, **{key: entry.cudagraph for key, entry in entries.items()}},
                  {key: entry.output for key, entry in entries.items()}, self.roots(), COMPILED,
                  compiled.constants() if self.code else [])  # constants never change

    def check_names(self):
        """Raise Error if a graph that vLLM is to capture cannot have a name in an image."""
        tables = runners.of(self.worker)
        wrappers = pieces.wrappers(self.worker.vllm_config)
        for key in (*tables.keys(), *pieces.keys(wrappers, tables.batches())):
            graphs.name_of(key)

    @staticmethod
    def check_keys(tables):
        """Raise Unfit if vLLM has captured other whole graphs than a later start would look for."""
        other = set(tables.keys()) ^ set(tables.graphs)
        if other:
            raise Unfit(f"vLLM has captured other graphs than expected: {other.pop()}")
