# SPDX-License-Identifier: Apache-2.0
"""The cost of the interposer: weights and warm-up of the decoder, natively and under a capture, in
turns.

    warm.py [--rounds 11]

Two servers, one of them with the interposer, import PyTorch and the model's code once and fork a
child a round, which starts CUDA itself. So a round takes two seconds, of which most is measured,
and no file is read for the first time. The server that comes first alternates. One round more than
asked for is made; the first is left out. Prints lines "which_what ms ms ...", one figure a round:
wall-clock time, and with _cpu the processor time of all threads. Processors change their speed:
compare rounds, and many of them.
"""
import argparse
import gc
import importlib
import os
import resource
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path[:0] = [os.path.join(ROOT, "api", "examples"), os.path.join(ROOT, "api", "python")]
WHICH = ("native", "hook")
PHASES = ("weights", "warm_up")


def processor_time():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def work(which):
    """Weights and warm-up in this process: wall-clock and processor time of each, milliseconds."""
    import torch
    from decode import Decoder
    torch.cuda.init()
    torch.cuda.synchronize()
    capture = sys.modules["foundry"].Capture() if which == "hook" else None
    times = []

    def time_note():
        torch.cuda.synchronize()
        times.append((time.perf_counter(), processor_time()))
    time_note()
    d = Decoder(argparse.Namespace(batches=list(range(1, 33)), context=256, seed=0, compile=False))
    time_note()
    d.warm_up([32, 16, 8, 4, 2, 1], torch.cuda.Stream())
    time_note()
    if capture:
        capture.end()
    return [(b - a) * 1e3 for before, after in zip(times, times[1:]) for a, b in zip(before, after)]


def serve(which):
    """For each line of input a child, whose times are a line of output."""
    if which == "hook":
        importlib.import_module("foundry")
    for name in ("torch", "decode", "transformers", "transformers.models.qwen3.modeling_qwen3"):
        importlib.import_module(name)
    # looked up at the first use
    from transformers import Qwen3Config, Qwen3ForCausalLM, StaticCache
    del Qwen3Config, Qwen3ForCausalLM, StaticCache
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            print(*(f"{ms:.3f}" for ms in work(which)), flush=True)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            sys.exit(f"{which}: a child failed")


def ask(server):
    server.stdin.write("\n")
    server.stdin.flush()
    return [float(ms) for ms in server.stdout.readline().split()]


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=11)
    p.add_argument("--serve", choices=WHICH, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.serve:
        serve(args.serve)
        return
    # Asking NVML and not CUDA whether there is a GPU: a process that has started CUDA cannot fork.
    env = dict(os.environ, PYTORCH_NVML_BASED_CUDA_CHECK="1", PYTHONWARNINGS="ignore")
    servers = {w: subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve", w],
                                   env=env, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE) for w in WHICH}
    for s in servers.values():
        if s.stdout.readline() != "ready\n":
            sys.exit("a server failed")
    rounds = {w: [] for w in WHICH}
    for i in range(args.rounds + 1):
        for w in WHICH[::(-1) ** i]:
            rounds[w].append(ask(servers[w]))
    for s in servers.values():
        s.stdin.close()
        s.wait()
    for w in WHICH:
        for k, name in enumerate(n + c for n in PHASES for c in ("", "_cpu")):
            print(f"{w}_{name}", *(f"{r[k]:.3f}" for r in rounds[w][1:]))


if __name__ == "__main__":
    main()
