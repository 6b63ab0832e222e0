# SPDX-License-Identifier: Apache-2.0
"""What a start of a small engine in vLLM's place compares with an image."""
import os
import subprocess
import sys
import textwrap
import unittest

import suite
from vllm_scripts import Engine


KEYS = """
import dataclasses, enum
from foundry.engines import graphs
@dataclasses.dataclass
class Key:
    tokens: int
    kind: object
Kind = enum.Enum("Kind", "FULL PIECES")
for key in (Key(4, Kind.FULL), Key(4, frozenset(("full", "pieces", "a", "b", "c"))), ("x", 7)):
    print(graphs.name_of(key))
try:
    graphs.name_of(object())
except graphs.Error as e:
    print("has an address" in str(e))
"""


PATHS = os.path.join(os.path.dirname(__file__), "stand_in"), os.environ.get("PYTHONPATH", "")


class Names(unittest.TestCase):
    def test_a_key_has_the_same_name_in_every_process(self):
        found = {subprocess.run([sys.executable, "-c", KEYS], capture_output=True, text=True,
                                check=True, timeout=60,
                                env={**os.environ, "PYTHONHASHSEED": seed,
                                     "PYTHONPATH": os.pathsep.join(PATHS)}).stdout
                 for seed in "123456"}
        self.assertEqual(len(found), 1, found)
        lines = found.pop().splitlines()
        self.assertEqual(lines[0], "tokens=4,kind=FULL")
        self.assertEqual(len(set(lines)), 4)
        self.assertEqual(lines[3], "True")


class Facts(Engine):
    """Each start is a process of its own."""

    def test_a_difference_is_named_and_the_start_seals(self):
        self.first()
        for options, says in (("seqs=5", "max_num_seqs is 5 here and 4 in the image"),
                              ("seqs=5, sizes=(2, 1)",
                               "capture_sizes is [2, 1] here and [4, 2, 1] in the image")):
            log = self.start(options=options)
            self.assertIn("captured and sealed", log)
            self.assertIn(says, log)
            self.assertIn("loaded", self.start(counts="LOADED", options=options))
        log = self.start(options="seqs=5, sizes=(2, 1)", STAND_IN_VLLM="0.26.0")
        self.assertIn("vllm is 0.26.0 here and 0.25.1 in the image", log)

    def test_facts_that_cannot_be_read_start_plain(self):
        before = textwrap.dedent("""
            from vllm.v1.worker.gpu import model_runner
            original = model_runner.GPUModelRunner.initialize_kv_cache
            def without_groups(self, blocks):
                original(self, blocks)
                del self.attn_groups
            model_runner.GPUModelRunner.initialize_kv_cache = without_groups
            """)
        log = self.start(before=before)
        self.assertIn("started without an image, because 'GPUModelRunner' object has no attribute "
                      "'attn_groups'", log)
        self.first()
        self.assertIn("started without an image", self.start(
            before=before, counts=self.AGAIN))

    def test_a_variable_of_vllm_that_differs_is_named(self):
        self.first()
        log = self.start(VLLM_STAND_IN="1", VLLM_STAND_IN_KEY="secret")
        self.assertIn("environment is VLLM_STAND_IN=1 here and empty in the image", log)
        self.assertIn("loaded", self.start(counts="LOADED", VLLM_STAND_IN="1"))
        log = self.start(VLLM_STAND_IN="a long value / with a path")
        self.assertIn("environment is VLLM_STAND_IN=", log)
        self.assertNotIn("long value", log)

    def test_variables_of_a_cluster_are_no_facts(self):
        """Kubernetes sets them for each Service."""
        self.script("""if 1:
            import os
            from foundry.engines import facts
            os.environ.update(SGLANG_SERVICE_HOST="10.0.0.1", SGLANG_SERVICE_PORT="80",
                              SGLANG_PORT_80_TCP="tcp://10.0.0.1:80", SGLANG_OTHER="1")
            assert facts.selecting(("SGLANG_",)) == ["SGLANG_OTHER"], facts.selecting(("SGLANG_",))
            """)

    def test_variables_that_make_kernels_for_debugging_are_facts(self):
        self.first()
        for name in ("TRITON_DEBUG", "FLASHINFER_JIT_DEBUG", "FLASHINFER_JIT_VERBOSE"):
            log = self.start(**{name: "1"})
            self.assertRegex(log, f"because environment is .*{name}=1.* here")
        self.start(counts="LOADED", TRITON_KERNEL_DUMP_DEBUG="1", NCCL_DEBUG="INFO")

    def test_the_code_of_a_model_is_a_fact(self):
        self.script("""if 1:
            import importlib, sys, types
            from foundry.engines import facts
            sys.path.insert(0, ".")
            found = set()
            for text, base in ("1", "1"), ("2", "1"), ("2", "2"):
                with open("remote_base.py", "w") as f:
                    f.write(f"class Base:\\n    scale = {base}\\n")
                with open("remote_model.py", "w") as f:
                    f.write("import remote_base\\nclass Layer(remote_base.Base):\\n"
                            f"    size = {text}\\n")
                import remote_model
                layer = remote_model.Layer()
                found.add(facts.code(types.SimpleNamespace(modules=lambda: [layer])))
            assert len(found) == 3
            """)

    def test_a_fact_that_is_too_long_is_hashed(self):
        """As that of a thousand capture sizes."""
        self.script("""if 1:
            from foundry.engines import facts
            found = facts.stated("vllm.", {"sizes": "8" * 4000, "runner": "V2"})
            assert len(found["vllm.sizes"]) == 16 and found["vllm.runner"] == "V2", found
            """)

    def test_weights_that_changed_places_are_noticed(self):
        self.first()
        log = self.start(counts=self.AGAIN, STAND_IN_SWAP="1")
        self.assertIn("the tensors of this process lie elsewhere", log)


if __name__ == "__main__":
    suite.main()
