# SPDX-License-Identifier: Apache-2.0
"""foundry.sglang beside SGLang's own classes, as far as these work without a GPU.

It notices an SGLang whose model runner has other phases, or names that foundry.sglang does not
expect.
"""
import contextlib
import dataclasses
import gc
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
import weakref
from unittest import mock

import suite

try:
    import torch
    import sglang
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
    from sglang.srt.model_executor.runner.flashinfer_autotune import should_run_flashinfer_autotune
    from sglang.srt.model_executor.runner.prefill_cuda_graph_runner import PrefillCudaGraphRunner
    from sglang.srt.model_executor.runner_backend.breakable_cuda_graph_backend import (
        BreakableCudaGraphBackend)
    from sglang.srt.model_executor.runner_backend.full_cuda_graph_backend import (
        FullCudaGraphBackend)
    from sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph import (
        breakable_cuda_graph)
    from sglang.srt.plugins import hook_registry
    from sglang.srt.server_args import ServerArgs
    from foundry.engines import (
        area, facts as engine_facts, graphs, jit, outputs, quantized as engine_quantized,
        session as engine_session)
    from foundry.sglang import (
        attention, experts, facts, folders, prefill, quantized, ranks, runner, weights)
    MISSING = ""
except ImportError as e:
    MISSING = f"no GPU serving engine: {e}"

# Register the plug-in as SGLang does, by an entry point, and print what it has wrapped.
PLUG_IN = """
import os, sys
folder = os.path.join(os.getcwd(), "foundry_tree-0.dist-info")
os.mkdir(folder)
for name, text in (("METADATA", "Metadata-Version: 2.1\\nName: foundry-tree\\nVersion: 0\\n"),
                   ("entry_points.txt", "[sglang.srt.plugins]\\n"
                    "foundry = foundry.sglang:register\\n")):
    with open(os.path.join(folder, name), "w") as f:
        f.write(text)
sys.path.append(os.getcwd())
from sglang.srt.plugins import load_plugins
load_plugins()
from sglang.srt.model_executor.model_runner import ModelRunner
print([hasattr(getattr(ModelRunner, name), "__wrapped__") for name in
       ("init_torch_distributed", "_profile_available_bytes", "init_cuda_graphs")])
"""


# Make SGLang's model runner for a small model, as far as a machine without a GPU can, and print the
# facts of its start, and why it has no image.
RUNNER = """
import json, os, sys, types
from unittest import mock
import torch
import sglang
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.server_args import ServerArgs
from foundry.sglang import facts, runner
gpu = types.SimpleNamespace(name="GPU", total_memory=150 << 30, major=9, minor=0,
                            multi_processor_count=132)
for name, value in (("is_available", True), ("get_device_capability", (9, 0)),
                    ("get_device_properties", gpu), ("device_count", 1), ("current_device", 0),
                    ("get_device_name", "GPU"), ("mem_get_info", (140 << 30, 150 << 30)),
                    ("set_device", None), ("synchronize", None)):
    mock.patch(f"torch.cuda.{name}", lambda *_, value=value: value).start()
mock.patch("torch.cuda.Stream", type("Stream", (), {})).start()
mock.patch("sglang.srt.model_executor.model_runner.create_sampler", lambda: None).start()
with open("config.json", "w") as f:
    json.dump({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 64,
               "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2,
               "num_hidden_layers": 1, "num_key_value_heads": 1, "vocab_size": 100}, f)
options = {"attention_backend": "triton", "cuda_graph_backend_prefill": "disabled",
           **json.loads(sys.argv[1])}
args = ServerArgs(model_path=os.getcwd(), load_format="dummy", skip_tokenizer_init=True,
                  device="cuda", **options)
why = []
class Session(runner.Session):
    def begin(self, ordinal, early, places):
        print("@" + json.dumps(early))
        self.ordinal, self.capture = ordinal, types.SimpleNamespace(pause=lambda: None)
    def refuse(self, reason):
        why.append(str(reason))
class Loaded(Exception):
    pass
def load_model(self):
    raise Loaded
runner.Session = Session
os.environ["FOUNDRY_SGLANG"] = "test"
mock.patch.object(ModelRunner, "init_torch_distributed", lambda self: 1.0).start()
mock.patch.object(ModelRunner, "load_model", load_model).start()
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
for target, hook in runner.hooks().items():
    HookRegistry.register(target, hook, HookType.AROUND)
HookRegistry.apply_hooks()
try:
    ModelRunner(model_config=ModelConfig.from_server_args(args), mem_fraction_static=0.5, gpu_id=0,
                tp_rank=0, tp_size=args.tp_size, moe_ep_rank=0, moe_ep_size=1, pp_rank=0, pp_size=1,
                nccl_port=1, server_args=args)
except Loaded:
    print("@" + json.dumps(why))
"""


@unittest.skipIf(MISSING, MISSING)
class Engine(unittest.TestCase):
    def test_kernels_are_measured_where_the_area_expects_it(self):
        self.assertLessEqual({module for module, _, _ in area.MEASURING}, set(sys.modules))
        with area.Measurements(None, 0) as found:
            self.assertEqual(len(found.wrapped), len(area.MEASURING))

    def test_the_code_is_that_of_a_version_that_is_supported(self):
        self.assertEqual(facts.source(), facts.SOURCES.get(sglang.__version__), sglang.__version__)

    def test_the_registry_wraps_every_phase(self):
        self.assertIn("AROUND", hook_registry.HookType.__members__)
        found = runner.hooks()
        self.assertEqual(len(found), len(runner.PHASES) + 3)
        for name in runner.PHASES:
            self.assertTrue(inspect.isfunction(getattr(ModelRunner, name)), name)
        used = ModelRunner.init_memory_pool.__code__.co_names
        self.assertIn("_resolve_memory_pool_config", used)
        used = ModelRunner._resolve_memory_pool_config.__code__.co_names
        self.assertIn("_profile_available_bytes", used)

    def test_sglang_finds_the_plug_in(self):
        for value, wrapped in (("test", [True] * 3), ("0", [False] * 3)):
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    [sys.executable, "-W", "ignore", "-c", PLUG_IN], cwd=folder, text=True,
                    env={**os.environ, "FOUNDRY_SGLANG": value}, stdout=subprocess.PIPE, check=True)
            self.assertEqual(done.stdout.strip().splitlines()[-1], str(wrapped))

    def test_the_phases_are_called_in_this_order(self):
        text = inspect.getsource(ModelRunner.__init__)
        self.assertLess(text.index("self.init_torch_distributed()"),
                        text.index("self.initialize()"))
        text = inspect.getsource(ModelRunner.init_cuda_graphs)
        self.assertLess(text.index("init_prefill_cuda_graph"), text.index("init_decode_cuda_graph"))
        text = inspect.getsource(DecodeCudaGraphRunner.__init__)
        for name in ("init_cuda_graph_state", "buffers", "resolve_decode_backend"):
            self.assertLess(text.index(name), text.index("self.capture()"), name)
        text = inspect.getsource(PrefillCudaGraphRunner.__init__)
        for name in ("buffers", "resolve_prefill_backend", "_prefill_static_buffers",
                     "use_captured_attn_metadata", "layer_model"):
            self.assertLess(text.index(name), text.index("self.capture()"), name)

    def test_the_server_has_the_arguments(self):
        names = {f.name for f in dataclasses.fields(ServerArgs)}
        used = set(re.findall(r"\bargs\.([a-z_0-9]+)\b(?!\()", "".join(map(
            inspect.getsource, (ranks.check, quantized.check, runner.Session.check_supported)))))
        self.assertGreater(len(used), 15)
        self.assertEqual(used - names, set())
        self.assertEqual(set(facts.ARGUMENTS) - names, set())
        self.assertTrue(callable(ServerArgs.get_attention_backends))
        defaults = {f.name: f.default for f in dataclasses.fields(ServerArgs)}
        self.assertEqual((defaults["kv_canary"], defaults["disaggregation_mode"]), ("none", "null"))
        self.assertEqual(defaults["offload_group_size"], -1)
        self.assertEqual(defaults["elastic_ep_backend"], None)
        for name in ("tp_size", "pp_size", "dp_size", "ep_size", "moe_dp_size", "attn_cp_size",
                     "dcp_size", "nnodes"):
            self.assertEqual(defaults[name], 1, name)
        for name in ("attention_backend", "page_size", "enable_custom_logit_processor",
                     "triton_attention_num_kv_splits", "rl_quant_profile"):
            self.assertIsNone(facts._NEUTRAL.search(name), name)
        for name in ("port", "nccl_port", "random_seed", "api_key", "log_level", "enable_metrics"):
            self.assertIsNotNone(facts._NEUTRAL.search(name), name)

    def test_models_that_choose_kernels_by_time_are_recognised(self):
        args = types.SimpleNamespace(disable_flashinfer_autotune=False,
                                     moe_runner_backend="flashinfer_cutlass",
                                     moe_a2a_backend="none", speculative_algorithm=None)
        made = types.SimpleNamespace(
            device="cuda", server_args=args, is_draft_worker=False,
            model_config=types.SimpleNamespace(quantization=None),
            spec_algorithm=types.SimpleNamespace(is_speculative=lambda: False))
        with mock.patch("torch.cuda.get_device_capability", lambda *_: (9, 0)):
            self.assertTrue(should_run_flashinfer_autotune(made))
            args.disable_flashinfer_autotune = True
            self.assertFalse(should_run_flashinfer_autotune(made))

    def test_ranks_have_the_groups_and_the_gatherer_that_are_expected(self):
        from sglang.srt.distributed import parallel_state
        from sglang.srt.distributed.device_communicators.triton_symm_mem_ag import (
            MultimemAllGatherer)
        from sglang.srt.layers.logits_processor import LogitsProcessor
        self.assertIsInstance(parallel_state._groups, dict)
        self.assertTrue(callable(parallel_state.get_world_group))
        used = parallel_state.GroupCoordinator.__init__.__code__.co_names
        self.assertLessEqual({"cpu_group", "device_group", "world_size"}, set(used))
        self.assertIn("_logits_gatherer", LogitsProcessor.__init__.__code__.co_names)
        module, gatherer = torch.nn.Module(), MultimemAllGatherer.__new__(MultimemAllGatherer)
        module.gatherer, gatherer._state = gatherer, MultimemAllGatherer._UNINIT
        ranks.gather_by_nccl(module)
        with mock.patch("sglang.srt.distributed.tensor_model_parallel_all_gather",
                        lambda x, dim: "gathered"):
            self.assertEqual(gatherer(torch.zeros(1, 8, dtype=torch.bfloat16)), "gathered")
        text = inspect.getsource(ModelRunner.__init__)
        self.assertLess(text.index("self.tp_size ="), text.index("self.init_torch_distributed()"))

    def runner(self, **options):
        """Make SGLang's model runner. Returns (facts, why it has no image)."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", RUNNER, json.dumps(options)], cwd=folder,
                text=True, stdout=subprocess.PIPE, check=True)
        *found, why = (json.loads(line[1:]) for line in done.stdout.splitlines()
                       if line.startswith("@"))
        return found[0] if found else None, why

    def test_a_model_runner_of_sglang_is_supported(self):
        found, why = self.runner()
        self.assertEqual(why, [])
        self.assertEqual(found["sglang.attention_backend"], "triton")
        self.assertTrue(found["sglang.decode_graphs"].startswith("full [1, 2, "))
        self.assertEqual(found["sglang.prefill_graphs"].split()[0], "disabled")
        self.assertNotIn("sglang.argument.port", found)

    def test_a_model_runner_of_two_ranks_is_supported_without_custom_all_reduce(self):
        with mock.patch.dict(os.environ, NCCL_CUMEM_ENABLE="1", NCCL_NVLS_ENABLE="0"):
            found, why = self.runner(tp_size=2, disable_custom_all_reduce=True)
            self.assertEqual(why, [])
            self.assertEqual(found["sglang.ranks"], "0 of 2")
            _, why = self.runner(tp_size=2)
        self.assertEqual(why, ["images do not support custom all-reduce (start with "
                               "--disable-custom-all-reduce) yet"])

    def test_the_graphs_of_prefill_that_sglang_has_by_default_are_supported(self):
        found, why = self.runner(cuda_graph_backend_prefill="breakable")
        self.assertEqual(why, [])
        self.assertTrue(found["sglang.prefill_graphs"].startswith("breakable [4, 8, "))
        _, why = self.runner(cuda_graph_backend_prefill="tc_piecewise")
        self.assertEqual(why, ["images do not support the backend tc_piecewise of prefill graphs "
                               "yet"])

    def test_graphs_of_prefill_are_described_and_filled(self):
        """Capture with SGLang's classes and without a GPU, and fill a table with the result."""
        from sglang.srt.layers import radix_attention
        done, size = [], 4

        class Graph:
            def capture_begin(self, **_):
                done.append("begin")

            def capture_end(self):
                done.append("end")

            def replay(self):
                done.append("replay")
        query, output = torch.ones(size, 2), torch.zeros(size, 2)
        stream = types.SimpleNamespace(cuda_stream=1)
        graph = breakable_cuda_graph.BreakableCUDAGraph()
        attention = mock.Mock(return_value=None)
        attention.__name__ = "attention"
        call = breakable_cuda_graph.eager_on_graph(True)(attention)
        with mock.patch("torch.cuda.CUDAGraph", Graph), (
                mock.patch("torch.cuda.current_stream", lambda: stream)), (
                mock.patch.object(breakable_cuda_graph, "_weak_ref_if_tensor",
                                  lambda each: each)), (
                mock.patch.object(radix_attention, "unified_attention_with_output", attention)):
            with breakable_cuda_graph.BreakableCUDAGraphCapture(graph):
                call(query, None, None, output, True, 3, sinks=None)
            self.assertEqual(done, ["begin", "end"] * 2)
            made = types.SimpleNamespace(capture_num_tokens=[size], backend=types.SimpleNamespace(
                _graphs={prefill.shapes(types.SimpleNamespace(capture_num_tokens=[size]))[size]:
                         graph}, _outputs={}))
            made.backend._outputs.update(dict.fromkeys(made.backend._graphs, output))
            segments, values = prefill.captured(made)
            self.assertEqual(list(segments), [prefill.Segment(size, 0), prefill.Segment(size, 1)])
            text, tensors, _ = outputs.describe({graphs.name_of(key): value
                                                 for key, value in values.items()})
            made.backend._graphs, made.backend._outputs = {}, {}
            for table, entries in prefill.entries(made, outputs.restore(text, tensors),
                                                  lambda keys: dict.fromkeys(keys, Graph())):
                table.update(entries)
            attention.reset_mock()
            done.clear()
            (filled,), (returned,) = (each.values() for each in (made.backend._graphs,
                                                                 made.backend._outputs))
            filled.replay()
        self.assertEqual(done, ["replay"] * 2)
        (args, more), = attention.call_args_list
        self.assertIs(args[0], query)
        self.assertIs(args[3], output)
        self.assertEqual((args[1:3], args[4:], more), ((None, None), (True, 3), {"sinks": None}))
        self.assertIs(returned, output)

    def test_what_only_returned_views_keep_is_not_stale(self):
        """Others may still write to a tensor that has one more reference, of whatever kind."""
        def linear(rows):
            return torch.ones(rows, 2).view(rows, 2)  # as SGLang's layers with quantized weights

        def stale(returned):
            names = "attach.find", "attach.stale", "area.tensors"
            with contextlib.ExitStack() as undo:
                find, found, tensors = (undo.enter_context(
                    mock.patch(f"foundry.engines.session.{name}")) for name in names)
                find.return_value = {}
                tensors.side_effect = lambda *_: [returned[0], returned[0]._base]
                session = types.SimpleNamespace(capture=None, base=0, packages=())
                engine_session.Session.name_tensors(session, [1], {}, (), returned, [])
            return [id(each) for each in found.call_args.args[2]]
        def in_future(base):
            """Held by C++ alone."""
            made = torch.futures.Future()
            made.set_result(base)
            return made
        with torch.no_grad():
            one = linear(8)
            self.assertEqual(stale([one, one[:4], one[:2], one]), [])
            for keep in (lambda base: [base], lambda base: lambda: base, weakref.ref,
                         lambda base: base[4:], in_future):
                holder = keep(one._base)
                gc.collect()
                self.assertEqual(stale([one, one[:4]]), [id(one._base)], holder)
                del holder
                self.assertEqual(stale([one, one[:4]]), [])

            def held():
                base = torch.ones(8, 2)
                one = base.view(4, 4)
                self.assertEqual(stale([one]), [id(base)])
            held()

    def test_the_replay_of_a_graph_of_prefill_uses_these_tables(self):
        used = BreakableCudaGraphBackend.replay.__code__.co_names
        self.assertEqual(set(used) & {"_graphs", "_outputs", "replay"},
                         {"_graphs", "_outputs", "replay"})
        self.assertIn("_shared_output_buffer", BreakableCudaGraphBackend.capture_one.__code__
                      .co_names)

    def decode(self):
        """A runner of decode graphs with the table of SGLang's backend."""
        made = DecodeCudaGraphRunner.__new__(DecodeCudaGraphRunner)
        made.capture_bs, made.seq_len_fill_value = [1, 2, 4], 1
        made.buffers = types.SimpleNamespace(seq_lens=torch.zeros(4), seq_lens_cpu=torch.zeros(4))
        made.backend = FullCudaGraphBackend.__new__(FullCudaGraphBackend)
        made.backend._graphs, made.backend._outputs = {}, {}
        made.attn_backend = TritonAttnBackend.__new__(TritonAttnBackend)
        return made

    def test_graphs_of_an_image_fill_the_table(self):
        decode, launched = self.decode(), []
        keys = runner.Session.keys(decode)
        names = dict(enumerate(map(graphs.name_of, keys), 1))
        self.assertEqual(names[3], "size=4,stream_idx=None,variant_label=None")
        data = torch.arange(12.0).reshape(4, 3)
        text, tensors, entire = outputs.describe({
            graphs.name_of(key): LogitsProcessorOutput(next_token_logits=data[:key.size])
            for key in keys}, runner.Session.classes(None))
        self.assertEqual((len(tensors), len(entire)), (3, 3))
        one = runner.Session.__new__(runner.Session)
        one.ordinal, one.runner, one.prefill = 0, types.SimpleNamespace(model=None), None
        one.ahead, one.seconds = types.SimpleNamespace(is_alive=lambda: False), {}
        one.image = types.SimpleNamespace(
            graphs=lambda: names, launch=lambda key, stream: launched.append((key, stream)))
        one.text, one.written = lambda name: text, lambda: tensors
        one.place = lambda roots: None
        one.prepare(decode)
        self.assertEqual(decode.backend._graphs, {})
        one.fill(decode)
        stream = types.SimpleNamespace(cuda_stream=5)
        with mock.patch("torch.cuda.current_stream", lambda device=None: stream):
            out = decode.backend.replay(keys[1], None)
        self.assertEqual(launched, [(2, 5)])
        self.assertEqual(type(out), LogitsProcessorOutput)
        self.assertEqual(out.next_token_logits.tolist(), data[:2].tolist())
        self.assertTrue(all(getattr(out, f.name) is None for f in dataclasses.fields(out)[1:]))
        self.assertEqual(decode.buffers.seq_lens.tolist(), [1.0] * 4)

    @mock.patch.dict(sys.modules, {"sgl_kernel": mock.MagicMock()})
    def test_a_later_start_has_what_flash_attention_keeps(self):
        from sglang.srt.layers.attention import flashattention_backend
        from sglang.srt.model_executor.forward_batch_info import ForwardMode
        kind = flashattention_backend.FlashAttentionBackend
        used = inspect.getsource(kind._init_full_cg_decode_metadata)
        self.assertIn("metadata.scheduler_metadata = self._sched_meta_buf[:n]", used)
        self.assertEqual(set(re.findall(r"self\.(\w+) = ", used)),
                         {"forward_metadata", "forward_metadata_spec_decode_expand"})

        def made(seqs=4):
            backend = kind.__new__(kind)
            vars(backend).update(
                max_context_len=8, page_size=1, device="cpu", topk=0, use_mla=False,
                has_local_attention=False, use_sliding_window_kv_pool=False,
                is_encoder_decoder=False, speculative_num_draft_tokens=0,
                is_prefill_aware_swa=False,
                _get_scheduler_metadata=lambda: None)
            backend.init_cuda_graph_state(seqs, seqs)
            return types.SimpleNamespace(attn_backend=backend, capture_bs=[1, 2, seqs])
        first, later = made(), made()
        for size in first.capture_bs:
            first.attn_backend._bind_metadata_buffers(size, size, None, ForwardMode.DECODE, None,
                                                      "cpu")
            first.attn_backend.decode_cuda_graph_metadata[size].scheduler_metadata = (
                first.attn_backend._sched_meta_buf[:1 + 4 * size])
        text, tensors, _ = outputs.describe(
            {graphs.name_of(key): value for key, value in attention.values(first).items()},
            runner.Session.classes(None))
        for table, entries in attention.entries(later, outputs.restore(
                text, tensors, runner.Session.classes(None))):
            self.assertIs(table, later.attn_backend.decode_cuda_graph_metadata)
            table.update(entries)
        for size in first.capture_bs:
            one, other = (each.attn_backend.decode_cuda_graph_metadata[size]
                          for each in (first, later))
            self.assertIs(type(other), type(one))
            for field in dataclasses.fields(one):
                each, its = getattr(one, field.name), getattr(other, field.name)
                self.assertTrue(its is each or its == each if each is None or not torch.is_tensor(
                    each) else its.data_ptr() == each.data_ptr() and its.shape == each.shape,
                    field.name)

    def test_weights_are_known_by_their_files(self):
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.model_loader import loader
        kind = loader.DefaultModelLoader
        self.assertIsInstance(vars(kind)["load_weights_and_postprocess"], staticmethod)
        self.assertEqual(list(inspect.signature(kind.load_weights_and_postprocess).parameters),
                         ["model", "weights", "target_device"])
        self.assertTrue(inspect.isgeneratorfunction(kind._get_all_weights))  # reads nothing before
        text = inspect.getsource(kind.load_model)
        self.assertLess(text.index("_initialize_model"), text.index("load_weights_and_postprocess"))
        text = inspect.getsource(ModelRunner.load_model)
        self.assertLess(text.index("self.loader = get_model_loader"), text.index(".load_model("))
        with tempfile.TemporaryDirectory() as folder:
            made = types.SimpleNamespace(
                loader=loader.get_model_loader(LoadConfig(load_format="auto")),
                model_config=types.SimpleNamespace(model_path=folder, revision=None),
                server_args=types.SimpleNamespace(load_format="auto"))
            found = weights.ByFiles(types.SimpleNamespace(runner=made), None, None)
            path = os.path.join(folder, "model.safetensors")
            known = []
            with mock.patch.dict(os.environ, {weights.VARIABLE: "1"}), mock.patch(
                    "sglang.srt.model_loader.loader.get_global_server_args",
                    lambda: types.SimpleNamespace(model_checksum=None)):
                for size, at in ((10, 1), (10, 2), (11, 2), (10, 1)):
                    with open(path, "wb") as f:
                        f.write(bytes(size))
                    os.utime(path, ns=(at, at))
                    known.append(found.identity())
                self.assertEqual(found.identity(), known[3])
        self.assertEqual(len(set(known)), 4)  # the last one has the size and time of the first

    def test_experts_are_described_as_they_were_run(self):
        from sglang.srt import server_args
        from sglang.srt.environ import envs
        from sglang.srt.layers.moe import topk
        from sglang.srt.layers.moe.fused_moe_triton import layer
        from sglang.srt.models import qwen2_moe
        args = {each.name: each.default for each in dataclasses.fields(server_args.ServerArgs)}
        self.assertEqual({name: args[name] for name in experts.ARGUMENTS}, experts.ARGUMENTS)
        self.assertFalse([name for name in experts.CHOOSING if getattr(envs, name).get()])
        config = layer.MoeRunnerConfig(num_experts=16, num_fused_shared_experts=0, top_k=4,
                                       activation="-silu"[1:])
        self.assertEqual(list(experts._changed(config, experts.SHAPES)), [])
        config.activation, config.routed_scaling_factor = "gelu", 2.5
        self.assertEqual(list(experts._changed(config, experts.SHAPES)),
                         ["activation", "routed_scaling_factor"])
        config = topk.TopKConfig(4, scoring_func="sigmoid", correction_bias=torch.ones(16))
        self.assertEqual(list(experts._changed(topk.TopKConfig(4), experts.CHOICE)), [])
        self.assertEqual(list(experts._changed(config, experts.CHOICE)),
                         ["correction_bias", "scoring_func"])
        self.assertIn("self.moe_runner_config = ", inspect.getsource(layer.FusedMoE.__init__))
        self.assertEqual(layer.FusedMoE.__name__, experts.LAYER)
        self.assertIn("self.topk_config = ", inspect.getsource(topk.TopK.__init__))
        self.assertIn(f"self.{engine_quantized.SHARED[0]} = ", inspect.getsource(
            qwen2_moe.Qwen2MoeSparseMoeBlock.__init__))

    def test_experts_that_are_not_quantized_need_no_variable(self):
        """Their method, a class of SGLang's, is a module of the layer."""
        from sglang.srt.layers.moe import topk
        from sglang.srt.layers.moe.fused_moe_triton import layer
        from sglang.srt.layers.quantization import unquant
        config = layer.MoeRunnerConfig(num_experts=16, num_fused_shared_experts=0, top_k=4)
        one = type(experts.LAYER, (torch.nn.Module,), {})()
        one.moe_runner_config, one.quant_method = config, unquant.UnquantizedFusedMoEMethod()
        one.quant_method.create_moe_runner(one, config)
        self.assertIs(one.quant_method.moe_runner_config, config)
        self.assertIn(one.quant_method, one.modules())
        one.choice = topk.TopK(4)
        runner = mock.Mock(tp_size=1, model=one, server_args=mock.Mock(**experts.ARGUMENTS))
        self.assertEqual(list(experts.not_run(runner)), [])
        runner.model = torch.nn.Sequential(one, type("Another", (torch.nn.Module,), {})())
        runner.model[1].moe_runner_config = config
        self.assertEqual(list(experts.not_run(runner)), ["layers of the class Another"])

    def test_quantized_layers_have_their_kernels(self):
        """Of SGLang's own classes, for a GPU that is not there."""
        from sglang.srt.layers import quantization
        from sglang.srt.layers.moe import moe_runner, utils
        from sglang.srt.layers.quantization import (
            awq, fp8, fp8_utils, gptq, kv_cache, marlin_utils, unquant)
        self.assertLessEqual(set(quantized.METHODS), set(quantization.QUANTIZATION_METHODS))
        for name in ("_dispatch_auto_backend", "_dispatch_explicit_backend"):
            self.assertIn("cutlass_w8a8_block_fp8_linear_with_fallback",
                          getattr(fp8_utils, name).__code__.co_names)
        self.assertIn("triton_w8a8_block_fp8_linear",
                      fp8_utils.cutlass_w8a8_block_fp8_linear_with_fallback.__code__.co_names)
        of_deepgemm = fp8_utils.deepgemm_w8a8_block_fp8_linear_with_fallback
        self.assertIn(of_deepgemm.__name__, quantized.KERNELS)
        self.assertIn("triton_w8a8_block_fp8_linear", of_deepgemm.__code__.co_names)
        self.assertIn("weight.shape[0] % 64 == 0 and weight.shape[1] % 128 == 0",
                      inspect.getsource(of_deepgemm))
        for name in ("fp8_scaled_mm", "triton_scaled_mm", "use_triton_w8a8_fp8_kernel"):
            self.assertIn(name, fp8_utils.apply_fp8_linear.__code__.co_names)
        for function in (marlin_utils.apply_gptq_marlin_linear,
                         marlin_utils.apply_awq_marlin_linear):
            self.assertIn("gptq_marlin_gemm", function.__code__.co_names)
        for pattern in quantized.TUNED:
            self.assertFalse(engine_facts.tuned("sglang", [pattern]).startswith("0,"), pattern)
        for kind in (fp8.Fp8MoEMethod, unquant.UnquantizedFusedMoEMethod):
            self.assertIn(kind.__name__, quantized.KINDS)
            self.assertIn("self.runner = MoeRunner(", inspect.getsource(kind))
        self.assertIn("self.runner_backend = ", inspect.getsource(moe_runner.MoeRunner))
        self.assertEqual(f"{utils.MoeRunnerBackend.TRITON.value}_experts", "triton_experts")
        self.assertTrue(issubclass(fp8.Fp8KVCacheMethod, kv_cache.BaseKVCacheMethod))
        given = {"bits": 4, "group_size": 128, "zero_point": True, "sym": True, "desc_act": True}
        capability = mock.patch.object(marlin_utils, "get_device_capability", lambda *_: (9, 0))
        with capability, mock.patch.object(fp8_utils, "cutlass_fp8_supported", lambda: True), (
                mock.patch.object(awq.awq, "_is_cuda", True)):
            for method, kind in (("gptq", gptq.GPTQMarlinConfig), ("awq", awq.AWQMarlinConfig)):
                self.assertIn(kind.override_quantization_method(
                    {**given, "quant_method": method}, None), quantized.METHODS)
            layer = torch.nn.Module()
            layer.weight, layer.weight_scale = torch.zeros(128, 256), torch.zeros(256)
            for config, kernel in (
                    (fp8.Fp8Config(), "fp8_scaled_mm"),
                    (fp8.Fp8Config(True, weight_block_size=[128, 128]),
                     "triton_w8a8_block_fp8_linear")):
                self.assertEqual(self.quantized(layer, fp8.Fp8LinearMethod(config)),
                                 ["Fp8LinearMethod and " + kernel])
            layer.scheme = gptq.GPTQMarlinConfig.from_config(given).get_linear_scheme(layer)
            layer.scheme.create_weights(
                layer, input_size_per_partition=128, output_partition_sizes=[128], input_size=128,
                output_size=128, params_dtype=torch.bfloat16, weight_loader=None)
            self.assertEqual(self.quantized(layer), [
                "GPTQMarlinLinearScheme and gptq_marlin_gemm",
                "weights in the order of activations", self.BITS])
            self.check_bits(layer)
            layer.scheme = awq.AWQMarlinConfig.from_config(given).get_linear_scheme(layer)
            self.assertEqual(self.quantized(layer), [
                "AWQMarlinLinearScheme and gptq_marlin_gemm", self.BITS])
            self.check_bits(layer)

    BITS = "an unknown number of bits"  # the types of weights are in sgl_kernel, which is not there

    def check_bits(self, layer):
        config = quantized._config(layer.scheme)
        name = next(each for each in quantized.TYPES if hasattr(config, each))
        for bits, found in ((4, []), (8, ["8 bits"])):
            setattr(config, name, types.SimpleNamespace(size_bits=bits))
            self.assertEqual([each for each in self.quantized(layer) if "bits" in each], found)

    def test_compressed_layers_have_their_kernels(self):
        from sglang.srt.layers.quantization import fp8_utils
        from sglang.srt.layers.quantization.compressed_tensors import compressed_tensors
        from sglang.srt.layers.quantization.compressed_tensors.schemes import (
            compressed_tensors_wNa16)

        def made(kind, weights, inputs=None):
            config = compressed_tensors.CompressedTensorsConfig.from_config({
                "format": kind, "ignore": [], "config_groups": {"group_0": {
                    "targets": ["Linear"], "input_activations": inputs,
                    "weights": {"symmetric": True, "dynamic": False, **weights}}}})
            layer = torch.nn.Linear(1, 1)
            with mock.patch("torch.cuda.get_device_capability", lambda *_: (9, 0)):
                layer.scheme = config.get_linear_scheme(layer, "proj")
            return layer
        fp8 = {"num_bits": 8, "type": "float"}
        layer = made("float-quantized", {**fp8, "strategy": "channel"}, {
            **fp8, "strategy": "token", "symmetric": True, "dynamic": True})
        layer.weight, layer.weight_scale = (torch.nn.Parameter(torch.zeros(shape)) for shape in (
            (128, 256), (256, 1)))
        with mock.patch.object(fp8_utils, "cutlass_fp8_supported", lambda: True):
            self.assertEqual(self.quantized(layer), ["CompressedTensorsW8A8Fp8 and fp8_scaled_mm"])
        layer = made("pack-quantized", {
            "num_bits": 4, "type": "int", "strategy": "group", "group_size": 128})
        layer.scheme.create_weights(
            layer, output_size=128, input_size=128, output_partition_sizes=[128],
            input_size_per_partition=128, params_dtype=torch.bfloat16, weight_loader=None)
        self.assertEqual(self.quantized(layer), [
            "CompressedTensorsWNA16 and gptq_marlin_gemm", self.BITS])
        self.check_bits(layer)
        self.assertIn("apply_gptq_marlin_linear", compressed_tensors_wNa16.
                      CompressedTensorsWNA16.apply_weights.__code__.co_names)

    @staticmethod
    def quantized(layer, method=None):
        with mock.patch.object(quantized, "RUN", ()), mock.patch.object(quantized, "ORDERED", ()):
            return list(quantized._check_layer(False, layer, method))

    def test_results_of_a_graph_that_cannot_be_restored_are_refused(self):
        made = LogitsProcessorOutput(next_token_logits=torch.zeros(1), customized_info={"a": [1]})
        with self.assertRaisesRegex(Exception, "type dict, which images do not support"):
            outputs.describe({"g": made}, runner.Session.classes(None))

    def test_the_capture_makes_its_graphs_where_they_are_replaced(self):
        used = FullCudaGraphBackend.capture_one.__code__.co_names
        self.assertIn("CUDAGraph", used)
        used = FullCudaGraphBackend.replay.__code__.co_names
        self.assertEqual(set(used) & {"_graphs", "_outputs", "replay"},
                         {"_graphs", "_outputs", "replay"})
        self.assertEqual(list(inspect.signature(DecodeCudaGraphRunner._dummy_run).parameters)[:2],
                         ["self", "batch_size"])

    def test_the_caches_have_their_folders(self):
        self.assertEqual(set(folders.folders()), {"triton", jit.FOLDER, "tvm-ffi", "inductor",
                                                  "deepgemm"})
        # SGLang has set the variable.
        from sglang.srt.layers.deep_gemm_wrapper import compile_utils
        self.assertTrue(compile_utils.__file__)
        self.assertEqual(folders.folders()["deepgemm"],
                         os.path.join(os.environ["DG_JIT_CACHE_DIR"], "cache"))
        with mock.patch.dict(os.environ, DG_JIT_CACHE_DIR=""):
            self.assertEqual(folders.folders()["deepgemm"],
                             os.path.expanduser("~/.cache/deep_gemm/cache"))
        from flashinfer.jit import env
        self.assertEqual(str(env.FLASHINFER_CACHE_DIR), folders.folders()[jit.FOLDER])

    def test_flashinfer_loads_a_carried_module_without_ninja(self):
        from flashinfer.jit import core
        ran, original = [], (core.JitSpec.build, core.JitSpec.load)
        with tempfile.TemporaryDirectory() as folder, (
                mock.patch.object(core.jit_env, "FLASHINFER_JIT_DIR", core.Path(folder))), (
                mock.patch.object(core, "run_ninja", lambda *_: ran.append(True))), (
                mock.patch.object(core, "generate_ninja_build_for_op",
                                  lambda **each: f"build {each['name']}")):
            source = core.Path(folder) / "norm.cu"
            source.write_text("source", "utf-8")
            spec = core.JitSpec("norm", [source], ["-O3"], [], None, None)
            core.jit_spec_registry.register(spec)
            try:
                spec.build(False, need_lock=False)
                self.assertEqual(ran, [True])
                library = core.Path(folder) / "norm" / "norm.so"
                library.write_bytes(b"library")
                jit.use({str(library): jit.describe(str(library), b"library")})
                spec.build(False, need_lock=False)
                self.assertEqual(ran, [True])
                core.JitSpec("rope", [], [], [], [], []).build(False, need_lock=False)
                other = core.JitSpec("norm", [source], ["-O2"], [], None, None)
                other.build(False, need_lock=False)
                self.assertEqual(ran, [True] * 3)
                core.generate_ninja_build_for_op = lambda **each: "other"
                self.assertIsNone(jit.describe(str(library), b"library"))
                source.write_text("other", "utf-8")
                spec.build(False, need_lock=False)
                self.assertEqual(ran, [True] * 4)
            finally:
                core.JitSpec.build, core.JitSpec.load = original
                core.jit_spec_registry._specs.pop("norm")


if __name__ == "__main__":
    suite.main()
