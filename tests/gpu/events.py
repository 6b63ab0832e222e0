# SPDX-License-Identifier: Apache-2.0
"""Tests events that two graphs of an image share: they order launches on two streams, in the
capturing process and in one that loads the image.

Each graph waits for the event, changes x, and records the event. The first graph doubles x after a
long wait on the GPU, the second adds 5: in another order, x would have another value.
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

if sys.argv[1:2]:
    import foundry  # the interposer comes before all others
CYCLES = 50_000_000  # about 30 ms


def capture(store):
    import torch
    with foundry.Capture() as cap:
        x = torch.full((4,), 3.0, device="cuda")
        event = torch.cuda.Event(external=True)
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        torch.cuda._sleep(10)  # the module is loaded before the capture
        x.mul_(1).add_(0)
        event.record()  # torch makes the event then
        torch.cuda.synchronize()
        with cap.graph(1, stream=streams[0]):
            event.wait()
            torch.cuda._sleep(CYCLES)
            x.mul_(2)
            event.record()
        with cap.graph(2, stream=streams[0]):
            event.wait()
            x.add_(5)
            event.record()
        cap.tensor("x", x, use="state")
        print("sealed", cap.seal(store, "events").id[:12], flush=True)


def load(store):
    import torch
    streams = [torch.cuda.Stream().cuda_stream for _ in range(2)]
    img = foundry.load("events", store=store, poison=True)
    want = 3.0
    for turn in range(10):
        img.launch(1, stream=streams[0])
        img.launch(2, stream=streams[1])
        img.synchronize(streams[1])
        want = 2 * want + 5
        found = list(memoryview(img.read("x")).cast("B").cast("f"))
        print(f"turn {turn}: x is {found[0]}, and {want} if the event orders the launches",
              flush=True)
        assert found == [want] * 4, turn
    img.synchronize(streams[0])


def whole():
    parts.need()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        return [parts.run("capture", store), parts.run("load", store)]


if __name__ == "__main__":
    parts.main((capture, load), whole)
