# SPDX-License-Identifier: Apache-2.0
"""foundry.vllm beside vLLM's own classes, as far as these work without a GPU.

It notices a vLLM whose worker has other phases, or names that foundry.vllm does not expect.
"""
import collections
import contextlib
import functools
import importlib.util
import inspect
import os
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import suite

try:
    import torch
    import vllm
    from vllm.config.compilation import CUDAGraphMode
    from vllm.compilation import (
        backends, compiler_interface, cuda_graph, decorators, monitor, wrapper)
    from vllm.config.utils import Range
    from vllm.forward_context import BatchDescriptor
    from vllm.v1 import cudagraph_dispatcher
    from vllm.v1.worker import gpu_model_runner, gpu_worker, worker_base, workspace
    from vllm.v1.worker.gpu import cudagraph_utils, model_runner
    from foundry.engines import ahead, area, attach, caches, graphs, jit, numbers, outputs, watch
    from foundry.engines import (
        facts as engine_facts, quantized as engine_quantized, session, weights as engine_weights)
    from foundry.vllm import (
        compiled, facts, infos, pieces, quantized, runners, supported, weights, worker)
    from foundry.vllm.folders import folders
    MISSING = ""
except ImportError as e:
    MISSING = f"no GPU serving engine: {e}"


# Compile a kernel for a GPU that need not be there, and print whether the cache had it.
KERNEL = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
with open("kernel.py", "w") as f:
    f.write("import triton\\nimport triton.language as tl\\n@triton.jit\\n"
            "def scale(x, n, B: tl.constexpr):\\n"
            "    i = tl.program_id(0) * B + tl.arange(0, B)\\n"
            "    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)\\n")
import sys
sys.path.insert(0, ".")
import kernel
triton.knobs.compilation.listener = lambda *, cache_hit, **_: print(cache_hit)
triton.compile(ASTSource(kernel.scale, {"x": "*fp32", "n": "i32", "B": "constexpr"}, {"B": 64}),
               target=GPUTarget("cuda", 90, 32))
"""


# One of two ranks: print what it decides.
RANK = """
import sys
import types
import torch
from vllm.distributed import parallel_state
from foundry.engines.ranks import of_engine
from foundry.vllm import supported
rank = int(sys.argv[1])
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank,
                                     world_size=2)
parallel_state.get_world_group = lambda: types.SimpleNamespace(
    cpu_group=torch.distributed.group.WORLD)
ranks = of_engine(rank, 2, supported.parallel_state)
print([ranks.agree(None, "a"), ranks.agree("gone" if rank else None), ranks.agree(None, rank),
       ranks.first(rank)])
"""


class Graph:
    """A loaded graph that notes its replays."""

    def __init__(self, key, replays):
        self.key, self.replays = key, replays

    def replay(self):
        self.replays.append(self.key)


@unittest.skipIf(MISSING, MISSING)
class Engine(unittest.TestCase):
    def manager(self, mode="FULL_DECODE_ONLY"):
        made = cudagraph_utils.ModelCudaGraphManager.__new__(cudagraph_utils.ModelCudaGraphManager)
        made.compilation_config = types.SimpleNamespace(
            cudagraph_capture_sizes=[1, 2, 4], max_cudagraph_capture_size=4)
        made.cudagraph_mode = CUDAGraphMode[mode]
        made.vllm_config = types.SimpleNamespace(speculative_config=None)
        made.max_num_reqs, made.decode_query_len, made.lora_capture_cases = 4, 1, [0]
        made._candidates, made._capture_descs, made.graphs = {}, {}, {}
        made._lora_dispatch_map, made._graphs_captured = {}, False
        made.is_last_pp_rank, made.use_aux_hidden_state_outputs = True, False
        made.hidden_states, made.use_breakable_cg = None, False
        made._init_candidates()
        return made

    def test_the_code_is_that_of_a_known_version(self):
        known = {**facts.COMPARED, **facts.SOURCES}
        self.assertEqual(facts.source(), known.get(vllm.__version__), vllm.__version__)

    def test_the_variable_for_whole_code_is_part_of_the_key_of_compiled_code(self):
        from vllm import envs
        for value in ("0", "1"):
            with mock.patch.dict(os.environ, VLLM_USE_MEGA_AOT_ARTIFACT=value):
                self.assertIs(envs.compile_factors()["VLLM_USE_MEGA_AOT_ARTIFACT"], value == "1")
        self.assertTrue(envs.VLLM_USE_STANDALONE_COMPILE)

    def test_compiled_code_is_kept_in_the_batch_invariant_mode(self):
        from vllm import envs
        from vllm.model_executor.layers.batch_invariant import override_envs_for_invariance
        for value, own in (("0", {}), ("1", {}), ("1", {"VLLM_USE_AOT_COMPILE": "1"})):
            with mock.patch.dict(os.environ, VLLM_BATCH_INVARIANT=value, **own):
                with contextlib.suppress(MemoryError), supported.keeping_code():
                    override_envs_for_invariance()
                    self.assertFalse(envs.VLLM_USE_AOT_COMPILE)
                    raise MemoryError("as a device that is too full")
                self.assertIs(envs.VLLM_USE_AOT_COMPILE, value == "1")
                if value == "1":
                    self.assertEqual(os.environ.get("VLLM_USE_AOT_COMPILE"),
                                     own.get("VLLM_USE_AOT_COMPILE"))
                self.assertIn("VLLM_BATCH_INVARIANT", envs.compile_factors())

    def test_workers_have_the_phases(self):
        for name in worker.PHASES:
            self.assertTrue(inspect.isfunction(getattr(gpu_worker.Worker, name)), name)
        self.assertTrue(inspect.isfunction(worker_base.WorkerWrapperBase.init_worker))
        used = inspect.unwrap(gpu_worker.Worker.compile_or_warm_up_model).__code__.co_names
        for name in ("kernel_warmup", "capture_model", "warmup_kernels"):
            self.assertIn(name, used)
        self.assertEqual("trigger_inductor_lazy_init" in used,
                         hasattr(compiler_interface, "trigger_inductor_lazy_init"))

    def test_the_capture_makes_its_graphs_where_they_are_replaced(self):
        used = inspect.unwrap(cudagraph_utils.CudaGraphManager.capture).__code__.co_names
        self.assertIn("CUDAGraph", used)
        self.assertNotIn("CUDAGraph", vars(cudagraph_utils))

    def test_torch_has_the_pools_of_the_area(self):
        for name in ("beginAllocateCurrentThreadToPool", "endAllocateToPool", "releasePool"):
            self.assertTrue(hasattr(torch._C, f"_cuda_{name}"), name)

    def test_kernels_are_measured_where_the_area_expects_it(self):
        for module, _, _ in area.MEASURING:
            self.assertIn(module, sys.modules)  # imported by vLLM, so it costs no time
        with area.Measurements(None, 0) as found:
            wrapped = found.wrapped
            self.assertEqual(len(wrapped), len(area.MEASURING))
            self.assertFalse([each for each in wrapped if vars(each[0])[each[1]] is each[2]])
        self.assertTrue(all(vars(each[0])[each[1]] is each[2] for each in wrapped))

    def test_parameters_are_noticed_when_modules_get_them(self):
        found, owner = [], torch.nn.Module()
        hook = torch.nn.modules.module.register_module_parameter_registration_hook(
            lambda _owner, name, _value: found.append(name))
        owner.register_parameter("a", torch.nn.Parameter(torch.zeros(1)))
        owner.b = torch.nn.Parameter(torch.zeros(1))
        owner.a = torch.nn.Parameter(torch.zeros(2))
        hook.remove()
        owner.c = torch.nn.Parameter(torch.zeros(1))
        self.assertEqual((found, len(owner.a)), (["a", "b", "a"], 2))

    def test_triton_keeps_what_is_computed_ahead(self):
        from triton.backends.nvidia.compiler import get_ptxas_version
        from triton.runtime.cache import triton_key
        ahead.begin(functools.partial(ahead.triton, 90)).join()
        self.assertEqual(triton_key.cache_info().currsize, 1)
        get_ptxas_version(90)
        self.assertEqual(get_ptxas_version.cache_info().hits, 1)

    def test_inductor_keeps_what_is_computed_ahead(self):
        from torch._inductor import codecache
        wanted = codecache.torch_key()
        codecache.torch_key.clear()
        ahead.begin(ahead.inductor).join()
        with mock.patch.object(codecache, "build_code_hash", side_effect=AssertionError):
            self.assertEqual(codecache.torch_key(), wanted)

    def test_triton_has_the_module_that_its_first_kernel_imports(self):
        self.assertTrue(importlib.util.find_spec(ahead._AT_FIRST))

    def test_a_signal_leaves_no_thread_behind(self):
        thread = mock.Mock()
        thread.join.side_effect = [KeyboardInterrupt, None]
        with mock.patch.object(ahead, "begin", return_value=thread):
            with self.assertRaises(KeyboardInterrupt), ahead.beside(print):
                pass
        self.assertEqual(thread.join.call_count, 2)

    def test_logits_are_computed_by_cublas_as_by_torch(self):
        """See tests/gpu/logits_ahead.py for the result."""
        calls, weight = [], torch.zeros(7, 3, dtype=torch.bfloat16)
        out = torch.zeros(2, 7, dtype=torch.bfloat16)

        class Library:
            def __init__(self, failing=None):
                self.failing = failing

            def __getattr__(self, name):
                def call(*args):
                    calls.append((name, args))
                    return 13 * (name == self.failing)
                return call
        with mock.patch("ctypes.CDLL", return_value=Library()), (
                mock.patch.object(torch.version, "cuda", "13.0")):
            ahead._multiply(weight, out)
            self.assertEqual([name for name, _ in calls],
                             ["cublasCreate_v2", "cublasGemmEx", "cublasDestroy_v2"])
            args = calls[1][1]
            # Column by column: out has 7 rows of 2, weight 3 of 7, and is transposed.
            self.assertEqual(args[1:6], (1, 0, 7, 2, 3))
            self.assertEqual([each.value for each in (args[7], args[10], args[14])],
                             [weight.data_ptr(), weight.data_ptr(), out.data_ptr()])
            self.assertEqual([args[i] for i in (8, 9, 11, 12, 15, 16)], [14, 3, 14, 3, 14, 7])
            self.assertEqual([args[i]._obj.value for i in (6, 13)], [1.0, 0.0])
            self.assertEqual(args[17:], (68, 99))  # CUBLAS_COMPUTE_32F, on tensor cores
        calls.clear()
        with mock.patch("ctypes.CDLL", return_value=Library("cublasGemmEx")), (
                mock.patch.object(torch.version, "cuda", "13.0")):
            with self.assertRaisesRegex(RuntimeError, "cublasGemmEx returned 13"):
                ahead._multiply(weight, out)
        self.assertEqual(calls[-1][0], "cublasDestroy_v2")

    def test_kernels_for_logits_are_loaded_if_a_model_has_a_usual_layer(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        one = object.__new__(worker.Session)
        one.ordinal = 0
        config = types.SimpleNamespace(scheduler_config=types.SimpleNamespace(max_num_seqs=64))
        one.worker = types.SimpleNamespace(vllm_config=config)
        with FakeTensorMode():
            usual = torch.empty(80, 8, dtype=torch.bfloat16, device="cuda:0")
            others = [torch.empty(80, 8, dtype=torch.bfloat16), usual.float(), usual.view(-1),
                      usual.t(), usual[:63], usual.to(torch.float8_e4m3fn)]
            many = torch.empty(4096, 8, dtype=torch.float16, device="cuda:0")

        def steps(weight, left=contextlib.ExitStack()):
            return one.logits_ahead(types.SimpleNamespace(
                lm_head=types.SimpleNamespace(weight=weight)), left)
        self.assertEqual(steps(usual), [])  # it has no memory
        with mock.patch.object(area, "address", lambda tensor: 4096), (
                mock.patch.object(area, "Pool", lambda ordinal: f"pool {ordinal}")):
            with contextlib.ExitStack() as left:
                step, = steps(usual, left)
                self.assertEqual((step._pool, step._ordinal, step._weight is usual, step._rows),
                                 ("pool 0", 0, True, 64))
            self.assertIsNone(step._pool)
            self.assertEqual([steps(each) for each in (*others, None)], 7 * [[]])
            self.assertEqual(one.logits_ahead(types.SimpleNamespace(), None), [])
            config.scheduler_config.max_num_seqs = 1024
            self.assertEqual(steps(many)[0]._rows, worker.ROWS)
        with mock.patch.object(area, "address", lambda tensor: 4096), (
                mock.patch.object(area, "Pool", side_effect=RuntimeError("no pool"))):
            self.assertEqual(steps(many), [])

    def test_what_is_done_beside_has_ended_with_the_block(self):
        done, begun = [], threading.Event()

        def fails():
            raise ValueError("it fails")

        def slow():
            begun.wait(60)
            done.append(threading.current_thread())
        with ahead.beside(fails, slow):
            self.assertEqual(done, [])
            begun.set()
        self.assertEqual(len(done), 1)
        self.assertFalse(done[0].is_alive())
        with mock.patch.object(threading, "Thread", side_effect=AssertionError), ahead.beside():
            pass
        with mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("no thread")), (
                ahead.beside(slow)):
            begun.clear()
        self.assertEqual(len(done), 1)

    def test_inductor_is_prepared_for_images_with_compiled_code(self):
        one = object.__new__(worker.Session)
        one.ordinal = 0
        with mock.patch.object(torch.cuda, "get_device_capability", return_value=(9, 0)):
            for found, wanted in (({worker.CODE: "5eed"}, 1), ({worker.CODE: compiled.NONE}, 0),
                                  ({}, 0)):
                one.found = found
                self.assertEqual(one.steps_ahead()[:-1], [ahead.inductor] * wanted)

    def test_a_worker_imports_inductor(self):
        """If not, torch's hash would not be computed ahead."""
        code = ("import sys\nimport vllm.v1.worker.gpu_worker\n"
                "assert 'torch._inductor.codecache' in sys.modules")
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    def test_the_caches_have_their_folders(self):
        from vllm import envs
        from vllm.utils import deep_gemm
        self.assertEqual(set(folders()), {"triton", "vllm", "autotune", "inductor", "infos",
                                          *jit.folder(), "deepgemm"})
        with mock.patch.dict(os.environ, DG_JIT_CACHE_DIR=""):  # SGLang sets it
            self.assertEqual(folders()["deepgemm"],
                             os.path.join(envs.VLLM_CACHE_ROOT, "deep_gemm", "cache"))
        self.assertLess({"DG_JIT_CACHE_DIR", "deep_gemm"}, set(deep_gemm._lazy_init.__code__.
                                                               co_consts))

    def test_vllms_notes_of_a_models_class_are_found(self):
        from vllm.model_executor.models.registry import _LazyRegisteredModel, _ModelInfo
        model = _LazyRegisteredModel(module_name="vllm.model_executor.models.qwen3",
                                     class_name="Qwen3ForCausalLM")
        info = {name: None for name in _ModelInfo.__annotations__}
        with tempfile.TemporaryDirectory() as folder, (
                mock.patch.dict(os.environ, VLLM_CACHE_ROOT=folder)):
            model._save_modelinfo_to_cache(_ModelInfo(**info), "hash")
            found = infos.files(types.SimpleNamespace(architectures=["Qwen3ForCausalLM"]))
            self.assertEqual(len(found), 1)
            self.assertEqual(os.path.dirname(found[0]), infos.folder()[infos.FOLDER])
            self.assertEqual(model._load_modelinfo_from_cache("hash"), _ModelInfo(**info))

    def test_the_cache_of_triton_has_lists_of_paths(self):
        from triton.runtime import cache
        with tempfile.TemporaryDirectory() as folder, (
                mock.patch.dict(os.environ, TRITON_CACHE_DIR=folder)):
            made = cache.get_cache_manager("00" * 32)
            file = made.put(b"{}", "k.json")
            made.put_group("k.json", {"k.json": file})
            path = os.path.join(made.cache_dir, f"{caches.GROUP}k.json")
            with open(path, "rb") as f:
                data = f.read()
            packed = caches._portable(path, data, {file}, {file})
            self.assertNotIn(folder.encode(), packed)
            self.assertEqual(caches._local(path, packed), data)
            self.assertIsNone(caches._portable(path, data, {file}, set()))

    def test_a_kernel_of_a_request_is_noted_as_triton_keeps_it(self):
        from triton.runtime import cache
        with tempfile.TemporaryDirectory() as folder, (
                mock.patch.dict(os.environ, TRITON_CACHE_DIR=folder)):
            seen = watch.Watch({"triton": folder})
            seen.stop()
            carried = caches.Carried(seen)
            self.assertTrue(seen.add_late(carried.stamps))
            self.assertEqual(carried.more(), [])
            made = cache.get_cache_manager("00" * 32)
            made.put_group("k.json", {"k.json": made.put(b"{}", "k.json")})
            self.assertFalse(seen.add_late(carried.stamps), "they may not be complete")
            self.assertEqual(carried.more(), [])
            with mock.patch.object(watch, "QUIET", 0.0):
                self.assertTrue(seen.add_late(carried.stamps))
            key = os.path.basename(made.cache_dir)
            self.assertEqual({each.name for each in carried.more()},
                             {f"triton/{key}/k.json", f"triton/{key}/{caches.GROUP}k.json",
                              caches.PLACES})

    def test_triton_finds_what_an_image_carries(self):
        files = []
        store = types.SimpleNamespace(
            files=lambda ref, wanted: [f for f in files if f.name in wanted])
        with tempfile.TemporaryDirectory() as folder:
            def hits(name):
                path = os.path.join(folder, name)
                done = subprocess.run([sys.executable, "-c", KERNEL], check=True, text=True,
                                      env={**os.environ, "TRITON_CACHE_DIR": path},
                                      stdout=subprocess.PIPE, cwd=folder)
                return done.stdout.strip(), {"triton": path}
            os.makedirs(os.path.join(folder, "one"))
            seen = watch.Watch({"triton": os.path.join(folder, "one")})
            self.assertEqual(hits("one")[0], "False")
            seen.stop()
            files += caches.Carried(seen).more()
            self.assertGreater(len(files), 5)
            self.assertEqual(hits("two")[0], "False", "it compiles")
            carried, written = caches.unpack(store, "ref",
                                             {"triton": os.path.join(folder, "three")},
                                             {f.name for f in files})
            self.assertEqual((carried, written), (len(files), len(files) - 1))
            self.assertEqual(hits("three")[0], "True", "it finds the kernel")

    def test_graphs_of_an_image_fill_the_table(self):
        manager, launched = self.manager(), []
        keys = [key for descs in manager._capture_descs.values() for key in descs]
        self.assertEqual([key.num_tokens for key in keys], [4, 2, 1])
        names = dict(enumerate(map(graphs.name_of, keys), 1))
        self.assertEqual(len(set(names.values())), 3)
        self.assertEqual(names[1].removesuffix(",num_active_loras=0"),  # since 0.24
                         "cg_mode=FULL,num_tokens=4,num_reqs=4,uniform_token_count=1")
        image = types.SimpleNamespace(graphs=lambda: names,
                                      launch=lambda key, stream: launched.append((key, stream)))
        manager.graphs.update(graphs.table(image, keys, 0))
        manager._graphs_captured = True
        attach.place({"runner": types.SimpleNamespace(cudagraph_manager=manager)},
                     "runner.cudagraph_manager.hidden_states", torch.arange(8).reshape(4, 2))
        stream, original = types.SimpleNamespace(cuda_stream=5), torch.cuda.current_stream
        torch.cuda.current_stream = lambda device=None: stream
        try:
            loras = [0] * ("num_active_loras" in inspect.signature(manager.dispatch).parameters)
            desc = manager.dispatch(3, 3, 1, *loras)
            out = manager.run_fullgraph(desc)
        finally:
            torch.cuda.current_stream = original
        self.assertEqual(launched, [(1, 5)])
        self.assertEqual(out.tolist(), [[0, 1], [2, 3], [4, 5], [6, 7]])

    def wrapper(self, config, index=0, runtime_mode="PIECEWISE"):
        made = cuda_graph.CUDAGraphWrapper.__new__(cuda_graph.CUDAGraphWrapper)
        made.compilation_config, made.concrete_cudagraph_entries = config.compilation_config, {}
        made.runtime_mode, made.is_debugging_mode = CUDAGraphMode[runtime_mode], True
        made.runnable = types.SimpleNamespace(
            piecewise_compile_index=index, vllm_backend=types.SimpleNamespace(prefix="backbone"))
        cuda_graph.CUDAGraphWrapper._all_instances.add(made)
        return made

    def test_a_wrapper_replays_graphs_of_an_image(self):
        config = types.SimpleNamespace(compilation_config=types.SimpleNamespace())
        sealing = [self.wrapper(config, i) for i in range(2)]
        batches = {CUDAGraphMode.PIECEWISE: [BatchDescriptor(4), BatchDescriptor(2)]}
        data, argument = torch.arange(24.0), torch.zeros(3)
        for i, each in enumerate(sealing):
            for batch in batches[CUDAGraphMode.PIECEWISE]:
                size = batch.num_tokens
                each.concrete_cudagraph_entries[batch] = cuda_graph.CUDAGraphEntry(
                    batch, cudagraph=object(), input_addresses=[argument.data_ptr()],
                    output=(data[:size], [data[size:3 * size].view(2, size).T, None], size)
                    if i else data[:size])
        found = pieces.wrappers(config)
        self.assertEqual(list(found), ["backbone.0", "backbone.1"])
        entries = pieces.captured(found, batches)
        self.assertEqual(set(entries), set(pieces.keys(found, batches)))
        written, tensors, entire = outputs.describe(
            {graphs.name_of(key): entry.output for key, entry in entries.items()})
        self.assertEqual([list(t.shape) for t in tensors], [[4], [2], [4, 2], [2, 2]])
        self.assertEqual(len(entire), 6)
        text = pieces.describe(entries)
        names = [graphs.name_of(key) for key in entries]
        self.assertEqual(names[0], "wrapper=backbone.0,batch=num_tokens=4,num_reqs=None,"
                         "uniform=False,has_lora=False,num_active_loras=0")
        replays = []
        made = pieces.restore(text, outputs.restore(written, tensors),
                              {key: Graph(number, replays)
                               for number, key in enumerate(entries, 1)})
        del sealing, found, each
        loaded = [self.wrapper(config, i) for i in range(2)]
        for name, each in pieces.wrappers(config).items():
            each.concrete_cudagraph_entries.update(made[name])
        original = cuda_graph.get_forward_context, cuda_graph.is_forward_context_available
        cuda_graph.is_forward_context_available = lambda: True
        cuda_graph.get_forward_context = lambda: types.SimpleNamespace(
            batch_descriptor=BatchDescriptor(2), cudagraph_runtime_mode=CUDAGraphMode.PIECEWISE)
        try:
            self.assertEqual(loaded[0](argument).tolist(), [0, 1])
            out, (view, nothing), size = loaded[1](argument)
            with self.assertRaises(AssertionError):
                loaded[0](torch.zeros(3))
        finally:
            cuda_graph.get_forward_context, cuda_graph.is_forward_context_available = original
        self.assertEqual((out.tolist(), view.tolist(), nothing, size),
                         ([0, 1], [[2, 4], [3, 5]], None, 2))
        self.assertEqual(replays, [2, 4])

    def test_two_pieces_of_one_name_are_refused(self):
        config = types.SimpleNamespace(compilation_config=types.SimpleNamespace())
        made = [self.wrapper(config) for _ in range(2)]
        with self.assertRaisesRegex(Exception, "two pieces of the model have the name backbone.0"):
            pieces.wrappers(config)
        self.assertEqual(list(pieces.wrappers(types.SimpleNamespace(compilation_config=None))), [])
        del made

    def test_the_tables_of_the_runners_name_what_is_captured(self):
        space = types.SimpleNamespace
        manager = self.manager("FULL_AND_PIECEWISE")
        tables = runners.V2(space(cudagraph_manager=manager))
        self.assertEqual([key.num_tokens for key in tables.keys()], [4, 2, 1])
        self.assertEqual(tables.batches(), {CUDAGraphMode.PIECEWISE: [
            BatchDescriptor(4), BatchDescriptor(2), BatchDescriptor(1)]})
        dispatcher = cudagraph_dispatcher.CudagraphDispatcher.__new__(
            cudagraph_dispatcher.CudagraphDispatcher)
        dispatcher.compilation_config = space(cudagraph_capture_sizes=[1, 2, 4], compile_sizes=[],
                                              max_cudagraph_capture_size=4)
        dispatcher.vllm_config = space(scheduler_config=space(max_num_seqs=2), lora_config=None)
        dispatcher.cudagraph_keys = {CUDAGraphMode.PIECEWISE: set(), CUDAGraphMode.FULL: set()}
        dispatcher.uniform_decode_query_len = 1
        dispatcher.initialize_cudagraph_keys(CUDAGraphMode.FULL_AND_PIECEWISE)
        tables = runners.V1(space(cudagraph_dispatcher=dispatcher))
        self.assertEqual(
            {mode.name: [(each.num_tokens, each.num_reqs) for each in found]
             for mode, found in tables.batches().items()},
            {"PIECEWISE": [(4, None), (2, None), (1, None)], "FULL": [(2, 2), (1, 1)]})

    def test_the_v1_runner_is_ready_after_a_load(self):
        before, locked = workspace._manager, []
        workspace._manager = types.SimpleNamespace(lock=lambda: locked.append(True))
        try:
            runners.V1(None).fill({})
            self.assertFalse(monitor.cudagraph_capturing_enabled)
        finally:
            workspace._manager = before
            monitor.set_cudagraph_capturing_enabled(True)
        self.assertEqual(locked, [True])
        used = inspect.unwrap(gpu_model_runner.GPUModelRunner.capture_model).__code__.co_names
        for name in ("set_cudagraph_capturing_enabled", "lock_workspace"):
            self.assertIn(name, used)

    def test_ranks_decide_together(self):
        with tempfile.TemporaryDirectory() as folder:
            begun = [subprocess.Popen([sys.executable, "-c", RANK, str(rank),
                                       os.path.join(folder, "meet")], stdout=subprocess.PIPE,
                                      text=True) for rank in range(2)]
            said = [each.communicate(timeout=280)[0].strip().splitlines()[-1] for each in begun]
        other = "'the ranks have images of different starts'"
        self.assertEqual(said, [
            f"[None, 'rank 1 starts without its image: gone', {other}, 0]",
            f"[None, 'gone', {other}, 0]"])

    def test_what_ranks_may_share_has_its_names(self):
        from vllm import envs
        from vllm.config.compilation import PassConfig
        from vllm.config.kernel import KernelConfig
        from vllm.config.model import ModelConfig
        from vllm.config.parallel import ParallelConfig
        from vllm.distributed import parallel_state
        self.assertTrue(hasattr(ModelConfig, "is_moe"))
        for owner, names in (
                (KernelConfig, ("enable_flashinfer_autotune",)),
                (ParallelConfig, ("tensor_parallel_size", "enable_expert_parallel",
                                  "disable_custom_all_reduce", "world_size", "nnodes",
                                  "distributed_executor_backend")),
                (PassConfig, ("fuse_allreduce_rms",)),
                (parallel_state.GroupCoordinator, ("cpu_group", "device_group", "world_size"))):
            for name in names:
                self.assertIn(name, owner.__annotations__)
        for name in ("VLLM_ALLREDUCE_USE_SYMM_MEM", "VLLM_USE_NCCL_SYMM_MEM",
                     "VLLM_ALLREDUCE_USE_FLASHINFER"):
            self.assertIn(getattr(envs, name), (True, False))
        self.assertIsInstance(parallel_state._groups, dict)

    def test_what_kind_of_model_it_is_has_its_names(self):
        from vllm.config.attention import AttentionConfig
        from vllm.config.compilation import CompilationConfig
        from vllm.config.model import ModelConfig
        from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
        from vllm.v1.attention.backends.registry import AttentionBackendEnum
        for name in ("is_multimodal_model", "is_encoder_decoder", "is_hybrid", "is_attention_free"):
            self.assertIsInstance(getattr(ModelConfig, name), (property, functools.cached_property))
        self.assertIn("backend", AttentionConfig.__annotations__)
        self.assertIn("static_forward_context", CompilationConfig.__annotations__)
        self.assertTrue(hasattr(AttentionLayerBase, "get_attn_backend"))
        for name in supported.ATTENTION:
            self.assertIn(name, AttentionBackendEnum.__members__)

    def loader(self, **more):
        from vllm.config.load import LoadConfig
        from vllm.model_executor import model_loader
        weights.register()
        return model_loader.get_model_loader(LoadConfig(
            load_format="foundry", model_loader_extra_config=more))

    def test_the_load_format_has_a_loader_for_the_files(self):
        loader = self.loader(revision="one", num_threads=2)
        self.assertEqual((loader.revision, loader.format), ("one", "auto"))
        self.assertEqual(loader.files.load_config.model_loader_extra_config, {"num_threads": 2})
        with self.assertRaisesRegex(ValueError, "Unexpected extra config keys"):
            self.loader(other=1)
        loaded = []
        loader.files.load_weights = lambda *args: loaded.append(args)
        loader.load_weights("model", "config")
        self.assertEqual(loaded, [("model", "config")])
        for module in (model_runner, gpu_model_runner):
            self.assertIn("get_model_loader",
                          inspect.unwrap(module.GPUModelRunner.load_model).__code__.co_names)

    def test_weights_are_known_by_their_files(self):
        model = torch.nn.Linear(2, 2)
        with tempfile.TemporaryDirectory() as folder:
            config = types.SimpleNamespace(model=folder, revision=None)
            found = weights.ByFiles(self.loader(), model, config, None)
            path = os.path.join(folder, "model.safetensors")
            known = []
            for size, at in ((10, 1), (10, 2), (11, 2), (10, 1)):
                with open(path, "wb") as f:
                    f.write(bytes(size))
                os.utime(path, ns=(at, at))
                known.append(found.identity())
            self.assertEqual(found.identity(), known[3])
        self.assertEqual(len(set(known)), 4)  # the last one has the size and time of the first

    def test_changes_by_a_loader_are_noticed(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        model[1].to("cuda" if torch.cuda.is_available() else "meta")
        found = engine_weights.Weights(types.SimpleNamespace(ref="test"), model, None)
        before = found.state()
        with torch.no_grad():
            model[1].weight.fill_(1)
        self.assertEqual(found.state(), before)  # images have the content of device memory
        with torch.no_grad():
            model[0].weight.fill_(1)
        self.assertNotEqual(found.state(), before)
        before = found.state()
        model[0].weight = torch.nn.Parameter(torch.zeros(2, 2))
        self.assertNotEqual(found.state(), before)
        before = found.state()
        model[1].eps = 2.0
        self.assertNotEqual(found.state(), before)
        with self.assertRaisesRegex(engine_weights.Unfit,
                                    "the parameter 0.weight is in memory of cpu"):
            found.tensors()

    def part(self):
        """An instance of a class that vLLM compiles."""
        class Part(torch.nn.Module):
            def forward(self, x: torch.Tensor):
                return x

        part = decorators.support_torch_compile(dynamic_arg_dims={"x": 0})(Part).__new__(Part)
        torch.nn.Module.__init__(part)
        config = types.SimpleNamespace(
            compute_hash=lambda: "hash", compilation_config=types.SimpleNamespace(
                dynamic_shapes_config=types.SimpleNamespace(type=None), local_cache_dir=""),
            parallel_config=types.SimpleNamespace(rank=0, data_parallel_index=0))
        part.vllm_config, part.compilation_config = config, config.compilation_config
        part.do_not_compile = part.compiled = part._is_encoder = False
        return part

    def test_code_is_loaded_as_the_first_call_loads_it_and_does_not_run(self):
        self.assertTrue(issubclass(type(self.part()), wrapper.TorchCompileWithNoGuardsWrapper))
        original, paths, ran = decorators._try_load_aot_compiled_fn, [], []

        def found(part, path):
            paths.append(path)
            return lambda *_args: ran.append(part)
        try:
            for load, why in ((found, None), (lambda part, path: None,
                                              "vLLM's cache has no compiled code for this start")):
                decorators._try_load_aot_compiled_fn = load
                part = self.part()
                before = numbers.of(part, worker.PACKAGES, worker.SETTINGS)
                files, reason = compiled.load(torch.nn.Sequential(part), part.vllm_config,
                                              compiled.Shared(), None)
                self.assertIsNone(numbers.made_later(before, numbers.of(
                    part, worker.PACKAGES, worker.SETTINGS)))
                self.assertEqual((len(files), reason), (1, why))
                self.assertEqual(getattr(part, "aot_compiled_fn", None) is None, why is not None)
                self.assertIs(decorators._try_load_aot_compiled_fn, load)
        finally:
            decorators._try_load_aot_compiled_fn = original
        self.assertEqual((len(paths), ran), (1, []))
        self.assertTrue(paths[0].endswith("/rank_0_0/model"), paths)

    def test_pieces_with_equal_code_get_that_of_the_first(self):
        sizes, cached = Range(1, 8), {0: "a", 1: "b", 3: "c"}
        manager = backends.CompilerManager.__new__(backends.CompilerManager)
        self.assertEqual(list(inspect.signature(backends.CompilerManager.load).parameters), [
            "self", "graph", "example_inputs", "graph_index", "compile_range"])
        originals = backends.CompilerManager.compile, backends.CompilerManager.load
        backends.CompilerManager.compile = (
            lambda self, *args, compile_range, graph_index: {2: "b"}.get(
                graph_index, cached.get(graph_index)))
        backends.CompilerManager.load = (
            lambda self, graph, inputs, index, sizes: cached.get(index))
        try:
            shared = compiled.Shared()
            with shared.noted():
                for i in range(4):
                    manager.compile(None, compile_range=sizes, graph_index=i)
            self.assertEqual(shared.first, {"(1, 8)": {"2": 1}})
            for known, wanted in ((True, ["a", "b", "b", "c"]), (False, ["a", "b", None, "c"])):
                with compiled.Shared(shared.text()).used(lambda: known):
                    self.assertEqual([manager.load(None, [], i, sizes) for i in range(4)], wanted)
            with shared.noted():
                for each in (manager, object.__new__(backends.CompilerManager)):
                    each.compile(None, compile_range=sizes, graph_index=0)
            self.assertEqual(shared.first, {})
        finally:
            backends.CompilerManager.compile, backends.CompilerManager.load = originals

    def test_compiled_code_is_identified_by_its_files(self):
        with tempfile.TemporaryDirectory() as folder:
            config = types.SimpleNamespace(
                compilation_config=types.SimpleNamespace(cache_dir=folder),
                parallel_config=types.SimpleNamespace(rank=0, data_parallel_index=0))
            path = os.path.join(folder, "model")
            self.assertEqual(compiled.identity([], config), "none")
            with self.assertRaises(FileNotFoundError):
                compiled.identity([path], config)
            found = set()
            os.makedirs(os.path.join(folder, "rank_0_0", "backbone"))
            for name in ("model", "rank_0_0/backbone/artifact_compile_range_1_8_subgraph_0",
                         "rank_0_0/backbone/vllm_compile_cache.py"):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                    f.write("text")
                found.add(compiled.identity([path], config))
            self.assertEqual(len(found), 2)
            with mock.patch.object(compiled.hashlib, "sha256", side_effect=AssertionError):
                for name in ("model", "rank_0_0/backbone/artifact_compile_range_1_8_subgraph_0"):
                    compiled._hash(os.path.join(folder, name))  # known
            with open(path, "w", encoding="utf-8") as f:
                f.write("other text")
            found.add(compiled.identity([path], config))
            self.assertEqual(len(found), 3)

    def test_numbers_of_models_are_found(self):
        def of(module):
            return numbers.of(module, worker.PACKAGES, worker.SETTINGS)

        module = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), torch.nn.ReLU())
        module[0].register_buffer("scale", torch.tensor(2.5, dtype=torch.bfloat16))
        before = of(module)
        found = next(path for path in before if path.endswith(".in_features")).rpartition(".")[0]
        self.assertEqual(before[found + ".in_features"], "1")
        module[1].count = 7
        self.assertIsNone(numbers.made_later(before, of(module)))
        self.assertNotEqual(numbers.summary(before), numbers.summary(of(module)))
        module[0].scale.fill_(2.0)
        self.assertEqual(numbers.made_later(before, of(module)), found + "._buffers/'scale'")
        module[0].scale.fill_(2.5)
        self.assertIsNone(numbers.made_later(before, of(module)))
        module[0].by = functools.partial(max, torch.zeros(2).numpy())
        self.assertEqual(numbers.made_later(before, of(module)), found + ".by:args:0")

    def test_numbers_of_models_are_found_in_all_places(self):
        class Slotted:
            __slots__ = ("scale",)

        class Lists(list):
            pass

        def defaulted(scale):
            return named(lambda x, y=scale, *, z=0.0: x)

        def attribute(scale):
            made = named(lambda x: x)
            made.scale = scale
            return made

        def named(function):
            function.__module__ = "vllm.layers"
            return function

        def slotted(scale):
            made = Slotted()
            made.scale = scale
            return made

        def listed(scale):
            made = Lists()
            made.scale = scale
            return made

        def wrapped(scale):
            return functools.lru_cache(named(lambda x, y=scale: x))

        def bound(scale):
            made = torch.nn.ReLU()
            made.scale = scale
            return made.forward
        Slotted.__module__ = "vllm.layers"
        module = torch.nn.Sequential()
        for make in (lambda x: (x,), lambda x: [x], lambda x: {x}, lambda x: {"a": x},
                     lambda x: {torch.float16: x, 0: 1.0}, lambda x: {1: x, "1": 1.0},
                     lambda x: collections.deque([x]), lambda x: functools.partial(max, x),
                     lambda x: functools.partial(max, key=x),
                     lambda x: functools.partial(defaulted(x)), lambda x: torch.tensor(x),
                     lambda x: torch.zeros(int(x)), lambda x: torch.tensor(x).numpy(),
                     lambda x: torch.tensor([int(x)]).numpy()[0], defaulted, attribute, slotted,
                     listed, wrapped, bound, lambda x: named(lambda: x)):
            found = set()
            for scale in (1.0, 2.0, 1.0):
                module.scale = make(scale)
                found.add(numbers.summary(numbers.of(module, worker.PACKAGES, worker.SETTINGS)))
            self.assertEqual(len(found), 2, inspect.getsource(make))

    def test_compiled_functions_have_equal_numbers(self):
        """torch.compile() gives functions attributes with their addresses."""
        def function(x, scale=2.5):
            return x * scale
        function.__module__ = "vllm.layers"
        module = torch.nn.Sequential()
        found, kept = set(), []
        for _ in range(2):
            module.by = torch.compile(function)
            kept.append(module.by)
            self.assertTrue(any(name.startswith(numbers._COMPILER) for name in vars(module.by)))
            all_found = numbers.of(module, worker.PACKAGES, worker.SETTINGS)
            self.assertIn("2.5", all_found.values())
            found.add(numbers.summary(all_found))
        self.assertEqual(len(found), 1)

    def test_a_number_at_another_place_is_not_new(self):
        before = {"a": "1", "b": "2.5", "c": "tensor x"}
        for now, wanted in (({"a": "7", "d": "2.5", "e": "tensor x"}, None),
                            ({"a": "1", "b": "tensor x", "c": "2.5"}, "b"),
                            ({**before, "d": "2.5"}, "d"), ({**before, "b": "3.5"}, "b"),
                            ({**before, "e": "-5", "f": "True"}, None)):
            self.assertEqual(numbers.made_later(before, now), wanted)

    def test_quantized_layers_have_their_kernels(self):
        if vllm.__version__ not in facts.SOURCES:
            self.skipTest("other versions may have other names, which are refused")
        from vllm.model_executor.kernels import linear
        from vllm.model_executor.layers import quantization
        from vllm.model_executor.layers.quantization import auto_awq, auto_gptq, fp8, kv_cache
        from vllm.model_executor.layers.fused_moe import (
            modular_kernel, unquantized_fused_moe_method)
        from vllm.model_executor.layers.fused_moe.experts import triton_moe
        from vllm.model_executor.layers.fused_moe.router import fused_topk_router
        from vllm.model_executor.layers.fused_moe.runner import moe_runner
        from vllm.model_executor.layers.quantization.compressed_tensors import (
            compressed_tensors, schemes)
        from vllm.model_executor.layers.quantization.online import fp8 as online
        experts = triton_moe.TritonExperts
        for name in quantized.KERNELS - {experts.__name__}:
            self.assertTrue(f"{getattr(linear, name).__module__}.".startswith(quantized._KERNELS))
        kinds = (fp8.Fp8LinearMethod, online.Fp8PerTensorOnlineLinearMethod,
                 compressed_tensors.CompressedTensorsLinearMethod, auto_gptq.AutoGPTQLinearMethod,
                 auto_awq.AutoAWQMarlinLinearMethod, fp8.Fp8MoEMethod,
                 unquantized_fused_moe_method.UnquantizedFusedMoEMethod)
        self.assertEqual(quantized.KINDS, {kind.__name__ for kind in kinds})
        for name in "has_g_idx", "weight_type", "zero_points", "act_type":
            self.assertIn(name, inspect.getsource(linear.MPLinearLayerConfig))
        self.assertLessEqual(set(quantized.SCHEMES), set(dir(schemes)))
        self.assertLessEqual(set(quantized.METHODS), set(quantization.QUANTIZATION_METHODS))
        for kind, name in ((fp8.Fp8LinearMethod, "fp8_linear"),
                           (online.Fp8PerTensorOnlineLinearMethod, "fp8_linear"),
                           (schemes.CompressedTensorsW8A8Fp8, "fp8_linear"),
                           (schemes.CompressedTensorsWNA16, "kernel"),
                           (auto_gptq.AutoGPTQLinearMethod, "kernel"),
                           (auto_awq.AutoAWQMarlinLinearMethod, "kernel"),
                           (fp8.Fp8MoEMethod, "moe_kernel"),
                           (unquantized_fused_moe_method.UnquantizedFusedMoEMethod,
                            "moe_kernel")):
            self.assertIn(f"self.{name} = ", inspect.getsource(kind), kind)
        self.assertTrue(hasattr(modular_kernel.FusedMoEKernel, "fused_experts"))
        for name in ("self.routed_experts = ", "self.router = ", "def shared_experts"):
            self.assertIn(name, inspect.getsource(moe_runner.MoERunner))
        self.assertEqual(fused_topk_router.FusedTopKRouter.__name__, quantized.ROUTER)
        self.assertIn("self.block_quant", inspect.getsource(fp8.Fp8MoEMethod))
        for pattern in facts.TUNED:
            self.assertFalse(engine_facts.tuned("vllm", [pattern]).startswith("0,"), pattern)
        self.assertTrue(issubclass(experts, modular_kernel.FusedMoEExperts))
        self.assertTrue(engine_quantized._of_cache(fp8.Fp8KVCacheMethod(None)))
        self.assertTrue(issubclass(fp8.Fp8KVCacheMethod, kv_cache.BaseKVCacheMethod))

    @contextlib.contextmanager
    def on_a_gpu(self):
        """Inside the with block, vLLM's layers are made and repacked as on an H200."""
        if vllm.__version__ not in facts.SOURCES:
            self.skipTest("other versions may have other names, which are refused")
        from vllm import platforms
        from vllm.model_executor import parameter
        from vllm.model_executor.layers.quantization.utils import marlin_utils
        with contextlib.ExitStack() as patches:
            for patch in (
                    mock.patch.multiple(
                        type(platforms.current_platform), _enum=platforms.PlatformEnum.CUDA,
                        get_device_capability=lambda *_, **__: platforms.interface.DeviceCapability(
                            9, 0)),
                    mock.patch.multiple(parameter, get_tensor_model_parallel_rank=lambda: 0,
                                        get_tensor_model_parallel_world_size=lambda: 1),
                    mock.patch.object(marlin_utils, "num_compute_units", lambda _: 132),
                    mock.patch.object(marlin_utils.ops, "gptq_marlin_repack",
                                      lambda b_q_weight, **_: b_q_weight),
                    mock.patch.object(attach, "_on_gpu", lambda found: found)):
                patches.enter_context(patch)
            yield

    @staticmethod
    def ordered_layer():
        """Return a layer of GPTQ in the order of activations."""
        from vllm.model_executor.layers.quantization import auto_gptq
        layer = torch.nn.Module()
        layer.quant_method = auto_gptq.AutoGPTQLinearMethod(auto_gptq.AutoGPTQConfig.from_config({
            "bits": 4, "group_size": 128, "sym": True, "desc_act": True}))
        layer.quant_method.create_weights(layer, 128, [128], 128, 128, torch.bfloat16,
                                          weight_loader=None)
        layer.g_idx.data[:] = torch.arange(127, -1, -1)
        return layer

    def test_marlins_locks_and_its_order_are_found(self):
        """The locks belong to the kernel, and the order of activations to the layer."""
        with self.on_a_gpu(), mock.patch.dict(
                os.environ, VLLM_DISABLED_KERNELS="MacheteLinearKernel"):
            layer = self.ordered_layer()
            self.assertEqual(quantized.facts_of(layer, None), {})
            layer.quant_method.process_weights_after_loading(layer)
            locks = layer.quant_method.kernel.workspace
            self.assertFalse(locks.any())
            (found,) = attach.held(quantized._parts(layer))
            self.assertEqual(found[1], locks.data_ptr())
            text = quantized.facts_of(layer, None)["vllm.quantized"]
            self.assertRegex(text, "^1 tensors of kernels, hash ")
            layer.quant_method.kernel.workspace = locks.clone()
            self.assertNotEqual(quantized.facts_of(layer, None)["vllm.quantized"], text)
            self.assertEqual([each[:2] for each in attach.plain(layer)], [
                (".g_idx_sort_indices:", layer.g_idx_sort_indices.data_ptr())])
            self.assertIn(("g_idx", layer.g_idx.data_ptr()),
                          [each[:2] for each in attach.named(layer)])
        self.assertEqual(layer.g_idx_sort_indices.tolist(), list(range(127, -1, -1)))
        self.assertEqual(list(quantized._check_layer(None, layer, layer.quant_method)), [])

    def test_machetes_order_is_not_found(self):
        with self.on_a_gpu():
            layer = self.ordered_layer()
            with self.assertRaisesRegex(session.Unfit, "weights in the order of activations .set "
                                        "VLLM_DISABLED_KERNELS=MacheteLinearKernel. yet"):
                list(quantized._check_layer(None, layer, layer.quant_method))

    def test_marlins_locks_for_fp8_belong_to_the_layer(self):
        from vllm.model_executor.kernels import linear
        from vllm.model_executor.layers.quantization.utils.marlin_utils_fp8 import (
            prepare_fp8_layer_for_marlin)
        layer = torch.nn.Module()
        layer.output_size_per_partition = layer.input_size_per_partition = 128
        layer.weight = torch.nn.Parameter(torch.zeros(128, 128).to(torch.float8_e4m3fn), False)
        layer.weight_scale = torch.nn.Parameter(torch.ones(1), False)
        layer.orig_dtype = torch.bfloat16
        with self.on_a_gpu():
            prepare_fp8_layer_for_marlin(layer)
            self.assertEqual([each[0] for each in attach.plain(layer)], [".workspace:"])
        self.assertFalse(layer.workspace.any())
        self.assertIn("prepare_fp8_layer_for_marlin", linear.MarlinFP8ScaledMMLinearKernel.
                      process_weights_after_loading.__code__.co_names)

    def test_marlin_adds_in_a_fixed_order(self):
        from vllm import envs
        from vllm.model_executor.layers.quantization.utils import marlin_utils
        gpu = torch.device("cuda")
        with self.on_a_gpu(), mock.patch("torch.cuda.get_device_capability", lambda _: (9, 0)):
            for value, varies in (("0", False), ("1", True)):
                with mock.patch.dict(os.environ, VLLM_MARLIN_USE_ATOMIC_ADD=value):
                    self.assertIs(marlin_utils.should_use_atomic_add_reduce(
                        1, 1024, 4096, gpu, torch.bfloat16), varies)
        self.assertIn("VLLM_MARLIN_USE_ATOMIC_ADD", envs.compile_factors())
        self.assertIn("VLLM_DISABLED_KERNELS", envs.compile_factors())

    def test_tensors_of_compiled_code_are_not_searched(self):
        module = torch.nn.Linear(1, 1, bias=False)
        module.code = cuda_graph.CUDAGraphEntry(None, output=torch.zeros(1))
        self.assertEqual(list(attach._children(module.code, worker.PACKAGES, worker.COMPILED)), [])
        steps = [step for step, _ in attach._children(module, worker.PACKAGES, worker.COMPILED)]
        self.assertIn(".code", steps)
        self.assertTrue(hasattr(__import__("torch._inductor.codecache").
                                _inductor.codecache.PyCodeCache, "modules"))

    def test_the_runner_has_its_manager_and_the_workspaces_their_place(self):
        self.assertIn("cudagraph_manager",
                      model_runner.GPUModelRunner.__init__.__code__.co_names)
        self.assertIn("_manager", vars(workspace))

    def test_workspaces_are_cleared(self):
        manager = workspace.WorkspaceManager(torch.device("cpu"), 2)
        with mock.patch.object(torch.accelerator, "empty_cache", lambda: None):
            one, other = manager.get_simultaneous(((100,), torch.float32), ((7, 3), torch.int64))
        one.fill_(5.0)
        other.fill_(-1)
        with mock.patch.object(workspace, "_manager", manager):
            worker.clear_workspaces()
        self.assertEqual((int(one.count_nonzero()), int(other.count_nonzero())), (0, 0))
        with mock.patch.object(workspace, "_manager", None):
            worker.clear_workspaces()


if __name__ == "__main__":
    suite.main()
