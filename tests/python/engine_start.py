# SPDX-License-Identifier: Apache-2.0
"""Common parts of scripts that start serving engines with dummy weights."""
import faulthandler
import glob
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time

QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu",
         "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072,
         "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
         "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
         "tie_word_embeddings": True, "torch_dtype": "bfloat16", "vocab_size": 151936}
BIG = {**QWEN3, "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32,
       "num_hidden_layers": 36, "tie_word_embeddings": False}  # 16.4 GB of weights
NOTES = "ENGINE_START_NOTES"  # the variable that names the file with the notes of all processes


def limit_time(seconds):
    """End this process with a traceback after `seconds`."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds, exit=True)


def age():
    """Return the seconds since this process began."""
    with open("/proc/self/stat", encoding="ascii") as f:
        ticks = int(f.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def entry_points(script, text):
    """Let the engine find, in all of its processes, the entry points `text`: the plug-in of this
    tree, and that of the test in the file `script`.

    It finds those of installed packages in the same way.
    """
    folder = os.path.join(tempfile.mkdtemp(), "foundry_tree-0.dist-info")
    os.mkdir(folder)
    parent = os.path.dirname(folder)
    # Beside these files lie others that have the names of packages.
    folders = {os.path.dirname(os.path.abspath(path)) for path in (script, __file__)}
    for path in (script, __file__):
        shutil.copy(path, parent)
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) not in folders] + [parent]
    os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), parent])
    os.environ[NOTES] = os.path.join(folder, "notes.json")
    for name, written in (("METADATA", "Metadata-Version: 2.1\nName: foundry-tree\nVersion: 0\n"),
                          ("entry_points.txt", text)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(written)


class Notes:
    """Notes of an engine's process for the process that prints: seconds of its phases, and how
    often it did something. Each process has a file of its own.
    """

    def __init__(self, **counts):
        self.seconds, self.counts = {}, counts
        self.lock = threading.RLock()  # several threads count

    def write(self):
        path = f"{os.environ[NOTES]}.{os.getpid()}"
        with self.lock:
            with open(path + ".new", "w", encoding="utf-8") as f:
                json.dump({**self.seconds, "counts": self.counts}, f)
            os.rename(path + ".new", path)  # a reader sees all of it

    def add(self, *names):
        """Count something once, under each of its names."""
        with self.lock:
            for name in names:
                self.counts[name] = self.counts.get(name, 0) + 1
            self.write()

    def wait(self):
        """Wait until this start may begin its engine. Note the seconds."""
        self.seconds["waited"] = waited()
        self.write()

    def times(self, owner, name, shown):
        original = getattr(owner, name)

        def timed(*args, **kwargs):
            start = time.monotonic()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds[shown] = round(time.monotonic() - start, 3)
                self.write()
        setattr(owner, name, timed)

    def count(self, owner, name, shown):
        original = getattr(owner, name)

        def counted(*args, **kwargs):
            self.add(shown)
            return original(*args, **kwargs)
        setattr(owner, name, counted)

    def count_triton(self, shown):
        """Count the kernels that Triton compiles and does not find in its cache, also by name."""
        import triton
        listener = getattr(getattr(triton, "knobs", None), "compilation", None)

        def compiled(*_args, metadata=None, cache_hit=False, **_kwargs):
            if not cache_hit:
                self.add(shown, f"{shown} {(metadata or {}).get('name')}")
        if listener is not None:
            listener.listener = compiled


def waited():
    """Wait until the file that ENGINE_START_GATE names exists. Return the seconds."""
    start, gate = time.monotonic(), os.environ.get("ENGINE_START_GATE")
    while gate and not os.path.exists(gate):
        time.sleep(0.005)
    return time.monotonic() - start


def notes():
    """Return what the engine's processes have noted so far: the longest time of each phase, and
    the sum of each count.
    """
    found = {}
    for path in glob.glob(glob.escape(os.environ[NOTES]) + ".*[0-9]"):
        with open(path, encoding="utf-8") as f:
            one = json.load(f)
        for name, value in one.pop("counts").items():
            counts = found.setdefault("counts", {})
            counts[name] = counts.get(name, 0) + value
        _longest(found, one)
    return found


def _longest(found, one):
    """Put each number of the nested dictionaries `one` into `found` that is larger there."""
    for name, value in one.items():
        if isinstance(value, dict):
            _longest(found.setdefault(name, {}), value)
        else:
            found[name] = max(found.get(name, value), value)


def pretend(facts):
    """Let a fact of this start be another one: ENGINE_START_PRETEND is its name, =, its value.

    facts: the plug-in's module.
    """
    key, _, value = os.environ.get("ENGINE_START_PRETEND", "").partition("=")
    if key:
        early = facts.early
        facts.early = lambda each: {**early(each), facts.PREFIX + key: value}


def scale(model):
    """Dummy weights are so small that every prompt gives the same tokens: give them usual sizes."""
    import torch
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.fill_(1)
            else:
                p.mul_(1000 if "embed" in name else 50)


def digest(value):
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def model_in(folder):
    """Return the folder of the model in the folder of a test. It has no other files: engines list
    them.
    """
    return os.path.join(folder, "model")


def write_model(folder, config):
    """Write the configuration of a model with dummy weights. folder: of the test."""
    os.makedirs(model_in(folder), exist_ok=True)
    with open(os.path.join(model_in(folder), "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)


def answers(one, asked):
    """Return the digests of what a start has answered to each of `asked`."""
    return [[one.get(name, {}).get(kind) for kind in ("tokens", "logprobs")] for name in asked]


def equal_answers(starts, asked):
    """Return whether each start after the first one has its answers, as a list."""
    starts = list(starts)
    wanted = answers(starts[0], asked)
    return [bool(one) and answers(one, asked) == wanted for one in starts[1:]]


def nothing_done(one, names=None):
    """Return whether a start did nothing that it counts, or nothing of `names`, until its first
    answer.
    """
    counts = one.get("counts") if one else None
    return bool(counts) and not any(counts.get(name) for name in names or counts)


def serve_on(mode):
    """Let a first start attach what it has compiled for its requests, before it ends."""
    if mode == "first":
        from foundry.engines import watch
        time.sleep(2 * watch.QUIET + 1)


def done_for_requests(one):
    """Return what a start counted after its first answer: engines compile some kernels for the
    first request that needs them.
    """
    counts = one.get("counts", {})
    return {name: count - counts.get(name, 0) for name, count in one.get("counts after", {}).items()
            if count != counts.get(name, 0)}


STARTS = {"first": "first", "plain": "plain", "elsewhere": "next", "later": "next"}


def first_and_later(begun, remove, asked, names=None):
    """Let the starts of STARTS, which wait at their gates, begin their engines one after the other.
    Return what is as it should be, as a list.

    remove: a function that removes the caches of the first two. All succeed, with equal answers to
    each of `asked`. The later ones count nothing, or nothing of `names`, and nothing for requests.
    """
    from engine_child import together
    try:
        found = together([], begun[:2])
        remove()
        found.update(together([], begun[2:]))
    finally:
        for one in begun:
            one.kill()
    return [*found.values(), *equal_answers(found.values(), asked),
            nothing_done(found["elsewhere"], names), nothing_done(found["later"], names),
            not done_for_requests(found["elsewhere"]), not done_for_requests(found["later"])]


def begin(script, limit, title, mode, folder, *more, gate=False, place="", store="store",
          caches=None, gpu=None, **variables):
    """Begin a start in a process of its own, by a script. Its log and, with `gate`, its gate are in
    `folder`. Its store is in the folder `place` of that, and so are its caches, if `caches` names
    no other folder. gpu: None, or the number of the only GPU that it sees.
    """
    from engine_child import Start
    place = os.path.join(folder, place)
    os.makedirs(place, exist_ok=True)
    return Start(limit, title, [
        *(() if mode == "plain" else ("-m", "foundry", "run")), os.path.abspath(script), "--mode",
        mode, "--limit", str(limit.left()), "--caches", caches or os.path.join(place, "caches"),
        *more], os.path.join(folder, title + ".log"),
        gate and os.path.join(folder, title + ".gate"),
        **{"FOUNDRY_STORE": os.path.join(place, store), **variables,
           **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)})})


def strict(plug_in, mode):
    """Return the variables of a start that fails if it cannot use its image: a later one."""
    return {f"FOUNDRY_{plug_in}_STRICT": "1"} if mode == "next" else {}


def first_difference(ours, theirs):
    """Return where two nested lists and dictionaries differ first, as text, or None."""
    def keys(each):
        return list(each) if isinstance(each, dict) else list(range(len(each)))
    if not isinstance(ours, (list, dict)) or type(ours) is not type(theirs) or (
            keys(ours) != keys(theirs)):
        return None if ours == theirs else f"{ours!r} and {theirs!r}"
    found = ((key, first_difference(ours[key], theirs[key])) for key in keys(ours))
    return next((f"{key}, {text}" for key, text in found if text), None)


def show_table(names, starts, rows, prefix):
    """Print seconds: a column for each start, a row for each of `rows`, for each name that begins
    with `prefix`, and for what Foundry has measured.
    """
    def line(name, values):
        print(f"{name:40}" + "".join(
            f"{value:14.3f}" if isinstance(value, (int, float)) else f"{value:>14}"
            for value in values), flush=True)

    line("", names)
    more = dict.fromkeys(name for one in starts for name in one if name.startswith(prefix))
    for name in (*rows, *more):
        line(name, [one.get(name, "") for one in starts])
    for name in sorted({name for one in starts for name in one.get("of Foundry", {})}):
        line(f"of Foundry: {name}", [one.get("of Foundry", {}).get(name, "") for one in starts])
