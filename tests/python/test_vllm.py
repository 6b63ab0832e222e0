# SPDX-License-Identifier: Apache-2.0
"""foundry.vllm with a small engine in vLLM's place, on the software driver; each start is a process
of its own.
"""
import json
import os
import re
import shutil
import textwrap

import engine_tests
import suite
from vllm_scripts import ENGINE, Engine


class Starts(Engine, engine_tests.Starts):
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
            found = []
            load_model = gpu_worker.Worker.load_model
            def noted(self):
                found.append(gc.get_freeze_count() > 0)
                load_model(self)
            gpu_worker.Worker.load_model = noted
            """
        check = "now = gc.get_freeze_count() > 0\nassert (found, now) == ([%s], %s), (found, now)"
        before = textwrap.dedent(load)
        self.first(before=before, text=check % (False, False))
        self.start(check % (True, True), "LOADED", before=before)
        self.start(check % (True, False), "{**ONCE, 'profile': 0}", before=before,
                   STAND_IN_MORE="1")
        used = before + "torch.cuda.init()\n"  # there may be garbage on the GPU
        self.start(check % (False, False), "{**LOADED}", before=used, STAND_IN_MORE="1")

    def test_a_later_start_reads_the_description_once(self):
        """It takes longer the more graphs the image has."""
        self.first()
        self.start("assert described == ['test'], described", counts="LOADED",
                   before=textwrap.dedent("""
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

    def test_what_differs_is_named_and_the_start_seals(self):
        self.first()
        for options, says in (("seqs=5", "max_num_seqs is 5 here and 4 in the image"),
                              ("seqs=5, sizes=(2, 1)",
                               "capture_sizes is [2, 1] here and [4, 2, 1] in the image")):
            log = self.start(options=options)
            self.assertIn("captured and sealed", log)
            self.assertIn(says, log)
            self.assertIn("loaded", self.start(counts="LOADED", options=options))
        log = self.start(options="seqs=5, sizes=(2, 1)", STAND_IN_VLLM="0.26.0")
        self.assertIn("vllm is 0.26.0 here and 0.25.1 in the image", log)

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
        self.assertIn("FOUNDRY_VLLM_STRICT is set", done.stderr)

    def test_what_images_do_not_support_starts_plain(self):
        for options, what in (("ranks=2", "more than one rank"),
                              ("quantization='fp8'", "quantized weights"),
                              ("cache_dtype='fp8'", "a quantized KV cache"),
                              ("graphs='PIECEWISE'",
                               "the graph mode PIECEWISE with the compilation mode 0"),
                              ("mode=2", "the compilation mode 2"),
                              ("cudagraph_copy_inputs=True", "graphs that copy their inputs"),
                              ("mode=3, backend='eager'", "the compilation backend 'eager'")):
            log = self.start(options=options)
            self.assertIn(f"started without an image, because images do not support {what}", log)

    def test_a_version_that_is_not_known_starts_plain(self):
        log = self.start(before="facts.SOURCES = {'0.1': 'other'}\n")
        self.assertIn("because the worker of this vLLM (0.25.1) differs from that of the versions "
                      "that images support (0.1)", log)
        log = self.start(before="import importlib.util\nimportlib.util.find_spec = "
                         "lambda name: None\n")
        self.assertIn("because the worker of this vLLM", log)

    def test_a_vllm_without_the_wrapped_class_starts_plain(self):
        log = self.script("""if 1:
            import foundry.vllm
            from vllm.v1.worker import worker_base
            del worker_base.WorkerWrapperBase.init_worker
            import vllm.logger
            foundry.vllm.register()
            """, FOUNDRY_VLLM="test")
        self.assertIn("because this version of vLLM lacks what Foundry wraps", log)

    def test_facts_that_cannot_be_read_start_plain(self):
        before = textwrap.dedent("""
            from vllm.v1.worker.gpu import model_runner
            original = model_runner.GPUModelRunner.initialize_kv_cache
            def without_groups(self, blocks):
                original(self, blocks)
                del self.attn_groups
            model_runner.GPUModelRunner.initialize_kv_cache = without_groups
            """)
        log = self.start(before=before)
        self.assertIn("started without an image, because 'GPUModelRunner' object has no attribute "
                      "'attn_groups'", log)
        self.first()
        self.assertIn("started without an image", self.start(
            before=before, counts="{**ONCE, 'profile': 0}"))

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
            """), counts="{**ONCE, 'profile': 0}")
        self.assertIn("because no place", log)
        self.assertIn("captured and sealed", log)

    def test_a_variable_of_vllm_that_differs_is_named(self):
        self.first()
        log = self.start(VLLM_STAND_IN="1", VLLM_STAND_IN_KEY="secret")
        self.assertIn("environment is VLLM_STAND_IN=1 here and empty in the image", log)
        self.assertIn("loaded", self.start(counts="LOADED", VLLM_STAND_IN="1"))
        log = self.start(VLLM_STAND_IN="a long value / with a path")
        self.assertIn("environment is VLLM_STAND_IN=", log)
        self.assertNotIn("long value", log)

    def test_the_code_of_a_model_is_a_fact(self):
        self.script("""if 1:
            import importlib, sys, types
            from foundry.engines import facts
            sys.path.insert(0, ".")
            found = set()
            for text in ("1", "2"):
                with open("remote_model.py", "w") as f:
                    f.write(f"class Layer:\\n    size = {text}\\n")
                import remote_model
                layer = remote_model.Layer()
                found.add(facts.code(types.SimpleNamespace(modules=lambda: [layer])))
            assert len(found) == 2
            """)

    def test_weights_that_changed_places_are_noticed(self):
        self.first()
        log = self.start(counts="{**ONCE, 'profile': 0}", STAND_IN_SWAP="1")
        self.assertIn("the tensors of this process lie elsewhere", log)

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

    def test_zero_turns_it_off(self):
        self.assertNotIn("Foundry", self.start(FOUNDRY_VLLM="0"))

    def test_memory_that_moved_is_noticed(self):
        self.first()
        log = self.start(options="", text="", counts="{**ONCE, 'profile': 0}",
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

    def test_another_gpu_memory_is_named(self):
        self.first()
        log = self.start(before="properties = torch.cuda.get_device_properties(0)\n"
                         "torch.cuda.get_device_properties = lambda _: types.SimpleNamespace("
                         "name=properties.name, total_memory=1)\n")
        self.assertIn("because memory is 1 here and ", log)
        self.assertIn("captured and sealed", log)

    def test_a_store_that_is_collected_meanwhile_is_named(self):
        self.first()
        log = self.start(before=textwrap.dedent("""
            from vllm.v1.worker.gpu import model_runner
            original = model_runner.GPUModelRunner.load_model
            def collected(self):
                with foundry.Store() as store:
                    store.evict(size=1)
                    store.gc()
                original(self)
            model_runner.GPUModelRunner.load_model = collected
            """), counts="{**ONCE, 'profile': 0}")
        self.assertIn("there is no ref 'test' in the store", log)
        self.assertIn("captured and sealed", log)
        self.assertIn("5 files of caches", log)  # the compiler reads all but two

    def test_an_image_that_another_start_seals_meanwhile_is_not_used(self):
        self.first()
        own, other = (
            re.search(r"loaded 'test' \((\w+)", self.start(counts="LOADED", options=options))[1]
            for options in ("", "seqs=5") if not options or self.start(options=options))
        self.script(f"import foundry\nfoundry.Store().tag({own!r}, 'test')\n")
        log = self.start(before=textwrap.dedent(f"""
            from vllm.v1.worker.gpu import model_runner
            original = model_runner.GPUModelRunner.load_model
            def sealed(self):
                with foundry.Store() as store:
                    store.tag({other!r}, "test")
                original(self)
            model_runner.GPUModelRunner.load_model = sealed
            """), counts="{**ONCE, 'profile': 0}")
        self.assertIn("another process has sealed another image 'test' meanwhile", log)
        self.assertIn("captured and sealed", log)

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
                         "w.Session.compare = failed\n", counts="{**ONCE, 'profile': 0}")
        self.assertIn("captured and sealed", log)
        log = self.start("assert runs == [True], runs", before=count + failed +
                         "w.facts.late = failed\n", counts="{**ONCE, 'profile': 0}")
        self.assertIn("started without an image, because of a test", log)

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

    def test_an_image_without_a_size_for_the_cache_is_not_used(self):
        self.first()
        log = self.start(before=textwrap.dedent("""
            from foundry.engines import facts as common
            of_image = common.of_image
            common.of_image = lambda *names: {**of_image(*names), "vllm.available_bytes": "x"}
            """))
        self.assertIn("invalid literal for int()", log)
        self.assertIn("captured and sealed", log)

    def test_a_damaged_store_starts_as_without_an_image(self):
        self.first()
        store = self.path(".cache/foundry/store")
        for name in os.listdir(store):
            if name.startswith("data"):
                path = os.path.join(store, name)
                size = os.path.getsize(path)
                with open(path, "r+b") as f:
                    for at in range(16384, size, 4096):
                        f.seek(at)
                        f.write(b"\xff" * 64)
        done = self.run_one(ENGINE + "worker = start()\ndecodes(worker)", FOUNDRY_VLLM="test")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("because", done.stdout)


CACHE = ".triton/cache"
KERNEL = ("__grp__sampler.json", "sampler.cubin", "sampler.ptx")


class Doctor(Engine):
    """What `python -m foundry doctor` reports about the small engine."""

    def report(self, ref="test", **variables):
        return self.script(f"""if 1:
            import sys
            sys.path.insert(0, "site")
            from foundry.vllm import doctor, facts
            facts.SOURCES["of the stand-in"] = facts.source()
            doctor.report(lambda *what: print(*what), {ref!r})
            """, **variables)

    def metadata(self, name, files):
        folder = self.path(f"site/{name}.dist-info")
        os.makedirs(folder)
        for file, text in files.items():
            with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
                f.write(text)

    def test_a_machine_without_vllm(self):
        self.assertEqual(self.report(),
                         "vllm None not installed (only needed to start vLLM from images)")

    def test_each_part_is_reported(self):
        self.metadata("vllm-0.25.1", {"METADATA": "Name: vllm\nVersion: 0.25.1\n"})
        said = self.report(ref="0")
        for line in ("vllm True 0.25.1 is supported", "vllm plug-in None vLLM does not find it",
                     "vllm interposer None needs `python3 -m foundry run`",
                     f"vllm caches True triton {self.path(CACHE)}",
                     "vllm image None FOUNDRY_VLLM is not set"):
            self.assertIn(line, said)
        self.metadata("foundry-0", {
            "METADATA": "Name: foundry\nVersion: 0\n",
            "entry_points.txt": "[vllm.general_plugins]\nfoundry = foundry.vllm:register\n"})
        said = self.report()
        self.assertIn("vllm plug-in True vLLM finds it", said)
        self.assertIn("vllm image True the next start is a first one", said)
        self.assertIn("VLLM_PLUGINS leaves it out", self.report(VLLM_PLUGINS="other"))
        Engine.start(self)
        self.assertIn("vllm image True 'test' is in the store, with 7 files", self.report())

    def test_the_command_shows_another_version(self):
        self.metadata("vllm-0.25.1", {"METADATA": "Name: vllm\nVersion: 0.25.1\n"})
        self.assertIn("starts without images, which support", self.script("""if 1:
            import sys
            sys.path.insert(0, "site")
            from foundry.vllm import doctor
            doctor.report(lambda *what: print(*what), "0")
            """))


class Caches(Engine):
    """Files of caches that an image carries: the kernels of the small engine's compiler."""

    def start(self, text="", counts="LOADED", compiles=(), **options):
        """One start, which compiles the kernels `compiles`."""
        return super().start(textwrap.dedent(text) + textwrap.dedent(f"""
            import triton
            assert triton.COMPILED == {list(compiles)}, triton.COMPILED
            """), counts, **options)

    def first(self, **options):
        log = self.start(counts="ONCE", compiles=("sampler", "prepare"), **options)
        self.assertIn("7 files of caches", log)
        return log

    def kernel(self, *names):
        return self.path(os.path.join(CACHE, "SAMPLER", *names))

    def store(self, text):
        """Run statements with the store of the test's folder, `foundry` and `File`."""
        return self.script("import foundry\nfrom foundry import File\n"
                           "store = foundry.Store()\n" + textwrap.dedent(text))

    def test_a_host_with_empty_caches_compiles_nothing(self):
        self.first()
        self.start()
        shutil.rmtree(self.path(CACHE))
        self.assertIn("7 files for caches, 6 of them were missing", self.start())
        self.assertEqual(sorted(os.listdir(self.kernel())), sorted(KERNEL))
        self.assertTrue(os.access(self.kernel("sampler.cubin"), os.X_OK))
        self.assertFalse(os.access(self.kernel("sampler.ptx"), os.X_OK))
        self.assertIn("7 files for caches, 0 of them were missing", self.start())

    def test_files_get_the_permissions_that_the_umask_leaves(self):
        self.first()
        for mask, executable, other in ((0o077, 0o700, 0o600), (0o002, 0o775, 0o664)):
            shutil.rmtree(self.path(CACHE))
            self.start(before=f"import os\nos.umask({mask})\ngpu_worker.KERNELS.clear()\n")
            for path, mode in ((self.kernel(), executable),
                               (self.kernel("sampler.cubin"), executable),
                               (self.kernel("sampler.ptx"), other)):
                self.assertEqual(os.stat(path).st_mode & 0o777, mode, path)

    def test_a_file_has_its_name_after_its_bytes_are_on_the_disk(self):
        self.first()
        shutil.rmtree(self.path(CACHE))
        self.start("assert calls == ['fsync', 'link'] * 6, calls", before=textwrap.dedent("""
            import os
            calls, fsync, link = [], os.fsync, os.link
            def fsync_noted(*args):
                calls.append("fsync")
                fsync(*args)
            def link_noted(*args):
                calls.append("link")
                link(*args)
            os.fsync, os.link = fsync_noted, link_noted
            """))

    def test_what_vllm_notes_of_a_model_s_class_is_there_before_a_worker_begins(self):
        """The architecture of the model alone."""
        folder = self.path(".cache/vllm/modelinfos")
        os.makedirs(folder)
        for name in ("models-one-Architecture", "models-two-Other"):
            with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
                f.write(name)
        log = self.start(counts="ONCE", compiles=("sampler", "prepare"))
        self.assertIn("8 files of caches", log)
        shutil.rmtree(folder)
        register = "import foundry.vllm\nfoundry.vllm.register()\n"
        self.script(register, FOUNDRY_VLLM="test", FOUNDRY_VLLM_CACHES="0")
        self.assertFalse(os.path.exists(folder))
        self.script(register, FOUNDRY_VLLM="other")
        self.assertFalse(os.path.exists(folder))
        self.script(register, FOUNDRY_VLLM="test")
        self.assertEqual(os.listdir(folder), ["models-one-Architecture.json"])
        with open(os.path.join(folder, "models-one-Architecture.json"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "models-one-Architecture")

    def test_a_variable_turns_it_off(self):
        log = self.start(counts="ONCE", compiles=("sampler", "prepare"), FOUNDRY_VLLM_CACHES="0")
        self.assertNotIn("caches", log)
        self.assertIn("5 files of caches", self.start())
        shutil.rmtree(self.path(CACHE))
        self.start(compiles=("sampler", "prepare"), FOUNDRY_VLLM_CACHES="0")

    def test_the_cache_may_lie_elsewhere(self):
        self.first()
        shutil.rmtree(self.path(CACHE))
        self.start(TRITON_CACHE_DIR=self.path("other"))
        self.assertFalse(os.path.exists(self.path(CACHE)))
        with open(self.path("other/SAMPLER/__grp__sampler.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f)["child_paths"]["sampler.ptx"],
                             self.path("other/SAMPLER/sampler.ptx"))

    def test_files_that_are_there_stay(self):
        self.first()
        for name in KERNEL[1:]:
            with open(self.kernel(name), "ab") as f:
                f.write(b" of another compiler")
        os.unlink(self.kernel(KERNEL[0]))
        log = self.start(before="gpu_worker.KERNELS.clear()\n")
        self.assertIn("1 of them were missing", log)
        with open(self.kernel("sampler.ptx"), "rb") as f:
            self.assertIn(b"of another compiler", f.read())

    def test_only_what_the_start_used_is_carried(self):
        self.script("import triton\ntriton.compile('another')\ntriton.compile('prepare')\n")
        self.start(counts="ONCE", compiles=("sampler",))
        found = self.store("print([f.name for f in store.files('test')])")
        self.assertNotIn("ANOTHER", found)
        for name in ("triton/SAMPLER/sampler.ptx", "triton/PREPARE/prepare.cubin",
                     "triton/PREPARE/__grp__prepare.json"):
            self.assertIn(repr(name), found)
        # Triton's lists have no path of this host.
        self.assertNotIn(self.folder.name,
                         self.store("print([f.data for f in store.files('test') "
                                    "if 'triton' in f.name])"))

    def test_an_image_without_files_gets_them_at_the_next_start(self):
        killed = textwrap.dedent("""
            from foundry.vllm import worker as w
            import os
            w.Session.end_caches = lambda self: os._exit(9)
            """)
        done = self.run_one(ENGINE + killed + "start()\n", FOUNDRY_VLLM="test")
        self.assertEqual(done.returncode, 9, done.stderr)
        self.assertIn("files of caches", self.start())
        shutil.rmtree(self.path(CACHE))
        self.assertIn("4 of them were missing", self.start())

    def test_a_file_cannot_leave_the_folders(self):
        self.start(counts="ONCE", compiles=("sampler", "prepare"), before=textwrap.dedent("""
            from foundry.engines import caches
            caches.packed = lambda watch: []
            """))
        self.store("""
            import json
            places = {"triton": "/", "vllm": "/elsewhere", "autotune": "/"}
            bad = json.dumps({"child_paths": {"../../x": "y"}}).encode()
            good = json.dumps({"child_paths": {"a": "/etc/a"}}).encode()
            store.attach("test", [
                File("places.json", json.dumps(places).encode()), File("triton/A/a", b"a"),
                File("triton/LINK/x/b", b"b"), File("vllm/c", b"c"), File("other/d", b"d"),
                File("e", b"e"), File("triton/A/__grp__bad.json", bad), File("triton", b"f"),
                File("triton/A/__grp__good.json", good)])
            """)
        os.makedirs(self.path("outside"))
        os.symlink(self.path("outside"), self.path(os.path.join(CACHE, "LINK")))
        before = self.listing()
        self.assertIn("9 files for caches, 2 of them were missing", self.start())
        self.assertEqual(self.listing() - before, {
            os.path.join(CACHE, name) for name in ("A/a", "A/__grp__good.json")})
        with open(self.path(os.path.join(CACHE, "A/__grp__good.json")), encoding="utf-8") as f:
            self.assertEqual(json.load(f)["child_paths"],
                             {"a": self.path(os.path.join(CACHE, "A", "a"))})

    def listing(self):
        return {os.path.relpath(os.path.join(parent, name), self.folder.name)
                for parent, _, names in os.walk(self.folder.name) for name in names
                if "foundry" not in parent}

    def test_no_folder_is_made_outside(self):
        self.first()
        shutil.rmtree(self.path(CACHE))
        os.makedirs(self.path("outside"))
        os.makedirs(self.path(CACHE))
        os.symlink(self.path("outside"), self.path(os.path.join(CACHE, "LINK")))
        self.store("""
            import json
            files = [File("places.json", b"{}"), File("triton/LINK/x/b", b"b")]
            from foundry.engines import caches
            from foundry.vllm.folders import folders
            store.attach = None
            class Images:
                def files(self, ref, wanted):
                    return [f for f in files if f.name in wanted]
            carried = {f.name for f in files}
            assert caches.unpack(Images(), "test", folders(), carried) == (2, 0)
            """)
        self.assertEqual(os.listdir(self.path("outside")), [])

    def test_a_list_is_written_only_if_its_files_are_there(self):
        """Triton takes a list for complete. It would fail in place of compiling."""
        self.start(counts="ONCE", compiles=("sampler", "prepare"), before=textwrap.dedent("""
            from foundry.engines import caches
            packed = caches.packed
            caches.packed = lambda watch: [f for f in packed(watch)
                                           if not f.name.endswith("sampler.cubin")]
            """))
        shutil.rmtree(self.path(CACHE))
        self.start(before="gpu_worker.KERNELS.clear()\n")
        self.assertEqual(os.listdir(self.kernel()), ["sampler.ptx"])
        self.assertTrue(os.path.exists(self.path(os.path.join(CACHE, "PREPARE/prepare.cubin"))))

    def test_a_list_is_carried_only_with_its_files(self):
        self.start(counts="ONCE", compiles=("sampler", "prepare"), before=textwrap.dedent("""
            from foundry.engines import caches
            packed = caches.packed
            def larger(watch):
                for name, path in watch.used():
                    if name.endswith("sampler.cubin"):
                        with open(path, "ab") as f:
                            f.write(bytes(1000))
                return packed(watch)
            caches.SIZE_MAX, caches.packed = 900, larger
            """))
        self.assertIn("['triton/PREPARE/__grp__prepare.json']", self.store("""
            found = {f.name for f in store.files("test")}
            assert "triton/SAMPLER/sampler.ptx" in found, found
            print([each for each in found if "__grp__" in each])
            """))

    def test_a_file_that_vanishes_costs_no_other(self):
        """Another engine has temporary files in the same folders."""
        log = self.start(counts="ONCE", compiles=("sampler", "prepare"), before=textwrap.dedent("""
            from foundry.engines import caches
            import os
            below = caches._below
            caches._below = lambda folder: below(folder) | {os.path.join(folder, "tmp.pid", "x")}
            of = caches.Watch.__init__
            def __init__(self, *args):
                of(self, *args)
                self._before = set()
            caches.Watch.__init__ = __init__
            """))
        self.assertIn("7 files of caches", log)

    def test_a_folder_that_cannot_be_written_is_left(self):
        self.first()
        shutil.rmtree(self.path(CACHE))
        with open(self.path(CACHE), "wb"):
            pass
        log = self.start(before="gpu_worker.KERNELS.clear()\n")
        self.assertIn("a file of the image could not be written", log)
        self.assertIn("Foundry: loaded 'test'", log)


if __name__ == "__main__":
    suite.main()
