# SPDX-License-Identifier: Apache-2.0
"""Quantized weights, and numbers of models in the host's memory, with a small engine in SGLang's
place.
"""
import functools
import os

import suite
from sglang_scripts import Engine

# Layers as SGLang's: fp8(...) and marlin(...) are the attributes that loading gives to a layer.
LAYERS = """
def cutlass_w8a8_block_fp8_linear_with_fallback():
    pass

def deepgemm_w8a8_block_fp8_linear_with_fallback():
    pass

def w8a8_mxfp8_linear():
    pass

space = types.SimpleNamespace

class Type:
    def __init__(self, size_bits):
        self.size_bits = size_bits
    def __len__(self):
        raise TypeError

def made(kind, **values):
    made = type(kind, (), {})()
    vars(made).update(values)
    return made

def fp8(block=None, shape=(128, 256), scales=256, scale=1.0, size=(128, 128), **values):
    method = made("Fp8LinearMethod", **{**dict(
        use_marlin=False, use_mxfp8=False, block_quant=bool(block), w8a8_block_fp8_linear=block,
        quant_config=space(weight_block_size=size if block else None),
        w8a8_mxfp8_linear=w8a8_mxfp8_linear), **values})
    return dict(quant_method=method, weight=space(shape=shape), scale=scale,
                weight_scale=space(numel=lambda: scales))

def marlin(bits=4, ordered=False, zeros=False, kind="GPTQMarlinLinearScheme", **tensors):
    config = space(weight_type=Type(bits), has_g_idx=ordered, zero_points=zeros)
    return dict(quant_method=made("GPTQMarlinLinearMethod"), scheme=made(
        kind, kernel=made("Kernel", kernel_config=config, **tensors)))

def compressed(blocks=None, **values):
    layer = fp8(**values)
    scheme = made("CompressedTensorsW8A8Fp8", weight_block_size=blocks,
                  w8a8_block_fp8_linear=deepgemm_w8a8_block_fp8_linear_with_fallback)
    return {**layer, "quant_method": made("CompressedTensorsLinearMethod"), "scheme": scheme}

import dataclasses
from foundry.sglang import experts as of_experts
of_experts.LAYER = "Model"  # the only layer of this model

@dataclasses.dataclass
class MoeRunnerConfig:
    num_experts: int = None
    num_fused_shared_experts: int = None
    activation: str = "silu"

@dataclasses.dataclass
class TopKConfig:
    top_k: int
    use_grouped_topk: bool = False
    renormalize: bool = True
    correction_bias: object = None

def experts(backend="triton", kind="UnquantizedFusedMoEMethod", blocks=True, scheme="dynamic",
            fp4=False, choice={}, **values):
    method = made(kind, runner=space(runner_backend=space(value=backend)), block_quant=blocks,
                  use_mxfp8=False, is_fp4_expert=fp4,
                  quant_config=space(activation_scheme=scheme))
    return dict(quant_method=method, topk_config=TopKConfig(4, **choice),
                moe_runner_config=MoeRunnerConfig(16, 0, **values))

def awq(bits=4):
    kind = made("AWQMarlinLinearScheme", quant_config=space(quant_type=Type(bits)))
    return dict(quant_method=made("AWQLinearMethod"), scheme=kind)
"""
RUN = LAYERS + """
from foundry.sglang import quantized
quantized.RUN = (("Fp8LinearMethod", "fp8_scaled_mm"),
                 ("GPTQMarlinLinearScheme", "gptq_marlin_gemm"))
"""


class Quantized(Engine):
    """Each start is a process of its own."""

    AGAIN = "{**PLAIN, 'profile': 0}"

    def begin(self, changes, before=RUN, more="", **options):
        return self.start(options=f"quantization='fp8', changes={changes}{more}", before=before,
                          **options)

    def test_quantized_weights_are_supported(self):
        self.assertIn("captured and sealed", self.begin("fp8()"))
        self.assertIn("loaded", self.begin("fp8()", counts="LOADED"))
        log = self.begin("fp8(scale=2.0)", counts=self.AGAIN)
        self.assertIn("because the model's number model.scale is 2.0 here and 1.0 in the", log)

    def test_tensors_of_schemes_lie_where_they_were(self):
        """Such tensors are no attributes of the model's modules."""
        before = RUN + """
def load_model(runner, original=model_runner.ModelRunner.load_model):
    original(runner)
    one, other = [torch.full((100, 10), 0.0) for _ in range(2)]
    vars(runner.model).update(marlin(**ORDER))
model_runner.ModelRunner.load_model = load_model
"""
        for counts, order in (("PLAIN", "one=one, other=other"), ("LOADED", "one=one, other=other"),
                              (self.AGAIN, "one=other, other=one")):
            log = self.begin("{}", before=before.replace("**ORDER", order), counts=counts)
        self.assertRegex(log, "because quantized is 2 tensors of schemes, hash .* in the image")

    def test_what_no_gpu_has_run_needs_the_variable(self):
        for changes, what in (
                ("fp8(cutlass_w8a8_block_fp8_linear_with_fallback)",
                 "Fp8LinearMethod and cutlass_w8a8_block_fp8_linear_with_fallback"),
                ("fp8(cutlass_w8a8_block_fp8_linear_with_fallback, shape=(64, 128))",
                 "Fp8LinearMethod and triton_w8a8_block_fp8_linear and shapes that are no "
                 "multiples of 128"),
                ("fp8(deepgemm_w8a8_block_fp8_linear_with_fallback, shape=(64, 128))",
                 "Fp8LinearMethod and deepgemm_w8a8_block_fp8_linear_with_fallback (start with "
                 "--fp8-gemm-backend cutlass) and DeepGEMM's compilation ahead (set "
                 "SGLANG_JIT_DEEPGEMM_PRECOMPILE=0) and shapes that are no multiples of 128"),
                ("fp8(cutlass_w8a8_block_fp8_linear_with_fallback, size=[64, 64])",
                 "Fp8LinearMethod and cutlass_w8a8_block_fp8_linear_with_fallback and blocks of "
                 "other sizes than 128 x 128"),
                ("compressed((128, 64))", "CompressedTensorsW8A8Fp8 and deepgemm_w8a8_block_fp8_"
                 "linear_with_fallback (start with --fp8-gemm-backend cutlass) and DeepGEMM's "
                 "compilation ahead (set SGLANG_JIT_DEEPGEMM_PRECOMPILE=0) and blocks of other "
                 "sizes than 128 x 128"),
                ("fp8(deepgemm_w8a8_block_fp8_linear_with_fallback, shape=(128, 192))",
                 "Fp8LinearMethod and triton_w8a8_block_fp8_linear and shapes that are no "
                 "multiples of 128"),
                ("compressed([128, 128])", "CompressedTensorsW8A8Fp8 and deepgemm_w8a8_block_fp8_"
                 "linear_with_fallback (start with --fp8-gemm-backend cutlass) and DeepGEMM's "
                 "compilation ahead (set SGLANG_JIT_DEEPGEMM_PRECOMPILE=0)"),
                ("fp8(shape=(128, 8), scales=8)", "Fp8LinearMethod and triton_scaled_mm"),
                ("{**fp8(), 'input_scale': 1.0}", "static scales of inputs"),
                ("compressed()", "CompressedTensorsW8A8Fp8 and fp8_scaled_mm"),
                ("marlin(bits=8, ordered=True)", "8 bits"),
                ("marlin(zeros=True)", "zero points"),
                ("marlin(ordered=True, kind='CompressedTensorsWNA16')",
                 "CompressedTensorsWNA16 and gptq_marlin_gemm and weights in the order of "
                 "activations"),
                ("awq(bits=8)", "AWQMarlinLinearScheme and gptq_marlin_gemm and 8 bits")):
            log = self.begin(changes)
            self.assertIn("started without an image, because layers with "
                          f"{what} were not run with images on a GPU (set "
                          "FOUNDRY_SGLANG_COMPARED=1 to use images", log)
        log = self.begin("compressed()", FOUNDRY_SGLANG_COMPARED="1")
        self.assertIn("WARNING Foundry: layers with CompressedTensorsW8A8Fp8 and fp8_scaled_mm "
                      "were not run", log)
        self.assertIn("captured and sealed", log)
        self.assertIn("because FOUNDRY_SGLANG_COMPARED is 'yes'",
                      self.begin("compressed()", FOUNDRY_SGLANG_COMPARED="yes"))

    def test_graphs_of_prefill_that_no_gpu_has_run_need_the_variable(self):
        more, counts = ", prefill='breakable'", "{**PLAIN, 'prefill': 1}"
        what = ("layers with GPTQMarlinLinearScheme and gptq_marlin_gemm in graphs of prefill were "
                "not run with")
        self.assertIn(f"because {what}", self.begin("marlin()", more=more, counts=counts))
        self.assertIn(f"WARNING Foundry: {what}", self.begin(
            "marlin()", more=more, counts=counts, FOUNDRY_SGLANG_COMPARED="1"))
        for layer in ("fp8(cutlass_w8a8_block_fp8_linear_with_fallback)", "experts()"):
            self.assertIn("captured and sealed", self.begin(
                layer, more=more, counts=counts, before=LAYERS, FOUNDRY_SGLANG="run" + layer[:3]))

    def test_several_gpus_need_the_variable(self):
        self.start("""
            from foundry.engines.session import Unfit
            from foundry.sglang import quantized
            def made(count):
                return types.SimpleNamespace(
                    model_config=types.SimpleNamespace(quantization="fp8"), tp_size=count,
                    server_args=types.SimpleNamespace(
                        torchao_config="", cuda_graph_config=types.SimpleNamespace(
                            prefill=types.SimpleNamespace(backend="disabled"))))
            quantized.check(made(1))
            try:
                quantized.check(made(2))
            except Unfit as e:
                assert str(e).startswith("quantized weights with several GPUs were not run"), e
            else:
                raise AssertionError("not refused")
            """)

    def test_quantized_weights_do_not_come_from_an_image(self):
        """SGLang's loader makes their tensors."""
        log = self.begin("fp8()", FOUNDRY_SGLANG_WEIGHTS="1", FOUNDRY_SGLANG_COMPARED="1")
        self.assertIn("because images do not support quantized weights with FOUNDRY_SGLANG_WEIGHTS",
                      log)

    def test_tuned_kernels_are_a_fact(self):
        folder = os.path.join(self.folder.name, "configs", "triton_3")
        os.makedirs(folder)
        start = functools.partial(self.begin, "fp8()",
                                  SGLANG_MOE_CONFIG_DIR=os.path.join(self.folder.name))
        self.assertIn("captured and sealed", start())
        self.assertIn("loaded", start(counts="LOADED"))
        with open(os.path.join(folder, "E=16,N=512.json"), "w", encoding="ascii") as f:
            f.write("{}")
        self.assertRegex(start(counts=self.AGAIN),
                         "because tuned is 1, hash .* here and 0, hash .* in the image")

    def test_other_layers_and_kernels_are_refused(self):
        for changes, what in (
                ("fp8(use_marlin=True)", "the kernel apply_fp8_marlin_linear for quantized weights "
                 "(set SGLANG_FORCE_FP8_MARLIN=0)"),
                ("fp8(use_mxfp8=True)", "the kernel w8a8_mxfp8_linear for quantized weights yet"),
                ("compressed(scales=1)", "the kernel torch._scaled_mm for quantized weights yet"),
                ("marlin(kind='CompressedTensorsW4A4Fp4')",
                 "layers quantized by CompressedTensorsW4A4Fp4"),
                ("dict(quant_method=made('OtherMoEMethod'))",
                 "layers quantized by OtherMoEMethod"),
                ("experts('deep_gemm', kind='Fp8MoEMethod')",
                 "the kernel deep_gemm_experts for quantized weights (start with "
                 "--moe-runner-backend triton)")):
            log = self.begin(changes, FOUNDRY_SGLANG_COMPARED="1")
            self.assertIn(f"started without an image, because images do not support {what}", log)

    def test_mixtures_of_experts_are_supported_as_they_were_run(self):
        for name, options in (("plain", "changes=experts()"),
                              ("fp8", "quantization='fp8', changes=experts(kind='Fp8MoEMethod')")):
            self.assertIn("captured and sealed", self.start(options=options, before=LAYERS,
                                                            FOUNDRY_SGLANG=name))
        self.assertIn("True", self.script("import foundry\nprint('sglang.tuned' in "
                                          "foundry.Store().facts('plain'))\n"))
        fp8, ran = "quantization='fp8', changes=experts(kind='Fp8MoEMethod', %s)", " were not run"
        for options, says in (
                ("changes=experts('flashinfer_cutlass')",
                 "the kernel flashinfer_cutlass_experts for mixtures of experts (start with "
                 "--moe-runner-backend triton)"),
                (fp8 % "blocks=False", "support experts with one dynamic scale for all tokens"),
                (fp8 % "blocks=False, scheme='static'",
                 "layers with one scale for each tensor" + ran),
                (fp8 % "fp4=True", "layers with other types of experts' weights" + ran),
                ("changes=experts(choice=dict(use_grouped_topk=True, correction_bias=1, "
                 "renormalize=False))",
                 "experts with use_grouped_topk and renormalize and correction_bias" + ran),
                ("changes=experts(activation='gelu')", "experts with activation" + ran),
                ("changes={**experts(), 'shared_experts': 1}",
                 "experts with shared experts" + ran),
                ("changes={'topk_config': TopKConfig(4)}",
                 "experts with no layers of the class Model" + ran),
                ("changes={'shared_mlp': 1}", "experts with shared experts and no layers of the "
                 "class Model and a choice by none of SGLang's TopK" + ran),
                ("changes={'moe_runner_config': MoeRunnerConfig()}",
                 "experts with a choice by none of SGLang's TopK" + ran),
                ("enable_eplb=True, moe_a2a_backend='deepep', changes=experts()",
                 "experts with --moe-a2a-backend and --enable-eplb" + ran)):
            self.assertIn(says, self.start(options=options, before=LAYERS, FOUNDRY_SGLANG="no"))
        for name in ("SGLANG_SIMULATE_UNIFORM_EXPERTS", "SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS"):
            self.assertIn(f"experts with {name}" + ran, self.start(
                options="changes=experts()", before=LAYERS, FOUNDRY_SGLANG="no", **{name: "1"}))
        self.assertIn("experts with layers of the class Model" + ran, self.start(
            options="changes=experts()", FOUNDRY_SGLANG="no",
            before=LAYERS + "of_experts.LAYER = 'FusedMoE'\n"))
        self.start("""
            two = types.SimpleNamespace(tp_size=2, server_args=arguments(),
                                        model=model_runner.Model(arguments(), 1.0))
            vars(two.model).update(experts())
            assert list(of_experts.not_run(two)) == ["several GPUs"]
            """, before=LAYERS)

    def test_a_machine_without_cutlass_has_another_kernel(self):
        before = LAYERS + ("from sglang.srt.layers.quantization import fp8_utils\n"
                           "fp8_utils.%s\n")
        for change, what in (
                ("use_triton_w8a8_fp8_kernel = True",
                 "because layers with Fp8LinearMethod and triton_scaled_mm were not run"),
                ("cutlass_fp8_supported = lambda: False",
                 "because images do not support the kernel torch._scaled_mm")):
            self.assertIn(what, self.begin("fp8()", before=before % change))

    def test_kernels_that_were_run_are_known(self):
        self.start("""
            from foundry.sglang import quantized
            for kind, kernel in quantized.RUN:
                assert kind in quantized.KINDS and kernel in quantized.KERNELS, (kind, kernel)
            assert set(quantized.IN_PREFILL) < set(quantized.RUN)
            """)

    def test_a_variable_that_chooses_a_kernel_is_a_fact(self):
        self.begin("fp8()")
        log = self.begin("fp8()", USE_TRITON_W8A8_FP8_KERNEL="1", FOUNDRY_SGLANG_COMPARED="1")
        self.assertIn("environment is USE_TRITON_W8A8_FP8_KERNEL=1 here and empty in", log)

    def test_layers_that_are_not_quantized_need_no_kernel(self):
        for kind, bases in ("UnquantizedLinearMethod", "()"), (
                "Fp8KVCacheMethod", "(type('BaseKVCacheMethod', (), {}),)"):
            self.assertIn("captured and sealed", self.begin(
                f"{{'quant_method': type('{kind}', {bases}, {{}})()}}", FOUNDRY_SGLANG=kind))


if __name__ == "__main__":
    suite.main()
