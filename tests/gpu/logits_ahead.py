# SPDX-License-Identifier: Apache-2.0
"""A thread loads kernels for logits while the region is paused: see foundry/engines/ahead.py.

As in a later start of an engine, the main thread works in an area outside of the region meanwhile.
The region must stay as it is, cuBLAS must compute what torch does, and torch must go on as before.
Each part prints the milliseconds of the first logits of its process, without and with the thread.
"""
import functools
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

VOCABULARY, WIDTH, ROWS = 151936, 1024, 32


def measured(function):
    """Return (milliseconds of a function with its work on the GPU, what it returns)."""
    import torch
    start = time.monotonic()
    found = function()
    torch.cuda.synchronize()
    return 1e3 * (time.monotonic() - start), found


def first_logits(kind):
    """Print the milliseconds of the first logits of this process, as JSON."""
    import foundry
    import torch
    from foundry.engines import ahead, area
    capture = foundry.Capture(name="logits", size=1 << 36, aside=1 << 36)
    torch.manual_seed(0)
    weight = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.bfloat16)
    rows = weight[:ROWS].clone()
    torch.cuda.synchronize()
    before, failed, times = (capture.offset, capture.allocs()), [], {}

    def load(logits):
        try:
            took, _ = measured(logits)
            times.setdefault("thread", took)
        except Exception as e:
            failed.append(repr(e))
    for turn in range(0 if kind == "alone" else 2):  # the second is that of an engine made again
        logits = ahead.Logits(0, weight, ROWS)
        with area.Area(capture, 0, outside=True), ahead.beside(functools.partial(load, logits)):
            made = [torch.full((1 << 20,), float(i), device="cuda") for i in range(20)]
            assert [each[-1].item() for each in made] == list(map(float, range(20)))
            del made
        free, _ = torch.cuda.mem_get_info()
        logits.close()
        with area.Area(capture, 0):  # as in a capture after a load that failed
            torch.zeros(1 << 20, device="cuda")
        returned = torch.cuda.mem_get_info()[0] - free
        assert turn or returned > 0, "the thread's memory is not returned"
    assert not failed, failed
    assert (capture.offset, capture.allocs()) == before, "the region has changed"
    capture.pause()
    times["product"], out = measured(lambda: torch.nn.functional.linear(rows, weight))
    times["float"], wide = measured(out.float)
    times["best"], _ = measured(lambda: wide.topk(5))
    ours = torch.zeros_like(out)
    ahead._multiply(weight, ours)
    assert torch.equal(ours, out), (ours - out).abs().max()
    capture.end()
    print(json.dumps(times), flush=True)


def alone():
    first_logits("alone")


def beside():
    first_logits("beside")


def whole():
    parts.need()
    return [parts.run("alone"), parts.run("beside")]


if __name__ == "__main__":
    parts.main((alone, beside), whole)
