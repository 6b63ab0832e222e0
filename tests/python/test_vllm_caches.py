# SPDX-License-Identifier: Apache-2.0
"""Files of caches in images of a small engine in vLLM's place, and what the doctor reports."""
import json
import os
import shutil
import textwrap

import suite
from vllm_scripts import ENGINE, Engine

CACHE = ".triton/cache"
KERNEL = ("__grp__sampler.json", "sampler.cubin", "sampler.ptx")


class Doctor(Engine):
    """The report of `python -m foundry doctor` about the small engine."""

    def report(self, ref="test", table="SOURCES", **variables):
        return self.script(f"""if 1:
            import sys
            sys.path.insert(0, "site")
            from foundry.vllm import doctor, facts
            facts.{table}["of the stand-in"] = facts.source()
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

    def test_a_version_that_was_only_compared_is_reported(self):
        self.metadata("vllm-0.25.1", {"METADATA": "Name: vllm\nVersion: 0.25.1\n"})
        self.assertIn("vllm None 0.25.1 starts without images unless FOUNDRY_VLLM_COMPARED=1",
                      self.report(table="COMPARED"))
        self.assertIn("vllm True 0.25.1 was compared with",
                      self.report(table="COMPARED", FOUNDRY_VLLM_COMPARED="1"))

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

    def sealed(self, **options):
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

    # Statements of a start that serves, before and after it has begun.
    QUICK = """if 1:
        from foundry.engines import watch
        from foundry.vllm import worker as workers
        import subprocess, sys, threading, time, triton, weakref
        watch.QUIET = 0.2
        sessions = []
        def __init__(self, *args, begin=workers.Session.__init__):
            begin(self, *args)
            sessions.append(weakref.ref(self))
        workers.Session.__init__ = __init__
        def wait(until):
            end = time.monotonic() + 60
            while not until():
                assert time.monotonic() < end
                time.sleep(0.05)
        def follower():
            return [each for each in threading.enumerate() if each.name == "foundry-served"]
        """
    SERVES = """
            subprocess.run([sys.executable, "-c", "import triton; triton.compile('other')"],
                           check=True)
            triton.compile("served")
            """

    def test_kernels_of_requests_are_carried_later(self):
        """Those of this start, and not those of another one that shares the folder."""
        log = self.start(self.SERVES + """wait(lambda: len(sessions[0]().carried.sizes) == 10)
            """, counts="ONCE", before=self.QUICK, compiles=("sampler", "prepare", "served"))
        self.assertIn("7 files of caches", log)
        self.assertIn("the image 'test' carries files for caches; 10 files of caches,", log)
        self.assertNotIn("OTHER", self.store("print([f.name for f in store.files('test')])"))
        shutil.rmtree(self.path(CACHE))
        log = self.start("triton.compile('served')\n", before="import triton\n")
        self.assertIn("10 files for caches, 9 of them were missing", log)

    def test_files_that_cannot_be_noted_are_not_looked_for_later(self):
        for function, compiles in (("stop", ("sampler", "prepare")), ("used", ())):
            log = self.start("time.sleep(1)\nassert not follower()\n", counts="ONCE",
                             compiles=compiles, before=self.QUICK + textwrap.dedent(f"""
                def failed(self):
                    raise OSError("of a test")
                watch.Watch.{function} = failed
                """), FOUNDRY_VLLM=function)
            self.assertIn("OSError: of a test", log)
            self.assertNotIn("TypeError", log)

    def test_another_image_of_the_name_stays_the_newest(self):
        """That of a start with these settings, or with others."""
        for other in ("'other'", "store.attach('test', [foundry.File('a', b'a')])"):
            self.start(counts="ONCE", compiles=("sampler", "prepare"), options="seqs=5",
                       FOUNDRY_VLLM="other")
            shutil.rmtree(self.path(CACHE))
            self.start(self.SERVES + f"""with foundry.Store() as store:
                store.tag({other}, "test")
                named = [each.id for each in store.refs() if each.name == "test"]
            wait(lambda: not follower())
            with foundry.Store(readonly=True) as store:
                assert named == [each.id for each in store.refs() if each.name == "test"]
                assert "SERVED" not in str([f.name for f in store.files(named[0])])
            """, counts="ONCE", before=self.QUICK, compiles=("sampler", "prepare", "served"))
            shutil.rmtree(self.path(CACHE))
            shutil.rmtree(self.path(".cache"))

    def test_files_of_every_kind_are_found_later(self):
        """Those noted before the thread begins, those that C maps after a long build, and those
        after a file that no image can carry, while no file could be opened, and if they change.
        """
        self.script(self.QUICK + textwrap.dedent("""
            import ctypes, os, resource
            from foundry.engines import caches
            class Session:
                def __init__(self, name):
                    os.makedirs(name)
                    self.name, self.log_bug = os.path.abspath(name), None
                    self.watch = watch.Watch({"triton": self.name})
                    self.watch.stop()
                    self.carried = caches.Carried(self.watch)
                def attach_files(self, late):
                    self.carried.add(self.carried.more())
                    return True
                def put(self, file, data=b"x"):
                    path = f"{self.name}/{file}"
                    with open(path + ".new", "wb") as f:
                        f.write(data)
                    os.replace(path + ".new", path)
                def has(self, file):
                    wait(lambda: f"triton/{file}" in self.carried.sizes)
            early = Session("early")
            early.put("k")
            watch.follow(early)
            early.has("k")
            early.put("__grp__x.json", b'{"other": 1}')
            time.sleep(1)
            early.put("l")
            early.has("l")
            assert "triton/__grp__x.json" not in early.carried.sizes
            early.put("m", bytes(8192))
            early.has("m")
            early.put("k", bytes(5))
            wait(lambda: early.carried.sizes["triton/k"] == 5)

            mapped = Session("mapped")
            watch.follow(mapped)
            mapped.put("build.ninja")
            mapped.has("build.ninja")
            os.system("head -c 8192 /dev/zero > mapped/m.so")
            libc = ctypes.CDLL(None)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3,
                                  ctypes.c_long]
            handle = libc.open(b"mapped/m.so", 0)
            assert libc.mmap(None, 4096, 1, 2, handle, 0)
            mapped.has("m.so")

            few = Session("few")
            watch.follow(few)
            few.put("k")
            held, limits = [], resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
            try:
                while True:
                    held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
            time.sleep(1)
            for each in held:
                os.close(each)
            few.has("k")
            """))

    def test_the_thread_ends_with_the_worker(self):
        """It does not keep the memory of an engine that was dropped."""
        log = self.script(ENGINE + self.QUICK + textwrap.dedent("""
            import gc
            worker = start()
            assert follower()
            decodes(worker)
            del worker
            gc.collect()
            assert sessions[0]() is None
            wait(lambda: not follower())
            """), FOUNDRY_VLLM="test")
        self.assertIn("captured and sealed", log)

    def test_modules_of_flashinfer_are_carried(self):
        """Those that the start used, for a host without a compiler and with another folder."""
        use = "from flashinfer.jit import core\n"
        self.script(use + "core.module('another').build_and_load()\n")
        module = "gpu_worker.MODULES.append('sampling')\n"
        self.start("from flashinfer.jit import core\nassert core.BUILT == ['sampling']\n",
                   counts="ONCE", compiles=("sampler", "prepare"), before=module)
        found = self.store("print([f.name for f in store.files('test') if '.so' in f.name])")
        name = "0.6/90a/cached_ops/sampling/sampling.so"
        self.assertEqual(found, repr(["flashinfer-cache/" + name]))
        log = self.start("assert core.BUILT == []\n", FLASHINFER_WORKSPACE_BASE=self.path("other"),
                         before=module + use + "core.COMPILER = None\n")
        self.assertIn("1 of them were missing", log)
        with open(self.path("other/.cache/flashinfer/" + name), "rb") as f:
            self.assertEqual(f.read(), b"library")

    def test_flashinfer_is_imported_after_the_engine_has_selected_its_gpu(self):
        module = "gpu_worker.MODULES.append('sampling')\n"
        self.start(counts="ONCE", compiles=("sampler", "prepare"), before=module)
        self.start("from flashinfer.jit import core\nassert core.BUILT == []\nassert seen\n",
                   before=module + textwrap.dedent("""
            import sys
            seen = []
            def init_device(worker, original=gpu_worker.Worker.init_device):
                original(worker)
                assert "flashinfer" not in sys.modules
                seen.append(worker)
            gpu_worker.Worker.init_device = init_device
            """))

    def test_modules_are_carried_though_a_link_leads_to_their_folder(self):
        """The process has mapped them at another path."""
        os.mkdir(self.path("real"))
        os.symlink(self.path("real"), self.path("link"))
        place = {"FLASHINFER_WORKSPACE_BASE": self.path("link")}
        self.script("from flashinfer.jit import core\ncore.module('sampling').build_and_load()\n",
                    **place)
        module = "gpu_worker.MODULES.append('sampling')\n"
        self.start(counts="ONCE", compiles=("sampler", "prepare"), before=module, **place)
        self.assertIn("sampling.so", self.store("print([f.name for f in store.files('test')])"))

    def test_a_start_that_uses_no_module_does_not_import_flashinfer(self):
        for counts, compiles in (("ONCE", ("sampler", "prepare")), ("LOADED", ())):
            self.start("import sys\nassert 'flashinfer' not in sys.modules\n", counts=counts,
                       compiles=compiles)

    def test_kernels_that_flashinfer_has_fetched_are_carried(self):
        folder = self.path(".cache/flashinfer/cubins/0123")
        fetched = f"import os\nos.makedirs({folder!r}, exist_ok=True)\n" + "".join(
            f"with open({folder + '/' + name!r}, 'a') as f:\n    f.write('fetched')\n"
            for name in ("gemm.cubin", "checksums.txt"))
        self.start(counts="ONCE", compiles=("sampler", "prepare"), before=textwrap.dedent("""
            def kernel_warmup(worker, original=gpu_worker.kernel_warmup):
                original(worker)
            """) + textwrap.indent(fetched, " " * 4) + "gpu_worker.kernel_warmup = kernel_warmup\n")
        shutil.rmtree(folder)
        self.start()
        self.assertEqual(os.listdir(folder), ["gemm.cubin"])

    def deepgemm(self, loaded, compiles=("sampler", "prepare"), **more):
        """A start that captures, and whose warm-up loads kernels of DeepGEMM. Those that are
        missing are compiled.
        """
        return self.start(counts="ONCE", compiles=compiles, before=textwrap.dedent(f"""
            import ctypes
            import os
            import shutil
            import torch
            def kernel_warmup(worker, original=gpu_worker.kernel_warmup):
                original(worker)
                for name in {loaded!r}:
                    folder = os.path.join({self.path(self.DEEPGEMM)!r}, name)
                    path = os.path.join(folder, "kernel.cubin")
                    if not os.path.isdir(folder):
                        os.makedirs(folder)
                        shutil.copy(torch._CUBIN, path)
                        for more in "kernel.cu", "kernel.ptx":
                            with open(os.path.join(folder, more), "w") as f:
                                f.write(name)
                    module = ctypes.c_void_p()
                    assert not ctypes.CDLL("libcuda.so.1").cuModuleLoad(
                        ctypes.byref(module), path.encode())
            gpu_worker.kernel_warmup = kernel_warmup
            """), **more)

    DEEPGEMM = ".cache/vllm/deep_gemm/cache"

    def kernels(self):
        """Return {kernel of DeepGEMM: [its files]}."""
        folder = self.path(self.DEEPGEMM)
        return {name: sorted(os.listdir(os.path.join(folder, name)))
                for name in os.listdir(folder)}

    def test_kernels_of_deepgemm_that_were_loaded_are_carried(self):
        """Also those that were there; each as a whole, since DeepGEMM fails otherwise."""
        one, two, other = "kernel.one.01", "kernel.two.02", "kernel.other.03"
        self.deepgemm([one, other], FOUNDRY_VLLM="0")
        self.deepgemm([one, two], compiles=())
        self.assertEqual(set(self.kernels()), {one, two, other})
        shutil.rmtree(self.path(self.DEEPGEMM))
        os.makedirs(self.path(f"{self.DEEPGEMM}/{two}"))
        kept = self.path(f"{self.DEEPGEMM}/{two}/kernel.cu")
        with open(kept, "w", encoding="ascii") as f:
            f.write("of another process")
        log = self.start()
        self.assertIn("2 of them were missing", log)
        self.assertEqual(self.kernels(), {one: ["kernel.cu", "kernel.cubin"], two: ["kernel.cu"]})
        with open(kept, encoding="ascii") as f:
            self.assertEqual(f.read(), "of another process")
        with open(self.path(f"{self.DEEPGEMM}/{one}/kernel.cu"), encoding="ascii") as f:
            self.assertEqual(f.read(), one)

    def test_files_of_deepgemm_that_make_no_kernel_are_left_out(self):
        self.script("""if 1:
            import os
            from foundry import File
            from foundry.engines import deepgemm
            def file(name):
                return File(name, b"bytes", False)
            whole = [file("deepgemm/one/kernel.cu"), file("deepgemm/one/kernel.cubin")]
            others = [file("deepgemm/two/kernel.cu"), file("deepgemm/kernel.cubin"),
                      file("deepgemm/three/more/kernel.cu"), file("deepgemm/four/kernel.cubin")]
            assert list(deepgemm.of(whole + others)) == ["one"]
            triton = file("triton/kernel.cu")
            assert deepgemm.complete([*others, *whole, triton]) == [*whole, triton]
            for name in "empty", "there":
                os.mkdir(name)
            with open("there/kernel.cu", "w") as f:
                f.write("another's")
            counts = [deepgemm.write(".", name, whole) for name in ("new", "empty", "there")]
            assert counts == [2, 2, 0], counts
            assert sorted(os.listdir(".")) == ["empty", "new", "there"], os.listdir(".")
            for name in "new", "empty":
                assert sorted(os.listdir(name)) == ["kernel.cu", "kernel.cubin"]
            assert os.listdir("there") == ["kernel.cu"]
            """)

    def test_a_kernel_of_deepgemm_is_written_as_a_whole_or_not_at_all(self):
        self.deepgemm(["kernel.one.01"])
        shutil.rmtree(self.path(self.DEEPGEMM))
        log = self.start(before=textwrap.dedent("""
            import os
            def rename(*_):
                raise PermissionError(1, "Operation not permitted")
            os.rename = rename
            """))
        self.assertIn("a file of the image could not be written: [Errno 1]", log)
        self.assertEqual(self.kernels(), {})

    def test_the_folder_may_have_a_path_with_more_parts(self):
        """The compiler writes the path into its lists as the variable has it."""
        for folder in ("/./kernels", "//kernels"):
            place = {"TRITON_CACHE_DIR": self.folder.name + folder}
            shutil.rmtree(self.path(".cache"), ignore_errors=True)
            self.start(counts="ONCE", compiles=("sampler", "prepare"), **place)
            shutil.rmtree(self.path("kernels"))
            self.assertIn("7 files for caches, 6 of them were missing", self.start(**place))
            shutil.rmtree(self.path("kernels"))

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

    def infos(self):
        """Let a first start use vLLM's notes of its model's class. Return their folder, emptied."""
        folder = self.path(".cache/vllm/modelinfos")
        os.makedirs(folder)
        for name in ("models-one-Architecture", "models-two-Other"):
            with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
                f.write(name)
        log = self.start(counts="ONCE", compiles=("sampler", "prepare"))
        self.assertIn("8 files of caches", log)
        shutil.rmtree(folder)
        return folder

    def register(self, before="", **variables):
        """Register the plug-in, as each process of vLLM does."""
        return self.script(f"import foundry.vllm\n{before}foundry.vllm.register()\n",
                           **{"FOUNDRY_VLLM": "test", **variables})

    def test_a_file_system_without_links_gets_the_files(self):
        self.first()
        shutil.rmtree(self.path(CACHE))
        log = self.start(before=textwrap.dedent("""
            import os
            def link(*_):
                raise PermissionError(1, "Operation not permitted")
            os.link = link
            """))
        self.assertIn("7 files for caches, 6 of them were missing", log)
        self.assertEqual(sorted(os.listdir(self.kernel())), sorted(KERNEL))

    def test_vllms_notes_of_a_models_class_are_there_before_a_worker(self):
        """The architecture of the model alone."""
        folder = self.infos()
        self.register(FOUNDRY_VLLM_CACHES="0")
        self.assertFalse(os.path.exists(folder))
        self.register(FOUNDRY_VLLM="other")
        self.assertFalse(os.path.exists(folder))
        self.register()
        self.assertEqual(os.listdir(folder), ["models-one-Architecture.json"])
        with open(os.path.join(folder, "models-one-Architecture.json"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "models-one-Architecture")

    def test_the_images_of_ranks_have_these_notes_too(self):
        folder = self.infos()
        self.store("store.tag('test', 'test.rank0'), store.remove('test')")
        self.register()
        self.assertEqual(os.listdir(folder), ["models-one-Architecture.json"])

    def test_these_notes_come_from_each_image_of_the_name(self):
        """Servers with different models may share a name."""
        folder = self.infos()
        self.start(counts="ONCE", options="seqs=5", FOUNDRY_VLLM_CACHES="0")
        self.register()
        self.assertEqual(os.listdir(folder), ["models-one-Architecture.json"])

    def test_an_image_with_these_notes_is_fetched(self):
        """By the process that makes the engine alone, and if the store has no image of the name."""
        folder = self.infos()
        pack = self.path("pack")
        self.store(f"store.export(['test'], {pack!r})\nstore.tag('test', 'test.rank0')\n"
                   "store.remove('test')\n"
                   f"store.export(['test.rank0'], {pack!r} + '.rank0')\n"
                   "store.remove('test.rank0')\n")
        fetch = textwrap.dedent("""
            import foundry
            def pull(store, ref):
                if ref != %r:
                    raise foundry.Error(-300, "there is none")
                store.import_(%r)
            foundry.Store.pull = pull
            """)
        one, rank = fetch % ("test", pack), fetch % ("test.rank0", pack + ".rank0")
        registry = {"FOUNDRY_REGISTRY": "oci://127.0.0.1:1/models"}
        self.register(one)
        self.assertFalse(os.path.exists(folder))
        child = "import multiprocessing\nmultiprocessing.parent_process = lambda: multiprocessing\n"
        self.register(one + child, **registry)
        self.assertFalse(os.path.exists(folder))
        for text in (one, rank):
            said = self.register("import vllm.logger\n" + text, **registry)
            self.assertIn("INFO Foundry: fetching 'test' from oci://127.0.0.1:1/models", said)
            self.assertEqual(os.listdir(folder), ["models-one-Architecture.json"])
            shutil.rmtree(folder)
            self.store("for each in store.refs():\n    store.remove(each.name)\n")

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
            caches.Carried.more = lambda self: []
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
            from foundry.engines import caches, log
            said = []
            log.warning = lambda text, root: said.append(root)
            from foundry.vllm.folders import folders
            store.attach = None
            class Images:
                def files(self, ref, wanted):
                    return [f for f in files if f.name in wanted]
            carried = {f.name for f in files}
            assert caches.unpack(Images(), "test", folders(), carried) == (2, 0)
            assert said == [folders()["triton"]], said
            """)
        self.assertEqual(os.listdir(self.path("outside")), [])

    def test_a_list_is_written_only_if_its_files_are_there(self):
        """Triton takes a list for complete. It would fail in place of compiling."""
        self.start(counts="ONCE", compiles=("sampler", "prepare"), before=textwrap.dedent("""
            from foundry.engines import caches
            more = caches.Carried.more
            caches.Carried.more = lambda self: [f for f in more(self)
                                                if not f.name.endswith("sampler.cubin")]
            """))
        shutil.rmtree(self.path(CACHE))
        self.start(before="gpu_worker.KERNELS.clear()\n")
        self.assertEqual(os.listdir(self.kernel()), ["sampler.ptx"])
        self.assertTrue(os.path.exists(self.path(os.path.join(CACHE, "PREPARE/prepare.cubin"))))

    def test_a_list_is_carried_only_with_its_files(self):
        self.start(counts="ONCE", compiles=("sampler", "prepare"), before=textwrap.dedent("""
            from foundry.engines import caches
            more = caches.Carried.more
            def larger(self):
                for name, path in self.watch.used():
                    if name.endswith("sampler.cubin"):
                        with open(path, "ab") as f:
                            f.write(bytes(1000))
                return more(self)
            caches.SIZE_MAX, caches.Carried.more = 900, larger
            """))
        self.assertIn("['triton/PREPARE/__grp__prepare.json']", self.store("""
            found = {f.name for f in store.files("test")}
            assert "triton/SAMPLER/sampler.ptx" in found, found
            print([each for each in found if "__grp__" in each])
            """))

    def test_a_file_that_vanishes_costs_no_other(self):
        """Another engine has temporary files in the same folders."""
        log = self.start(counts="ONCE", compiles=("sampler", "prepare"), before=textwrap.dedent("""
            from foundry.engines import watch
            import os
            below = watch._below
            watch._below = lambda folder: below(folder) | {os.path.join(folder, "tmp.pid", "x")}
            of = watch.Watch.__init__
            def __init__(self, *args):
                of(self, *args)
                self._before = set()
            watch.Watch.__init__ = __init__
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

    def test_a_folder_of_another_user_is_left_and_named(self):
        """Such as one of the host in a container."""
        self.first()
        shutil.rmtree(self.path(CACHE))
        os.mkdir(self.path(CACHE))
        log = self.start(before=textwrap.dedent("""
            import os
            os.geteuid = lambda uid=os.geteuid(): uid + 1
            gpu_worker.KERNELS.clear()
            """))
        self.assertEqual(os.listdir(self.path(CACHE)), [])
        said = f"files of the image are not written below {self.path(CACHE)}: another user owns it"
        self.assertEqual(log.count(said), 1)


if __name__ == "__main__":
    suite.main()
