# SPDX-License-Identifier: Apache-2.0
"""Which image a start of a small engine in vLLM's place uses: of several, of a store that changes
meanwhile, or from a registry.
"""
import os
import re
import textwrap

import suite
from engine_tests import pulling
from vllm_scripts import ENGINE, Engine


class Images(Engine):
    """Each start is a process of its own."""

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
            """), counts=self.AGAIN)
        self.assertIn("there is no ref 'test' in the store", log)
        self.assertIn("captured and sealed", log)
        self.assertIn("5 files of caches", log)  # the compiler reads all but two

    def test_a_collection_during_the_seal_costs_no_image(self):
        """The image has no name until it was checked."""
        for method in ("describe", "tag"):
            log = self.start(before=textwrap.dedent(f"""
                original = foundry.Store.{method}
                def collected(store, *args):
                    if args[0] != "test":
                        foundry.Store.{method} = original
                        with foundry.Store() as other:
                            assert other.gc().by_kind["manifest"][0]
                    return original(store, *args)
                foundry.Store.{method} = collected
                """), counts="ONCE", FOUNDRY_VLLM="test")
            self.assertIn("Foundry: captured and sealed 'test'", log)
            self.assertIn("Foundry: loaded", self.start(counts="LOADED"))
            self.script("import foundry\nfoundry.Store().remove('test')\n")

    def test_an_image_that_another_start_seals_meanwhile_changes_nothing(self):
        self.first()
        own, other = (
            re.search(r"loaded 'test' \((\w+)", self.start(counts="LOADED", options=options))[1]
            for options in ("", "seqs=5") if not options or self.start(options=options))
        self.script(f"import foundry\nfoundry.Store().tag({own!r}, 'test')\n")
        log = self.start(counts="LOADED", before=textwrap.dedent(f"""
            from vllm.v1.worker.gpu import model_runner
            original = model_runner.GPUModelRunner.load_model
            def sealed(self):
                with foundry.Store() as store:
                    store.tag({other!r}, "test")
                original(self)
            model_runner.GPUModelRunner.load_model = sealed
            """))
        self.assertIn(f"loaded 'test' ({own}", log)

    def test_an_image_that_gets_files_meanwhile_is_loaded(self):
        """It is another image then, which has the place of the one that was chosen."""
        self.first()
        log = self.start(counts="LOADED", before=textwrap.dedent("""
            from vllm.v1.worker.gpu import model_runner
            original = model_runner.GPUModelRunner.load_model
            def attached(self):
                with foundry.Store() as store:
                    store.attach("test", [foundry.File("triton/MORE/more.cubin", b"code")])
                original(self)
            model_runner.GPUModelRunner.load_model = attached
            """))
        self.assertIn("Foundry: loaded 'test'", log)

    def test_each_configuration_has_its_image_of_a_name(self):
        self.first()
        log = self.start(options="seqs=5")
        self.assertIn("because max_num_seqs is 5 here and 4 in the image", log)
        for options in ("", "seqs=5", ""):
            self.start(counts="LOADED", options=options)
        log = self.start(options="seqs=6")
        self.assertIn("because max_num_seqs is 6 here and 5 in the image", log)  # the newest

    def test_an_image_that_is_removed_while_it_is_looked_at_is_not_used(self):
        self.first()
        log = self.start(before=textwrap.dedent("""
            describe = foundry.Store.describe
            def removed(store, name):
                foundry.Store.describe = describe
                store.remove("test")
                return describe(store, name)
            foundry.Store.describe = removed
            """))
        self.assertIn("captured and sealed", log)

    def test_an_image_that_vanishes_does_not_hide_an_older_one(self):
        self.first()
        self.start(options="seqs=5")
        log = self.start(counts="LOADED", before=textwrap.dedent("""
            facts_of = foundry.Store.facts
            def removed(store, name):
                foundry.Store.facts = facts_of
                store.remove(name)
                return facts_of(store, name)
            foundry.Store.facts = removed
            """))
        self.assertIn("Foundry: loaded 'test'", log)

    def test_the_id_of_an_image_is_no_name(self):
        self.first()
        found = re.search(r"loaded 'test' \((\w+)", self.start(counts="LOADED"))[1]
        for name, why in ((found, f"there is no ref '{found}' in the store"),
                          (f"test:{found}", f"'test:{found}' is not a ref's name")):
            log = self.start(FOUNDRY_VLLM=name)
            self.assertIn(f"because {why}", log)
            self.assertNotIn("Traceback", log)

    def test_an_image_is_fetched_if_none_fits(self):
        self.first()
        self.script("import foundry\nwith foundry.Store() as store:\n"
                    f"    store.export(['test'], {self.path('pack')!r})\n"
                    "    store.remove('test')\n")
        registry = "oci://127.0.0.1:1/models"  # where nothing listens
        log = self.start(before=pulling({"test": self.path("pack")}), counts="LOADED",
                         FOUNDRY_REGISTRY=registry)
        self.assertIn("fetch 0.", log)
        self.script("import foundry\nfoundry.Store().remove('test')\n")
        log = self.start(FOUNDRY_REGISTRY=registry, FOUNDRY_REGISTRY_RETRIES="0")
        self.assertIn("because there is no ref 'test' in the store; see foundry-store ls, and none "
                      "was fetched, because ", log)
        self.assertIn("captured and sealed", log)

    def test_an_image_without_a_size_for_the_cache_is_not_used(self):
        self.first()
        log = self.start(before=textwrap.dedent("""
            from foundry.engines import facts as common
            beginning = common.beginning
            common.beginning = lambda *names: {**beginning(*names), "vllm.available_bytes": "x"}
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


if __name__ == "__main__":
    suite.main()
