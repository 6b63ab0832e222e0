# SPDX-License-Identifier: Apache-2.0
"""Two ranks of the small engine in SGLang's place, each in a process of its own, on the software
driver: all load, or none does.
"""
import engine_tests
import suite
from sglang_scripts import ENGINE, Engine

# (arguments, variables, what images do not support)
SHARING = (
    ({"custom": True}, {}, "custom all-reduce (start with --disable-custom-all-reduce)"),
    ({"tp_size": 1, "pp_size": 2}, {}, "pipeline parallelism"),
    ({"ep_size": 2}, {}, "expert parallelism"),
    ({"moe_dp_size": 2}, {}, "expert parallelism"),
    ({"elastic_ep_backend": "mooncake"}, {}, "expert parallelism"),
    ({"dp_size": 2}, {}, "data parallelism"),
    ({"enable_dp_attention": True}, {}, "data parallelism of attention"),
    ({"attn_cp_size": 2}, {}, "context parallelism"),
    ({"dcp_size": 2}, {}, "context parallelism"),
    ({"nnodes": 2}, {}, "ranks on several hosts"),
    ({"use_ray": True}, {}, "ranks that another program starts"),
    ({"enable_mscclpp": True}, {}, "all-reduce by MSCCL++"),
    ({"enable_torch_symm_mem": True}, {}, "all-reduce by symmetric memory"),
    ({"flashinfer_allreduce_fusion_backend": "auto"}, {}, "all-reduce by FlashInfer (start with "
     "--enforce-disable-flashinfer-allreduce-fusion)"),
    ({"enable_nccl_nvls": True}, {}, "NCCL's multicast memory"),
    ({}, {"NCCL_NVLS_ENABLE": "1"}, "NCCL's multicast memory"),
    ({}, {"NCCL_RUNTIME_CONNECT": "1"}, "NCCL that connects later"),
    ({}, {"NCCL_CUMEM_ENABLE": "0"}, "NCCL that does not map its memory (set NCCL_CUMEM_ENABLE=1)"),
    ({}, {"NCCL_GRAPH_REGISTER": "1"}, "graphs that use buffers of other ranks"))


class Ranks(engine_tests.Ranks, Engine):
    SCRIPT = ENGINE.replace("{", "{{").replace("}", "}}") + """
foundry.sglang.register()
{before}
runner = start(tp_size=2, {options})
decodes(runner)
assert COUNTS == {counts}, COUNTS
wanted = set() if runner.foundry_session.connects else {{"multicast"}}
assert model_runner.GATHERS == wanted, model_runner.GATHERS
"""
    VARIABLES = {"FOUNDRY_SGLANG": "test", "NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"}
    COUNTS = "PLAIN"
    FAILING = """
        from foundry.sglang import runner as r
        def compare(*_):
            raise r.Unfit("of a test")
        r.Session.compare = compare
        """
    GROWING = """
        def grow(self):
            original(self)
            torch.distributed.map_memory()
        original = decode_cuda_graph_runner.DecodeCudaGraphRunner.capture
        decode_cuda_graph_runner.DecodeCudaGraphRunner.capture = grow
        """

    def test_graphs_of_prefill_are_loaded_too(self):
        options, more = "prefill='breakable'", "{**%s, 'prefill': 1}"
        for log in self.both(more % "PLAIN", options=options):
            self.assertIn("9 graphs", log)
        for log in self.both("LOADED", options=options):
            self.assertIn("9 graphs", log)
        failing = "def failing(*_):\n    raise ValueError('of a test')\nfacts.early = failing\n"
        zero, _ = self.both((more % "PLAIN").replace("}", ", 'profile': 0}"), options=options,
                            before=("", self.FAILING))
        self.assertIn("because rank 1 starts without its image: of a test", zero)
        zero, _ = self.both(more % "PLAIN", options=options, before=("", failing))
        self.assertIn("because rank 1 starts without its image: of a test", zero)

    def test_an_image_of_another_rank_is_not_used(self):
        self.first()
        self.store("rm", "test.rank1")
        self.store("tag", "test.rank0", "test.rank1")
        zero, one = self.both()
        self.assertIn("because ranks is 1 of 2 here and 0 of 2 in the image", one)
        self.assertIn("rank 1 starts without its image: ranks is 1 of 2 here", zero)

    def test_what_is_not_supported_is_named(self):
        for options, what in (("custom=True", "custom all-reduce"),
                              ("enable_symm_mem=True", "symmetric memory")):
            for log in self.both(options=options):
                self.assertIn(f"started without an image, because images do not support {what}",
                              log)

    def test_ranks_that_share_more_than_collectives_are_not_supported(self):
        said = self.script(ENGINE + f"""if 1:
            from foundry.sglang import ranks
            from sglang.srt.environ import envs
            for options, variables, what in {SHARING!r}:
                os.environ.update({{**{self.VARIABLES!r}, **variables}})
                try:
                    ranks.check(arguments(**{{"tp_size": 2, **options}}), envs)
                except ranks.session.Unfit as e:
                    assert str(e).startswith(f"images do not support {{what}}"), (what, e)
                    print("refused")
                for name in variables:
                    os.environ.pop(name)
            """)
        self.assertEqual(said.count("refused"), len(SHARING))


if __name__ == "__main__":
    suite.main()
