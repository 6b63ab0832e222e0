# SPDX-License-Identifier: Apache-2.0
"""Numbers of models in the host's memory, and quantized weights, with a small engine in vLLM's
place.
"""
import functools
import os
import textwrap

import suite
from vllm_scripts import Engine

# Kernels as vLLM's: quantized(NAME, ...) and experts(NAME, ...) are the attributes that loading
# gives to a layer.
KERNELS = """
def quantized(name, scale=1.0, kind="AutoGPTQLinearMethod", ordered=False, bits=4, zeros=False,
              inputs=2, scheme="CompressedTensorsWNA16", **tensors):
    kernel = type(name, (), {})
    kernel.__module__ = "vllm.model_executor.kernels.linear.scaled_mm"
    made, method = kernel(), type(kind, (), {})()
    made.scale = scale
    vars(made).update(tensors)
    space = types.SimpleNamespace
    made.config = space(has_g_idx=ordered, weight_type=space(size_bits=bits), zero_points=zeros,
                        act_type=space(itemsize=inputs))
    method.fp8_linear = made
    more = dict(scheme=type(scheme, (), {})()) if kind.startswith("Compressed") else {}
    return dict(quant_method=method, fp8_linear=made, **more)

def experts(name, kind="UnquantizedFusedMoEMethod", blocks=True, scheme="dynamic"):
    method = type(kind, (), {})()
    method.block_quant = blocks
    method.quant_config = types.SimpleNamespace(activation_scheme=scheme)
    method.moe_kernel = types.SimpleNamespace(fused_experts=type(name, (), {})())
    return dict(routed(types.SimpleNamespace(quant_method=method)), quant_method=method)

def routed(experts=1, router="FusedTopKRouter", **more):
    return dict(routed_experts=experts, router=type(router, (), {})(), **more)
"""
NOT_TUNED = """
from foundry.vllm import supported
supported._is_tuned = lambda config: False
"""


class Numbers(Engine):
    """Each start is a process of its own."""

    def second(self, first, second, before="", more=""):
        """Return the log of the second of two starts whose loaders make other attributes."""
        self.first(options=f"changes={first}{more}", before=before)
        return self.start(options=f"changes={second}{more}", before=before,
                          counts="LOADED" if first == second else self.AGAIN)

    def test_a_number_that_differs_is_noticed(self):
        log = self.second("{'scale': 2.0}", "{'scale': 2.5}")
        self.assertIn("captured and sealed", log)
        self.assertIn("because the model's number model.scale is 2.5 here and 2.0 in the", log)
        self.assertIn("loaded", self.start(options="changes={'scale': 2.0}", counts="LOADED"))

    def test_the_first_difference_has_a_short_name(self):
        self.start("""
            from foundry.engines import numbers
            def differ(ours, theirs):
                return numbers.first_difference(ours, numbers.packed(theirs))
            one = {"model._modules/'layers'._buffers/'scale'": "1.5", "model.bits": "4"}
            assert differ(one, one) is None
            assert differ(one, {**one, "model.bits": "8"}) == (
                "the model's number model.bits is 4 here and 8 in the image")
            assert differ(one, {"model.bits": "4"}) == (
                "the model's number model.layers.scale is 1.5 here and not there in the image")
            assert differ({"model.bits": "4"}, one) == (
                "the model's number model.layers.scale is not there here and 1.5 in the image")
            assert numbers.first_difference(one, "") is None
            """)

    def test_equal_numbers_in_all_places_are_loaded(self):
        changes = ("{'scales': [1.0, {'of': (2, 3)}], 'some': {4, 5}, 'kinds': {torch: 1, 'a': 2}, "
                   "'parts': [functools.partial(print, 6.0), lambda x, y=7.0: x * y]}")
        log = self.second(changes, changes, before="import functools\n")
        self.assertIn("loaded", log)

    def test_a_number_in_a_function_is_noticed(self):
        """A layer may keep its scale in a closure."""
        before = ("def closed(scale):\n    made = lambda x: x * scale\n"
                  "    made.__module__ = 'vllm.layers'\n    return made\n")
        log = self.second("{'by': [closed(2.0)]}", "{'by': [closed(2.5)]}", before=before)
        self.assertRegex(log, r"the model's number model\.by.*scale is 2\.5 here and 2\.0 in")

    def test_a_number_that_the_profile_makes_is_refused(self):
        before = ("from vllm.v1.worker.gpu import model_runner\n"
                  "def profile_run(this, original=model_runner.GPUModelRunner.profile_run):\n"
                  "    original(this)\n    this.model.scale = %s\n"
                  "model_runner.GPUModelRunner.profile_run = profile_run\n")
        log = self.start(before=before % "2.5")
        self.assertIn("not sealed: the model's number model.scale was made after its weights were "
                      "loaded", log)
        self.assertIn("captured and sealed", self.start(before=before % "2"))

    def test_quantized_weights_are_supported(self):
        options = "quantization='fp8', changes=quantized('MacheteLinearKernel', %s)"
        self.first(options=options % 1.0, before=KERNELS)
        self.assertIn("loaded", self.start(options=options % 1.0, before=KERNELS, counts="LOADED"))
        log = self.start(options=options % 2.0, before=KERNELS, counts=self.AGAIN)
        self.assertRegex(log, r"because the model's number model\..*scale is 2\.0 here and 1\.0 in")

    # Locks as Marlin's are no attributes of the model's modules.
    LOCKS = KERNELS + textwrap.dedent("""
        from vllm.v1.worker.gpu import model_runner
        def load_model(runner, original=model_runner.GPUModelRunner.load_model):
            original(runner)
            one, other = [torch.full((100, 10), 0.0) for _ in range(2)]
            found = quantized("MarlinLinearKernel", workspace=FIRST)
            found["scheme"] = types.SimpleNamespace(spare=SECOND)
            vars(runner.model).update(found)
        model_runner.GPUModelRunner.load_model = load_model
        """)

    def test_tensors_of_kernels_lie_where_they_were(self):
        for counts, one, other in (("ONCE", "one", "other"), ("LOADED", "one", "other"),
                                   (self.AGAIN, "other", "one")):
            log = self.start(
                options="quantization='auto_gptq'", counts=counts,
                before=self.LOCKS.replace("FIRST", one).replace("SECOND", other),
                FOUNDRY_VLLM_COMPARED="1")
        self.assertRegex(log, "because quantized is 2 tensors of kernels, hash .* in the image")

    def test_quantized_models_state_the_tensors_of_kernels_also_if_there_are_none(self):
        """Otherwise a start without these tensors could use an image that has them."""
        for name, options in ("quantized", "quantization='fp8', "), ("plain", ""):
            self.start(options=options + "changes=quantized('MacheteLinearKernel')",
                       before=KERNELS, FOUNDRY_VLLM=name)
        self.assertEqual(self.script(
            "import foundry\nstore = foundry.Store()\n"
            "print(store.facts('quantized')['vllm.quantized'][:20],\n"
            "      'vllm.quantized' in store.facts('plain'))\n").strip(),
            "0 tensors of kernels False")

    def test_marlin_is_supported_as_it_was_run(self):
        start = functools.partial(self.start, before=KERNELS)
        for name, more in (("gptq", ""), ("ordered", ", ordered=True"),
                           ("packed", ", kind='CompressedTensorsLinearMethod'")):
            options = f"quantization='fp8', changes=quantized('MarlinLinearKernel'{more})"
            self.assertIn("captured and sealed", start(options=options, FOUNDRY_VLLM=name))
        for changes, what in (
                ("quantized('MarlinLinearKernel', kind='AutoAWQMarlinLinearMethod')",
                 "AutoAWQMarlinLinearMethod and MarlinLinearKernel"),
                ("quantized('MarlinLinearKernel', ordered=True, "
                 "kind='CompressedTensorsLinearMethod')", "weights in the order of activations"),
                ("quantized('MarlinLinearKernel', bits=8, zeros=True, inputs=1)",
                 "8 bits by MarlinLinearKernel and zero points and inputs of 8 bits"),
                ("quantized('MarlinLinearKernel', kind='CompressedTensorsLinearMethod', "
                 "scheme='CompressedTensorsW4A8Int')", "the scheme CompressedTensorsW4A8Int"),
                ("quantized('MarlinFP8ScaledMMLinearKernel', kind='Fp8LinearMethod')",
                 "Fp8LinearMethod and MarlinFP8ScaledMMLinearKernel")):
            options = f"quantization='fp8', changes={changes}"
            self.assertIn(f"without an image, because layers with {what} were not run with images "
                          "on a GPU (set FOUNDRY_VLLM_COMPARED=1", start(options=options))
            log = start(options=options, FOUNDRY_VLLM_COMPARED="1",
                        FOUNDRY_VLLM="of-" + what.replace(" ", "-"))
            self.assertIn(f"WARNING Foundry: layers with {what} were not run", log)
            self.assertIn("captured and sealed", log)

    def refused(self, what, options, before=KERNELS):
        self.assertIn(f"started without an image, because images do not support {what}",
                      self.start(options=options, before=before))

    def test_other_kernels_for_quantized_weights_are_refused(self):
        for changes, what in (
                ("quantized('FlashInferFp8DeepGEMMKernel')",
                 "the kernel FlashInferFp8DeepGEMMKernel for quantized weights (set "
                 "VLLM_USE_DEEP_GEMM=0)"),
                ("quantized('HummingLinearKernel')",
                 "the kernel HummingLinearKernel for quantized weights yet"),
                ("quantized('MacheteLinearKernel', ordered=True)",
                 "weights in the order of activations (set "
                 "VLLM_DISABLED_KERNELS=MacheteLinearKernel) yet"),
                ("quantized('MacheteLinearKernel', kind='TransformMethod')",
                 "layers quantized by TransformMethod"),
                ("{'quant_method': types.SimpleNamespace()}",
                 "layers quantized by SimpleNamespace"),
                ("{'kv_cache_dtype': 'nvfp4'}", "a KV cache of the type nvfp4"),
                ("experts('DeepGemmExperts', 'Fp8MoEMethod')",
                 "the kernel DeepGemmExperts for quantized weights (set VLLM_USE_DEEP_GEMM=0)"),
                ("experts('TritonExperts', 'Fp8MoEMethod', blocks=False)",
                 "experts with one dynamic scale for all tokens"),
                ("experts('TritonExperts', 'OtherMoEMethod')",
                 "layers quantized by OtherMoEMethod")):
            self.refused(what, f"quantization='fp8', changes={changes}")

    def test_mixtures_of_experts_have_a_kernel_that_was_run(self):
        before = KERNELS + NOT_TUNED
        for changes, what in (
                ("experts('FlashInferExperts')", "the kernel FlashInferExperts for mixtures of "
                                                 "experts (start with --moe-backend triton)"),
                ("routed(quant_method=type('UnquantizedFusedMoEMethod', (), {})())",
                 "layers of the class UnquantizedFusedMoEMethod")):
            self.refused(what, f"moe=True, changes={changes}", before)
        for name, more in (("plain", ""), ("fp8", ", 'Fp8MoEMethod'")):
            options = f"moe=True, changes=experts('TritonExperts'{more})"
            self.assertIn("captured and sealed", self.start(
                options=options, before=before, FOUNDRY_VLLM=name))
        self.assertIn("captured and sealed", self.start(
            options="moe=True, changes=routed(shared_experts=None)", before=before,
            FOUNDRY_VLLM="routed"))
        for options, what in (
                ("moe=True, changes=routed(shared_experts=1)", "experts with shared experts"),
                ("moe=True, changes=routed(residual_mlp=1)", "experts with shared experts"),
                ("changes=routed(router='GroupedTopKRouter', shared_expert=1)",
                 "experts with shared experts and the router GroupedTopKRouter"),
                ("moe=True", "experts with no layers of vLLM's for them"),
                ("moe=True, changes={'shared_mlp': 1}",
                 "experts with no layers of vLLM's for them and shared experts"),
                ("moe=True, changes=experts('TritonExperts', 'Fp8MoEMethod', blocks=False, "
                 "scheme='static')", "experts with one scale for each tensor")):
            log = self.start(options=options, before=before, FOUNDRY_VLLM="others")
            self.assertIn(f"because {what} were not run with images on a GPU", log)

    def test_experts_with_the_v1_runner_are_supported(self):
        self.assertIn("captured and sealed", self.start(
            options="moe=True, runner='V1', graphs='FULL', changes=experts('TritonExperts')",
            before=KERNELS + NOT_TUNED, counts="ONCE_V1"))
        self.start(self.SEVERAL + textwrap.dedent("""
            for runner in "V1", "V2":
                assert why(checked.check, config(moe=True, mode=3, runner=runner), 1) is None
            """))

    def test_deepgemm_changes_experts_of_other_kernels(self):
        before = KERNELS + NOT_TUNED + textwrap.dedent("""
            import sys
            utils, found = types.ModuleType("vllm.utils"), types.ModuleType("deep_gemm")
            found.is_deep_gemm_supported, utils.deep_gemm = lambda: True, found
            sys.modules["vllm.utils"] = utils
            """)
        for name, changes, refused in (
                ("fp8", "experts('TritonExperts', 'Fp8MoEMethod')", True),
                ("plain", "experts('TritonExperts')", False),
                ("blocks", "quantized('CutlassFp8BlockScaledMMKernel', kind='Fp8LinearMethod')",
                 False)):
            log = self.start(options=f"quantization='fp8', changes={changes}", before=before,
                             FOUNDRY_VLLM=name)
            self.assertIn("because layers with DeepGEMM's form of scales (set VLLM_USE_DEEP_GEMM=0)"
                          if refused else "captured and sealed", log)

    def test_tuned_kernels_are_a_fact(self):
        folder = os.path.join(self.folder.name, "tuned")
        os.mkdir(folder)
        start = functools.partial(
            self.start, options="moe=True, changes=experts('TritonExperts')",
            before=KERNELS + NOT_TUNED, VLLM_TUNED_CONFIG_FOLDER=folder)
        self.assertIn("captured and sealed", start())
        self.assertIn("loaded", start(counts="LOADED"))
        path = os.path.join(folder, "E=16,N=512.json")
        with open(path, "w", encoding="ascii") as f:
            f.write("{}")
        self.assertRegex(start(), "because tuned is 1, hash .* here and 0, hash .* in the image")
        self.assertIn("loaded", start(counts="LOADED"))
        with open(path, "w", encoding="ascii") as f:
            f.write("[]")
        self.assertRegex(start(), "because tuned is 1, hash .* here and 1, hash .* in the image")
        os.rename(path, os.path.join(folder, "E=16,N=256.json"))
        self.assertRegex(start(), "because tuned is 1, hash .* here and 1, hash .* in the image")
        os.mkdir(os.path.join(folder, "a folder.json"))
        self.assertRegex(start(), "because tuned is 2, hash .* here and 1, hash .* in the image")

    def test_only_kernels_that_may_be_tuned_have_this_fact(self):
        for options, there in (("", False), ("quantization='fp8'", True)):
            self.start(options=options, FOUNDRY_VLLM=f"of{there}")
            found = self.script("import foundry\nprint('vllm.tuned' in foundry.Store().facts("
                                f"'of{there}'))\n")
            self.assertEqual(found.strip(), str(there))

    # Checks layers of several GPUs in one process.
    SEVERAL = KERNELS + textwrap.dedent("""
        from foundry.engines.session import Unfit
        from foundry.vllm import quantized as checked
        class Model:
            def __init__(self, **changes):
                vars(self).update(changes)
            def named_modules(self):
                return [("model", self)]
        def why(check, *args):
            try:
                check(*args)
            except Unfit as e:
                return str(e).partition(" were not run")[0]
        """)

    def test_what_was_run_on_several_gpus_is_supported(self):
        self.start(self.SEVERAL + textwrap.dedent("""
            made = config(moe=True, ranks=2)
            assert why(checked.check, made, 2) == "experts with several GPUs"
            assert why(checked.check, made, 1) is None
            for options in dict(quantization="fp8"), dict(cache_dtype="bfloat16"):
                assert why(checked.check, config(ranks=2, **options), 2) is None
            blocks = "CutlassFp8BlockScaledMMKernel"
            for name, kind, run in ((blocks, "Fp8LinearMethod", True),
                                    ("MacheteLinearKernel", "CompressedTensorsLinearMethod", True),
                                    ("MacheteLinearKernel", "AutoGPTQLinearMethod", False)):
                model = Model(**quantized(name, kind=kind))
                assert why(checked.check_model, config(), model) is None
                what = f"layers with {kind} and {name} on several GPUs"
                found = why(checked.check_model, config(ranks=2), model)
                assert found == (None if run else what), found
                found = why(checked.check_model, config(ranks=2, mode=3), model)
                assert found == (None if run else what), found
                found = why(checked.check_model, config(ranks=2, runner="V1"), model)
                assert found == what, found
            model = Model(**quantized("MacheteLinearKernel", bits=8,
                                      kind="CompressedTensorsLinearMethod"))
            found = why(checked.check_model, config(ranks=2), model)
            assert found == "layers with 8 bits by MacheteLinearKernel", found
            assert why(checked.check_model, config(), model) is None
            """))

    def test_a_quantized_cache_is_supported_as_it_was_run(self):
        options = "cache_dtype='fp8', changes={'kv_cache_dtype': 'fp8'}"
        self.assertIn("captured and sealed", self.start(options=options))
        self.start(self.SEVERAL + textwrap.dedent("""
            model = Model(kv_cache_dtype="fp8")
            for options, what in ((dict(mode=3), "torch.compile"), (dict(runner="V1"), "the V1 "
                                  "runner"), (dict(ranks=2), "several GPUs"),
                                  (dict(graphs="FULL"), "the graph mode FULL")):
                found = why(checked.check_model, config(**options), model)
                assert found == f"KV caches in FP8 with {what}", found
            """))

    def test_a_quantized_cache_has_scales_from_the_start(self):
        log = self.start(options="cache_dtype='fp8', scaled=True")
        self.assertIn("because images do not support a KV cache with scales that the first request "
                      "determines", log)

    def test_quantized_weights_that_no_gpu_has_run_need_the_variable(self):
        options = "quantization='fp8', changes=quantized('MacheteLinearKernel', %s)"
        other = options % "kind='Fp8LinearMethod'"
        log = self.start(options=other, before=KERNELS)
        self.assertIn("without an image, because layers with Fp8LinearMethod and "
                      "MacheteLinearKernel were not run with images on a GPU (set "
                      "FOUNDRY_VLLM_COMPARED=1 to use images", log)
        log = self.start(options=other, before=KERNELS, FOUNDRY_VLLM_COMPARED="1")
        self.assertIn("WARNING Foundry: layers with Fp8LinearMethod and MacheteLinearKernel were "
                      "not run", log)
        self.assertIn("captured and sealed", log)

    def test_deepgemm_was_run_on_one_gpu_with_its_default_warm_up(self):
        self.start(self.SEVERAL + textwrap.dedent("""
            name = "DeepGemmFp8BlockScaledMMKernel"
            model = Model(**quantized(name, kind="Fp8LinearMethod"))
            for mode in (0, 3):
                assert why(checked.check_model, config(mode=mode), model) is None
            import os
            os.environ["VLLM_DEEP_GEMM_WARMUP"] = "skip"
            found = why(checked.check_model, config(), model)
            assert found == "layers with VLLM_DEEP_GEMM_WARMUP=skip", found
            os.environ["VLLM_DEEP_GEMM_WARMUP"] = "relax"
            found = why(checked.check_model, config(ranks=2), model)
            assert found == (f"layers with Fp8LinearMethod and {name} on several GPUs (set "
                             "VLLM_USE_DEEP_GEMM=0)"), found
            """))

    def test_layers_that_are_not_quantized_need_no_kernel(self):
        for kind, bases in ("UnquantizedLinearMethod", "()"), (
                "KVCacheMethod", "(type('BaseKVCacheMethod', (), {}),)"):
            options = ("quantization='fp8', changes={'quant_method': "
                       f"type('{kind}', {bases}, {{}})()}}")
            self.assertIn("captured and sealed", self.start(options=options, FOUNDRY_VLLM=kind))


if __name__ == "__main__":
    suite.main()
