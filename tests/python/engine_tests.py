# SPDX-License-Identifier: Apache-2.0
"""Common tests of every small engine: the first start, and checks that do not depend on it."""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import tempfile
import textwrap
import types

from torch_scripts import Folder


class Engine(Folder):
    """Starts of a small engine. A subclass has start(), which makes one and returns its log; for
    after_making() also MADE, the function that makes the model's tensors, with its module.
    """

    @classmethod
    def setUpClass(cls):
        cls.place, cls.made = tempfile.TemporaryDirectory(), None

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def setUp(self):
        """Each test has an empty folder. Its path is the same, since files of caches have it."""
        self.home = os.path.join(self.place.name, "home")
        os.mkdir(self.home)
        self.folder = types.SimpleNamespace(
            name=self.home, cleanup=lambda: shutil.rmtree(self.home))

    def first(self, **more):
        """Return the log of a first start. One without options is done once a class: other tests
        get a copy of what it has left in its folder.
        """
        if more or os.listdir(self.home):
            return self.sealed(**more)
        kept = os.path.join(self.place.name, "kept")
        if self.made is None:
            type(self).made = self.sealed()
            shutil.copytree(self.home, kept, symlinks=True)
        else:
            shutil.copytree(kept, self.home, symlinks=True, dirs_exist_ok=True)
        return self.made

    def sealed(self, **more):
        """Do a first start."""
        log = self.start(**more)
        self.assertIn("Foundry: captured and sealed 'test'", log)
        self.assertIn("3 graphs", log)
        self.assertIn("because there is no ref 'test' in the store", log)
        return log

    def after_making(self, code):
        """Return code after which the constructor of the model (self.MADE) also does `code`, with
        the model as `module`, and one(value), which makes a tensor.
        """
        return textwrap.dedent("""
            import {file}
            def done(module, *args, original={made}):
                original(module, *args)
                def one(value):
                    return torch.full((100, 10), value)
            {code}
            {made} = done
            """).format(file=self.MADE.rpartition(".Model.")[0], made=self.MADE,
                        code=textwrap.indent(textwrap.dedent(code), " " * 4))


class Files:
    """A mixin of an Engine: the model's file, which has a number, and what a first start says."""

    def setUp(self):
        super().setUp()
        self.write(3.0)

    def write(self, value):
        """Write the model's file, at another time than the one before."""
        os.makedirs(self.path("some/model"), exist_ok=True)
        with open(self.path("some/model/weight"), "w", encoding="ascii") as f:
            f.write(str(value))
        at = 10**9 * getattr(self, "written", 0)
        self.written = getattr(self, "written", 0) + 1
        os.utime(self.path("some/model/weight"), ns=(at, at))

    def first(self, **more):
        log = self.start(loads=[3.0], **more)
        self.assertIn("captured and sealed 'test'", log)
        self.assertIn("weights by the loader 'auto', because ", log)
        self.assertNotIn("not sealed", log)
        self.assertRegex(log, r"INFO Foundry: sealing the weights as 'test\.weights', \d+ MiB\n")
        self.assertNotIn("loading 'test.weights'", log)


def slow_thread(steps):
    """Return code for a start whose work ahead has so many steps: one more fails before them, and
    the thread ends when the start waits for it.
    """
    return textwrap.dedent(f"""
        import threading
        from foundry.engines import ahead
        begin, joined = ahead.begin, threading.Event()
        def fail():
            raise OSError("of a test")
        def until_joined(*steps):
            assert len(steps) == {steps}, steps
            thread = begin(fail, *steps, joined.wait)
            join = thread.join
            thread.join = lambda: (joined.set(), join())
            return thread
        ahead.begin = until_joined
        """)


class Starts:
    """Tests for a subclass of Engine.

    AGAIN: the counts of a start that captures in place of the load that was begun. VARIABLE: names
    the image. KEY: code that gives the keys of graphs an object.
    """

    def test_weights_are_those_of_the_process(self):
        self.first()
        self.start(counts="LOADED", options="weight=7.0", weight=7.0)

    def test_a_later_start_waits_for_what_is_done_ahead(self):
        self.first()
        log = self.start(before=slow_thread(1), counts="LOADED")
        self.assertIn("wait for hashes 0.", log)

    def test_a_start_says_which_long_step_begins(self):
        for log, steps in (
                (self.sealed(), (r"sealing 3 graphs as 'test', from \d+ MiB of memory",
                                 "captured and sealed 'test'")),
                (self.start(counts="LOADED"),
                 (r"loading 'test' \([0-9a-f]{12}\), content \d+ MiB", "loaded 'test'"))):
            lines = [line for line in log.splitlines() if line.startswith("INFO Foundry: ")
                     and "carries files for caches" not in line]  # SGLang, after its first request
            self.assertEqual(len(lines), 1 + len(steps), lines)
            for line, step in zip(lines, ("driver ", *steps)):
                self.assertRegex(line, "^INFO Foundry: " + step)
        sizes = re.findall(r"load.*content (\d+) MiB", log)
        self.assertEqual(sizes[:1], sizes[1:])

    def test_a_name_that_cannot_be_sealed_starts_plain(self):
        for name, why in (("a b", "'a b' is not a ref's name; use letters, digits and "),
                          ("a:b", "'a:b' is not a ref's name; use letters, digits and "),
                          ("x" * 300, "a ref's name has 300 bytes and may have ")):
            log = self.start(**{self.VARIABLE: name})
            self.assertIn(f"started without an image, because {why}", log)
            self.assertNotIn("Foundry: sealing", log)

    def test_a_key_that_differs_in_each_process_is_found_before_the_capture(self):
        log = self.start(before="import dataclasses\n" + textwrap.dedent(self.KEY))
        self.assertRegex(log, "started without an image, because the key .*object at 0x.* of a "
                         "graph has an address, so a later start would not find the graph")
        self.assertNotIn("Foundry: sealing", log)

    def test_freed_memory_of_the_areas_is_zero_in_an_image(self):
        """The image would keep the bytes of tensors that were freed."""
        log = self.start(before=textwrap.dedent("""
            import ctypes
            from foundry import _torch
            from foundry.engines import area, graphs
            def free():
                return [block for raw in torch.cuda.memory_snapshot()
                        if tuple(raw["segment_pool_id"]) in area.Pool.ids
                        for block in _torch.Segment(raw).free]
            cuda, tidy, add = ctypes.CDLL("libcuda.so.1"), area.torch.cuda.empty_cache, graphs.add
            def emptied():
                tidy()
                for addr, size in free():  # as freed tensors leave them
                    cuda.cuMemsetD8_v2(ctypes.c_uint64(addr), 7, ctypes.c_size_t(size))
            def checked(*args):
                for addr, size in free():
                    found = ctypes.create_string_buffer(size)
                    assert not cuda.cuMemcpyDtoH_v2(found, ctypes.c_uint64(addr),
                                                    ctypes.c_size_t(size))
                    assert not any(found.raw), "a freed tensor's bytes are there"
                print("free blocks of areas:", len(free()))
                return add(*args)
            torch.cuda.empty_cache, graphs.add = emptied, checked
            """))
        self.assertRegex(log, "free blocks of areas: [1-9]")
        self.assertIn("Foundry: captured and sealed 'test'", log)

    def test_tensors_of_a_module_that_changed_places_are_noticed(self):
        """They are neither parameters nor buffers. A program may make them in the order of a set.
        """
        self.start(before=self.after_making("module.cos, module.sin = one(100.0), one(7.0)"))
        log = self.start(before=self.after_making("module.sin, module.cos = one(7.0), one(100.0)"),
                         counts=self.AGAIN)
        self.assertIn("the tensors of this process lie elsewhere", log)

    def test_memory_that_only_the_driver_knows_is_noticed(self):
        raw = """
            import ctypes
            addr = ctypes.c_uint64()
            torch._driver.call("cuMemAlloc_v2", ctypes.byref(addr), ctypes.c_size_t(4096))
            """
        self.start(before=self.after_making(raw))
        self.assertIn("Foundry: loaded", self.start(before=self.after_making(raw), counts="LOADED"))
        log = self.start(counts=self.AGAIN)
        self.assertIn("the tensors of this process lie elsewhere", log)

    def test_an_object_that_a_tuple_has_too_keeps_its_place(self):
        """No tensor can be set in a tuple, so its place is that in the object's other owner."""
        owned = self.after_making("""
            class Owner:
                pass
            Owner.__module__ = type(module).__module__
            module.owner, held = Owner(), Owner()
            module.owner.held, module.pair = held, (held,)
            MODELS.append(module)
            """) + "MODELS = []\n" + textwrap.dedent("""
            def forward(module, size, original={forward}):
                held = module.owner.held
                if "more" not in vars(held):
                    held.more = torch.full((100, 10), 0.0)
                return original(module, size) + held.more
            {forward} = forward
            """).format(forward=self.MADE.rpartition(".")[0] + ".forward")
        self.assertIn("captured and sealed", self.start(before=owned))
        self.start("assert set(MODELS[0].owner.held.more.tolist()) == {0.0}\n", before=owned,
                   counts="LOADED")

    def test_a_tensor_that_an_omitted_phase_fills_is_noticed(self):
        """Loading the model makes it. A later start would read what loading left there."""
        for made in ("module.table = one(0.0)", "module.named_buffers = lambda: "
                     "[('table', module.table)]\nmodule.table = one(0.0)"):
            log = self.start(before=self.after_making(made) + textwrap.dedent("""
                def constant(module, original={constant}):
                    if "kept" not in vars(module):
                        module.table.fill_(8.0)
                    return original(module)
                {constant} = constant
                """).format(constant=self.MADE.rpartition(".")[0] + ".constant"))
            self.assertRegex(log, "not sealed: [a-z_]+ has changed the model's tensor [.]?table")
            self.assertNotIn("captured and sealed", log)

    def test_a_tensor_whose_place_has_no_name_in_an_image_costs_no_seal(self):
        """No graph uses it, so a later start does not need it."""
        for name in ("x" * 300, "größe"):
            log = self.start(before=textwrap.dedent("""
                import {file}
                def forward(module, size, original={forward}):
                    if {name!r} not in vars(module):
                        setattr(module, {name!r}, torch.full((100, 10), 0.0))
                    return original(module, size)
                {forward} = forward
                """).format(forward=self.MADE.rpartition(".")[0] + ".forward", name=name,
                           file=self.MADE.rpartition(".Model.")[0]))
            self.assertIn("captured and sealed", log)
            self.script("import foundry\nfoundry.Store().remove('test')\n")

    def test_a_long_list_of_tensors_is_set_again(self):
        """The list grows at the first use, in the order of its indices."""
        many = self.after_making("module.many = []") + textwrap.dedent("""
            def forward(module, size, original={forward}):
                while len(module.many) < 12:
                    module.many.append(torch.full((100, 10), 0.0))
                out = original(module, size)
                for each in module.many:
                    out = out + each
                return out
            {forward} = forward
            """).format(forward=self.MADE.rpartition(".")[0] + ".forward")
        self.start(before=many)
        self.assertIn("Foundry: loaded", self.start(before=many, counts="LOADED"))

    def test_variables_that_select_kernels_are_compared(self):
        self.first()
        for name in ("TRITON_DEFAULT_FP_FUSION", "TORCHINDUCTOR_MAX_AUTOTUNE", "FLA_TRIL_PRECISION",
                     "NCCL_GRAPH_MIXING_SUPPORT", "FLASHINFER_CONFIG_DIR",
                     "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE",
                     "TORCH_CUBLASLT_UNIFIED_WORKSPACE", "TRITON_LIBDEVICE_PATH", "FLA_MAX_TOKENS"):
            log = self.start(**{name: "1"})
            self.assertIn(f"because environment is {name}=1 here", log)
            self.start(counts="LOADED", **{name: "1", "NCCL_API_TOKEN": "secret"})

    def test_settings_of_torch_that_choose_kernels_are_compared(self):
        self.first()
        log = self.start(before="torch.get_float32_matmul_precision = lambda: 'high'\n")
        self.assertIn("because modes is ", log)

    def test_an_image_that_cannot_be_unloaded_ends_no_start(self):
        self.first()
        log = self.start(before=textwrap.dedent("""
            from foundry.engines import session
            from foundry.image import Image
            def unfit(*_):
                raise session.Unfit("of a test")
            def close(self):
                raise foundry.Error(foundry._lib.STATE, "still used")
            session.Session.is_found, Image.close = unfit, close
            """), counts=self.AGAIN)
        self.assertIn("started without an image, because still used", log)

    def test_a_seal_reads_no_address_of_a_traced_tensor(self):
        """torch warns of that, in the user's log."""
        log = self.start(before=textwrap.dedent("""
            import sys
            import types
            class FakeTensor(torch.Tensor):
                def data_ptr(self):
                    print("its address was read")
                    return 0
            sys.modules["torch._subclasses.fake_tensor"] = types.SimpleNamespace(
                FakeTensor=FakeTensor)
            traced = FakeTensor(0, (1,), keep=lambda: None)
            """))
        self.assertIn("Foundry: captured and sealed 'test'", log)
        self.assertNotIn("its address was read", log)

    def test_an_older_image_is_used_if_the_newest_differs_late(self):
        """After a model's code was changed back, which a start compares when it has the model."""
        self.first()
        other = "from foundry.engines import facts as common\ncommon.code = lambda model: 'other'\n"
        log = self.start(before=other, counts=self.AGAIN)
        self.assertIn("because code is other here", log)
        log = self.start(counts="LOADED")
        self.assertIn("Foundry: loaded 'test'", log)
        self.start(before=other, counts="LOADED")
        third = self.start(before=other.replace("'other'", "'third'"), counts=self.AGAIN)
        self.assertRegex(third, "because code is third here and other in the image")

    def test_an_image_that_the_store_lacks_late_is_fetched(self):
        """The store has one that states what is known early."""
        self.first()
        pack = self.path("pack")
        self.script("import foundry\nwith foundry.Store() as store:\n"
                    f"    store.export(['test'], {pack!r})\n    store.remove('test')\n")
        other = "from foundry.engines import facts as common\ncommon.code = lambda model: 'other'\n"
        self.start(before=other)
        registry = {"FOUNDRY_REGISTRY": "oci://127.0.0.1:1/models",  # where nothing listens
                    "FOUNDRY_REGISTRY_RETRIES": "0"}
        log = self.start(before=pulling({"test": self.path("missing")}), counts=self.AGAIN,
                         **registry)
        self.assertRegex(log, "because code is [^ ]+ here and other in the image, and none was "
                         "fetched, because .*missing")
        self.script("import foundry\nwith foundry.Store() as store:\n    store.remove('test')\n")
        self.start(before=other)
        log = self.start(before=pulling({"test": pack}), counts="LOADED", **registry)
        self.assertIn("Foundry: loaded 'test'", log)
        self.assertIn("fetch 0.", log)
        self.assertIn("INFO Foundry: fetching 'test' from oci://127.0.0.1:1/models\n", log)

    def test_memory_of_the_process_can_change_after_a_load(self):
        self.first()
        self.start("kept = [torch.full((1 << 18,), 5.0) for _ in range(8)]", counts="LOADED")


def pulling(packs):
    """Return code that has a registry's images come from files, and no others: {ref: pack}."""
    return textwrap.dedent(f"""
        import foundry
        def pull(store, ref, packs={packs!r}):
            store.import_(packs[ref])
        foundry.Store.pull = pull
        """)


class Ranks:
    """Starts of two ranks at once, for a subclass of Engine.

    SCRIPT makes one start with {before} and {options}, and fails if its counts are not {counts}.
    The first of VARIABLES names the image. COUNTS are those of a start that captures. GROWING makes
    the warm-up allocate memory of NCCL, and FAILING makes a load fail.
    """

    TOOL = os.path.join(os.environ.get("BUILD", "build"), "foundry-store")

    def both(self, counts=None, before=("", ""), options="", **variables):
        """Start two ranks at once. before: what each does first. Returns their logs."""
        for path in glob.glob(self.path("gather.*")):
            os.unlink(path)
        variables = {**self.VARIABLES, "STAND_IN_RANKS": "2", "STAND_IN_DEVICES": "2", **variables}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda rank: self.run_one(
                self.SCRIPT.format(before=textwrap.dedent(before[rank]), options=options,
                                   counts=counts or self.COUNTS),
                **variables, STAND_IN_RANK=str(rank),
                TRITON_CACHE_DIR=self.path(f"triton.{rank}")), range(2)))
        for each in done:
            if each.returncode or each.stderr:
                raise AssertionError("\n".join(each.stdout + each.stderr for each in done))
        return [each.stdout for each in done]

    def first(self):
        for rank, log in enumerate(self.both()):
            self.assertIn(f"captured and sealed 'test.rank{rank}'", log)

    def store(self, *command, **how):
        """Run foundry-store."""
        subprocess.run([self.TOOL, *command], check=True, **{"stdout": subprocess.DEVNULL, **how},
                       env={**os.environ, "FOUNDRY_STORE": self.path(".cache/foundry/store")})

    def test_all_ranks_load(self):
        self.first()
        for rank, log in enumerate(self.both("LOADED")):
            self.assertIn(f"Foundry: loaded 'test.rank{rank}'", log)

    def test_another_nccl_is_noticed(self):
        self.first()
        zero, one = self.both(STAND_IN_NCCL="27")
        self.assertIn("because nccl is 2.27.9 here and 2.28.9 in the image", one)

    def test_the_doctor_finds_the_images_of_all_ranks(self):
        engine = next(iter(self.VARIABLES)).removeprefix("FOUNDRY_").lower()
        ask = (f"from foundry.{engine}.doctor import ENGINE, doctor\n"
               "print(*doctor.image(ENGINE, 'test'))")
        self.first()
        said = self.script(ask)
        for rank in range(2):
            self.assertRegex(said, f"'test.rank{rank}' is in the store, with [1-9][0-9]* files")
        self.store("rm", "test.rank0")
        self.assertIn("the next start is a first one: there is no ref 'test.rank0'",
                      self.script(ask))

    def test_a_rank_whose_communicators_grow_in_the_warm_up_is_not_sealed(self):
        zero, one = self.both(before=(self.GROWING, ""))
        self.assertIn("not sealed: NCCL has allocated 2097152 bytes while the engine warmed up",
                      zero)
        self.assertIn("captured and sealed 'test.rank1'", one)

    def test_communicators_without_mapped_memory_are_not_sealed(self):
        before = "torch.distributed.all_reduce = lambda tensor, group: None\n"
        for log in self.both(before=(before, before)):
            self.assertIn("not sealed: NCCL does not map its memory", log)

    def test_a_rank_without_its_image_lets_all_capture(self):
        self.first()
        self.store("rm", "test.rank1")
        zero, one = self.both()
        self.assertIn("because rank 1 starts without its image: there is no ref 'test.rank1'", zero)
        self.assertIn("because there is no ref 'test.rank1' in the store", one)
        self.both("LOADED")

    def test_a_load_that_fails_in_one_rank_lets_all_capture(self):
        self.first()
        zero, one = self.both("{**%s, 'profile': 0}" % self.COUNTS, before=("", self.FAILING))
        self.assertIn("because rank 1 starts without its image: of a test", zero)
        self.assertIn("captured and sealed 'test.rank0'", zero)
        self.assertIn("because of a test", one)
        self.both("LOADED")

    def test_a_rank_that_starts_plainly_lets_all_capture(self):
        self.first()
        for failing in ("facts.early", "facts.late"):
            before = f"def failing(*_):\n    raise ValueError('of a test')\n{failing} = failing\n"
            counts = self.COUNTS
            if failing == "facts.late":
                counts = "{**%s, 'profile': 0}" % counts
            zero, one = self.both(counts, before=("", before))
            self.assertIn("because rank 1 starts without its image: of a test", zero)
            self.assertIn("started without an image, because of a test", one)
            self.store("rm", "test.rank0")
            self.store("rm", "test.rank1")
            self.first()

    def test_an_error_without_a_text_is_a_reason_too(self):
        self.first()
        zero, one = self.both(before=("", "def early(*_):\n    raise AssertionError\n"
                                      "facts.early = early\n"))
        self.assertIn("because rank 1 starts without its image: AssertionError()", zero)
        self.assertIn("started without an image, because AssertionError()", one)

    def test_images_of_different_starts_are_not_mixed(self):
        self.first()
        with open(self.path("pack"), "wb") as f:
            self.store("export", "test.rank1", stdout=f)
        for rank in range(2):
            self.store("rm", f"test.rank{rank}")
        self.first()
        self.store("rm", "test.rank1")
        with open(self.path("pack"), "rb") as f:
            self.store("import", stdin=f)
        for log in self.both():
            self.assertIn("because the ranks have images of different starts", log)

    def test_the_ranks_load_images_of_one_start_though_others_are_newer(self):
        """After two starts have sealed at the same time, or one was killed while it sealed."""
        self.first()
        for rank in range(2):
            with open(self.path(f"pack{rank}"), "wb") as f:
                self.store("export", f"test.rank{rank}", stdout=f)
            self.store("rm", f"test.rank{rank}")
        self.first()
        for rank in (1, 0):
            with open(self.path(f"pack{rank}"), "rb") as f:
                self.store("import", stdin=f)
            self.both("LOADED")

    def test_a_strict_start_fails_in_all_ranks(self):
        self.first()
        strict = {f"{next(iter(self.VARIABLES))}_STRICT": "1"}
        with self.assertRaisesRegex(AssertionError, "(?s)cannot use the image 'test.rank0': rank 1 "
                                    "starts without its image: of a test.*'test.rank1': of a test"):
            self.both(before=("", self.FAILING), **strict)

    def test_the_ranks_fetch_images_of_one_start(self):
        """One rank finds none of its own, and fetches one that is older than the others have."""
        self.first()
        packs = {}
        for rank in range(2):
            packs[f"test.rank{rank}"] = self.path(f"pack{rank}")
            with open(self.path(f"pack{rank}"), "wb") as f:
                self.store("export", f"test.rank{rank}", stdout=f)
            self.store("rm", f"test.rank{rank}")
        self.first()
        self.store("rm", "test.rank1")
        for log in self.both("LOADED", before=(pulling(packs), pulling(packs)),
                             FOUNDRY_REGISTRY="oci://127.0.0.1:1/models"):
            self.assertIn("fetch 0.", log)
