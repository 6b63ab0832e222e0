# SPDX-License-Identifier: Apache-2.0
"""Runs programs that other people made (tests/gpu/programs) from images.

Each program is captured in one process, which then replays torch's own graph for two sets of inputs
that the capture never saw, twice from one state. Another process, without torch, loads the image,
writes the same inputs and launches. Outputs and state must be equal, byte for byte. The script
prints a line for each program as it ends:

equal          every byte, also after restore(); with the times of a replay, native and from the
               image
refused        the seal or the load refused the program, and said why
varies         torch's own graph gives other bytes for equal inputs, so nothing can be compared
not captured   torch cannot capture the program without Foundry either, or its graph ignores inputs
DIFFERENT      the image gives other bytes
FAILED         anything else

`workloads.py all` runs all, in three minutes on 16 processors. Without arguments it runs a sample.
`workloads.py only TEXT...` runs those whose names contain a text; `workloads.py dry [TEXT...]` runs
the steps on the CPU, without Foundry.
"""
import concurrent.futures
import fcntl
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402

SETS = (1, 2)        # seeds of the inputs that are compared; the capture sees 0
SEED = 4321          # of the programs' random numbers
LEAST = 60           # programs that must be captured, of all
SAMPLE = 6           # without arguments, each sixth program that compiles nothing runs
SECONDS = 215        # programs that have not begun by then are left out
LOAD_LIMIT = 60      # seconds
ROUNDS, REPLAYS = 7, 20  # of the measured replays
IGNORED = "the outputs do not depend on the inputs"
GOOD = ("equal", "refused", "varies", "not captured", "unavailable", "left out")


def data(tensor):
    """A tensor's elements as bytes, row by row."""
    import torch
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def fastest(replay, wait, folder):
    """Microseconds of a replay: the least mean of some rounds. One process measures at a time."""
    best = float("inf")
    with open(os.path.join(os.path.dirname(folder), "clock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(ROUNDS):
            wait()
            began = time.perf_counter()
            for _ in range(REPLAYS):
                replay()
            wait()
            best = min(best, (time.perf_counter() - began) / REPLAYS)
    return 1e6 * best


def prepared(name, device):
    """Builds a program and warms it up: its Work, and a function that runs its step."""
    import torch
    import programs
    torch.manual_seed(7)
    with torch.device(device):
        work = programs.PROGRAMS[name].build()

    def step():
        with torch.set_grad_enabled(work.grad):
            return work.step()
    fill(work, 0)
    return work, step


def fill(work, seed):
    from programs import base
    for name, value in base.values_of(work, seed).items():
        work.inputs[name].copy_(value)


def warm_up(work, step, stream):
    import torch
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    if hasattr(work, "settle"):
        work.settle()
    if work.before:
        work.before()


def replays(torch, work, graph, outputs):
    """The bytes of all outputs for each set of inputs, then those of the state."""
    torch.cuda.manual_seed(SEED)
    rows = []
    for seed in SETS:
        fill(work, seed)
        graph.replay()
        rows += [data(t) for t in outputs]
    return rows + [data(t) for t in work.state]


def reference(torch, folder, work, graph, outputs):
    """Writes what the loading process needs, and returns whether torch's graph repeats itself."""
    from programs import base
    start = [t.clone() for t in work.state]
    want = replays(torch, work, graph, outputs)
    for tensor, value in zip(work.state, start):
        tensor.copy_(value)
    again = replays(torch, work, graph, outputs)
    inputs = [{k: data(v) for k, v in base.values_of(work, seed).items()} for seed in SETS]
    with open(os.path.join(folder, "want"), "wb") as f:
        pickle.dump((inputs, want, len(outputs), len(work.state)), f)
    half = want[:len(outputs)], want[len(outputs):2 * len(outputs)]
    return again == want, half[0] != half[1]


def capture(name, folder):
    import foundry
    import torch
    from programs import base, PROGRAMS
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    note = {"status": "FAILED", "stage": "build"}
    try:
        with foundry.Capture(name=name, pinned=PROGRAMS[name].pinned) as cap:
            work, step = prepared(name, "cuda")
            stream = torch.cuda.Stream()
            warm_up(work, step, stream)
            with cap.graph(1, stream=stream) as graph:
                result = step()
            outputs = base.flat(result)
            for kind, tensors in (("input", work.inputs.items()),
                                  ("output", enumerate(outputs)), ("state", enumerate(work.state))):
                for key, tensor in tensors:
                    cap.tensor(f"{kind}.{key}", tensor.detach(), use=kind)
            note["stage"] = "seal"
            sealed = cap.seal(os.path.join(folder, "store"), "program")
            note.update(nodes=sealed.nodes, kernels=sealed.kernels, content=sealed.content_bytes)
            note["stage"] = "reference"
            repeats, depends = reference(torch, folder, work, graph, outputs)
            assert depends, IGNORED
            note.update(status="sealed" if repeats else "varies", native=fastest(
                graph.replay, torch.cuda.synchronize, folder))
    except ImportError as e:
        note.update(status="unavailable", reason=str(e))
    except foundry.Error as e:
        note.update(status="refused" if e.name == "FDRY_E_REFUSED" else "FAILED",
                    reason=f"{e.name}: {e}")
    finally:
        write_note(folder, note)


def write_note(folder, note):
    with open(os.path.join(folder, "note"), "w", encoding="utf-8") as f:
        json.dump(note, f)


def native(name, folder):
    """Captures and replays a program without Foundry."""
    import torch
    from programs import base
    work, step = prepared(name, "cuda")
    stream = torch.cuda.Stream()
    warm_up(work, step, stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        outputs = base.flat(step())
    seen = []
    for seed in SETS:
        fill(work, seed)
        graph.replay()
        seen.append([data(t) for t in outputs])
    assert seen[0] != seen[1], IGNORED


def differences(img, folder):
    """Names of outputs and states whose bytes differ from those of torch's graph."""
    with open(os.path.join(folder, "want"), "rb") as f:
        inputs, want, outputs, states = pickle.load(f)
    if img.generators():
        img.set_rng_state(SEED)
    got, names = [], []
    for seed, values in zip(SETS, inputs):
        for key, value in values.items():
            img.write("input." + key, value)
        img.launch(1)
        got += [bytes(img.read(f"output.{i}")) for i in range(outputs)]
        names += [f"output {i} for inputs {seed}" for i in range(outputs)]
    got += [bytes(img.read(f"state.{i}")) for i in range(states)]
    names += [f"state {i}" for i in range(states)]
    assert len(got) == len(want)
    return [name for name, a, b in zip(names, got, want) if a != b]


def load(name, folder):
    import foundry
    note = {"status": "FAILED"}
    try:
        with foundry.load("program", store=os.path.join(folder, "store"), poison=True) as img:
            found = differences(img, folder)
            if not found:
                img.restore()
                found = [name + " after restore()" for name in differences(img, folder)]
            note["time"] = fastest(lambda: img.launch(1), img.synchronize, folder)
            note.update(status="DIFFERENT" if found else "equal",
                        reason=f"{len(found)} differ: {', '.join(found[:3])}" if found else "")
        assert "torch" not in sys.modules
    except foundry.Error as e:
        note["reason"] = f"{e.name}: {e}"
    finally:
        write_note(folder, note)


def child(part, name, folder, limit):
    """Runs a part in a process of its own. Returns its note, with the last line of its errors."""
    began = time.monotonic()
    said = os.path.join(folder, "said")
    with open(said, "w", encoding="utf-8") as errors:
        process = subprocess.Popen([sys.executable, os.path.abspath(__file__), part, name, folder],
                                   stdout=errors, stderr=errors, start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # also what it started to compile
            code = f"nothing after {limit} s ({process.wait()})"
    note = {"status": "FAILED"}
    path = os.path.join(folder, "note")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            note = json.load(f)
        os.unlink(path)
    if code != 0:
        with open(said, encoding="utf-8", errors="replace") as f:
            lines = [line.strip() for line in f if line.strip()] or [""]
        lines = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)] or lines
        if note["status"] in ("FAILED", "equal", "sealed"):
            note["status"] = "FAILED"
            note.setdefault("reason", f"{part} ended with {code}: {lines[-1]}")
    note.update(code=code, seconds=time.monotonic() - began)
    return note


def judged(program, folder):
    """The note of a program: that of its capture, joined with that of its load."""
    note = child("capture", program.name, folder, program.limit)
    note["captured in"] = note["seconds"]
    if note["status"] == "FAILED" and (note.get("stage", "build") == "build"
                                       or IGNORED in note.get("reason", "")):
        if child("native", program.name, folder, program.limit)["code"] != 0:
            note["status"] = "not captured"
    if note["status"] in ("sealed", "varies"):
        loaded = child("load", program.name, folder, LOAD_LIMIT)
        if note["status"] == "varies" and loaded["status"] in ("DIFFERENT", "equal"):
            loaded["status"] = "varies"
        note.update(loaded)
    return note


def row(name, note):
    times = "%9.1f %9.1f" % (note["native"], note["time"]) if "time" in note else " " * 19
    return (f"{name:58.58} {note['status']:12} {note.get('nodes', ''):>6} "
            f"{note.get('kernels', ''):>5} {times} {note.get('captured in', 0):6.1f} "
            f"{' '.join(note.get('reason', '').split())[:600]}")


class Runner:
    """Runs programs side by side, and prints the result of each."""

    def __init__(self, folder):
        self.folder, self.began = folder, time.monotonic()
        self.notes = {}

    def one(self, numbered):
        number, program = numbered
        if time.monotonic() - self.began > SECONDS:
            note = {"status": "left out", "reason": "no time was left"}
        else:
            folder = os.path.join(self.folder, str(number))
            os.mkdir(folder)
            note = judged(program, folder)
            shutil.rmtree(folder, ignore_errors=True)
        self.notes[program.name] = note
        print(row(program.name, note), flush=True)


def chosen(texts):
    from programs import PROGRAMS
    found = [p for p in PROGRAMS.values() if not texts or any(t in p.name for t in texts)]
    return sorted(found, key=lambda p: not p.slow)


def available(program):
    import importlib.util
    return all(importlib.util.find_spec(m) for m in program.needs)


def totals(notes, least):
    counts = {}
    for note in notes.values():
        counts[note["status"]] = counts.get(note["status"], 0) + 1
    print("total:", ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    ratios = sorted(n["time"] / n["native"] for n in notes.values() if "time" in n)
    if ratios:
        print(f"a replay from the image takes {ratios[len(ratios) // 2]:.3f} of the time of torch's"
              f" in the median, {ratios[0]:.3f} to {ratios[-1]:.3f}, beside other programs")
    captured = sum(counts.get(s, 0) for s in ("equal", "refused", "varies", "DIFFERENT"))
    print(f"{captured} programs were captured", flush=True)
    return [n["status"] in GOOD for n in notes.values()] + [captured >= least]


def whole():
    parts.need()
    from programs import PROGRAMS
    quick = [p for p in PROGRAMS.values() if not p.slow]
    return run_all(quick[::SAMPLE], LEAST // SAMPLE)


def run_all(programs, least):
    """Runs programs side by side. Returns which of them gave a good result, and whether enough
    could be captured.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    for p in programs:
        if not available(p):
            print(f"{p.name:58} without {', '.join(p.needs)}")
    programs = [p for p in programs if available(p)]
    print(f"{'program':58} {'result':12} {'nodes':>6} {'kern.':>5} {'native us':>9} {'image us':>9}"
          f" {'s':>6} reason", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR"):
            os.environ[name] = os.path.join(folder, name)
        runner = Runner(folder)
        with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1)) as pool:
            list(pool.map(runner.one, enumerate(programs)))
        return totals(runner.notes, least)


def only(*texts):
    parts.need()
    parts.finish(run_all(chosen(texts), 0))


def every():
    parts.need()
    parts.finish(run_all(chosen(()), LEAST))


def dry(*texts):
    """Runs steps on the CPU, to find programs that are written wrongly."""
    import torch
    from programs import base
    base.CAPTURABLE = False
    results = []
    for p in chosen(texts):
        try:
            work, step = prepared(p.name, "cpu")
            seen = []
            for seed in SETS:
                fill(work, seed)
                seen.append([data(t) for t in base.flat(step())])
            if hasattr(work, "settle"):
                work.settle()
            assert seen[0] and seen[0] != seen[1], IGNORED
            said = f"ok, {len(seen[0])} outputs, {len(work.state)} of state"
        except Exception as e:
            said = f"FAILED: {type(e).__name__}: {e}"
        torch.set_default_dtype(torch.float32)
        results.append(said.startswith("ok"))
        print(f"{p.name:58} {' '.join(said.split())[:300]}", flush=True)
    parts.finish(results)


if __name__ == "__main__":
    if sys.argv[1:] == ["all"]:
        every()
    parts.main((capture, native, load, only, dry), whole)
