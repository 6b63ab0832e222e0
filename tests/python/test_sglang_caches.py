# SPDX-License-Identifier: Apache-2.0
"""Files of caches in images of a small engine in SGLang's place, and what the doctor reports."""
import os
import shutil

import suite
from sglang_scripts import ENGINE, Engine

CACHE = ".triton/cache"
MODULES = ".cache/flashinfer"
JIT = MODULES + "/0.6/90a/cached_ops"


class Doctor(Engine):
    """The report of `python -m foundry doctor` about the small engine."""

    def metadata(self, name, files):
        folder = self.path(os.path.join("site", name + ".dist-info"))
        os.makedirs(folder)
        for file, text in files.items():
            with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
                f.write(text)

    def report(self, ref="test", **variables):
        return self.script(f"""if 1:
            import sys
            sys.path.insert(0, "site")
            from foundry.sglang import doctor, facts
            facts.SOURCES["of the stand-in"] = facts.source()
            doctor.report(lambda *what: print(*what), {ref!r})
            """, **variables)

    def test_an_engine_that_is_not_there_is_no_error(self):
        self.assertIn("sglang None not installed (only needed to start SGLang from images)",
                      self.report())

    def test_each_part_is_reported(self):
        self.metadata("sglang-0.5", {"METADATA": "Name: sglang\nVersion: 0.5\n"})
        said = self.report(ref="0")
        for line in ("sglang True 0.5 is supported",
                     "sglang plug-in None SGLang does not find it",
                     "sglang interposer None needs `python3 -m foundry run`",
                     f"sglang caches True triton {self.path(CACHE)}, "
                     f"flashinfer-cache {self.path(MODULES)}",
                     "sglang image None FOUNDRY_SGLANG is not set"):
            self.assertIn(line, said)
        self.metadata("foundry-0", {
            "METADATA": "Name: foundry\nVersion: 0\n",
            "entry_points.txt": "[sglang.srt.plugins]\nfoundry = foundry.sglang:register\n"})
        said = self.report()
        self.assertIn("sglang plug-in True SGLang finds it", said)
        self.assertIn("sglang image True the next start is a first one", said)
        self.assertIn("SGLANG_PLUGINS leaves it out", self.report(SGLANG_PLUGINS="other, more"))
        self.assertIn("SGLang finds it", self.report(SGLANG_PLUGINS="other, foundry"))
        self.start()
        self.assertIn("sglang image True 'test' is in the store, with 12 files", self.report())


class Caches(Engine):
    """Files of caches that an image carries."""

    MADE = "sglang.srt.model_executor.model_runner.Model.__init__"

    def start(self, text="", counts="LOADED", compiles=(), ninja=(), **options):
        """One start, which compiles the kernels `compiles` and the modules `ninja`."""
        return super().start(text, counts, after=f"""
            import triton
            from flashinfer.jit import core
            assert triton.COMPILED == {list(compiles)}, triton.COMPILED
            assert core.BUILT == {list(ninja)}, core.BUILT
            """, **options)

    def sealed(self, **options):
        log = self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"), ninja=("rope",),
                         **options)
        self.assertIn("12 files of caches", log)
        return log

    def test_a_host_with_empty_caches_compiles_nothing(self):
        self.first()
        self.start(ninja=())
        for folder in (CACHE, JIT):
            shutil.rmtree(self.path(folder))
        self.assertIn("12 files for caches, 10 of them were missing", self.start())
        for name in ("rope.o", "build.ninja"):
            self.assertFalse(os.path.exists(self.path(os.path.join(JIT, "rope", name))))
        self.assertIn("12 files for caches, 0 of them were missing", self.start())

    def test_a_start_that_ends_before_a_request_leaves_the_files_of_its_capture(self):
        done = self.run_one(ENGINE + "import os\nfoundry.sglang.register()\nstart()\n"
                            "os._exit(9)\n", FOUNDRY_SGLANG="test")
        self.assertEqual(done.returncode, 9, done.stderr)
        for folder in (CACHE, JIT):
            shutil.rmtree(self.path(folder))
        self.start(compiles=("prefill",))

    def test_an_image_that_another_start_has_sealed_meanwhile_stays(self):
        log = self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"), ninja=("rope",),
                         text="""
            with foundry.Store() as store:
                other = store.attach(runner.foundry_session.sealed.id, [foundry.File("a", b"a")])
                store.tag(other, "test")
            """)
        self.assertIn("files of requests are not attached to 'test' any more, because its newest "
                      "image is another one", log)
        self.script("import foundry\nwith foundry.Store(readonly=True) as store:\n"
                    "    assert [each.name for each in store.files('test')] == ['a']\n")

    def test_a_library_that_the_process_only_maps_is_carried(self):
        self.script("from flashinfer.jit import core\ncore.module('rope').build_and_load()\n"
                    "import triton\nfor name in ('attention', 'norm', 'prefill'):\n"
                    "    triton.compile(name)\n")
        log = self.start(counts="PLAIN", ninja=("rope",), compiles=())
        self.assertIn("files of caches", log)
        shutil.rmtree(self.path(JIT))
        self.start()

    def test_a_host_without_a_compiler_loads_the_modules(self):
        """Its folders may lie elsewhere, and it may lack the sources."""
        self.first()
        shutil.rmtree(self.path(MODULES))
        for source in ("", "core.SOURCE = None"):
            place = {"FLASHINFER_WORKSPACE_BASE": self.path("other" + source)}
            log = self.start(before=f"""
                from flashinfer.jit import core
                core.COMPILER = None
                {source}
                """, **place)
            self.assertIn("1 of them were missing", log)

    def test_flashinfers_sampler_is_compiled_for_other_hosts(self):
        """The first request needs none, and a later one would compile it."""
        options = {"options": "sampling_backend='flashinfer'"}
        sampled = ("from flashinfer.sampling import gen_sampling_module\n"
                   "gen_sampling_module().build_and_load()\n")
        log = self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"),
                         ninja=("rope", "sampling"), **options)
        self.assertIn("Foundry: compiling FlashInfer's sampler for hosts that load 'test'", log)
        shutil.rmtree(self.path(MODULES))
        self.assertNotIn("sampler", self.start(sampled, **options))

    def test_files_that_others_write_meanwhile_are_not_carried(self):
        self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"),
                   ninja=("rope", "sampling"), options="sampling_backend='flashinfer'", before=f"""
            from foundry.engines import jit
            def prepare(spec, original=jit.prepare):
                with open("{CACHE}/other", "wb") as f:
                    f.write(b"of another process")
                return original(spec)
            jit.prepare = prepare
            """)
        self.script("import foundry\nwith foundry.Store(readonly=True) as store:\n"
                    "    names = str([each.name for each in store.files('test')])\n"
                    "    assert 'sampling.so' in names and 'other' not in names, names\n")

    def test_a_start_that_sealed_nothing_compiles_no_sampler(self):
        log = self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"),
                         ninja=("rope",), options="sampling_backend='flashinfer', "
                         "hidden_constant=True")
        self.assertIn("not sealed: ", log)

    def test_a_sampler_that_came_with_flashinfer_is_not_compiled(self):
        log = self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"), ninja=("rope",),
                         before="from flashinfer.jit import core\ncore.JitSpec.is_aot = True\n",
                         options="sampling_backend='flashinfer'")
        self.assertNotIn("sampler", log)

    def test_a_sampler_that_cannot_be_compiled_costs_no_other_file(self):
        log = self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"), ninja=("rope",),
                         before="""
            from flashinfer.jit import core
            def build(spec, *args, build=core.JitSpec.build, **more):
                if spec.name == "sampling":
                    raise RuntimeError("there is no compiler")
                build(spec, *args, **more)
            core.JitSpec.build = build
            """, options="sampling_backend='flashinfer'")
        self.assertIn("WARNING Foundry: the image lacks FlashInfer's sampler, because there is no "
                      "compiler", log)
        shutil.rmtree(self.path(MODULES))
        self.start(options="sampling_backend='flashinfer'")

    def test_another_library_is_built_again(self):
        self.first()
        path = self.path(os.path.join(JIT, "rope/rope.so"))
        with open(path, "ab") as f:
            f.write(b" of another compiler")
        self.start(ninja=("rope",))
        with open(path, "rb") as f:
            self.assertEqual(f.read(), b"library of another compiler")

    def test_a_library_that_ninja_has_built_before_is_left_to_it(self):
        """Ninja would take the image's for its own, though flags or sources may be others."""
        self.first()
        os.unlink(self.path(os.path.join(JIT, "rope/rope.so")))
        self.assertIn(" 0 of them were missing", self.start(ninja=("rope",)))
        shutil.rmtree(self.path(os.path.join(JIT, "rope")))
        os.makedirs(self.path(os.path.join(JIT, "rope")))
        with open(self.path(os.path.join(JIT, "rope/.ninja_log")), "w", encoding="ascii") as f:
            f.write("# ninja log v5\n")  # as a build leaves it that has failed
        self.assertIn(" 1 of them were missing", self.start())

    def test_other_flags_or_sources_build_again(self):
        self.first()
        for other in ("core.FLAGS = ['-O2']", "core.SOURCE = 'other'"):
            self.start(ninja=("rope",), before="from flashinfer.jit import core\n" + other)

    def test_other_headers_build_again(self):
        header = self.path("data/include/a.cuh")
        os.makedirs(os.path.dirname(header))
        for text, ninja in (("first", None), ("first", ()), ("second", ("rope",))):
            with open(header, "w", encoding="utf-8") as f:
                f.write(text)
            if ninja is None:
                self.sealed()
            else:
                self.start(ninja=ninja)
        shutil.rmtree(self.path("data"))
        self.start()  # this host lacks them

    def test_a_library_that_another_process_has_built_meanwhile_is_built_again(self):
        """It may be of other flags; the image is compared when FlashInfer needs the library."""
        self.first()
        self.start(ninja=("rope",), before=self.after_making(f"""
            with open("{JIT}/rope/rope.so", "ab") as f:
                f.write(b" of another process")
            """))

    def test_a_library_that_this_host_cannot_load_is_built_again(self):
        """For example, the first start's host has a newer C library."""
        self.first()
        log = self.start(ninja=("rope",), before="""
            from flashinfer.jit import core
            core.FOREIGN = b"library"
            def run_ninja(folder, name, original=core.run_ninja):
                original(folder, name)
                core.FOREIGN = b"foreign"
            core.run_ninja = run_ninja
            """)
        self.assertIn("WARNING Foundry: FlashInfer compiles the module rope, because that of the "
                      "image cannot be loaded: ", log)
        self.assertIn("Foundry: loaded 'test'", log)

    def test_a_description_that_is_not_understood_builds_again(self):
        """Another version of Foundry may have written it."""
        self.first()
        self.start(ninja=("rope",), before="""
            from foundry.engines import jit
            def modules(*args, original=jit.modules):
                return dict.fromkeys(original(*args), {"other": None})
            jit.modules = modules
            """)

    def test_a_start_without_sources_states_those_of_the_image(self):
        """It loads the image's module, and seals since its tensors lie elsewhere. A third host has
        other sources.
        """
        self.first()
        shutil.rmtree(self.path(MODULES))
        more = self.after_making("module.more = one(7.0)") + "from flashinfer.jit import core\n"
        log = self.start(counts="{**PLAIN, 'profile': 0}", before=more + "core.SOURCE = None\n")
        self.assertIn("captured and sealed 'test'", log)
        self.script("import foundry\nwith foundry.Store(readonly=True) as store:\n"
                    "    assert 'rope.so' in str([f.name for f in store.files('test')])\n")
        self.start(ninja=("rope",), before=more + "core.SOURCE = 'other'\n")

    def test_a_flashinfer_with_other_functions_costs_no_other_file(self):
        log = self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"),
                         ninja=("rope",), before="""
            from flashinfer.jit import core
            def build(spec, *_args, **_kwargs):
                core.run_ninja(spec.ninja_path.parent, spec.name)
            core.JitSpec.build = build
            core.generate_ninja_build_for_op = lambda name: name
            os.makedirs("%s/rope")
            """ % JIT)
        line = f"INFO Foundry: the image does not carry {self.path(JIT)}/rope/rope.so"
        self.assertEqual(log.count(line), 1, log)
        self.assertIn(" files of caches", log)
        shutil.rmtree(self.path(CACHE))
        self.start(ninja=("rope",))

    def test_another_version_of_flashinfer_builds_again(self):
        self.first()
        self.start(ninja=("rope",), before="""
            from flashinfer.jit import env
            env.FLASHINFER_JIT_DIR = env.FLASHINFER_JIT_DIR.parents[2] / "0.7/90a/cached_ops"
            """)

    def test_a_module_that_cannot_be_described_is_not_carried(self):
        """A FlashInfer without a registry of modules, and a library of other commands."""
        other = os.path.join(JIT, "rope/build.ninja")
        for before in ("del core.jit_spec_registry\ncore.JitSpecRegistry.register = None\n"
                       "core.jit_spec_registry = type('', (), {'register': lambda *_: None})()",
                       f"core.run_ninja = lambda *args, run=core.run_ninja: (run(*args), "
                       f"open({other!r}, 'a').write('other'))"):
            log = self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"),
                             ninja=("rope",), before="from flashinfer.jit import core\n" + before)
            self.assertIn(f"the image does not carry {self.path(JIT)}/rope/rope.so", log)
            self.assertIn("captured and sealed", log)
            shutil.rmtree(self.path(".cache"))
            shutil.rmtree(self.path(".triton"))

    def test_modules_of_sglang_may_lie_elsewhere(self):
        own = {"TVM_FFI_CACHE_DIR": self.path("own")}
        write = """
            import os
            os.makedirs("own/kernel")
            with open("own/kernel/kernel.so", "wb") as f:
                f.write(b"library")
            """
        self.start(write, counts="PLAIN", compiles=("attention", "norm", "prefill"),
                   ninja=("rope",), **own)
        self.start(TVM_FFI_CACHE_DIR=self.path("other"))
        with open(self.path("other/kernel/kernel.so"), "rb") as f:
            self.assertEqual(f.read(), b"library")

    def test_a_module_that_only_another_process_builds_is_not_carried(self):
        """It may be incomplete. This start does not need it, so the log does not name it."""
        log = self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"), ninja=("rope",),
                         before="from flashinfer.jit import core\ncore.module('other')\n"
                         + self.after_making(f"""
            path = "{JIT}/other"
            commands = core.generate_ninja_build_for_op(
                "other", core.module("other").sources, None, core.FLAGS, None, None, False)
            os.makedirs(path)
            with open(path + "/build.ninja", "w") as f:
                f.write(commands)
            os.system(f"echo half > {{path}}/other.so")
            """))
        self.assertNotIn("other", log)
        self.script("import foundry\nwith foundry.Store(readonly=True) as store:\n"
                    "    names = str([each.name for each in store.files('test')])\n"
                    "    assert 'rope.so' in names and 'other' not in names, names\n")

    def test_a_variable_turns_it_off(self):
        log = self.start(counts="PLAIN", compiles=("attention", "norm", "prefill"), ninja=("rope",),
                         FOUNDRY_SGLANG_CACHES="0")
        self.assertNotIn("caches", log)


if __name__ == "__main__":
    suite.main()
