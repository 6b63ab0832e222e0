# SPDX-License-Identifier: Apache-2.0
"""foundry.vllm beside vLLM's own classes, as far as these work without a GPU.

It notices a vLLM whose worker has other phases, or names that foundry.vllm does not expect.
"""
import inspect
import types
import unittest

import suite

try:
    import torch
    import vllm
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker import gpu_worker, worker_base, workspace
    from vllm.v1.worker.gpu import cudagraph_utils, model_runner
    from foundry.vllm import attach, facts, graphs, worker
    MISSING = ""
except ImportError as e:
    MISSING = f"no GPU serving engine: {e}"



@unittest.skipIf(MISSING, MISSING)
class Engine(unittest.TestCase):
    def manager(self):
        made = cudagraph_utils.ModelCudaGraphManager.__new__(cudagraph_utils.ModelCudaGraphManager)
        made.compilation_config = types.SimpleNamespace(
            cudagraph_capture_sizes=[1, 2, 4], max_cudagraph_capture_size=4)
        made.cudagraph_mode = CUDAGraphMode.FULL_DECODE_ONLY
        made.vllm_config = types.SimpleNamespace(speculative_config=None)
        made.max_num_reqs, made.decode_query_len, made.lora_capture_cases = 4, 1, [0]
        made._candidates, made._capture_descs, made.graphs = {}, {}, {}
        made._lora_dispatch_map, made._graphs_captured = {}, False
        made.is_last_pp_rank, made.use_aux_hidden_state_outputs = True, False
        made.hidden_states = None
        made._init_candidates()
        return made

    def test_the_code_is_that_of_a_version_that_was_run(self):
        self.assertEqual(facts.source(), facts.SOURCES.get(vllm.__version__), vllm.__version__)

    def test_workers_have_the_phases(self):
        for name in worker.PHASES:
            self.assertTrue(inspect.isfunction(getattr(gpu_worker.Worker, name)), name)
        self.assertTrue(inspect.isfunction(worker_base.WorkerWrapperBase.init_worker))
        used = gpu_worker.Worker.compile_or_warm_up_model.__code__.co_names
        for name in ("kernel_warmup", "capture_model", "warmup_kernels"):
            self.assertIn(name, used)

    def test_the_capture_makes_its_graphs_where_they_are_replaced(self):
        used = inspect.unwrap(cudagraph_utils.CudaGraphManager.capture).__code__.co_names
        self.assertIn("CUDAGraph", used)
        self.assertNotIn("CUDAGraph", vars(cudagraph_utils))

    def test_torch_has_the_pools_of_the_area(self):
        for name in ("beginAllocateCurrentThreadToPool", "endAllocateToPool", "releasePool"):
            self.assertTrue(hasattr(torch._C, f"_cuda_{name}"), name)

    def test_graphs_of_an_image_fill_the_table(self):
        manager, launched = self.manager(), []
        keys = [key for descs in manager._capture_descs.values() for key in descs]
        self.assertEqual([key.num_tokens for key in keys], [4, 2, 1])
        names = dict(enumerate(map(graphs.name_of, keys), 1))
        self.assertEqual(len(set(names.values())), 3)
        self.assertEqual(names[1], "cg_mode=FULL,num_tokens=4,num_reqs=4,uniform_token_count=1,"
                         "num_active_loras=0")
        image = types.SimpleNamespace(graphs=lambda: names,
                                      launch=lambda key, stream: launched.append((key, stream)))
        manager.graphs.update(graphs.table(image, keys, 0))
        manager._graphs_captured = True
        attach.place({"runner": types.SimpleNamespace(cudagraph_manager=manager)},
                     "runner.cudagraph_manager.hidden_states", torch.arange(8).reshape(4, 2))
        stream, original = types.SimpleNamespace(cuda_stream=5), torch.cuda.current_stream
        torch.cuda.current_stream = lambda device=None: stream
        try:
            desc = manager.dispatch(3, 3, 1, 0)
            out = manager.run_fullgraph(desc)
        finally:
            torch.cuda.current_stream = original
        self.assertEqual(launched, [(1, 5)])
        self.assertEqual(out.tolist(), [[0, 1], [2, 3], [4, 5], [6, 7]])

    def test_the_runner_has_its_manager_and_the_workspaces_their_place(self):
        self.assertIn("cudagraph_manager",
                      model_runner.GPUModelRunner.__init__.__code__.co_names)
        self.assertIn("_manager", vars(workspace))


if __name__ == "__main__":
    suite.main()
