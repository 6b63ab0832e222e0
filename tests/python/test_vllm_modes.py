# SPDX-License-Identifier: Apache-2.0
"""foundry.vllm with a small engine in vLLM's place: compiled models, and the V1 runner."""
import os
import shutil
import textwrap

import suite
from engine_tests import slow_thread
from vllm_scripts import ENGINE, Engine


class Modes(Engine):
    def test_compiled_models_with_graphs_of_pieces(self):
        for graphs, runner, count in (("FULL_AND_PIECEWISE", "V2", 15), ("PIECEWISE", "V2", 12),
                                      ("FULL", "V2", 3), ("FULL_DECODE_ONLY", "V2", 3),
                                      ("FULL_AND_PIECEWISE", "V1", 15), ("PIECEWISE", "V1", 12),
                                      ("FULL", "V1", 3)):
            options = f"mode=3, graphs='{graphs}', runner='{runner}'"
            once = "ONCE" if runner == "V2" else "ONCE_V1"
            loaded = once.replace("ONCE", "LOADED")
            with self.subTest(options):
                log = self.start(counts=once, options=options, FOUNDRY_VLLM=runner + graphs)
                self.assertIn("captured and sealed", log)
                self.assertIn(f"{count} graphs", log)
                log = self.start(counts=loaded, options=options, FOUNDRY_VLLM=runner + graphs)
                self.assertIn("Foundry: loaded", log)
                self.assertIn(f"{count} graphs", log)

    def test_graphs_of_all_batches_without_compilation(self):
        for runner, once in (("V2", "ONCE"), ("V1", "ONCE_V1")):
            options = f"graphs='FULL', runner='{runner}'"
            self.start(counts=once, options=options, FOUNDRY_VLLM=runner)
            self.assertIn("loaded", self.start(
                counts=once.replace("ONCE", "LOADED"), options=options, FOUNDRY_VLLM=runner))

    PIECES = "mode=3, graphs='FULL_AND_PIECEWISE'"

    def test_compiled_code_waits_for_the_hashes_by_which_it_is_found(self):
        self.start(options=self.PIECES)
        log = self.start(options=self.PIECES, counts="LOADED", before=slow_thread(2))
        self.assertRegex(log, r"wait for hashes 0\.\d+, compiled code")

    def test_compiled_code_that_is_gone_is_compiled_and_captured_again(self):
        self.start(options=self.PIECES)
        cache = self.path(".cache/vllm")
        os.rename(os.path.join(cache, "aot"), os.path.join(cache, "gone"))
        log = self.start(options=self.PIECES)
        self.assertIn("because vLLM's cache has no compiled code for this start", log)
        os.remove(os.path.join(cache, "code/rank_0_0/backbone/artifact_0"))
        log = self.start(options=self.PIECES)
        self.assertIn("because vLLM's cache had a part of the compiled code only", log)
        self.assertIn("loaded", self.start(counts="LOADED", options=self.PIECES))

    def test_an_image_sealed_in_place_of_another_carries_the_compiled_code(self):
        """The start has loaded the code before it noticed that it cannot use the other image."""
        places = textwrap.dedent("""
            from foundry.vllm import worker as w
            import os
            ROOT = os.path.expanduser("~/.cache/vllm")
            w.folders = lambda: {"vllm": ROOT}
            """)
        other = places + "w.facts.facts.code = lambda model: 'other'\n"
        self.start(options=self.PIECES, before=places)
        log = self.start(options=self.PIECES, before=other, counts="{**ONCE, 'profile': 0}")
        self.assertIn("because code is other here", log)
        shutil.rmtree(self.path(".cache/vllm"))
        log = self.start(options=self.PIECES, before=other, counts="LOADED")
        self.assertIn("Foundry: loaded", log)

    def test_pieces_with_equal_code_are_not_searched_for(self):
        count = """
            from vllm.compilation.counter import compilation_counter
            assert compilation_counter.num_inductor_compiles == %d, compilation_counter
            """
        self.start(count % 4, options=self.PIECES)
        self.start(count % 0, options=self.PIECES, counts="LOADED")
        with open(self.path(".cache/vllm/aot/model"), "a", encoding="utf-8") as f:
            f.write("other")
        self.start(count % 1, options=self.PIECES, counts="{**ONCE, 'profile': 0}")
        self.start(count % 0, options=self.PIECES, counts="LOADED")

    def test_other_compiled_code_is_noticed(self):
        self.start(options=self.PIECES)
        for name in ("aot/model", "code/rank_0_0/backbone/artifact_0"):
            with open(self.path(f".cache/vllm/{name}"), "a", encoding="utf-8") as f:
                f.write("other")
            log = self.start(options=self.PIECES, counts="{**ONCE, 'profile': 0}")
            self.assertIn("because compiled is ", log)
            self.assertIn("captured and sealed", log)

    def test_code_that_is_not_kept_leaves_the_start_plain(self):
        log = self.start(options=self.PIECES, VLLM_DISABLE_COMPILE_CACHE="1")
        self.assertIn("images do not support compiled code that vLLM does not keep", log)

    def test_code_that_could_not_be_kept_leaves_the_start_plain(self):
        log = self.start(options=self.PIECES, before=textwrap.dedent("""
            from vllm.compilation import caching
            write = caching.write
            caching.write = lambda path, code: path.endswith("model") or write(path, code)
            """))
        self.assertIn("images do not support compiled code that vLLM does not keep", log)

    def test_code_that_can_neither_be_loaded_nor_replaced_leaves_the_start_plain(self):
        """A file of an older start is there, and vLLM only warns that it cannot write it."""
        self.assertIn("captured and sealed", self.start(options=self.PIECES))
        for write, said in (
                ("path.endswith('model') or write(path, code)", "that vLLM does not keep"),
                ("write(path, code)", "captured and sealed")):
            log = self.start(
                options=self.PIECES, FOUNDRY_VLLM="other", before=textwrap.dedent(f"""
                    from vllm.compilation import caching, decorators
                    decorators._try_load_aot_compiled_fn = lambda part, path: None
                    write = caching.write
                    caching.write = lambda path, code: {write}
                    """))
            self.assertIn(said, log)

    def test_compiled_code_of_the_batch_invariant_mode(self):
        """vLLM turns off that it keeps compiled code when it initializes the device."""
        for options in (self.PIECES, "mode=0, graphs='FULL'"):
            same = {"options": options, "FOUNDRY_VLLM": options[:6].replace("=", ""),
                    "VLLM_BATCH_INVARIANT": "1"}
            self.assertIn("captured and sealed", self.start(**same))
            self.assertIn("Foundry: loaded", self.start(counts="LOADED", **same))
            same.pop("VLLM_BATCH_INVARIANT")
            self.assertIn("because environment is ", self.start(**same))
        log = self.start(
            options=self.PIECES, FOUNDRY_VLLM="compared", FOUNDRY_VLLM_COMPARED="1",
            VLLM_BATCH_INVARIANT="1",
            before="facts.SOURCES, facts.COMPARED = {'0.1': 'other'}, "
                   "{'of the stand-in': facts.source()}\n")
        self.assertIn("do not support compiled code in the batch-invariant mode of this version",
                      log)

    def test_compiled_code_is_kept_whole_unless_the_user_decides(self):
        holds = "import os\nassert os.environ.get('VLLM_USE_MEGA_AOT_ARTIFACT') == %r"
        self.start(holds % None)
        self.start(holds % "1", options=self.PIECES, FOUNDRY_VLLM="pieces")
        self.start(holds % "0", options=self.PIECES, FOUNDRY_VLLM="chosen",
                   VLLM_USE_MEGA_AOT_ARTIFACT="0")
        self.start(holds % None, options=self.PIECES, FOUNDRY_VLLM="compared",
                   FOUNDRY_VLLM_COMPARED="1",
                   before="facts.SOURCES, facts.COMPARED = {'0.1': 'other'}, "
                          "{'of the stand-in': facts.source()}\n")
        self.start(holds % None, options="mode=3, graphs='PIECEWISE', quantization='other'",
                   FOUNDRY_VLLM="refused")

    def test_a_constant_of_compiled_code_needs_no_place(self):
        options = self.PIECES + ", constant=True"
        self.assertIn("captured and sealed", self.start(options=options))
        self.assertIn("loaded", self.start(counts="LOADED", options=options))

    def test_a_hidden_tensor_that_a_piece_uses_is_refused(self):
        log = self.start(options=self.PIECES + ", hidden=True")
        self.assertIn("no object of the worker has it", log)

    def test_pieces_that_vllm_did_not_capture_are_not_sealed(self):
        log = self.script(ENGINE + textwrap.dedent(f"""
            from vllm.v1.worker.gpu.cudagraph_utils import ModelCudaGraphManager
            original = ModelCudaGraphManager.piecewise
            ModelCudaGraphManager.piecewise = staticmethod(
                lambda model, desc: desc.num_tokens == 2 or original(model, desc))
            start({self.PIECES})
            """), FOUNDRY_VLLM="test")
        self.assertIn("not sealed: vLLM has captured other graphs than expected: Piece(", log)

    def test_words_of_a_sampler_that_look_like_pointers_are_not_sealed(self):
        before = textwrap.dedent("""
            import ctypes, struct
            from vllm.v1.sample.ops import topk_topp_triton
            from vllm.v1.worker.gpu import model_runner
            def sample(cache):
                host = ctypes.c_void_p()
                torch._driver.call("cuMemAllocHost_v2", ctypes.byref(host), ctypes.c_size_t(4096))
                for held in (cache, {}):
                    held["buffer"] = torch.full((100, 10), 0.0)
                    torch._driver.call(
                        "cuMemcpyHtoD_v2", ctypes.c_uint64(held["buffer"].data_ptr()),
                        struct.pack("Q", host.value), ctypes.c_size_t(8))
            constant = model_runner.Model.constant
            def and_sample(self):
                found = constant(self)
                if not gpu_worker.COUNTS["kernel_warmup"]:
                    sample(topk_topp_triton._TRITON_BUFFER_CACHE if self.config.runner == "V1"
                           else {})
                return found
            model_runner.Model.constant = and_sample
            """)
        for runner, once in (("V2", "ONCE"), ("V1", "ONCE_V1")):
            options = f"graphs='FULL', runner='{runner}'"
            log = self.start(counts=once, options=options, before=before, FOUNDRY_VLLM=runner)
            self.assertIn("captured and sealed", log)


if __name__ == "__main__":
    suite.main()
