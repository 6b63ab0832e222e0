# SPDX-License-Identifier: Apache-2.0
"""The phases of an SGLang model runner, with a region for its memory, and with an image if there is
one.

    phase                           first start                     later starts
    init_torch_distributed          begin the region                the same
    load_model                      SGLang's, in the region         the same
    _profile_available_bytes        SGLang's                        the sealed number
    alloc_memory_pool,              SGLang's, in the region         the same
    init_attention_backends
    PrefillCudaGraphRunner.capture  left to the next one            left to the next one
    DecodeCudaGraphRunner.capture   SGLang's two, aside; seal       load
    init_cuda_graphs                (the three above), then the     the same, with one decode to
                                    region ends                     load what prefill needs

The constructors of SGLang's graph runners allocate their buffers in the region in every start.
SGLang constructs the runner of decode graphs last, so an image is loaded as a whole, or not at all.

With tensor parallelism each rank has a process, a model runner and an image of its own. The ranks
decide together in _profile_available_bytes and in the first capture.
"""
import contextlib
import functools
import logging
import os
import re
import threading
import traceback

import torch

from ..engines import area, graphs, jit, log, session
from ..engines.quantized import check_run
from ..engines.session import Unfit, check_configuration, check_source
from . import attention, facts, prefill, quantized, ranks, weights
from .folders import folders

log.use(logging.getLogger("sglang.foundry"))

AVAILABLE = facts.PREFIX + "available_bytes"
LAYOUT = facts.PREFIX + "layout"
PACKAGES = ("sglang.", "torch.nn.")  # whose objects are searched for tensors and numbers
SETTINGS = ("sglang.srt.server_args.", "sglang.srt.configs.", "sglang.srt.distributed.")
CALLS = 4  # of the model, then the first request has compiled what it needs: a prefill, 3 decodes
_RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner"
_DECODE = "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner"
_PREFILL = "sglang.srt.model_executor.runner.prefill_cuda_graph_runner.PrefillCudaGraphRunner"
PHASES = ("init_torch_distributed", "load_model", "_profile_available_bytes", "alloc_memory_pool",
          "init_attention_backends", "init_cuda_graphs")
CAPTURE = "capture"


def hooks():
    """Return {name of a function of SGLang: function that wraps it}. Raises AttributeError if one
    is missing.
    """
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
    from sglang.srt.model_executor.runner.prefill_cuda_graph_runner import PrefillCudaGraphRunner
    found = {f"{_RUNNER}.{name}": _phase(name) for name in PHASES if getattr(ModelRunner, name)}
    if DecodeCudaGraphRunner.capture and PrefillCudaGraphRunner.capture:
        found[f"{_PREFILL}.capture"] = _capture_prefill
        found[f"{_DECODE}.capture"] = _capture
    return {**found, **weights.hooks()}


def _session(runner):
    """Return the session of a model runner that starts, or None."""
    found = getattr(runner, "foundry_session", None)
    return None if found is None or found.ended else found


def _begun(runner):
    """Return a session for a model runner, or None if Foundry's settings are wrong."""
    try:
        return Session(runner)
    except Exception as e:  # SGLang must start, also if Foundry fails
        log.warning("Foundry: started without an image, because %s", e)
        return None


def _phase(name):
    """Return a function that calls a session's method in place of the model runner's."""
    def phase(original, runner, *args, **kwargs):
        if name == PHASES[0] and not runner.is_draft_worker:
            runner.foundry_session = _begun(runner)
        session_of = _session(runner)
        call = functools.partial(original, runner)
        if session_of is None:
            return call(*args, **kwargs)
        if name == "load_model":
            call = functools.partial(session_of.with_weights, call)
        if session_of.mode == "plain":
            session_of.take_part(name)
        else:
            call = functools.partial(getattr(session_of, name), call)
        done = session_of.timed(name.lstrip("_"), call, *args, **kwargs)
        session_of.prepare_ranks(name)
        if name == PHASES[-1]:
            session_of.ended = True
            session_of.summary()
        return done
    return phase


def _capturing(runner):
    """Return the session of a runner of graphs that begins to capture, if it does that itself."""
    session_of = _session(runner.model_runner)
    if session_of is not None and session_of.mode == "plain":
        session_of.take_part(CAPTURE)
        return None
    return session_of


def _capture(original, decode):
    """Replaces DecodeCudaGraphRunner.capture(). SGLang may call it again when it serves."""
    session_of = _capturing(decode)
    if session_of is None:
        return original(decode)
    session_of.captures.append(functools.partial(original, decode))
    return session_of.timed("capture or load", session_of.capture_graphs, decode)


def _capture_prefill(original, runner):
    """Replaces PrefillCudaGraphRunner.capture()."""
    session_of = _capturing(runner)
    if session_of is None:
        original(runner)
        return
    session_of.prefill = runner
    session_of.captures.append(functools.partial(original, runner))


class Session(session.Session):
    """One start of one model runner."""

    deciding = ("_profile_available_bytes", CAPTURE)
    settings = SETTINGS

    def __init__(self, runner):
        super().__init__("FOUNDRY_SGLANG", facts.PREFIX, PACKAGES, ranks.of(runner))
        self.runner, self.ended = runner, False
        self.prefill = None  # SGLang's runner of prefill graphs, if it has any
        self.weights_seen = False  # SGLang's loader has filled the model by what Foundry wraps
        self.captures = []   # SGLang's captures that are not done yet
        self.entries = []    # [(a table of SGLang, {key: value})], until fill()

    # --- phases ---

    def init_torch_distributed(self, original):
        try:
            check_source(facts, "sglang", "model runner", "SGLang")
            if self.ref == "1":
                self.ref = "sglang-" + re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(
                    self.runner.model_config.model_path.rstrip("/")))
            self.check_supported()
            self.join()
            self.begin(self.runner.gpu_id, facts.early(self.runner), folders)
        except Exception as e:  # SGLang must start, also if Foundry fails
            self.give_up(e)
        done = original()
        self.use_modules()
        return done

    def prepare_ranks(self, phase):
        """After a phase, do what all ranks do whatever their mode, if there are several."""
        if self.connects and phase == "init_torch_distributed":
            ranks.connect(self.runner)
        elif self.connects and phase == "load_model":
            ranks.gather_by_nccl(self.runner.model)

    def check_supported(self):
        """Raise Unfit for an unsupported configuration."""
        from sglang.srt.environ import envs
        from sglang.srt.model_executor.runner.flashinfer_autotune import (
            should_run_flashinfer_autotune)
        runner, args = self.runner, self.runner.server_args
        decode, of_prefill = args.cuda_graph_config.decode, args.cuda_graph_config.prefill
        check_configuration(
            (args.device != "cuda", f"the device {args.device}"),
            (decode.backend != "full", f"the backend {decode.backend} of decode graphs"),
            (of_prefill.backend not in prefill.BACKENDS,
             f"the backend {of_prefill.backend} of prefill graphs"),
            (envs.SGLANG_ENABLE_CUDA_GRAPH_DEDUP.get(), "graphs that share executables"),
            (not runner.is_generation, "models that generate no text"),
            (runner.is_multimodal, "multimodal models"),
            (runner.model_config.is_encoder_decoder, "models with an encoder"),
            (args.speculative_algorithm is not None, "speculative decoding"),
            (args.dllm_algorithm is not None, "diffusion language models"),
            (args.enable_lora, "LoRA"),
            (args.enable_memory_saver, "the memory saver"),
            (args.enable_torch_compile, "torch.compile"),
            (args.enable_pdmux, "the multiplexing of prefill and decode"),
            (args.enable_two_batch_overlap, "the overlap of two batches"),
            (args.enable_return_hidden_states, "the return of hidden states"),
            (args.enable_profile_cuda_graph or args.debug_cuda_graph, "the study of graphs"),
            (args.enable_hisparse, "sparse caches"),
            (args.cpu_offload_gb or args.offload_group_size > 0, "weights on the host"),
            (args.disaggregation_mode != "null", "prefill and decode on different servers"),
            (args.enable_symm_mem, "symmetric memory"),
            (args.kv_canary != "none", "canaries in the KV cache"),
            (should_run_flashinfer_autotune(runner), "FlashInfer's choice of kernels by time"),
            (args.kv_cache_dtype not in ("auto", "bf16", "bfloat16"),
             "a quantized KV cache"))
        quantized.check(runner)
        check_run(quantized.VARIABLE, (runner.use_mla_backend, "multi-head latent attention"),
                  of="models")
        attention.check(args, envs)
        ranks.check(args, envs)

    def load_model(self, original):
        try:
            # SGLang's constructor did not know this yet.
            if self.runner.mambaish_config is not None:
                raise Unfit("images do not support models with states in place of a KV cache yet")
        except Exception as e:
            self.give_up(e)
            return original()
        with self.placing():
            done = original()
        try:
            quantized.check_model(self.runner)
            self.facts.update(quantized.facts_of(self.runner))
        except Exception as e:
            self.give_up(e)
            return done
        self.tidy()
        self.note_model(lambda: self.runner.model)
        return done

    def with_weights(self, original):
        """Load the model, with weights from an image if they are wanted."""
        with weights.loading(self):
            original()
        if weights.wanted() and not self.weights_seen and self.mode != "plain":
            why = f"SGLang fills the model in another way: '{self.runner.server_args.load_format}'"
            self.weights_missing(why)
            self.more = f"; weights by the loader, because {why}"

    def _profile_available_bytes(self, original, *args):
        failed = self.decide(self.not_available() if self.mode == "load" else self.why)
        if failed and self.mode == "load":
            self.turn(failed)
        available = int(self.found[AVAILABLE]) if self.mode == "load" else original(*args)
        self.tidy()  # SGLang's function does so
        self.facts[AVAILABLE] = str(available)
        return available

    def not_available(self):
        """Return None, or why the KV cache of the image has no place."""
        try:
            available = int(self.found[AVAILABLE])
        except (KeyError, ValueError):
            return "the image does not state the size of the KV cache"
        free, _ = torch.cuda.mem_get_info(self.ordinal)
        if available <= free:
            return None
        return f"the KV cache of the image needs {available} bytes, and {free} are free"

    def alloc_memory_pool(self, original, *args, **kwargs):
        done = original(*args, **kwargs)
        self.tidy()
        return done

    def init_attention_backends(self, original):
        return original()

    def init_cuda_graphs(self, original, *args, **kwargs):
        done = original(*args, **kwargs)
        self.capture_rest()  # if SGLang has no graphs of decoding
        if self.mode == "plain":
            return done
        # From here on memory belongs to requests, as after a capture.
        self.capture.pause()
        if self.mode == "load":
            self.timed("warm up", self.warm_up)
            self.unfreeze()
        if self.watch:
            self.attach_files()
            self.watch_forward()
        return done

    def watch_forward(self):
        """Note the files of caches until the first request has been served. It compiles the kernels
        of prefill, which a start does not.
        """
        original, calls = self.runner.forward, []

        def forward(*args, **kwargs):
            done = original(*args, **kwargs)
            calls.append(True)
            if len(calls) == CALLS:
                del self.runner.forward
                threading.Thread(target=self.carry, name="foundry-caches", daemon=True).start()
            return done
        self.runner.forward = forward

    def carry(self):
        """Attach the files to the image, while SGLang serves."""
        more = self.end_caches(late=True)
        sampler = self.sampler() if more and (self.sealed or self.image) else None
        if sampler:
            self.watch.add(sampler)
            more = self.attach_files(late=True)
        self.follow_caches(more)

    def sampler(self):
        """Let FlashInfer compile its sampler, which takes minutes, unless it has. Return the path
        of the library, or None. A server uses it for sampled requests, and the first request may
        have been none.
        """
        if self.runner.server_args.sampling_backend != "flashinfer":
            return None
        try:
            from flashinfer.sampling import gen_sampling_module
            spec = gen_sampling_module()
            if spec.is_aot:  # it came with FlashInfer
                return None
            if not os.path.exists(spec.jit_library_path):
                log.info("Foundry: compiling FlashInfer's sampler for hosts that load '%s'",
                         self.ref)
            return jit.prepare(spec)
        except Exception as e:  # sampled requests compile it
            log.debug("Foundry: %s", traceback.format_exc())
            log.warning("Foundry: the image lacks FlashInfer's sampler, because %s",
                        (str(e) or repr(e)).splitlines()[0])
            return None

    # --- graphs ---

    def capture_rest(self):
        """Do SGLang's captures that are not done yet."""
        while self.captures:
            self.captures.pop(0)()

    def capture_graphs(self, decode):
        """Load the graphs, or capture and seal them. decode: SGLang's runner of decode graphs."""
        try:
            self.check_prefill()
            attention.check_backend(decode.attn_backend)
            for key in self.keys(decode):
                graphs.name_of(key)  # an error if it cannot have a name
            self.facts.update(facts.late(decode, self.prefill))
            layout = self.layout(self.runner.model)
        except Exception as e:
            self.give_up(e)
            self.take_part(CAPTURE)
            self.capture_rest()
            return
        failed = None
        if self.mode == "load":
            failed = self.decide(self.load_failed(decode, layout))
        if failed and not self.drop():
            self.capture_rest()
            return
        if failed:
            self.turn(failed)
        if self.mode == "load":
            self.captures.clear()
            self.fill(decode)
        else:
            self.facts[LAYOUT] = layout
            self.capture_and_seal(decode)

    def check_prefill(self):
        """Raise Unfit if graphs of prefill depend on more than tensors and attention."""
        check_configuration((self.prefill and self.prefill.use_captured_attn_metadata,
                             "attention with its own state in graphs of prefill"))

    @staticmethod
    def keys(decode):
        """Return the keys of all graphs of decoding."""
        return [decode._make_graph_key(size) for size in decode.capture_bs]

    def roots(self, decode):
        """Return the objects that hold tensors which graphs use."""
        return {"runner": self.runner, "model": self.runner.model, "decode": decode,
                **({"prefill": self.prefill} if self.prefill else {})}

    def load_failed(self, decode, layout):
        """Load the image. Returns None, or the reason why the image is not used.

        The reason is text, because an exception would keep tensors of the image.
        """
        try:
            self.compare(layout)
            self.load()
            self.prepare(decode)
        except Exception as e:
            self.log_bug(e)
            return str(e) or repr(e)
        return None

    def classes(self):
        """Return {name: dataclass} of what graphs return, and attention keeps."""
        from sglang.srt.layers.logits_processor import LogitsProcessorOutput
        return {each.__name__: each for each in (LogitsProcessorOutput, *attention.classes())}

    def prepare(self, decode):
        """Make the entries of SGLang's tables: graphs of the image, and what these return. Set the
        image's tensors where they were.
        """
        def table_of(keys):
            return graphs.table(self.image, keys, self.ordinal)
        table, returned = table_of(self.keys(decode)), self.returned()
        self.entries = [(decode.backend._graphs, table), (decode.backend._outputs, {
            key: returned[graphs.name_of(key)] for key in table}),
            *attention.entries(decode, returned)]
        if self.prefill:
            self.entries += prefill.entries(self.prefill, returned, table_of)
        self.place(self.roots(decode))

    def drop(self):
        self.entries = []
        return super().drop()

    def fill(self, decode):
        """Fill SGLang's tables, when all ranks have loaded."""
        for table, entries in self.entries:
            table.update(entries)
        self.entries = []
        # A capture leaves its buffers so.
        decode.buffers.seq_lens.fill_(decode.seq_len_fill_value)
        decode.buffers.seq_lens_cpu.fill_(decode.seq_len_fill_value)
        self.wait_ahead()

    def warm_up(self):
        """Decode without graphs. It loads kernels that a prefill needs, too; in a start without an
        image, the capture loads them.

        Functions with torch.compile are compiled for the first size that they meet, then for any,
        and for one. The sizes are those of graphs, in the order of a capture, so the image's caches
        have this code.
        """
        decode = self.runner.decode_cuda_graph_runner
        sizes = sorted(decode.capture_bs, reverse=True)
        for size in dict.fromkeys((*sizes[:2], *sizes[-1:])):
            try:
                decode._dummy_run(size, buffers=decode.buffers)
                torch.cuda.synchronize()
            except Exception as e:  # the first request loads them
                self.log_bug(e)

    def capture_and_seal(self, decode):
        """Let SGLang warm up and capture aside, and seal its graphs."""
        inside, left = area.Area(self.capture, self.ordinal), contextlib.ExitStack()
        try:
            self.made.begin(CAPTURE)
            left.enter_context(inside)
        except Exception as e:
            self.give_up(e)
            self.capture_rest()
            return
        with left, graphs.kept(inside, self.capture, self.ordinal):
            self.capture_rest()
        try:
            backend = decode.backend
            other = set(self.keys(decode)) ^ set(backend._graphs)
            if other:
                raise Unfit(f"SGLang has captured other graphs than expected: {other.pop()}")
            segments, values = prefill.captured(self.prefill) if self.prefill else ({}, {})
            self.seal({**backend._graphs, **segments},
                      {**backend._outputs, **attention.values(decode), **values},
                      self.roots(decode))
        except Exception as e:
            self.not_sealed(e)
