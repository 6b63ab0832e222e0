# SPDX-License-Identifier: Apache-2.0
"""Torch's free memory is zero when the first graph is captured, so images keep no freed tensors; on
the software driver, with a small array library in torch's place.
"""
import suite
import torch_scripts

BEFORE = """\
import ctypes
import re
def bytes_at(addr, size):
    found = ctypes.create_string_buffer(size)
    cuda = ctypes.CDLL("libcuda.so.1")
    assert not cuda.cuMemcpyDtoH_v2(found, ctypes.c_uint64(addr), ctypes.c_size_t(size))
    return found.raw
def freed(value, *shape):
    tensor = full(value, *shape)
    return tensor.data_ptr(), 4 * tensor.numel()
def is_zero(addr, size):
    return not any(bytes_at(addr, size))
fdry.set_allocation_region(BASE, "1GB")
a, b = full(2.0), full(3.0)
"""


class ClearFree(torch_scripts.Folder):
    def test_freed_tensors_are_not_kept(self):
        self.more("""\
            keep = full(5.0, 1000, 1500)
            large, small = freed(7.0, 1000, 1000), freed(8.0, 200)
            assert not is_zero(*large) and not is_zero(*small)
            graph = fdry.CUDAGraph()
            with fdry.graph(graph):
                c = a + b
            assert is_zero(*large) and is_zero(*small)
            is_all(a, 2.0), is_all(b, 3.0), is_all(keep, 5.0)
            graph.save("graph.json", output_tensors=[c])
            with open("graph.json", encoding="ascii") as f, fdry.Store("foundry-store") as store:
                text = store.describe(re.search("[0-9a-f]{64}", f.read())[0])
            kept = int(text.split(" of it in ")[0].split("(")[-1])
            assert 6 << 20 > kept >= 4 * keep.numel(), text
            graph.replay()
            is_all(c, 5.0)
            """, BEFORE)

    def test_the_device_of_the_region_is_current(self):
        """Otherwise torch would wait for the work of another device, and this one's may still use
        memory that was freed.
        """
        self.more("""\
            old, current, waited = freed(7.0, 1000, 1000), [], torch.cuda.synchronize
            def wait():
                current.append(torch.cuda.current_device())
                waited()
            torch.cuda.current_device, torch.cuda.synchronize = lambda: 1, wait
            foundry_torch = __import__("foundry._torch", fromlist=["_torch"])
            assert foundry_torch.clear_free(0, lambda segment: True) >= old[1]
            assert current and not any(current) and torch.cuda.current_device() == 1, current
            assert is_zero(*old)
            """, BEFORE)

    def test_only_before_the_first_graph(self):
        self.more("""\
            first, second = fdry.CUDAGraph(), fdry.CUDAGraph()
            with fdry.graph(first):
                c = a + b
            tensor, stays = full(7.0, 300000), full(1.0, 300000)
            late = tensor.data_ptr(), 4 * tensor.numel()
            del tensor
            with fdry.graph(second):
                d = a + a
            assert not is_zero(*late)
            """, BEFORE)

    def test_an_allocator_that_places_otherwise_keeps_its_bytes(self):
        self.more("""\
            tensor, stays = full(7.0, 1000, 1000), full(1.0, 1000, 500)
            old = tensor.data_ptr(), 4 * tensor.numel()
            del tensor
            alloc, taken = torch.cuda.caching_allocator_alloc, []
            def elsewhere(size, device=None, stream=None):
                taken.append(alloc(size + (64 << 20), stream))
                return taken[-1]
            torch.cuda.caching_allocator_alloc = elsewhere
            live = torch.cuda.memory_stats_as_nested_dict()["allocation"]["all"]["current"]
            with fdry.graph(fdry.CUDAGraph()):
                c = a + b
            assert len(taken) == 1 and not is_zero(*old)
            now = torch.cuda.memory_stats_as_nested_dict()["allocation"]["all"]["current"]
            assert now == live + 1, (live, now)
            """, BEFORE)


if __name__ == "__main__":
    suite.main()
