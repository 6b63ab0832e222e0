# SPDX-License-Identifier: Apache-2.0
"""Two ranks of the small engine, each in a process of its own, on the software driver: all load, or
none does.
"""
import concurrent.futures
import glob
import os
import subprocess
import textwrap

import suite
from vllm_scripts import ENGINE, Engine

FAILING = textwrap.dedent("""
    from foundry.vllm import worker as w
    def compare(*_):
        raise w.Unfit("of a test")
    w.Session.compare = compare
    """)
BUILD = os.environ.get("BUILD", "build")


class Ranks(Engine):
    def both(self, counts="ONCE", before=("", ""), options="", **variables):
        """Start two ranks at once. before: what each does first. Returns their logs."""
        for path in glob.glob(self.path("gather.*")):
            os.unlink(path)
        variables = {"FOUNDRY_VLLM": "test", "STAND_IN_RANKS": "2",
                     "STAND_IN_DEVICES": "2",
                     **variables}
        text = textwrap.dedent(f"""
            worker = start(ranks=2, {options})
            decodes(worker)
            assert gpu_worker.COUNTS == {counts}, gpu_worker.COUNTS
            """)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda rank: self.run_one(
                ENGINE + before[rank] + text, **variables, STAND_IN_RANK=str(rank),
                TRITON_CACHE_DIR=self.path(f"triton.{rank}")), range(2)))
        for each in done:
            if each.returncode or each.stderr:
                raise AssertionError("\n".join(each.stdout + each.stderr for each in done))
        return [each.stdout for each in done]

    def first(self):
        for rank, log in enumerate(self.both()):
            self.assertIn(f"captured and sealed 'test.rank{rank}'", log)

    def remove(self, ref):
        subprocess.run([os.path.join(BUILD, "foundry-store"), "rm", ref], check=True,
                       env={**os.environ, "FOUNDRY_STORE": self.path(".cache/foundry/store")},
                       stdout=subprocess.DEVNULL)

    def test_all_ranks_load(self):
        self.first()
        for rank, log in enumerate(self.both("LOADED")):
            self.assertIn(f"Foundry: loaded 'test.rank{rank}'", log)

    def test_a_rank_whose_communicators_grow_in_the_warm_up_is_not_sealed(self):
        before = textwrap.dedent("""
            def grow(worker):
                original(worker)
                torch.distributed.map_memory()
            original, gpu_worker.kernel_warmup = gpu_worker.kernel_warmup, grow
            """)
        zero, one = self.both(before=(before, ""))
        self.assertIn("not sealed: NCCL has allocated 2097152 bytes while the engine warmed up", zero)
        self.assertIn("captured and sealed 'test.rank1'", one)

    def test_communicators_without_mapped_memory_are_not_sealed(self):
        before = "torch.distributed.all_reduce = lambda tensor, group: None\n"
        for log in self.both(before=(before, before)):
            self.assertIn("not sealed: NCCL does not map its memory", log)

    def test_a_rank_without_its_image_lets_all_capture(self):
        self.first()
        self.remove("test.rank1")
        zero, one = self.both()
        self.assertIn("because rank 1 starts without its image: there is no ref 'test.rank1'", zero)
        self.assertIn("because there is no ref 'test.rank1' in the store", one)
        self.both("LOADED")

    def test_a_load_that_fails_in_one_rank_lets_all_capture(self):
        self.first()
        zero, one = self.both("{**ONCE, 'profile': 0}", before=("", FAILING))
        self.assertIn("because rank 1 starts without its image: of a test", zero)
        self.assertIn("captured and sealed 'test.rank0'", zero)
        self.assertIn("because of a test", one)
        self.both("LOADED")

    def test_a_rank_that_starts_plainly_lets_all_capture(self):
        self.first()
        for failing in ("facts.early", "facts.late"):
            before = textwrap.dedent(f"""
                def failing(*_):
                    raise ValueError("of a test")
                {failing} = failing
                """)
            profiles = "ONCE" if failing == "facts.early" else "{**ONCE, 'profile': 0}"
            zero, one = self.both(profiles, before=("", before))
            self.assertIn("because rank 1 starts without its image: of a test", zero)
            self.assertIn("started without an image, because of a test", one)
            self.remove("test.rank0")
            self.remove("test.rank1")
            self.first()

    def test_an_error_without_a_text_is_a_reason_too(self):
        self.first()
        zero, one = self.both(before=("", "def early(*_):\n    raise AssertionError\n"
                                      "facts.early = early\n"))
        self.assertIn("because rank 1 starts without its image: AssertionError()", zero)
        self.assertIn("started without an image, because AssertionError()", one)

    def test_images_of_different_starts_are_not_mixed(self):
        self.first()
        store = self.path(".cache/foundry/store")
        tool = os.path.join(BUILD, "foundry-store")
        env = {**os.environ, "FOUNDRY_STORE": store}
        with open(self.path("pack"), "wb") as f:
            subprocess.run([tool, "export", "test.rank1"], check=True, env=env, stdout=f)
        for rank in range(2):
            self.remove(f"test.rank{rank}")
        self.first()
        self.remove("test.rank1")
        with open(self.path("pack"), "rb") as f:
            subprocess.run([tool, "import"], check=True, env=env, stdin=f,
                           stdout=subprocess.DEVNULL)
        for log in self.both():
            self.assertIn("because the ranks have images of different starts", log)

    def test_weights_of_all_ranks_come_from_images_or_none(self):
        os.makedirs(self.path("some/model"))
        with open(self.path("some/model/weight"), "w", encoding="ascii") as f:
            f.write("3.0")
        options = "load_format='foundry'"
        self.both(options=options)
        for rank, log in enumerate(self.both("LOADED", options=options)):
            self.assertIn(f"weights from 'test.rank{rank}.weights'", log)
        self.remove("test.rank0.weights")
        for log in self.both("LOADED", options=options):
            self.assertIn("weights by the loader 'auto'", log)

    def test_a_strict_start_fails_in_all_ranks(self):
        self.first()
        with self.assertRaisesRegex(AssertionError, "(?s)cannot use the image 'test.rank0': rank 1 "
                                    "starts without its image: of a test.*'test.rank1': of a test"):
            self.both(FOUNDRY_VLLM_STRICT="1", before=("", FAILING))

    def test_what_is_not_supported_is_named(self):
        for options, variables, what in (
                ("custom=True", {}, "custom all-reduce"),
                ("", {"VLLM_ALLREDUCE_USE_SYMM_MEM": "1"}, "all-reduce by symmetric memory"),
                ("", {"STAND_IN_DEVICES": "1"}, "ranks on several hosts"),
                ("", {"NCCL_RUNTIME_CONNECT": "1"}, "NCCL that connects later"),
                ("", {"NCCL_CUMEM_ENABLE": "0"}, "NCCL that does not map its memory"),
                ("", {"NCCL_GRAPH_REGISTER": "1"}, "graphs that use buffers of other ranks")):
            for log in self.both(options=options, **variables):
                self.assertIn(f"started without an image, because images do not support {what}",
                              log)


if __name__ == "__main__":
    suite.main()
