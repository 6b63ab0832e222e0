# SPDX-License-Identifier: Apache-2.0
"""Weights that a start of the small engine gets from an image (--load-format foundry), on the
software driver.
"""
import os
import subprocess
import textwrap

import engine_tests
import suite
from vllm_scripts import ENGINE, Engine

BUILD = os.environ.get("BUILD", "build")
FORMAT = "load_format='foundry'"


class Weights(engine_tests.Files, Engine):
    def start(self, text="", counts="ONCE", options=FORMAT, loads=(), **more):
        """One start, in which vLLM's loader reads the numbers `loads`."""
        return super().start(textwrap.dedent(text) + textwrap.dedent(f"""
            from vllm.model_executor import model_loader
            assert model_loader.LOADS == {list(loads)}, model_loader.LOADS
            """), counts, options, **more)

    def test_a_later_start_reads_no_file(self):
        self.first()
        log = self.start(counts="LOADED")
        self.assertRegex(log, r"INFO Foundry: loading 'test\.weights', content \d+ MiB\n")
        self.assertIn("Foundry: loaded 'test'", log)
        self.assertIn("weights from 'test.weights'", log)
        self.assertIn("weights from", self.start(counts="LOADED", FOUNDRY_VLLM_STRICT="1"))

    def test_a_registry_is_asked_for_weights_that_the_store_lacks(self):
        log = self.start(loads=[3.0], FOUNDRY_REGISTRY="oci://127.0.0.1:1/models",
                         FOUNDRY_REGISTRY_RETRIES="0")
        self.assertIn("INFO Foundry: fetching 'test.weights' from oci://127.0.0.1:1/models\n", log)
        self.assertLessEqual(log.count("INFO Foundry: "), 6)

    def test_a_start_does_not_say_that_it_loads_other_weights(self):
        """Those of the store are of an older file; a registry may have the others."""
        self.first()
        self.write(5.0)
        log = self.start(counts="LOADED", loads=[5.0], weight=5.0)
        self.assertNotIn("loading 'test.weights'", log)
        self.write(3.0)
        log = self.start(counts="LOADED", loads=[3.0], FOUNDRY_REGISTRY="oci://127.0.0.1:1/models",
                         FOUNDRY_REGISTRY_RETRIES="0")
        self.assertIn("INFO Foundry: fetching 'test.weights' from oci://127.0.0.1:1/models\n", log)
        self.assertNotIn("loading 'test.weights'", log)

    def test_both_runners(self):
        for once, counts in (("ONCE_V1", ""), ("LOADED_V1", "weights from")):
            log = self.start(counts=once, options=FORMAT + ", runner='V1', graphs='FULL'",
                             loads=() if counts else [3.0])
            self.assertIn(counts, log)

    def test_other_weights_are_read_and_sealed(self):
        self.first()
        self.write(7.0)
        log = self.start(counts="LOADED", loads=[7.0], weight=7.0)
        self.assertIn("Foundry: loaded 'test'", log)
        self.assertIn("weights by the loader 'auto', because ", log)
        self.assertIn("weights from", self.start(counts="LOADED", weight=7.0))
        self.write(3.0)  # it was written at another time
        self.start(counts="LOADED", loads=[3.0])

    def test_a_file_that_was_replaced_by_one_with_its_size_and_time_is_read(self):
        self.first()
        self.written -= 1
        self.write(7.0)
        self.start(counts="LOADED", loads=[7.0], weight=7.0)

    def test_the_name_of_a_file_stands_for_its_content_if_it_is_a_hash(self):
        self.script(ENGINE + """if 1:
            import os
            from foundry.engines import weights
            os.mkdir("blobs")
            for name, same in (("0" * 40, True), ("f" * 64, True), ("model.safetensors", False)):
                found = []
                for text in "ab", "abc":
                    with open("blobs/" + name, "w") as f:
                        f.write(text)
                    found.append(weights._file_identity("blobs/" + name))
                assert (found[0] == found[1]) == same, (name, found)
            """)

    def test_tensors_that_the_constructor_computes_are_of_this_start(self):
        self.first()
        log = self.start("assert set(worker.model_runner.model.spare.tolist()) == {2.0}",
                         "LOADED", FORMAT + ", rope=2.0", [3.0])
        self.assertRegex(log, "weights by the loader 'auto', because .*weights.model")

    def test_a_load_that_fails_leaves_what_the_constructor_computed(self):
        options = FORMAT + ", rope=2.0"
        self.start(options=options, loads=[3.0])
        log = self.start("assert set(worker.model_runner.model.spare.tolist()) == {2.0}",
                         "LOADED", options, [3.0], before=textwrap.dedent("""
            from foundry.engines import weights
            def failing(self, facts):
                self.model.spare.fill_(9.0)
                raise RuntimeError("of a test")
            weights.Weights.restore = failing
            """))
        self.assertIn("weights by the loader 'auto', because of a test", log)

    def test_files_that_change_while_they_are_read_are_not_sealed(self):
        log = self.start(loads=[3.0], before=textwrap.dedent("""
            import os
            from vllm.model_executor import model_loader
            read = model_loader.DefaultModelLoader.load_weights
            def load_weights(self, model, model_config):
                read(self, model, model_config)
                os.utime("some/model/weight", ns=(1, 1))
            model_loader.DefaultModelLoader.load_weights = load_weights
            """))
        self.assertIn("weights not sealed: their files changed while they were read", log)

    def test_a_first_start_may_have_the_weights(self):
        self.first()
        self.script("import foundry\nfoundry.Store().evict(size=1)\n")
        self.first()
        log = self.start(options=FORMAT + ", seqs=5")
        self.assertIn("captured and sealed", log)
        self.assertIn("weights from", log)
        self.assertIn("weights from", self.start(counts="LOADED", options=FORMAT + ", seqs=5"))

    def test_a_later_start_may_lack_the_weights(self):
        self.first()
        self.remove("test.weights")
        log = self.start(counts="LOADED", loads=[3.0])
        self.assertIn("Foundry: loaded 'test'", log)
        self.assertIn("there is no ref 'test.weights'", log)
        self.remove("test.weights")
        done = self.run_one(ENGINE + f"start({FORMAT})", FOUNDRY_VLLM="test",
                            FOUNDRY_VLLM_STRICT="1")
        self.assertIn("the start cannot use the weights of an image", done.stderr)
        self.assertNotEqual(done.returncode, 0)

    def remove(self, ref):
        for words in (("rm", ref), ("gc",)):
            subprocess.run([os.path.join(BUILD, "foundry-store"), *words], check=True,
                           env={**os.environ, "FOUNDRY_STORE": self.path(".cache/foundry/store")},
                           stdout=subprocess.DEVNULL)

    def test_a_revision_stands_for_the_files(self):
        options = FORMAT + ", extra={'revision': 'one'}"
        self.start(options=options, loads=[3.0])
        self.write(7.0)
        self.assertIn("weights from", self.start(counts="LOADED", options=options))
        options = options.replace("one", "two")
        self.start(counts="LOADED", options=options, loads=[7.0], weight=7.0)

    def test_a_loader_that_changes_more_is_named(self):
        for changes, name, loaded in (
                ("{'factor': 2.0}", "factor", True),
                ("{'spare': lambda: torch.full((100, 10), 0.0)}", "spare", False)):
            options = f"{FORMAT}, changes={changes}"
            log = self.start(options=options, loads=[3.0])
            self.assertIn(f"weights not sealed: this loader changes .{name}", log)
            log = self.start(counts="LOADED" if loaded else "{**ONCE, 'profile': 0}",
                             options=options, loads=[3.0])
            self.assertIn("there is no ref 'test.weights'", log)
            self.remove("test")

    def test_memory_that_is_free_before_the_load_is_free_after_it(self):
        """What the model allocates after the load lies where it did in the first start."""
        made = textwrap.dedent("""
            from vllm.v1.worker.gpu.model_runner import GPUModelRunner, Model
            def make(self, make=Model.make):
                make(self)
                torch.full((8 << 20,), 0.0)
            def load_model(self, load=GPUModelRunner.load_model):
                load(self)
                self.model.scales = torch.full((4 << 20,), 0.0)
            Model.make, GPUModelRunner.load_model = make, load_model
            """)
        self.start(before=made, options=FORMAT, loads=[3.0])
        log = self.start(before=made, options=FORMAT, counts="LOADED")
        self.assertIn("weights from 'test.weights'", log)

    def test_a_loader_that_makes_the_weights_makes_them_in_the_region(self):
        """vLLM's loader does so if it quantizes the weights, which have no memory before."""
        made = textwrap.dedent("""
            from vllm.v1.worker.gpu.model_runner import Model
            class Meta(torch.Tensor):
                device, _version = types.SimpleNamespace(type="meta"), 0
                def __init__(self):
                    self.shape, self.dtype = (100, 10), "float32"
                def copy_(self, other):
                    pass
            def make(self, make=Model.make):
                make(self)
                self.weights = Meta()
            Model.make = make
            Model.after_loading = lambda self: vars(self).update(
                weights=torch.full((100, 10), 3.0))
            """)
        for counts, says in (("ONCE", "captured and sealed"), ("LOADED", "Foundry: loaded")):
            log = self.start(before=made, options=FORMAT, counts=counts, loads=[3.0])
            self.assertIn(says, log)
            self.assertIn("because the parameter weights has no memory before the files are read",
                          log)
            self.assertIn("weights not sealed: this loader changes ", log)

    def test_a_loader_that_changes_an_object_in_place_is_named(self):
        made = textwrap.dedent("""
            from vllm.v1.worker.gpu.model_runner import Model
            def make(self, make=Model.make):
                make(self)
                self.seen, self.names, self.weights.scales = [[1]], {"a": {1}}, [1.0]
            Model.make = make
            Model.after_loading = lambda self: %s
            """)
        for change, name in (("None", None), ("self.seen[0].append(2)", "seen"),
                             ("self.names['a'].add(2)", "names"),
                             ("self.weights.scales.append(2.0)", "weights"),
                             ("setattr(self.weights, 'tp_rank', 2)", "weights")):
            log = self.start(before=made % change, options=FORMAT, loads=[3.0])
            if name:
                self.assertIn(f"weights not sealed: this loader changes .{name}", log)
            else:
                self.assertNotIn("not sealed", log)
                self.remove("test.weights")
            self.remove("test")

    def test_a_tensor_in_a_list_of_a_module_is_loaded(self):
        made = textwrap.dedent("""
            from vllm.v1.worker.gpu.model_runner import Model
            def make(self, make=Model.make):
                make(self)
                self.tables = {"a": torch.full((100, 10), 0.0)}
            Model.make = make
            Model.after_loading = lambda self: self.tables["a"].fill_(7.0)
            """)
        check = "assert set(worker.model_runner.model.tables['a'].tolist()) == {7.0}\n"
        self.start(check, before=made, options=FORMAT, loads=[3.0])
        self.start(check, before=made, options=FORMAT, counts="LOADED", loads=[])

    def test_a_model_that_cannot_be_compared_is_loaded(self):
        made = textwrap.dedent("""
            from vllm.v1.worker.gpu.model_runner import Model
            class Sparse(torch.Tensor):
                device = types.SimpleNamespace(type="cpu")
                def __init__(self):
                    self.shape, self.dtype = (1,), "float32"
                def stride(self):
                    raise RuntimeError("sparse tensors have no strides")
            def make(self, make=Model.make):
                make(self)
                self.adjacency = Sparse()
            Model.make = make
            """)
        log = self.start(before=made, options=FORMAT, loads=[3.0])
        self.assertIn("weights not sealed: this loader changes a model that cannot be compared",
                      log)

    def test_a_format_without_files_needs_a_revision(self):
        options = FORMAT + ", extra={'format': 'other'}"
        before = textwrap.dedent("""
            from vllm.model_executor import model_loader
            class Other(model_loader.BaseModelLoader):
                load_weights = model_loader.DefaultModelLoader.load_weights
            model_loader.register_model_loader("other")(Other)
            """)
        log = self.start(options=options, loads=[3.0], before=before)
        self.assertIn("the files of the format 'other' are not known", log)

    def test_the_files_are_read_if_nothing_is_set(self):
        self.assertNotIn("Foundry", self.start(loads=[3.0], FOUNDRY_VLLM=""))

    def test_an_area_that_cannot_be_entered_starts_plain(self):
        log = self.start(loads=[3.0], before=textwrap.dedent("""
            from foundry.engines import area
            enter = area.Area.__enter__
            def failing(self):
                if self._outside:
                    raise RuntimeError("of a test")
                return enter(self)
            area.Area.__enter__ = failing
            """))
        self.assertIn("started without an image, because of a test", log)

    def test_parts_of_allocations_without_the_model(self):
        self.script("""if 1:
            from foundry.engines.weights import _rest
            ranges = [(10, 20), (15, 30), (40, 50), (100, 200)]
            for allocs, parts in (([(0, 60)], [(0, 10), (30, 40), (50, 60)]),
                                  ([(40, 10), (10, 5)], []), ([(60, 5), (0, 11)],
                                  [(0, 10), (60, 65)]), ([(90, 200)], [(90, 100), (200, 290)])):
                assert list(_rest(ranges, allocs)) == parts, allocs
            """)


if __name__ == "__main__":
    suite.main()
