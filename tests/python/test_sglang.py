# SPDX-License-Identifier: Apache-2.0
"""foundry.sglang with a small engine in SGLang's place, on the software driver; each start is a
process of its own.
"""
import re
import textwrap

import engine_tests
import suite
from sglang_scripts import ENGINE, Engine


class Starts(Engine, engine_tests.Starts):
    VARIABLE, KEY = "FOUNDRY_SGLANG", """
        from sglang.srt.model_executor.runner import shape_key
        @dataclasses.dataclass(frozen=True)
        class Key(shape_key.ShapeKey):
            more: object = dataclasses.field(default_factory=lambda: MORE, compare=False)
        decode_cuda_graph_runner.ShapeKey = Key
        MORE = object()
        """
    AGAIN = "{**PLAIN, 'profile': 0}"
    MADE = "sglang.srt.model_executor.model_runner.Model.__init__"

    def test_the_first_start_seals_and_the_next_loads(self):
        self.first()
        log = self.start(counts="LOADED")
        self.assertIn("Foundry: loaded 'test'", log)
        for phase in ("init_torch_distributed", "profile_available_bytes", "capture or load",
                      "warm up"):
            self.assertIn(phase, log)

    def test_the_collector_leaves_out_what_was_made_before_until_the_server_is_ready(self):
        before = """
            import gc
            found = []
            load_model = model_runner.ModelRunner.load_model
            def noted(self):
                found.append(gc.get_freeze_count() > 0)
                load_model(self)
            model_runner.ModelRunner.load_model = noted
            """
        for counts, frozen in (("PLAIN", False), ("LOADED", True)):
            self.start(f"assert (found, gc.get_freeze_count()) == ([{frozen}], 0), found", counts,
                       before=before)

    def test_the_collector_runs_at_fixed_points_while_the_model_is_loaded(self):
        before = """
            import gc
            found = []
            load_model = model_runner.ModelRunner.load_model
            def noted(self):
                found.append(gc.isenabled())
                load_model(self)
            model_runner.ModelRunner.load_model = noted
            """
        for counts in ("PLAIN", "LOADED"):
            self.start("assert (found, gc.isenabled()) == ([False], True), found", counts,
                       before=before)

    def test_tensors_are_put_where_they_were(self):
        self.first()
        self.start("""
            runner.model.inputs.fill_(2.0)
            assert set(runner.model.kept.tolist()) == {1000.0}
            runner.model.kept.fill_(10.0)
            assert set(runner.decode_cuda_graph_runner.execute(1).tolist()) == {15.0}
            runner.model.kept.fill_(1000.0)
            """, counts="LOADED")

    def test_graphs_return_what_they_returned(self):
        check = """
            outputs = runner.decode_cuda_graph_runner.backend._outputs
            assert [key.size for key in outputs] == [4, 2, 1] or %s
            for each in outputs.values():
                assert type(each).__name__ == "LogitsProcessorOutput"
                assert each.hidden_states is None and each.next_token_logits.shape == (100, 10)
            """
        self.first(text=check % "False")
        self.start(check % "True", counts="LOADED")

    def test_graphs_may_share_a_buffer_of_the_process(self):
        for counts in ("PLAIN", "LOADED"):
            self.start("""
                backend = runner.decode_cuda_graph_runner.backend
                shapes = {key.size: out.next_token_logits.shape
                          for key, out in backend._outputs.items()}
                assert shapes == {size: (25 * size, 10) for size in (1, 2, 4)}, shapes
                """, counts=counts, options="shared_output=True")

    def test_sglang_may_capture_again_when_it_serves(self):
        self.first()
        self.start("""
            decode = runner.decode_cuda_graph_runner
            decode.backend._graphs.clear()
            decode.capture()
            assert len(decode.backend._graphs) == 3
            """, counts="{**LOADED, 'capture': 1}")

    def test_without_the_variable_nothing_happens(self):
        for value in ("", "0"):
            self.assertNotIn("Foundry", self.start(FOUNDRY_SGLANG=value))

    def test_one_names_the_image_for_the_model(self):
        self.assertIn("sealed 'sglang-model'", self.start(FOUNDRY_SGLANG="1"))

    def test_a_difference_is_named_and_the_start_seals(self):
        self.first()
        for options, says in (
                ("max_running_requests=5, unnamed=7",
                 "max_running_requests is 5 here and 4 in the image"),
                ("max_running_requests=5", "arguments is "),
                ("max_running_requests=5, cuda_graph_bs_decode=(1, 2)",
                 "decode_graphs is full [1, 2] here and full [1, 2, 4] in the image"),
                ("max_running_requests=5, cuda_graph_bs_decode=(1, 2), unnamed=7",
                 "argument.unnamed is 7 here and not stated in the image")):
            log = self.start(options=options)
            self.assertIn("captured and sealed", log)
            self.assertIn(says, log)
            sizes = 2 if "cuda_graph_bs_decode" in options else 3
            self.assertIn("loaded", self.start(counts=f"{{**LOADED, 'dummy_run': {sizes}}}",
                                               options=options))
        log = self.start(STAND_IN_SGLANG="0.6")
        self.assertIn("sglang is 0.6 here and 0.5.15.post1 in the image", log)

    def test_arguments_that_change_no_graph_may_differ(self):
        self.first()
        self.start(counts="LOADED", options="host='0.0.0.0'")

    def test_a_variable_of_sglang_that_differs_is_named(self):
        self.first()
        log = self.start(SGLANG_STAND_IN="1", SGLANG_STAND_IN_KEY="secret", SGLANG_RUN_ID="9",
                         FLASHINFER_WORKSPACE_BASE="/elsewhere")
        self.assertIn("environment is SGLANG_STAND_IN=1 here and empty in the image", log)

    def test_a_strict_start_captures_nothing(self):
        self.fails("no ref 'test' in the store")
        self.first()
        self.start(counts="LOADED", FOUNDRY_SGLANG_STRICT="1")
        self.fails("max_running_requests is 5 here", options="max_running_requests=5")

    def fails(self, says, options=""):
        done = self.run_one(ENGINE + f"foundry.sglang.register()\nstart({options})",
                            FOUNDRY_SGLANG="test", FOUNDRY_SGLANG_STRICT="1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(says, done.stderr)
        self.assertEqual(done.stderr.splitlines()[-1].count("FOUNDRY_SGLANG_STRICT is set"), 1)
        self.assertNotIn("Foundry: Traceback", done.stdout)

    def test_an_unsupported_configuration_starts_plain(self):
        for options, what in (("tp_size=2, custom=True", "custom all-reduce"),
                              ("dp_size=2", "data parallelism"),
                              ("device='cpu'", "the device cpu"),
                              ("quantization='gguf'", "weights quantized by gguf"),
                              ("torchao_config='fp8wo'", "weights quantized by torchao"),
                              ("kv_cache_dtype='fp8_e4m3'", "a quantized KV cache"),
                              ("decode='breakable'", "the backend breakable of decode graphs"),
                              ("prefill='tc_piecewise'",
                               "the backend tc_piecewise of prefill graphs"),
                              ("attention='flashinfer'", "the attention backends flashinfer"),
                              ("attention='fa3', prefill_attention='triton'",
                               "the attention backends triton, fa3"),
                              ("mambaish=1", "models with states in place of a KV cache"),
                              ("enable_lora=True", "LoRA"),
                              ("speculative_algorithm='EAGLE'", "speculative decoding"),
                              ("moe_runner_backend='flashinfer_cutlass'",
                               "FlashInfer's choice of kernels by time"),
                              ("offload_group_size=2", "weights on the host")):
            log = self.start(options=options)
            self.assertIn(f"started without an image, because images do not support {what}", log)

    def test_what_no_gpu_has_run_needs_the_variable(self):
        before, what = "model_runner.ModelRunner.use_mla_backend = True\n", (
            "models with multi-head latent attention were not run with images on a GPU")
        self.assertIn(f"because {what} (set FOUNDRY_SGLANG_COMPARED=1", self.start(before=before))
        log = self.start(before=before, FOUNDRY_SGLANG_COMPARED="1")
        self.assertIn(f"WARNING Foundry: {what}", log)
        self.assertIn("captured and sealed", log)

    def test_a_draft_model_has_no_image(self):
        self.assertNotIn("Foundry", self.start(options="draft=True"))

    def test_a_version_that_is_not_known_starts_plain(self):
        log = self.start(before="facts.SOURCES = {'0.1': 'other'}\n")
        self.assertIn("because the model runner of this SGLang (0.5.15.post1) differs from that of "
                      "the versions that images support (0.1)", log)

    def test_an_sglang_without_a_wrapped_function_starts_plain(self):
        lacking = """if 1:
            import foundry.sglang
            from sglang.srt.model_executor.model_runner import ModelRunner
            del ModelRunner.init_cuda_graphs
            foundry.sglang.register()
            """
        self.assertIn("because this version of SGLang lacks what Foundry wraps",
                      self.script(lacking, FOUNDRY_SGLANG="test"))
        done = self.run_one(lacking, FOUNDRY_SGLANG="test", FOUNDRY_SGLANG_STRICT="1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FOUNDRY_SGLANG_STRICT is set", done.stderr)

    def test_facts_that_cannot_be_read_start_plain(self):
        before = """
            late = facts.late
            def failed(decode, prefill):
                raise foundry.Error(foundry._lib.NOKEY, "of a test")
            facts.late = failed
            """
        for counts in ("PLAIN", "PLAIN"):
            log = self.start(before=before, counts=counts)
            self.assertIn("started without an image, because of a test", log)
        self.first()
        self.start(before=before, counts=self.AGAIN)

    def test_an_area_that_cannot_be_entered_starts_plain(self):
        log = self.start(before="""
            from foundry.engines import area
            def failed(self):
                raise foundry.Error(foundry._lib.NOKEY, "of a test")
            area.Area.__enter__ = failed
            """)
        self.assertIn("started without an image, because of a test", log)
        self.assertNotIn("carries files", log)

    def test_an_error_of_a_description_or_a_setting_does_not_end_the_start(self):
        log = self.start(before="""
            from foundry.engines import session
            def failing(self):
                raise foundry.Error(foundry._lib.NOKEY, "of a test")
            session.Session.outcome = failing
            """)
        self.assertIn("started, but its image cannot be described, because of a test", log)
        log = self.start(FOUNDRY_SGLANG_STRICT="perhaps")
        self.assertIn("started without an image, because ", log)

    def test_memory_that_moved_is_noticed(self):
        self.first()
        log = self.start(counts=self.AGAIN, STAND_IN_MORE="1")
        self.assertIn("the tensors of this process lie elsewhere", log)
        self.assertIn("captured and sealed", log)

    def test_a_cache_that_does_not_fit_is_measured_again(self):
        self.first()
        log = self.start(before="hog = torch.empty((((8 << 30) - (60 << 20)) // 4,))\n")
        self.assertIn("the KV cache of the image needs 67108864 bytes, and ", log)
        self.assertIn("captured and sealed", log)

    def test_an_image_without_a_size_for_the_cache_is_not_used(self):
        self.first()
        log = self.start(before="""
            from foundry.engines import facts as common
            beginning = common.beginning
            common.beginning = lambda *names: {**beginning(*names), "sglang.available_bytes": "x"}
            """)
        self.assertIn("because the image does not state the size of the KV cache", log)

    def test_a_tensor_that_nobody_could_replace_is_refused(self):
        log = self.start(options="hidden_constant=True")
        self.assertIn("not sealed: ", log)
        self.assertIn("no object of the worker has it", log)
        self.assertIn("no ref 'test' in the store", self.start(options="hidden_constant=True"))

    def test_a_tensor_without_a_place_captures(self):
        self.first()
        log = self.start(before="""
            from foundry.engines import attach
            def refuse(roots, tensors):
                raise foundry.Error(foundry._lib.NOKEY, "no place")
            attach.place_all = refuse
            """, counts=self.AGAIN)
        self.assertIn("because no place", log)
        self.assertIn("captured and sealed", log)

    def test_other_graphs_than_expected_are_not_sealed(self):
        log = self.start(before="""
            from foundry.sglang import runner as r
            keys = r.Session.keys
            r.Session.keys = staticmethod(lambda decode: keys(decode)[:2])
            """)
        self.assertIn("not sealed: SGLang has captured other graphs than expected", log)

    def test_a_first_start_that_is_killed_leaves_nothing(self):
        done = self.run_one(ENGINE + textwrap.dedent("""
            import os
            foundry.sglang.register()
            backend = decode_cuda_graph_runner.FullCudaGraphBackend
            one = backend.capture_one
            def killed(self, key, forward):
                if key.size == 1:
                    os._exit(9)
                one(self, key, forward)
            backend.capture_one = killed
            start()
            """), FOUNDRY_SGLANG="test")
        self.assertEqual(done.returncode, 9, done.stderr)
        self.first()
        self.start(counts="LOADED")

    def test_a_store_that_is_collected_meanwhile_is_named(self):
        self.first()
        log = self.start(before="""
            load = model_runner.ModelRunner.load_model
            def collected(self):
                with foundry.Store() as store:
                    store.evict(size=1)
                    store.gc()
                load(self)
            model_runner.ModelRunner.load_model = collected
            """, counts=self.AGAIN)
        self.assertIn("there is no ref 'test' in the store", log)
        self.assertIn("captured and sealed", log)

    def test_a_warm_up_has_the_sizes_of_a_capture_in_its_order(self):
        """Else torch.compile() would make other code than the image carries."""
        for sizes, wanted in (((2, 3, 5, 7), ["7", "5", "2"]), ((1, 4), ["4", "1"])):
            options = f"cuda_graph_bs_decode={sizes}"
            self.start(options=options)
            log = self.start(before="""
                from sglang.srt.model_executor.runner.base_runner import BaseRunner
                dummy_run = BaseRunner._dummy_run

                def noted(runner, size, **more):
                    print("decoded", size)
                    dummy_run(runner, size, **more)
                    if size == 7:
                        raise MemoryError
                BaseRunner._dummy_run = noted
                """, options=options, counts=f"{{**LOADED, 'dummy_run': {len(wanted)}}}")
            self.assertEqual(re.findall("^decoded (.*)$", log, re.MULTILINE), wanted)

    def test_a_warm_up_that_fails_is_left_to_the_first_request(self):
        self.first()
        log = self.start(before="""
            from sglang.srt.model_executor.runner.base_runner import BaseRunner
            del BaseRunner._dummy_run
            """, counts="{**LOADED, 'dummy_run': 0}")
        self.assertIn("loaded", log)


class FlashAttention(Engine):
    """Graphs of an attention that keeps tensors for each batch size."""

    def start(self, text="", counts="PLAIN", options="attention='fa3'", **more):
        return super().start("from sglang.srt.layers.attention import flashattention_backend\n"
                             + textwrap.dedent(text), counts, options, **more)

    def test_a_later_start_has_what_attention_keeps(self):
        lengths = """
            flashattention_backend.LENGTHS.update({size: 7.0 * size for size in (1, 2, 4)})
            runner.model.inputs.fill_(2.0)
            decode = runner.decode_cuda_graph_runner
            for size in (2, 4, 1, 2):
                out = decode.execute(size).tolist()
                assert set(out) == {2.0 + 3.0 * size + 1000.0 + 7.0 * size}, (size, out[:4])
                kept = decode.attn_backend.forward_metadata
                assert (kept.max_seq_len_k, kept.window_size) == (100 * size, (-1, -1)), kept
                assert kept.scheduler_metadata.shape == (size, 4)
                assert kept.scheduler_metadata.data_ptr() == decode.attn_backend.plan.data_ptr()
                assert kept.local_attn_metadata is None
            flashattention_backend.LENGTHS.clear()
            """
        self.assertIn("captured and sealed", self.start(lengths))
        self.assertIn("loaded 'test'", self.start(lengths, counts="LOADED"))

    def test_an_image_of_another_attention_is_not_used(self):
        self.start()
        log = self.start(options="attention='triton'")
        self.assertIn("attention_backend is triton here and fa3 in the image", log)

    def test_what_a_later_start_could_not_make_is_refused_at_once(self):
        log = self.start(STAND_IN_LOCAL="1")
        self.assertIn("not sealed: ", log)
        self.assertIn("LocalAttentionMetadata, which images do not support", log)

    def test_an_attention_that_may_keep_more_starts_plain(self):
        for before, what in (
                ("flashattention_backend.FlashAttentionBackend.has_local_attention = True",
                 "chunked attention"),
                ("class Other(flashattention_backend.FlashAttentionBackend):\n    pass\n"
                 "flashattention_backend.FlashAttentionBackend = Other",
                 "the attention __main__.Other")):
            log = self.start(before="from sglang.srt.layers.attention import "
                             f"flashattention_backend\n{before}\n")
            self.assertIn(f"started without an image, because images do not support {what}", log)
        log = self.start(SGLANG_USE_SGL_FA3_KERNEL="0")
        self.assertIn("images do not support FlashAttention 3 from a hub", log)

    def test_a_rank_without_its_image_lets_all_capture(self):
        self.start()
        self.start(counts="{**PLAIN, 'profile': 0}", before="""
            from foundry.sglang import runner as r
            def failing(self, roots):
                raise foundry.Error(foundry._lib.NOKEY, "no place")
            r.Session.place = failing
            """)

    def test_sglang_may_capture_again_when_it_serves(self):
        self.start()
        self.start("""
            flashattention_backend.LENGTHS[2] = 1.0
            decode = runner.decode_cuda_graph_runner
            loaded = decode.attn_backend.decode_cuda_graph_metadata[2]
            decode.backend._graphs.clear()
            decode.capture()
            assert decode.attn_backend.decode_cuda_graph_metadata[2] is not loaded
            assert set(decode.execute(2).tolist()) == {1007.0}
            flashattention_backend.LENGTHS.clear()
            """, counts="{**LOADED, 'capture': 1}")

    def test_an_attention_that_keeps_nothing_is_refused(self):
        log = self.start(before="""
            from foundry.sglang import runner as r
            values = r.attention.values
            def lost(decode):
                del decode.attn_backend.decode_cuda_graph_metadata[2]
                return values(decode)
            r.attention.values = lost
            """, text="runner.decode_cuda_graph_runner.capture()",
            counts="{**PLAIN, 'capture': 2}")
        self.assertIn("not sealed: attention keeps nothing for graphs of 2 requests", log)


class Prefill(Engine):
    """Graphs of prefill that break at attention."""

    PLAIN, LOADED = "{**PLAIN, 'prefill': 1}", "LOADED"
    OPTIONS = "prefill='breakable'"

    def start(self, text="", counts="PLAIN", options=OPTIONS, **more):
        return super().start("prefills(runner)\n" + textwrap.dedent(text), counts, options, **more)

    def test_the_first_start_seals_and_the_next_loads(self):
        self.assertIn("9 graphs", self.start(counts=self.PLAIN))  # 3, and 2 with 3 segments each
        log = self.start(counts=self.LOADED)
        self.assertIn("Foundry: loaded 'test'", log)
        self.assertIn("9 graphs", log)

    def test_a_load_that_fails_captures_both_kinds(self):
        self.start(counts=self.PLAIN)
        log = self.start(counts="{**PLAIN, 'prefill': 1, 'profile': 0}", STAND_IN_MORE="1")
        self.assertIn("the tensors of this process lie elsewhere", log)
        self.assertIn("9 graphs", log)

    def test_graphs_without_those_of_prefill_are_other_graphs(self):
        self.start(counts=self.PLAIN)
        log = super().start(options="prefill='disabled'")
        self.assertIn("prefill_graphs is disabled None here and breakable [1, 3] in the image", log)
        self.assertIn("3 graphs", log)

    def test_a_call_of_another_function_is_refused(self):
        log = super().start(options=self.OPTIONS, counts=self.PLAIN, STAND_IN_OTHER="1")
        self.assertIn("not sealed: a graph of prefill calls another function than attention", log)

    def test_an_attention_with_its_own_state_starts_plain(self):
        log = self.start(counts=self.PLAIN, before="""
            from sglang.srt.model_executor.runner.prefill_cuda_graph_runner import (
                PrefillCudaGraphRunner)
            PrefillCudaGraphRunner.use_captured_attn_metadata = True
            """)
        self.assertIn("attention with its own state in graphs of prefill", log)

    def test_graphs_that_share_executables_start_plain(self):
        log = self.start(counts=self.PLAIN, SGLANG_ENABLE_CUDA_GRAPH_DEDUP="1")
        self.assertIn("images do not support graphs that share executables", log)

    def test_prefill_is_captured_if_decoding_has_no_graphs(self):
        log = self.script(ENGINE + textwrap.dedent("""
            foundry.sglang.register()
            runner = start(prefill="breakable")
            prefills(runner)
            assert COUNTS["prefill"] == 1, COUNTS
            """), FOUNDRY_SGLANG="test", STAND_IN_NO_DECODE="1")
        self.assertNotIn("sealed", log)


if __name__ == "__main__":
    suite.main()
