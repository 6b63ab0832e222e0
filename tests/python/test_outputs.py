# SPDX-License-Identifier: Apache-2.0
"""Tests of the outputs of loaded graphs: views that are made at their first use, on the software
driver with a small array library in torch's place.
"""
import suite
from test_compile import Script
from torch_scripts import Folder

# count[0]: how many views of an image's memory were made
COUNTED = """\
import gc, threading
from foundry import _torch
count, real = [0], _torch.view
def counted(tensor):
    count[0] += 1
    return real(tensor)
_torch.view = counted
fdry.set_allocation_region(BASE, '1GB')
a = full(10.0)
def images():
    return len(fdry.region.find().images)
"""


class Outputs(Folder):
    def setUp(self):
        super().setUp()
        self.more("""
            fdry.set_allocation_region(BASE, '1GB')
            a, kept = full(1.0), {}
            for i in range(4):
                g = fdry.CUDAGraph()
                with fdry.graph(g):
                    b = a + a
                    c = b + a
                kept[f'{i}.json'] = g, {'x': (b, [c, None, 7, 's']), 3: []}
            kept['plain.json'] = kept['0.json'][0], [1, ()]
            kept['one.json'] = kept['0.json'][0], b
            fdry.save_graphs(kept)
            """)

    def counted(self, text):
        self.more(text, COUNTED)

    def test_a_load_makes_no_view(self):
        self.counted("""
            paths = [f'{i}.json' for i in range(4)]
            found = [fdry.CUDAGraph.load(path) for path in paths]
            pending = fdry.CUDAGraph.start_graph_builds(paths)
            more = fdry.CUDAGraph.finish_graph_loads(pending)
            for each in found + more:
                each[0].replay()
                assert each.graph is each[0] is each[-2] and each[:1] == (each[0],)
                assert len(each) == 2 and isinstance(each, tuple)
            assert count == [0], count
            outputs = found[1].outputs
            assert count == [2], count
            assert found[1][1] is found[1][-1] is outputs and found[1][1:] == (outputs,)
            g, again = found[1]
            assert again is outputs and g is found[1].graph and count == [2], count
            assert tuple(found[1]) == (g, outputs) == found[1] and hash(found[0][0])
            assert list(outputs) == ['x', 3] and outputs[3] == [] and type(outputs) is dict
            assert type(outputs['x']) is tuple and type(outputs['x'][1]) is list
            assert outputs['x'][1][1:] == [None, 7, 's']
            is_all(outputs['x'][0], 20.0), is_all(outputs['x'][1][0], 30.0)
            one = fdry.CUDAGraph.finish_one_graph_load(pending, 2)
            assert one is more[2] and one.outputs is more[2].outputs
            assert type(one.outputs['x'][0]) is type(a)
            """)

    def test_a_pair_is_a_tuple(self):
        self.counted("""
            import copy, pickle
            g, found = fdry.CUDAGraph.load('1.json')[0], fdry.CUDAGraph.load('plain.json')
            same = found.graph, [1, ()]
            assert found == same and same == found and not found != same and found != (g, 1)
            assert found + (3,) == same + (3,) and (3,) + found == (3,) + same
            assert found * 2 == 2 * found == same * 2
            more = [7]
            more += found
            assert more == [7, *same]
            assert [1, ()] in found and 5 not in found
            assert found.index([1, ()]) == 1 and found.count([1, ()]) == 1
            assert repr(found) == repr(same) and bool(found)
            assert list(reversed(found)) == list(reversed(same))
            assert copy.copy(found) == same and type(copy.copy(found)) is tuple
            assert copy.copy(found)[1] is found[1]
            assert sorted([found, found], key=len) == [same, same]
            assert (lambda *args: args)(*found) == same
            one = fdry.CUDAGraph.load('one.json')
            assert {one: 1}[one.graph, one.outputs] == 1
            assert (one.graph, 1) != one and count == [1]
            try:
                found[2]
            except IndexError:
                pass
            else:
                raise AssertionError('an index of 2')
            h, out = one
            assert h is one.graph and out is one.outputs and count == [1]
            """)

    def test_outputs_keep_the_image_before_they_are_made(self):
        self.counted("""
            found = fdry.CUDAGraph.load('1.json')
            found.graph.replay()
            torch.cuda.synchronize()
            found.graph.reset()
            assert images() == 1 and count == [0]
            is_all(found.outputs['x'][0], 20.0)
            assert images() == 1 and found[1] is found.outputs and count == [2]
            kept = found.outputs['x'][0]
            del found
            fdry.CUDAGraph.load('0.json')  # unloads nothing: a tensor shows the memory
            is_all(kept, 20.0)
            del kept
            gc.collect()
            for path in ('1.json', 'plain.json', '1.json'):
                g = fdry.CUDAGraph.load(path)[0]
                g.reset()
                assert images() == 0, path
            found = fdry.CUDAGraph.load('plain.json')
            found.graph.reset()  # outputs without a tensor keep nothing
            assert images() == 0 and found.outputs == [1, ()]
            """)

    def test_an_error_leaves_them_to_be_made(self):
        self.counted("""
            found = fdry.CUDAGraph.load('1.json')
            def fail(tensor):
                if count[0]:
                    raise MemoryError("no view")
                return counted(tensor)
            _torch.view = fail
            for _ in range(2):
                try:
                    found[1]
                except MemoryError as e:
                    assert str(e) == "no view"
                else:
                    raise AssertionError('no error')
                gc.collect()
            found.graph.replay()
            found.graph.reset()
            assert images() == 1
            _torch.view = counted
            is_all(found[1]['x'][0], 20.0)
            """)

    def test_an_output_outside_of_the_region_is_refused_by_the_load(self):
        self.counted("""
            import json
            with open('1.json') as f:
                text = json.load(f)
            text['outputs']['dict'][0][1]['tuple'][0]['tensor']['addr'] = 4096
            with open('1.json', 'w') as f:
                json.dump(text, f)
            fails("BADIMAGE", "an output lies outside of the region", fdry.CUDAGraph.load, '1.json')
            assert images() == 0
            """)

    def test_threads_get_the_same_objects(self):
        self.counted("""
            found = [fdry.CUDAGraph.load(f'{i % 4}.json') for i in range(40)]
            start, got = threading.Barrier(8), []
            def read():
                start.wait()
                got.append([id(each[1]) for each in found])
            threads = [threading.Thread(target=read) for _ in range(8)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            assert got == [[id(each.outputs) for each in found]] * 8
            assert count == [80], count
            """)

    def test_tensors_are_of_the_mode_of_the_load(self):
        self.counted("""
            modes = []
            def noted(tensor):
                modes.append(torch.is_inference_mode_enabled())
                return real(tensor)
            _torch.view = noted
            plain = fdry.CUDAGraph.load('one.json')
            with torch.inference_mode():
                inside = fdry.CUDAGraph.load('one.json')
                plain.outputs
            inside.outputs
            assert modes == [False, True] and not torch.is_inference_mode_enabled(), modes
            """)


class Compiled(Script):
    def test_a_start_makes_no_view_of_a_call(self):
        found = self.both("""
            from foundry import _torch
            count, real, modes = [0], _torch.view, []
            def counted(tensor):
                count[0] += 1
                modes.append(torch.is_inference_mode_enabled())
                return real(tensor)
            _torch.view = counted
            model = made()
            fast = begin(model, *({"x": full(1.0), "scale": float(i)} for i in range(8)),
                         outputs="view")
            print(count[0], end=" ")
            with torch.inference_mode(), torch.no_grad():
                one = fast(x=full(3.0), scale=5.0)
                print(count[0], end=" ")
                two = fast(x=full(4.0), scale=5.0)
                assert two.sums is one.sums and values(two.sums) == 6.5
                print(count[0])
                assert True not in modes, modes
                if fast.image:
                    def fail(tensor):
                        raise MemoryError("no view")
                    _torch.view = fail
                    try:
                        fast(x=full(1.0), scale=2.0)
                    except MemoryError:
                        _torch.view = counted
                    assert values(fast(x=full(1.0), scale=2.0).sums) == 3.5
                    del one, two
                    fast.close()
            """)
        self.assertEqual(found, ["0 0 0", "1 4 4"])


if __name__ == "__main__":
    suite.main()
