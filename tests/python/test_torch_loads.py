# SPDX-License-Identifier: Apache-2.0
"""Tests of saved graphs that are loaded beside the process's own allocations, and one after the
other, on the software driver.
"""
import os

import suite
from torch_scripts import Folder

# A model whose weights are made from temporary tensors. Torch caches their memory, and a save
# releases it.
WEIGHTS = """\
def weights(count, n=3 << 20):
    return [full(1.0, n) + full(float(i), n) for i in range(count)]
"""


class Loads(Folder):
    def saved(self):
        return self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            a, b, w = full(1.0), full(2.0), full(4.0, 300, 100)
            big = full(8.0, 3 << 20)
            graph = fdry.CUDAGraph()
            with fdry.graph(graph):
                c = a + b + w
            graph.save('g.json', c)
            """)

    def test_all_that_is_a_beginning_is_accepted(self):
        self.saved()
        for made, c in ((0, 7.0), (1, 106.0), (2, 204.0), (3, 300.0)):
            self.more(f"""
                fdry.set_allocation_region(BASE, '1GB')
                shapes = [(100, 100), (100, 100), (300, 100)]
                own = [full(100.0, *shape) for shape in shapes[:{made}]]
                graph, out = fdry.CUDAGraph.load('g.json')
                graph.replay()
                assert out.tolist()[0] == {c}, out.tolist()[0]
                """)

    def test_the_first_that_differs_is_named(self):
        self.saved()
        for made, says in (("full(1.0, 3 << 20)",
                            "allocation 0 of this process has 12582912 bytes"),
                           ("full(1.0, 200, 100)",
                            "has 80384 bytes at 0x500000000000, and the process that saved the "
                            "graph had "
                            "one of 40448 bytes at 0x500000000000"),
                           ("full(1.0), full(1.0), full(1.0, 1000)",
                            "has 4096 bytes at 0x500000013c00"),
                           ("full(1.0), full(1.0), full(1.0, 300, 100), full(1.0, 5 << 20)",
                            "allocation 1 of this process has 20971520 bytes")):
            self.more(f"""
                fdry.set_allocation_region(BASE, '1GB')
                own = [{made}]
                before = fdry.get_current_alloc_offset()
                fails("LAYOUT", {says!r}, fdry.CUDAGraph.load, 'g.json')
                assert fdry.get_current_alloc_offset() == before
                """)
        self.more("""
            fdry.set_allocation_region(BASE + (1 << 32), '1GB')
            fails("LAYOUT", "saved in a region at 0x500000000000", fdry.CUDAGraph.load, 'g.json')
            """)

    def weighted(self, between=""):
        self.more(f"""
            fdry.set_allocation_region(BASE, '1GB')
            a, ws = full(1.0, 3 << 20), weights(3)
            {between}
            graph = fdry.CUDAGraph()
            with fdry.graph(graph):
                c = a + ws[0] + ws[1] + ws[2]
            graph.save('g.json', c)
            """, WEIGHTS)

    def test_weights_made_out_of_temporary_tensors(self):
        # Memory that was free at the save is still cached here: the image does not use it, and
        # torch keeps it.
        self.weighted()
        for made, c in (("a, ws", 16.0), ("a", 16.0), ("ws", 7.0), ("", 7.0)):
            self.more(f"""
                fdry.set_allocation_region(BASE, '1GB')
                a, ws = full(10.0, 3 << 20), weights(3)
                kept, addr = [{made}], a.data_ptr()
                del a, ws
                graph, out = fdry.CUDAGraph.load('g.json')
                more = [full(-1.0, n) for n in (3 << 20, 100, 3 << 20, 1 << 18) * 3]
                graph.replay()
                is_all(out, {c})
                for each in more:
                    is_all(each, -1.0)
                """, WEIGHTS)

    def test_a_cached_segment_where_the_image_has_another(self):
        # The saving process captured a graph, which emptied torch's caches, and used their
        # addresses again.
        self.weighted("""
            torch.cuda.empty_cache()
            more = full(16.0, 1 << 20), full(32.0, 4 << 20)
            ws[2] = ws[2] + full(0.0, 3 << 20)
            """)
        before = "before = torch.cuda.memory_reserved()"
        self.more(f"""
            fdry.set_allocation_region(BASE, '1GB')
            a, ws = full(10.0, 3 << 20), weights(3)
            {before}
            graph, out = fdry.CUDAGraph.load('g.json')
            assert torch.cuda.memory_reserved() < before
            graph.replay()
            is_all(out, 16.0)
            """, WEIGHTS)
        self.more(f"""
            fdry.set_allocation_region(BASE, '1GB')
            a, ws = full(10.0, 3 << 20), weights(3)
            mine = full(7.0, 3 << 20)  # no cache, but a tensor: a true conflict
            {before}
            fails("LAYOUT", "of this process has", fdry.CUDAGraph.load, 'g.json')
            is_all(mine, 7.0)
            """, WEIGHTS)

    def test_segments_that_grew(self):
        self.saved()
        self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            a, real = full(1.0), torch.cuda.memory_snapshot
            torch.cuda.memory_snapshot = lambda: [
                dict(s, total_size=s['total_size'] // 2) for s in real()]
            fails("LAYOUT", "turn off expandable_segments", fdry.CUDAGraph.load, 'g.json')
            torch.cuda.memory_snapshot = real
            graph, out = fdry.CUDAGraph.load('g.json')
            graph.replay()
            is_all(out, 7.0)
            """)

    def test_segments_that_torch_does_not_count(self):
        """Torch's counter of segments does not count those of expandable_segments."""
        self.saved()
        self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            a, real = full(1.0), torch.cuda.memory_stats_as_nested_dict
            mine = full(7.0, 50)  # the process that saved had another tensor here
            none = {'all': {'current': 0, 'allocated': 0, 'freed': 0}}
            torch.cuda.memory_stats_as_nested_dict = lambda *of: dict(real(*of), segment=none)
            fails("LAYOUT", "this process has 512 bytes", fdry.CUDAGraph.load, 'g.json')
            is_all(mine, 7.0)
            """)

    def test_allocators_without_counters(self):
        """An allocator that a program installs in torch may have neither counters nor segments."""
        self.saved()
        self.more("""
            def stats(*_):
                raise RuntimeError("does not yet support getDeviceStats")
            fdry.set_allocation_region(BASE, '1GB')
            a = full(1.0)
            torch.cuda.get_allocator_backend = lambda: "pluggable"
            torch.cuda.memory_stats_as_nested_dict = torch.cuda.memory_snapshot = stats
            graph, out = fdry.CUDAGraph.load('g.json')
            """)

    def test_wrong_files(self):
        self.saved()
        with open(self.path("g.json"), encoding="ascii") as f:
            good = f.read()
        for name, text in (("half", good[:len(good) // 2]),
                           ("other", '{"nodes": [], "topology": {}}'), ("list", "[1]"),
                           ("binary", "\x00\x01"),
                           ("image", good.replace('"image": "', '"image": "x')),
                           ("key", good.replace('"key": 1', '"key": -1')),
                           ("base", good.replace('"base": "0x', '"base": "')),
                           ("torch", good.replace('"torch": [[', '"torch": [[[], ')),
                           ("deep", '{"outputs":' * 90000),
                           ("dtype", good.replace("float32", "float33")),
                           ("shape", good.replace('"shape": [', '"shape": [-1, ')),
                           ("newer", good.replace('"version": 1', '"version": 2')),
                           ("absent", good.replace('"key": 1', '"key": 77')),
                           ("far", good.replace('"shape": [100, 100]',
                                                '"shape": [90000000, 100]'))):
            with open(self.path(name), "w", encoding="latin-1") as f:
                f.write(text)
        self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            for name in ("half", "other", "list", "binary", "image", "key", "base", "torch", "deep",
                         "dtype", "shape", "newer", "absent", "far"):
                fails("BADIMAGE", name, fdry.CUDAGraph.load, name)
                fdry.CUDAGraph.load('g.json')
            """)
        self.more("""
            fails("NOENT", "no file 'none'", fdry.CUDAGraph.load, 'none')
            fails("STATE", "begin one with set_allocation_region", fdry.CUDAGraph.load, 'g.json')
            fdry.set_allocation_region(BASE, '1GB')
            import os
            os.rename('foundry-store', 'elsewhere')
            fails("NOENT", "copy that folder together", fdry.CUDAGraph.load, 'g.json')
            os.environ['FOUNDRY_STORE'] = os.path.abspath('elsewhere')
            fdry.CUDAGraph.load('g.json')
            """)

    def test_a_named_store(self):
        store = self.path("named")
        self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            a, g = full(1.0), fdry.CUDAGraph()
            with fdry.graph(g):
                c = a + a
            g.save('g.json', c)
            """, FOUNDRY_STORE=store)
        self.assertFalse(os.path.exists(self.path("foundry-store")))
        again = ("fdry.set_allocation_region(BASE, '1GB')\n"
                 "g, c = fdry.CUDAGraph.load('g.json')\ng.replay()\nis_all(c, 2.0)")
        self.more(again, FOUNDRY_STORE=store)
        with open(self.path("g.json"), encoding="ascii") as f:
            self.assertNotIn(self.folder.name, f.read())


    def test_a_store_removed_between_saves(self):
        self.more("""
            import os, shutil
            fdry.set_allocation_region(BASE, '1GB')
            a, g = full(1.0), fdry.CUDAGraph()
            with fdry.graph(g):
                c = a + a
            g.save('1.json', c)
            os.rename('foundry-store', 'old')
            g.save('2.json', c)
            for name in ('first', 'second'):
                os.environ['FOUNDRY_STORE'] = os.path.abspath(name)
                g.save(name + '.json', c)
            del os.environ['FOUNDRY_STORE']
            shutil.rmtree('foundry-store')
            fails("NOENT", "neither in", fdry.CUDAGraph.load, '2.json')
            g.save('2.json', c)
            """)
        for name, store in (("2.json", None), ("1.json", "old"), ("first.json", "first"),
                            ("second.json", "second")):
            self.more(f"""
                fdry.set_allocation_region(BASE, '1GB')
                g, c = fdry.CUDAGraph.load('{name}')
                g.replay()
                is_all(c, 2.0)
                """, **({"FOUNDRY_STORE": self.path(store)} if store else {}))


class InTurn(Folder):
    def test_a_load_does_not_change_memory_of_another_image(self):
        # x lies in a block that was free when the first image was sealed.
        self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            a, graphs = full(1.0), []
            for i in range(3):
                x, g = full(5.0), fdry.CUDAGraph()
                with fdry.graph(g):
                    out = a + x
                g.save(f'{i}.json', (out, x))
                graphs.append((g, x, out))
            """)
        for own in ("None", "full(1.0)"):
            self.more(f"""
                fdry.set_allocation_region(BASE, '1GB')
                a, found = {own}, []
                for i in range(3):
                    g, (out, x) = fdry.CUDAGraph.load(f'{{i}}.json')
                    is_all(x, 5.0)
                    x.fill_(10.0 * i)
                    found.append((g, out, x))
                for i, (g, out, x) in enumerate(found):
                    g.replay()
                    is_all(x, 10.0 * i)
                    is_all(out, 10.0 * i + 1.0)
                """)

    IN_TURN = """
        fdry.set_allocation_region(BASE, '1GB')
        a, graphs, big = full(1.0), [], full(8.0, 3 << 20)
        for i in range(8):
            g = fdry.CUDAGraph()
            with fdry.graph(g):
                out = a + a
            a.fill_(1.0 + i)
            g.save(f'{i}.json', out)
            graphs.append((g, out))
        """

    def test_torch_lists_its_segments_again_only_if_they_changed(self):
        self.more(self.IN_TURN)
        self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            a, real, calls = full(10.0), torch.cuda.memory_snapshot, []
            torch.cuda.memory_snapshot = lambda: calls.append(1) or real()
            found = [fdry.CUDAGraph.load(f'{i}.json') for i in range(5)]
            assert len(calls) == 2, calls  # the first load claims memory, the second has the list
            x = full(5.0)
            found.append(fdry.CUDAGraph.load('5.json'))
            assert len(calls) == 3, calls
            is_all(x, 5.0)
            del torch.cuda.memory_stats_as_nested_dict
            found += [fdry.CUDAGraph.load(f'{i}.json') for i in (6, 7)]
            assert len(calls) == 5, calls
            for g, out in found:
                g.replay()
                is_all(out, 20.0)
            """)

    def test_a_conflict_that_arose_since_the_last_load(self):
        self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            a, graphs = full(1.0), []
            for i in range(4):
                g = fdry.CUDAGraph()
                with fdry.graph(g):
                    out = a + a
                if i == 3:
                    b = full(2.0)
                a.fill_(1.0 + i)
                g.save(f'{i}.json', out)
                graphs.append((g, out))
            """)
        self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            a = full(10.0)
            found = [fdry.CUDAGraph.load(f'{i}.json') for i in range(3)]
            mine = full(7.0, 50)
            for _ in range(2):
                fails("LAYOUT", "this process has 512 bytes", fdry.CUDAGraph.load, '3.json')
            del mine
            found.append(fdry.CUDAGraph.load('3.json'))
            """)

    def test_counters_of_torch_that_were_reset_between_loads(self):
        self.more(self.IN_TURN)
        self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            a, found, x = full(10.0), [], None
            for i in range(8):  # x lies at one of two addresses, and the counters are the same
                torch.cuda.reset_accumulated_memory_stats()
                x = full(5.0)
                found.append(fdry.CUDAGraph.load(f'{i}.json'))
                is_all(x, 5.0)
            """)

    def test_counters_of_torch_that_were_reset_when_it_had_no_memory(self):
        self.more("""
            N = 1 << 19
            fdry.set_allocation_region(BASE, '1GB')
            a, graphs, pool = full(1.0, N), [], None
            for i in range(3):
                g = fdry.CUDAGraph()
                with fdry.graph(g, pool=pool):
                    out = a + a
                    b = out + a
                    c = b + a
                del out, b, c
                pool = g.pool()
                big = big if i else full(8.0, 6 << 20)
                g.replay()
                a.fill_(2.0 + i)
                g.save(f'{i}.json')
                graphs.append(g)
            """)
        self.more("""
            N = 1 << 19
            def make(gone):
                a = full(10.0, N)
                with torch.cuda.stream(other):
                    own = [full(5.0, N) for _ in range(3)]
                del own[gone]
                return a, own
            fdry.set_allocation_region(BASE, '1GB')
            other = torch.cuda.Stream()
            made = make(2)
            found = [fdry.CUDAGraph.load(f'{i}.json') for i in range(2)]
            counters = torch.cuda.memory_stats_as_nested_dict()
            addrs = [t.data_ptr() for t in made[1]]
            del made
            torch.cuda.empty_cache()
            assert not torch.cuda.memory_reserved()
            torch.cuda.reset_accumulated_memory_stats()
            made = make(0)
            assert counters == torch.cuda.memory_stats_as_nested_dict()
            assert made[1][0].data_ptr() == addrs[1]
            found.append(fdry.CUDAGraph.load('2.json'))
            for each in made[1]:
                is_all(each, 5.0)
            """)

    def test_counters_of_torch_that_were_reset_when_its_memory_lay_elsewhere(self):
        self.more(self.IN_TURN)
        self.more("""
            x = full(5.0)  # before the region
            fdry.set_allocation_region(BASE, '1GB')
            found = [fdry.CUDAGraph.load(f'{i}.json') for i in range(2)]
            counters = torch.cuda.memory_stats_as_nested_dict()
            del x
            torch.cuda.empty_cache()
            assert not torch.cuda.memory_reserved()
            torch.cuda.reset_accumulated_memory_stats()
            x, real, calls = full(5.0), torch.cuda.memory_snapshot, []
            assert BASE < x.data_ptr() < BASE + (1 << 30)
            assert counters == torch.cuda.memory_stats_as_nested_dict()
            torch.cuda.memory_snapshot = lambda: calls.append(1) or real()
            found.append(fdry.CUDAGraph.load('2.json'))
            assert calls
            """)


if __name__ == "__main__":
    suite.main()
