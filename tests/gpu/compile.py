# SPDX-License-Identifier: Apache-2.0
"""Tests foundry.compile() with PyTorch on a GPU.

    compile.py [--limit SECONDS]

A process without Foundry computes results for arguments that no capture has seen. A second process
captures each model, a third one loads it; both must give the same bits. Then the models that no
graph can repeat run natively, changed parameters are used or captured again, and training is
refused. Prints a line for each model: what it took to begin, and a call in microseconds, native and
by the graph.
"""
import hashlib
import os
import pickle
import sys
import tempfile
import time
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs"))

SEEDS = (11, 12, 13)
MODELS = {}


def model(function):
    MODELS[function.__name__] = function
    return function


def tensor(seed, *shape, scale=1.0, dtype=None):
    """Normal numbers from a seed, the same in every process."""
    import torch
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale
    return made.to("cuda", dtype or torch.float32)


def ready(made):
    """A model with parameters from a seed, on the GPU."""
    import torch
    for i, p in enumerate([*made.parameters(), *(b for b in made.buffers()
                                                if b.is_floating_point())]):
        with torch.no_grad():
            p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(i)).abs() * 0.05)
    return made.cuda().eval()


# Each returns the model, and a function of a seed that returns the calls [(args, kwargs)], one for
# each graph.

@model
def mlp():
    from torch import nn
    made = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64))
    return ready(made), lambda seed: [((tensor(seed, n, 256),), {}) for n in (1, 8, 33)]


@model
def resnet18():
    import torchvision
    made = ready(torchvision.models.resnet18())
    return made, lambda seed: [((tensor(seed, n, 3, 224, 224),), {}) for n in (1, 4)]


@model
def block():
    """A transformer's block with keyword arguments and a dataclass of results."""
    import call_models
    return ready(call_models.Block()), lambda seed: [
        ((tensor(seed, 2, 64, 256),), {"mask": tensor(seed + 1, 64, 64) > 0, "scale": 0.5}),
        ((tensor(seed, 2, 64, 256),), {"scale": 0.25})]


@model
def cache():
    """A buffer that each call changes."""
    import call_models
    return ready(call_models.Cache()), lambda seed: [((tensor(seed, 1, 128),), {})]


@model
def drops():
    """Random numbers in the forward."""
    import call_models
    return ready(call_models.Drops()), lambda seed: [((tensor(seed, 64, 128),), {})]


@model
def lstm():
    """Parameters that are parts of one storage."""
    from torch import nn
    return ready(nn.LSTM(64, 128, num_layers=2)), lambda seed: [((tensor(seed, 20, 4, 64),), {})]


@model
def compiled():
    """A model under torch.compile()."""
    import torch
    from torch import nn
    made = ready(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.LayerNorm(256)))
    return torch.compile(made), lambda seed: [((tensor(seed, 16, 128),), {})]


def flat(value):
    """The tensors of a result, and what else it has, in order."""
    import dataclasses
    import torch
    if isinstance(value, torch.Tensor):
        return [hashlib.sha256(value.detach().contiguous().reshape(-1).view(torch.uint8).cpu()
                               .numpy().tobytes()).hexdigest() + f" {tuple(value.shape)}"]
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, *flat([getattr(value, f.name)
                                             for f in dataclasses.fields(value)])]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(each for v in value for each in flat(v))]
    return [repr(value)]


def answers(function, calls):
    import torch
    found = []
    for seed in SEEDS:
        torch.cuda.manual_seed(seed)
        found += [flat(function(*args, **kwargs)) for args, kwargs in calls(seed)]
    return found


def microseconds(function, args, kwargs):
    import torch
    best = 1e9
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(20):
            function(*args, **kwargs)
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - began) / 20)
    return 1e6 * best


def native(folder, *names):
    import torch
    found = {}
    with torch.no_grad():
        for name in names:
            made, calls = MODELS[name]()
            found[name] = answers(made, calls)
            print(f"{name:10} native", flush=True)
    assert "foundry" not in sys.modules
    with open(os.path.join(folder, f"answers-{names[0]}"), "wb") as f:
        pickle.dump(found, f)


def begun(name, store, how):
    """A model of MODELS, compiled: loaded or captured as `how` says."""
    import foundry
    made, calls = MODELS[name]()
    began = time.perf_counter()
    examples = [{"x": args[0], **kwargs} if kwargs else args for args, kwargs in calls(1)]
    fast = foundry.compile(made, examples, ref=f"compile/{name}", store=store)
    took = time.perf_counter() - began
    assert not fast.reason, fast.reason
    assert bool(fast.image) == (how == "load"), fast.start
    assert not fast.start.seal_error, fast.start.seal_error
    return made, calls, fast, took


def every(folder, how, names):
    """Models, captured or loaded in one process: the same bits as without Foundry."""
    __import__("foundry")  # before torch
    import torch
    with open(os.path.join(folder, f"answers-{names[0]}"), "rb") as f:
        want = pickle.load(f)
    bad = []
    for name in names:
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.filterwarnings("error", "'compile/")
                made, calls, fast, took = begun(name, os.path.join(folder, "store"), how)
                same = answers(fast, calls) == want[name]
                args, kwargs = calls(1)[-1]
                if how == "load" and name != "compiled":
                    plain = microseconds(made, args, kwargs)
                else:
                    plain = float("nan")
                quick = microseconds(fast, args, kwargs)
            print(f"{name:10} {how:8} {'equal' if same else 'DIFFERENT':10} {1e3 * took:9.1f} ms "
                  f"to begin, native {plain:8.1f} us, graph {quick:8.1f} us", flush=True)
        except Exception as e:
            same = False
            print(f"{name:10} {how:8} FAILED {type(e).__name__}: {e}", flush=True)
        bad += [] if same else [name]
    assert not bad, bad


def capture(folder, *names):
    every(folder, "capture", names)


def load(folder, *names):
    every(folder, "load", names)


def said(*texts):
    """A context that expects one warning for each text."""
    import contextlib

    @contextlib.contextmanager
    def run():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            yield
        found = [str(w.message) for w in found if str(w.message).startswith("'compile/")]
        assert len(found) == len(texts) and all(t in f for t, f in zip(texts, found)), found
    return run()


def fails(text, call):
    """`call` raises an error of Foundry that says `text`."""
    import foundry
    try:
        call()
    except foundry.Error as e:
        assert text in str(e), e
    else:
        raise AssertionError(text)


def refused(folder):
    """Models that no graph can repeat run natively, and a sentence says so."""
    import foundry
    import call_models
    import torch
    x = tensor(1, 8, 128)
    for name, reason in (("Branch", "waits for the GPU"), ("HostRandom", "random numbers on the"),
                         ("Counter", "assigns the attribute Counter.calls"),
                         ("InPlace", "changes an argument"), ("Hidden", "differs from the model")):
        made = ready(getattr(call_models, name)())
        with torch.no_grad():
            with said(reason):
                fast = foundry.compile(made, x, ref=f"compile/{name}",
                                       store=os.path.join(folder, "store"))
            y = tensor(2, 8, 128)
            with said():
                fast(y.clone())
        print(f"{name:10} {fast.reason}")
    made, calls = mlp()
    fails("training mode", lambda: foundry.compile(made.train(), calls(1)[0][0],
                                                   ref="compile/training"))
    made.eval()
    with torch.no_grad():
        z = torch.rand(4, device="cuda").sum().item()
    assert z


def again(folder):
    """A shape that was not captured, autograd, changed parameters by reference and in the image."""
    import foundry
    import torch
    store = os.path.join(folder, "store")
    made, calls, fast, _ = begun("mlp", store, "load")
    (x,), _ = calls(5)[1]
    with torch.no_grad():
        want = made(x)
        odd = tensor(3, 7, 256)
        with said("no graph was captured for input float32[7, 256]"):
            assert torch.equal(fast(odd), made(odd))
            assert torch.equal(fast(odd), made(odd))
        assert torch.equal(fast(x), want)
        made[0].weight.mul_(1.5)  # in its place: the graph reads it
        assert not torch.equal(fast(x), want) and torch.equal(fast(x), made(x))
    fails("autograd", lambda: fast(x))
    fails("training", lambda: fast.model.train() and fast(x))
    made.eval()
    fast.close()
    with torch.no_grad(), said():
        other = mlp()[0]
        other[2].bias.add_(1)  # another model of the same structure: its own parameters are read
        fast = foundry.compile(other, [args for args, _ in calls(1)], ref="compile/mlp",
                               store=store)
        assert fast.image and torch.equal(fast(x), other(x))
    fast.close()


def held(folder, add, how):
    """Parameters in the image: another image for other parameters."""
    import foundry
    import torch
    made, calls = mlp()
    with torch.no_grad():
        made[2].bias.add_(int(add))
        began = time.perf_counter()
        fast = foundry.compile(made, [args for args, _ in calls(1)], ref="compile/held",
                               store=os.path.join(folder, "store"), parameters="image")
        print(f"{1e3 * (time.perf_counter() - began):.1f} ms", fast)
        assert not fast.reason and bool(fast.image) == (how == "loaded"), fast.start
        (x,), _ = calls(5)[2]
        assert torch.equal(fast(x), made(x))


def digest():
    """The time of the digest of 2 GiB of parameters."""
    from foundry._weights import Weights
    import torch
    made = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096, bias=False, device="cuda")
                                 for _ in range(32)))
    weights = Weights(torch, made)
    for _ in range(3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        found = weights.digest()
        print(f"digest of {weights.nbytes >> 20} MiB: "
              f"{1e3 * (time.perf_counter() - began):.2f} ms", found[:16], flush=True)


def costs(folder):
    """A call of a model of 101 modules beside a replay of torch's graph, and what its checks take.
    """
    import foundry
    import torch
    made = ready(torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(100))))
    x, plain = tensor(1, 8, 64), torch.cuda.CUDAGraph()
    with torch.no_grad():
        made(x)
        with torch.cuda.graph(plain):
            made(x)
        print(f"a plain replay: {microseconds(lambda: plain.replay(), (), {}):.1f} us")
        for outputs in ("copy", "view", "copy", "view"):  # in turn: the first may be slower
            fast = foundry.compile(made, (x,), ref=f"compile/costs-{outputs}", outputs=outputs,
                                   store=os.path.join(folder, "store"))
            print(f"a call, outputs={outputs}: {microseconds(fast, (x,), {}):.1f} us, "
                  f"{'loaded' if fast.image else 'captured'}")
            for owner, name in ((fast._weights, "changed"), (fast._weights, "trains"),
                                (fast._weights, "wants_grad"), (fast._modes, "changed"),
                                (fast, "_find")):
                began = time.perf_counter()
                for _ in range(1000):
                    getattr(owner, name)(*(((x,), {}) if owner is fast else ()))
                print(f"  {type(owner).__name__}.{name}: "
                      f"{1e3 * (time.perf_counter() - began):.1f} us")
            assert torch.equal(fast(x), made(x))
            fast.close()


def whole():
    until = parts.deadline()
    parts.need("torchvision")
    others = [name for name in MODELS if name != "compiled"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")

        def part(*words):
            return parts.part(until, words[0], folder, *words[1:])
        held = ((0, "captured"), (0, "loaded"), (1, "captured"), (0, "loaded"), (1, "loaded"))
        found = parts.side_by_side(
            [*(part(how, *others) for how in ("native", "capture", "load")), part("again")],
            [part(how, "compiled") for how in ("native", "capture", "load")],
            [part("held", *words) for words in held], [part("refused")],
            [parts.part(until, "digest")])
        return [*found, part("costs")()]  # alone: others would take the processor and the GPU


if __name__ == "__main__":
    parts.main((native, capture, load, refused, again, held, digest, costs), whole)
