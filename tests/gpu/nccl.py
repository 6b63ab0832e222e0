# SPDX-License-Identifier: Apache-2.0
"""Tests graphs with NCCL's collectives on two GPUs: one image for each rank.

Two ranks capture graphs with matrix products and collectives, and seal an image each. Two other
processes make their communicators again, in the same order and in the same region, and load the
images there. The memory of a communicator belongs to the process: the image states its addresses,
and a load leaves its content alone. Each graph's results must equal those of the same operations
without a graph, bit for bit, also when graphs and other collectives alternate.

    python3 tests/gpu/nccl.py [--limit SECONDS]      # needs two GPUs

Each part of it runs with NCCL's memory from cuMemCreate(), as usual. A capture with
NCCL_CUMEM_ENABLE=0 must work as without Foundry, or say why not.
"""
import hashlib
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

if sys.argv[1:2]:
    import foundry  # the interposer comes before all others
RANKS, N, ROUNDS = 2, 512, 20
ASIDE = 1 << 36
# Connections are made with the communicator, not at the first collective, and buffers of graphs
# are not mapped into other processes. Multicast memory is left alone.
SETTINGS = {"NCCL_RUNTIME_CONNECT": "0", "NCCL_GRAPH_REGISTER": "0", "NCCL_NVLS_ENABLE": "0",
            "TORCH_NCCL_ENABLE_MONITORING": "0"}


class Work:
    """What both processes of a rank make in the same order, in a region."""

    def __init__(self, meet, rank):
        import torch
        from torch import distributed
        self.rank, self.device = rank, torch.device("cuda", rank)
        torch.cuda.set_device(self.device)
        self.capture = foundry.Capture(base=foundry.base_for_name(f"nccl.rank{rank}"),
                                       size=ASIDE, aside=ASIDE, device=rank)
        distributed.init_process_group("nccl", init_method="file://" + meet, rank=rank,
                                       world_size=RANKS, device_id=self.device)
        self.groups = [None, distributed.new_group(list(range(RANKS)), device_id=self.device)]
        for group in self.groups:
            distributed.all_reduce(torch.ones(1, device=self.device), group=group)
        torch.manual_seed(7 + rank)
        self.x = torch.zeros(N, N, device=self.device)
        self.weights = [torch.randn(N, N, device=self.device) / 16 for _ in range(3)]
        self.half = torch.zeros(1 << 22, device=self.device, dtype=torch.bfloat16)
        torch.cuda.synchronize()

    def fill(self, seed):
        """Give this rank's inputs other values."""
        import torch
        made = torch.Generator().manual_seed(1000 * seed + self.rank)
        self.x.copy_(torch.randn(N, N, generator=made))
        self.half.copy_(torch.randn(self.half.shape, generator=made).bfloat16())
        torch.cuda.synchronize()

    def layers(self):
        """A row-parallel layer, as in a decoder: a product and an all-reduce, three times."""
        from torch import distributed
        y = self.x
        for w in self.weights:
            y = y @ w
            distributed.all_reduce(y)
            y = y.relu() + self.x
        return y

    def exchange(self):
        """Other collectives, with messages of several sizes, in both communicators."""
        import torch
        from torch import distributed
        big = self.half * 2
        distributed.all_reduce(big, group=self.groups[1])
        gathered = torch.empty(RANKS * N, N, device=self.device)
        distributed.all_gather_into_tensor(gathered, self.x + 1)
        part = torch.empty(N // RANKS, N, device=self.device)
        distributed.reduce_scatter_tensor(part, self.x.sin(), group=self.groups[1])
        distributed.broadcast(part, src=1)
        small = self.x[0, :8] * 3
        distributed.all_reduce(small, op=distributed.ReduceOp.MAX)
        return torch.cat([big.float().flatten(), gathered.flatten(), part.flatten(), small])

    def steps(self):
        return {1: self.layers, 2: self.exchange}

    def memory(self):
        """[(offset, bytes)] of the region, without the aside area."""
        import torch
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        base = foundry.base_for_name(f"nccl.rank{self.rank}")
        return [(addr - base, size) for addr, size in self.capture.allocs()
                if addr < base + ASIDE]

    def layout(self):
        found = self.memory()
        print(f"rank {self.rank}: {len(found)} allocations, {sum(s for _, s in found)} bytes",
              flush=True)
        return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


def digest(tensor):
    return hashlib.sha256(tensor.cpu().contiguous().view(dtype=__import__("torch").uint8)
                          .numpy().tobytes()).hexdigest()[:16]


def capture(store, meet, rank):
    import torch
    from foundry.engines import area
    rank = int(rank)
    work = Work(meet, rank)
    layout, found = work.layout(), {}
    base = foundry.base_for_name(f"nccl.rank{rank}")
    with torch.no_grad(), area.Area(work.capture, rank) as inside:
        stream = torch.cuda.Stream()
        work.fill(0)
        with torch.cuda.stream(stream):
            for step in work.steps().values():
                step()
        torch.cuda.synchronize()
        inside.pool_leave()
        for key, step in work.steps().items():
            with work.capture.graph(key, stream=stream, capture_error_mode="thread_local"):
                found[key] = step()
        inside.pool_enter()
    area.name(work.capture, "region", [(base + addr, size) for addr, size in work.memory()])
    for key, y in found.items():
        work.capture.tensor(f"y{key}", y, use="output")
    work.capture.fact("layout", layout)
    sealed = work.capture.seal(store, f"nccl.rank{rank}")
    print(f"rank {rank}: sealed {sealed.graphs} graphs, {sealed.nodes} nodes, {sealed.kernels} "
          f"kernels, content {sealed.content_bytes}, scratch {sealed.scratch_bytes}, "
          f"{sealed.total_ms:.0f} ms", flush=True)
    leave()


def leave():
    """End, without waiting for communicators that graphs use."""
    import torch
    torch.cuda.synchronize()
    torch.distributed.barrier()
    torch.cuda.synchronize()
    sys.stdout.flush()
    os._exit(0)


def load(store, meet, rank):
    import torch
    rank = int(rank)
    work = Work(meet, rank)
    layout = work.layout()
    began = time.monotonic()
    image = foundry.load(f"nccl.rank{rank}", store=store, into=work.capture, device=rank,
                         facts={"layout": layout})
    image.filled()  # the tensors outside of the image are this process's own
    took = time.monotonic() - began
    wrong, seen = [], set()
    work.capture.pause()
    with torch.no_grad():
        ys = {key: torch.from_dlpack(image[f"y{key}"]) for key in work.steps()}
        for turn in range(ROUNDS):
            work.fill(turn)
            wants = {}
            order = list(work.steps().items())
            for key, step in order if turn % 2 else order[::-1]:
                if turn % 3:  # a collective without a graph before the graph, and after it
                    wants[key] = step()
                image.launch(key, torch.cuda.current_stream().cuda_stream)
                if not turn % 3:
                    wants[key] = step()
            torch.cuda.synchronize()
            seen.add(digest(wants[1]))
            wrong += [(turn, key) for key, want in wants.items() if not torch.equal(ys[key], want)]
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        times = {}
        for title, run in (("eager", work.layers), ("graph", lambda: image.launch(
                1, torch.cuda.current_stream().cuda_stream))):
            torch.distributed.barrier()
            start.record()
            for _ in range(100):
                run()
            end.record()
            torch.cuda.synchronize()
            times[title] = start.elapsed_time(end) / 100
    print(f"rank {rank}: loaded in {1000 * took:.1f} ms; {len(seen)} different results in "
          f"{ROUNDS} turns, wrong: {wrong}; ms a step: {times}", flush=True)
    assert not wrong and len(seen) == ROUNDS
    leave()


def both(part, store, folder, name, until, **env):
    """Runs a part on both ranks at once."""
    meet = os.path.join(folder, name)
    return parts.side_by_side(*([parts.part(until, part, store, meet, rank, **SETTINGS, **env)]
                                for rank in range(RANKS)))


def whole():
    until = parts.deadline()
    parts.need(gpus=RANKS)
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        good = both("capture", store, folder, "first", until)
        if all(good):
            used = os.stat(os.path.join(store, "data.mdb")).st_blocks * 512
            print(f"the store of both images takes {used / 1e6:.1f} MB", flush=True)
            good += both("load", store, folder, "later", until)
        return good


if __name__ == "__main__":
    parts.main((capture, load), whole)
