# SPDX-License-Identifier: Apache-2.0
"""Common tests of every small engine: the first start, and checks that do not depend on it."""
import os
import shutil
import tempfile
import textwrap
import types

from torch_scripts import Folder


class Engine(Folder):
    """Starts of a small engine. A subclass has start(), which makes one and returns its log."""

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


class Starts:
    """Tests for a subclass of Engine."""

    def test_weights_are_those_of_the_process(self):
        self.first()
        self.start(counts="LOADED", options="weight=7.0", weight=7.0)

    def test_freed_memory_of_the_areas_is_zero_in_an_image(self):
        """The image would keep the bytes of tensors that were freed."""
        log = self.start(before=textwrap.dedent("""
            import ctypes
            from foundry import _torch
            from foundry.engines import area, graphs
            def free():
                return [block for raw in torch.cuda.memory_snapshot()
                        if tuple(raw["segment_pool_id"]) in area.Area.pools
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

    def test_memory_of_the_process_can_change_after_a_load(self):
        self.first()
        self.start("kept = [torch.full((1 << 18,), 5.0) for _ in range(8)]", counts="LOADED")
