# SPDX-License-Identifier: Apache-2.0
"""Tensors of a start of a small engine in vLLM's place that compiles while it loads the model lie
where those of later starts do, which find the results in caches.
"""
import textwrap

import suite
from vllm_scripts import ENGINE, Engine

# compiles(): whether this is the first start in the folder.
FIRST = """
import gc, os, sys, weakref
from vllm.v1.worker.gpu import model_runner
load = model_runner.Model.load

def compiles():
    found = os.path.exists("compiled")
    open("compiled", "w").close()
    return not found
"""
# What measures kernels, as Inductor's class and Triton's do.
MEASURES = FIRST + """
class Benchmarker:
    def benchmark_gpu(self, kernel, fails=False):
        flush = torch.empty((4 << 20,))
        kernel()
        if fails:
            raise ValueError("it cannot be measured")
        return flush.data_ptr()
    _bench = benchmark_gpu

class Slow(Benchmarker):
    def benchmark_gpu(self, kernel, fails=False):
        return super().benchmark_gpu(kernel, fails)

sys.modules["torch._inductor.runtime.benchmarking"] = types.SimpleNamespace(
    InductorBenchmarker=Slow, TritonBenchmarker=Benchmarker)
sys.modules["triton.runtime.autotuner"] = types.SimpleNamespace(Autotuner=Benchmarker)
before = dict(vars(Benchmarker)), dict(vars(Slow))
addresses = []
"""


class Placing(Engine):
    """Each start is a process of its own."""

    def loads(self, before, text):
        """A later start loads the image of a first one that compiles. Both make a large tensor."""
        before += textwrap.dedent(text)
        for counts in ("ONCE", "LOADED"):
            log = self.start("assert worker.model_runner.model.large.tolist()[0] == 7.0", counts,
                             before=before)
        self.assertIn("Foundry: loaded 'test'", log)

    def test_measurements_of_kernels(self):
        self.loads(MEASURES, """
            def measured(self):
                if compiles():
                    for each in (Slow().benchmark_gpu, Benchmarker()._bench):
                        addresses.append(each(lambda: None))
                    try:
                        Slow().benchmark_gpu(lambda: None, fails=True)
                    except ValueError:
                        pass
                self.large = torch.full((1 << 20,), 7.0)
                assert all(each - self.large.data_ptr() > 1 << 38 for each in addresses)
                load(self)
            model_runner.Model.load = measured
            """)

    def test_a_measurement_without_memory_for_it_is_made_in_memory_of_the_model(self):
        self.start("assert addresses == [True, False], addresses", before=MEASURES + """
def measured(self):
    def kernel():
        addresses.append(torch.empty((1 << 20,)).data_ptr() - self.inputs.data_ptr() > 1 << 38)
        if addresses[-1]:
            raise torch.OutOfMemoryError
    Slow().benchmark_gpu(kernel)
    load(self)
model_runner.Model.load = measured
""")

    def test_a_measurement_for_which_nothing_can_be_prepared_is_made_as_before(self):
        self.start("assert addresses == [False], addresses", before=MEASURES + """
def fails():
    raise RuntimeError("there is no pool")
def measured(self):
    torch.cuda.MemPool, before = fails, torch.cuda.MemPool
    addresses.append(Slow().benchmark_gpu(lambda: None) - self.inputs.data_ptr() > 1 << 38)
    torch.cuda.MemPool = before
    load(self)
model_runner.Model.load = measured
""")

    def test_a_method_that_was_kept_measures_as_before_after_the_load(self):
        self.start("assert addresses == [True, False], addresses", before=MEASURES + """
def measured(self):
    kept.append(Slow().benchmark_gpu)
    def measure():
        addresses.append(kept[0](lambda: None) - self.inputs.data_ptr() > 1 << 38)
    measure()
    load(self)
    then.append(measure)
kept, then = [], []
model_runner.Model.load = measured
initialize = gpu_worker.Worker.initialize_from_config
def after(self, blocks):
    then[0]()
    initialize(self, blocks)
gpu_worker.Worker.initialize_from_config = after
""")

    def test_measurements_of_several_threads_come_one_after_the_other(self):
        self.start("assert most == [1], most", before=MEASURES + """
import threading, time
now, most = [], [0]
class Quiet:
    def _bench(self):
        now.append(1)
        most[0] = max(most[0], len(now))
        time.sleep(0.05)
        now.pop()
sys.modules["triton.runtime.autotuner"].Autotuner = Quiet
def measured(self):
    threads = [threading.Thread(target=Quiet()._bench) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    load(self)
model_runner.Model.load = measured
""")

    def test_functions_are_as_before_a_load(self):
        self.start("assert (dict(vars(Benchmarker)), dict(vars(Slow))) == before",
                   before=MEASURES)

    def test_a_plain_start_measures_as_the_engine_does(self):
        self.start(before=MEASURES + textwrap.dedent("""
            def measured(self):
                assert (dict(vars(Benchmarker)), dict(vars(Slow))) == before
                assert gc.isenabled()
                load(self)
            model_runner.Model.load = measured
            """), options="quantization='bitsandbytes'")

    def test_garbage_that_refers_to_itself(self):
        self.loads(FIRST, """
            class Cycle:
                def __init__(self):
                    self.own, self.tensor = self, torch.full((1 << 20,), 0.0)
            def with_garbage(self):
                Cycle()
                if compiles():
                    many = [[] for _ in range(100000)]
                self.large = torch.full((1 << 20,), 7.0)
                load(self)
            model_runner.Model.load = with_garbage
            """)

    def test_garbage_is_freed_when_a_module_gets_a_parameter_and_at_the_end(self):
        self.loads(FIRST, """
            class Cycle(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.own = [self]
            def with_modules(self):
                assert not gc.isenabled()
                self.large, self.module = torch.full((1 << 20,), 7.0), torch.nn.Module()
                garbage = weakref.ref(Cycle())
                many = [[] for _ in range(100000)]
                assert garbage()
                self.module.weight = torch.nn.Parameter(torch.full((8,), 1.0))
                assert not garbage()
                self.garbage = weakref.ref(Cycle())
                load(self)
            model_runner.Model.load = with_modules
            initialize = gpu_worker.Worker.initialize_from_config
            def then(self, blocks):
                assert gc.isenabled() and not self.model_runner.model.garbage()
                initialize(self, blocks)
            gpu_worker.Worker.initialize_from_config = then
            """)

    def test_garbage_that_outlives_some_parameters_is_freed_with_later_ones(self):
        for survived, freed in ((1, 16), (16, 512)):
            self.start(before=FIRST + f"""
class Cycle:
    def __init__(self):
        self.own = self
def with_modules(self):
    module, cycle = torch.nn.Module(), Cycle()
    def register(count):
        for _ in range(count):
            module.weight = torch.nn.Parameter(torch.full((8,), 1.0))
    register({survived})
    garbage = weakref.ref(cycle)
    del cycle
    register({freed} - {survived} - 1)
    assert garbage()
    register(1)
    assert not garbage()
    load(self)
model_runner.Model.load = with_modules
""", FOUNDRY_VLLM=f"test-{freed}")

    def test_a_program_without_a_collector_keeps_it_off(self):
        self.start("assert not gc.isenabled()", before=FIRST + "gc.disable()\n")

    def test_a_load_that_fails_leaves_all_as_it_was(self):
        self.script(ENGINE + MEASURES + textwrap.dedent("""
            def fails(self):
                raise MemoryError("no more memory")
            model_runner.Model.load = fails
            try:
                start()
                raise AssertionError("it started")
            except MemoryError:
                pass
            assert gc.isenabled() and not torch._registration_hooks
            assert (dict(vars(Benchmarker)), dict(vars(Slow))) == before
            """), FOUNDRY_VLLM="test")


if __name__ == "__main__":
    suite.main()
