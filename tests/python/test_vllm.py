# SPDX-License-Identifier: Apache-2.0
"""foundry.vllm with a small engine in vLLM's place, on the software driver; each start is a process
of its own.
"""
import textwrap

import engine_tests
import suite
from vllm_scripts import ENGINE, Engine


class Starts(Engine, engine_tests.Starts):
    VARIABLE, KEY = "FOUNDRY_VLLM", """
        from vllm.v1.worker.gpu import cudagraph_utils
        @dataclasses.dataclass(frozen=True)
        class Key(cudagraph_utils.BatchExecutionDescriptor):
            more: object = dataclasses.field(default_factory=lambda: MORE, compare=False)
        cudagraph_utils.BatchExecutionDescriptor = Key
        MORE = object()
        """
    MADE = "vllm.v1.worker.gpu.model_runner.Model.load"

    def test_the_first_start_seals_and_the_next_loads(self):
        self.first()
        log = self.start(counts="LOADED")
        self.assertIn("Foundry: loaded 'test'", log)
        self.assertIn("compile_or_warm_up_model", log)

    def test_a_later_start_omits_what_prepares_inductor(self):
        check = """
            from vllm.compilation import compiler_interface
            assert len(compiler_interface.INITS) == %d
            assert compiler_interface.trigger_inductor_lazy_init.__name__ != "<lambda>"
            """
        self.first(text=check % 1)
        self.start(check % 0, counts="LOADED")
        self.start(check % 1, counts="LOADED", VLLM_GPU_SYNC_CHECK="warn")

    def test_the_collector_leaves_out_what_was_made_before_a_load(self):
        load = """
            import gc
            count = gc.get_freeze_count
            gc.get_freeze_count = lambda: count() + 375  # as Python 3.12 begins
            found = []
            load_model = gpu_worker.Worker.load_model
            def noted(self):
                found.append(gc.get_freeze_count() > 1000)
                load_model(self)
            gpu_worker.Worker.load_model = noted
            """
        check = ("now = gc.get_freeze_count() > 1000\n"
                 "assert (found, now) == ([%s], %s), (found, now)")
        before = textwrap.dedent(load)
        self.first(before=before, text=check % (False, False))
        self.start(check % (True, True), "LOADED", before=before)
        self.start(check % (True, False), "{**ONCE, 'profile': 0}", before=before,
                   STAND_IN_MORE="1")
        program = before + "gc.freeze()\n"  # the program's own must stay frozen
        self.start(check % (True, True), "{**LOADED}", before=program, STAND_IN_MORE="1")
        used = before + "torch.cuda.init()\n"  # there may be garbage on the GPU
        self.start(check % (False, False), "{**LOADED}", before=used, STAND_IN_MORE="1")

    def test_a_later_start_reads_the_description_once(self):
        """It takes longer the more graphs the image has."""
        self.first()
        self.start("assert [each[:5] for each in described] == ['test:'], described",
                   counts="LOADED", before=textwrap.dedent("""
                       described, describe = [], foundry.Store.describe
                       def noted(store, name):
                           described.append(name)
                           return describe(store, name)
                       foundry.Store.describe = noted
                       """))

    def test_tensors_are_put_where_they_were(self):
        self.first()
        self.start("""
            runner, model = worker.model_runner, worker.model_runner.model
            assert set(model.kept.tolist()) == {1000.0}
            runner.inputs.fill_(2.0)
            model.kept.fill_(10.0)
            assert set(runner.decode(1).tolist()) == {15.0}
            model.kept.fill_(1000.0)
            """, counts="LOADED")

    def test_without_the_variable_nothing_happens(self):
        log = self.start(FOUNDRY_VLLM="")
        self.assertNotIn("Foundry", log)

    def test_a_strict_start_captures_nothing(self):
        self.fails("no ref 'test' in the store", FOUNDRY_VLLM_STRICT="1")
        self.first()
        self.start(counts="LOADED", FOUNDRY_VLLM_STRICT="1")
        self.fails("max_num_seqs is 5 here and 4 in the image", options="seqs=5",
                   FOUNDRY_VLLM_STRICT="1")

    def fails(self, says, options="", **variables):
        done = self.run_one(ENGINE + f"start({options})", FOUNDRY_VLLM="test", **variables)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(says, done.stderr)
        self.assertEqual(done.stderr.splitlines()[-1].count("FOUNDRY_VLLM_STRICT is set"), 1)
        self.assertNotIn("Foundry: Traceback", done.stdout)

    def test_an_unsupported_configuration_starts_plain(self):
        for options, what in (("ranks=2", "ranks on several hosts"),
                              ("quantization='bitsandbytes'",
                               "weights quantized by bitsandbytes"),
                              ("moe=True", "mixtures of experts that FlashInfer tunes"),
                              ("cache_dtype='fp8_e5m2'", "a KV cache of the type fp8_e5m2"),
                              ("graphs='PIECEWISE'",
                               "the graph mode PIECEWISE with the compilation mode 0"),
                              ("mode=2", "the compilation mode 2"),
                              ("cudagraph_copy_inputs=True", "graphs that copy their inputs"),
                              ("mode=3, backend='eager'", "the compilation backend 'eager'"),
                              ("backend_given='FLASHINFER'", "the attention backend FLASHINFER"),
                              ("attention='FLASHINFER'", "the attention backend FLASHINFER"),
                              ("attention='GDN_ATTN'", "the attention backend GDN_ATTN"),
                              ("model={'runner_type': 'pooling'}", "models that generate no text"),
                              ("model={'is_multimodal_model': True}", "multimodal models"),
                              ("model={'is_encoder_decoder': True}", "models with an encoder"),
                              ("model={'enable_return_routed_experts': True}",
                               "the choice of experts in answers"),
                              ("model={'is_hybrid': True}", "models with states in place of a KV"),
                              ("model={'is_attention_free': True}", "models with states in place")):
            log = self.start(options=options)
            self.assertIn(f"started without an image, because images do not support {what}", log)

    def test_attention_backends_that_images_support(self):
        options = "attention='TRITON_ATTN', backend_given='TRITON_ATTN'"
        self.assertIn("captured and sealed", self.start(options=options))
        self.start(counts="LOADED", options=options)

    def test_the_whole_model_as_one_graph_is_supported_with_both_runners(self):
        self.script(ENGINE + """if 1:
            from foundry.vllm import supported
            for runner in "V1", "V2":
                for mode in 0, 3:
                    for graphs in "FULL", "FULL_DECODE_ONLY":
                        supported.check(config(runner=runner, mode=mode, graphs=graphs), 1, True)
            """)

    def test_a_version_that_is_not_known_starts_plain(self):
        log = self.start(before="facts.SOURCES = {'0.1': 'other'}\n"
                         "facts.COMPARED = {'0.2': 'another'}\n")
        self.assertIn("because the worker of this vLLM (0.25.1) differs from that of the versions "
                      "that images support (0.1, 0.2)", log)
        log = self.start(before="import importlib.util\nimportlib.util.find_spec = "
                         "lambda name: None\n")
        self.assertIn("because the worker of this vLLM", log)

    def test_a_version_that_was_only_compared_needs_leave(self):
        compared = ("facts.SOURCES, facts.COMPARED = {'0.1': 'other'}, "
                    "{'of the stand-in': facts.source()}\n")
        what = "vLLM 0.25.1 was compared with 0.1, but its tests with images were not run on a GPU"
        for value in ("0", ""):
            log = self.start(before=compared, FOUNDRY_VLLM_COMPARED=value)
            self.assertIn(f"started without an image, because {what} (set FOUNDRY_VLLM_COMPARED=1 "
                          "to use images nevertheless)", log)
        self.assertIn("because FOUNDRY_VLLM_COMPARED is 'yes'",
                      self.start(before=compared, FOUNDRY_VLLM_COMPARED="yes"))
        for counts, done in (("ONCE", "captured and sealed"), ("LOADED", "loaded")):
            log = self.start(before=compared, counts=counts, FOUNDRY_VLLM_COMPARED="1")
            self.assertIn(f"Foundry: {what}\n", log)
            self.assertIn(done, log)

    def test_a_vllm_that_prepares_no_compilation_starts_from_images(self):
        older = ("from vllm import envs\nfrom vllm.compilation import compiler_interface\n"
                 "del envs.VLLM_GPU_SYNC_CHECK, compiler_interface.trigger_inductor_lazy_init\n")
        self.start(before=older)
        self.start(before=older, counts="LOADED")

    def test_a_vllm_without_the_wrapped_class_starts_plain(self):
        log = self.script("""if 1:
            import foundry.vllm
            from vllm.v1.worker import worker_base
            del worker_base.WorkerWrapperBase.init_worker
            import vllm.logger
            foundry.vllm.register()
            """, FOUNDRY_VLLM="test")
        self.assertIn("because this version of vLLM lacks what Foundry wraps", log)

    def test_a_tensor_without_a_place_leaves_the_others_as_they_were(self):
        self.first()
        log = self.start(before=textwrap.dedent("""
            from foundry.engines import attach
            place = attach.place
            def refuse(roots, path, tensor):
                if path == "model.kept":
                    raise foundry.Error(foundry._lib.NOKEY, "no place")
                return place(roots, path, tensor)
            attach.place = refuse
            """), counts=self.AGAIN)
        self.assertIn("because no place", log)
        self.assertIn("captured and sealed", log)

    def test_graphs_that_use_pinned_memory_are_not_sealed(self):
        log = self.start(before=textwrap.dedent("""
            import ctypes, struct
            from vllm.v1.worker.gpu import model_runner
            host = ctypes.c_void_p()
            def constant(self):
                if not host.value:
                    torch._driver.call("cuMemAllocHost_v2", ctypes.byref(host),
                                       ctypes.c_size_t(4096))
                    ctypes.memmove(host.value, struct.pack("f", 1000.0) * 1000, 4000)
                return torch.Tensor(host.value, (100, 10), keep=lambda: None)
            model_runner.Model.constant = constant
            """))
        self.assertIn("which points to pinned host memory", log)
        self.assertIn("no ref 'test' in the store", self.start())

    def test_a_folder_gives_its_name_to_the_image(self):
        for path, name in (("/models/one/", "one"), ("some/other", "other")):
            log = self.start(before=textwrap.dedent(f"""
                given = config
                def config(**options):
                    made = given(**options)
                    made.model_config.model = {path!r}
                    return made
                """), FOUNDRY_VLLM="1")
            self.assertIn(f"captured and sealed 'vllm-{name}'", log)

    def test_a_setting_that_is_wrong_starts_plain(self):
        for name in ("STRICT", "CACHES"):
            variable = f"FOUNDRY_VLLM_{name}"
            log = self.start(**{variable: "perhaps"})
            self.assertIn(f"started without an image, because {variable} is 'perhaps'", log)

    def test_zero_turns_it_off(self):
        self.assertNotIn("Foundry", self.start(FOUNDRY_VLLM="0"))

    def test_memory_that_moved_is_noticed(self):
        self.first()
        log = self.start(options="", text="", counts=self.AGAIN,
                         FOUNDRY_VLLM="test", STAND_IN_MORE="1")
        self.assertIn("the tensors of this process lie elsewhere", log)
        self.assertIn("captured and sealed", log)

    def test_a_cache_that_does_not_fit_is_profiled_again(self):
        self.first()
        log = self.start(before="hog = torch.empty((((8 << 30) - (60 << 20)) // 4,))\n")
        self.assertIn("the KV cache of the image needs 67108864 bytes, and ", log)
        self.assertIn("captured and sealed", log)

    def test_a_first_start_that_is_killed_leaves_nothing(self):
        done = self.run_one(ENGINE + textwrap.dedent("""
            import os
            from vllm.v1.worker.gpu import model_runner
            model_runner.ModelCudaGraphManager.run = lambda *_: None
            gpu_worker.warmup_kernels = lambda *_: None
            step = model_runner.ModelCudaGraphManager.step
            def killed(self, forward, desc):
                if desc.num_tokens == 2:
                    os._exit(9)
                step(self, forward, desc)
            model_runner.ModelCudaGraphManager.step = killed
            start()
            """), FOUNDRY_VLLM="test")
        self.assertEqual(done.returncode, 9, done.stderr)
        self.first()
        self.start(counts="LOADED")

    def test_a_tensor_that_nobody_could_replace_is_refused(self):
        for hidden in ("True", "'copied'"):
            log = self.start(options=f"hidden={hidden}")
            self.assertIn("not sealed: ", log)
            self.assertIn("no object of the worker has it", log)
            self.assertIn("no ref 'test' in the store", self.start(options=f"hidden={hidden}"))

    def test_a_frozen_tensor_that_nobody_could_replace_is_refused(self):
        log = self.start(options="hidden=True", before=textwrap.dedent("""
            import gc
            from vllm.v1.worker.gpu.cudagraph_utils import ModelCudaGraphManager
            capture = ModelCudaGraphManager.capture
            def frozen(self, model):
                capture(self, model)
                gc.freeze()
            ModelCudaGraphManager.capture = frozen
            """))
        self.assertIn("no object of the worker has it", log)

    def test_a_weak_reference_to_nothing_is_no_tensor(self):
        self.start(before=textwrap.dedent("""
            import weakref
            class Gone:
                pass
            gone = Gone()
            reference = weakref.proxy(gone)
            del gone
            """))
        self.assertIn("loaded", self.start(counts="LOADED"))

    def test_an_area_that_cannot_be_entered_starts_plain(self):
        """Each step of each phase's area fails once."""
        for phase in (1, 2):
            for step in ("MemPool", "CUDAGraph"):
                with self.subTest(phase=phase, step=step):
                    log = self.start(before=self.fails_at(step, phase))
                    self.assertIn("started without an image, because of a test", log)
        self.first()
        self.start(counts="LOADED", before=self.fails_at("MemPool", 1))  # it enters no area

    @staticmethod
    def fails_at(step, phase):
        return textwrap.dedent(f"""
            from foundry.engines import area
            entered, enter, made = [], area.Area.__enter__, torch.cuda.{step}
            def failing(*args, **kwargs):
                raise RuntimeError("of a test")
            def enter_or_fail(self):
                entered.append(self)
                if len(entered) == {phase}:
                    torch.cuda.{step} = failing
                try:
                    return enter(self)
                finally:
                    torch.cuda.{step} = made
            area.Area.__enter__ = enter_or_fail
            """)

    def test_two_threads_may_start_engines(self):
        """The second one warms up as without Foundry, also while the first one loads."""
        self.first()
        log = self.start("""
            other.join()
            decodes(others[0])
            """, before=textwrap.dedent("""
            import ctypes
            import threading
            others, warm_up, context = [], gpu_worker.warmup_kernels, ctypes.c_void_p()
            def second():
                torch._driver.call("cuCtxSetCurrent", context)
                others.append(start())
            other = threading.Thread(target=second)
            def warmup_kernels(*args):
                if not context:
                    torch._driver.call("cuCtxGetCurrent", ctypes.byref(context))
                    other.start()
                    other.join(0.5)
                warm_up(*args)
            gpu_worker.warmup_kernels = warmup_kernels
            """), counts="{**ONCE, 'warmup_kernels': 2}")
        self.assertIn("Foundry: loaded 'test'", log)
        self.assertIn("because a region has begun already", log)

    def test_a_load_that_fails_makes_up_for_the_profile(self):
        """It gives the workspaces that graphs share the size that the largest request needs."""
        self.first()
        count = textwrap.dedent("""
            from foundry.vllm import worker as w
            from vllm.v1.worker.gpu import model_runner
            runs = []
            original = model_runner.GPUModelRunner.profile_run
            def profile_run(self):
                runs.append(hasattr(self.model, "cache"))
                original(self)
            model_runner.GPUModelRunner.profile_run = profile_run
            """)
        self.start("assert runs == [], runs", counts="LOADED", before=count)
        failed = "def failed(*_):\n    raise w.Unfit('of a test')\n"
        log = self.start("assert runs == [True], runs", before=count + failed +
                         "w.Session.compare = failed\n", counts=self.AGAIN)
        self.assertIn("captured and sealed", log)
        log = self.start("assert runs == [True], runs", before=count + failed +
                         "w.facts.late = failed\n", counts=self.AGAIN)
        self.assertIn("started without an image, because of a test", log)

    def test_the_content_of_workspaces_is_not_in_the_image(self):
        """Mixtures of experts have some of hundreds of megabytes, which each step writes first."""
        before = textwrap.dedent("""
            from vllm.v1.worker import workspace
            from vllm.v1.worker.gpu import model_runner
            workspace._manager = workspace.WorkspaceManager(3)
            made = workspace._manager._current_workspaces
            def profile_run(self, profile=model_runner.GPUModelRunner.profile_run):
                profile(self)
                made[:] = torch.full(model_runner.SHAPE, 7.0), torch.full((8 << 20,), 7.0), None
            def with_workspace(self, size, forward=model_runner.Model.forward):
                return forward(self, size) + made[0]
            model_runner.GPUModelRunner.profile_run = profile_run
            model_runner.Model.forward = with_workspace
            """)
        self.assertIn("content 0 MiB", self.start(before=before))
        log = self.start("assert [each and each.numel() for each in made] == [1000, 8 << 20, None]",
                         counts="LOADED", before=before)
        self.assertIn("content 0 MiB", log)

    def test_a_model_without_a_cache_has_no_profile(self):
        for failed in (False, True):
            log = self.script(ENGINE + textwrap.dedent(f"""
                from foundry.vllm import worker as w
                if {failed}:
                    def compare(*_):
                        raise w.Unfit("of a test")
                    w.Session.compare = compare
                wrapper = worker_base.WorkerWrapperBase()
                wrapper.init_worker(config())
                worker = wrapper.worker
                worker.init_device()
                worker.load_model()
                worker.initialize_from_config(8)
                worker.compile_or_warm_up_model()
                decodes(worker)
                assert gpu_worker.COUNTS["profile"] == 0
                """), FOUNDRY_VLLM="test")
            self.assertIn("captured and sealed", log)
        self.assertIn("because of a test", log)


if __name__ == "__main__":
    suite.main()
