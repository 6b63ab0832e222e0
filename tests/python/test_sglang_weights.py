# SPDX-License-Identifier: Apache-2.0
"""Weights from an image with a small engine in SGLang's place, on the software driver; each start
is a process of its own. test_vllm_weights.py tests what both engines share.
"""
import textwrap

import engine_tests
import suite
from sglang_scripts import ENGINE, Engine


class Weights(engine_tests.Files, Engine):
    def start(self, text="", counts="PLAIN", loads=(), options="load_format='auto'", **more):
        """One start, in which SGLang's loader reads the numbers `loads`."""
        return super().start(textwrap.dedent(text) + textwrap.dedent(f"""
            from sglang.srt.model_loader import loader
            assert loader.LOADS == {list(loads)}, loader.LOADS
            """), counts, options, **{"FOUNDRY_SGLANG_WEIGHTS": "1", **more})

    def test_a_later_start_reads_no_file(self):
        self.first()
        log = self.start(counts="LOADED")
        self.assertRegex(log, r"INFO Foundry: loading 'test\.weights', content \d+ MiB\n")
        self.assertIn("Foundry: loaded 'test'", log)
        self.assertIn("weights from 'test.weights'", log)
        self.start(counts="LOADED", FOUNDRY_SGLANG_STRICT="1")

    def test_without_the_variable_the_loader_reads_the_files(self):
        for value in ("", "0"):
            self.start(counts="PLAIN" if not value else "LOADED", loads=[3.0],
                       FOUNDRY_SGLANG_WEIGHTS=value)
        self.script("import foundry\nassert [each.name for each in foundry.Store().refs()] == "
                    "['test']\n")

    def test_other_weights_are_read_and_sealed(self):
        self.first()
        self.write(4.0)
        log = self.start(counts="LOADED", loads=[4.0], weight=4.0)
        self.assertIn("Foundry: loaded 'test'", log)
        self.assertIn("weights by the loader 'auto', because ", log)
        self.assertIn("weights from", self.start(counts="LOADED", weight=4.0))

    def test_a_text_identifies_the_weights(self):
        self.first(FOUNDRY_SGLANG_WEIGHTS="one")
        self.write(3.0)
        self.assertIn("weights from", self.start(counts="LOADED", FOUNDRY_SGLANG_WEIGHTS="one"))
        log = self.start(counts="LOADED", loads=[3.0], FOUNDRY_SGLANG_WEIGHTS="two")
        self.assertIn("weights by the loader 'auto', because ", log)

    def test_a_loader_of_other_files_needs_a_text(self):
        streamed = {"options": "load_format='runai_streamer'"}
        log = self.start(loads=[3.0], **streamed)
        self.assertIn("weights not sealed: the files of the format 'runai_streamer' are not known: "
                      "set FOUNDRY_SGLANG_WEIGHTS to a text that identifies them", log)
        self.start(counts="LOADED", loads=[3.0], FOUNDRY_SGLANG_WEIGHTS="one", **streamed)
        self.start(counts="LOADED", FOUNDRY_SGLANG_WEIGHTS="one", **streamed)

    def test_a_model_that_is_filled_in_another_way_is_named(self):
        log = self.start(options="load_format='dummy'")
        self.assertIn("weights by the loader, because SGLang fills the model in another way: "
                      "'dummy'", log)
        log = self.start(options="load_format='dummy'", counts="LOADED")
        self.assertIn("Foundry: loaded 'test'", log)

    def test_a_strict_start_reads_no_file(self):
        self.first()
        self.write(4.0)
        done = self.run_one(
            ENGINE + "foundry.sglang.register()\nstart(4.0, load_format='auto')\n",
            FOUNDRY_SGLANG="test", FOUNDRY_SGLANG_STRICT="1", FOUNDRY_SGLANG_WEIGHTS="1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("FOUNDRY_SGLANG_STRICT is set, and the start cannot use the weights of an "
                      "image: ", done.stderr)

    def test_a_loader_that_changes_the_model_seals_no_weights(self):
        for change, name in (("self.weights = self.weights + self.inputs", "weights"),
                             ("self.more = 1", "more")):
            log = self.start(loads=[3.0], before=f"""
                def after_loading(self):
                    {change}
                model_runner.Model.after_loading = after_loading
                """)
            self.assertIn(f"weights not sealed: this loader changes .{name}", log)

    def test_a_start_without_an_image_of_graphs_loads_the_files(self):
        log = self.start(options="load_format='auto', enable_lora=True", loads=[3.0])
        self.assertIn("started without an image, because images do not support LoRA", log)

    def test_weights_that_are_reloaded_while_the_server_runs_come_from_files(self):
        self.first()
        self.start(counts="LOADED", loads=[3.0], text="""
            runner.loader.load_model(runner.model, runner.model_config)
            """)


if __name__ == "__main__":
    suite.main()
