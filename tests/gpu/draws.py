# SPDX-License-Identifier: Apache-2.0
"""Tests graphs of PyTorch that draw random numbers: one process captures them, others load them and
compare with torch's own replays.

Each part is a process of its own. Capturing: dropout, rand and exponential from the default
generator, one from two generators, one that draws nothing, one that draws late, which another
stream's launch must not overtake; torch's own replays for a list of seeds are written to files,
with eager draws between. multinomial in a part by itself, since a torch may have one that cannot be
captured. Loading: with torch, whose default generator then counts; without torch, in Python and, by
ctypes alone, as C does. The output has all values, so that it explains a failure.
"""
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
N = 4096
REPLAYS = 100
SEEDS = (1234, (1 << 62) + 77)
ALL = {1: "dropout", 2: "rand", 3: "multinomial", 4: "exponential", 5: "two", 6: "plain", 7: "late"}
NAMES = {key: ALL[key] for key in map(int, os.environ.get("DRAWS", "1,2,4,5,6,7").split(","))}
DRAWN = {"two": {"default", "generator0"}, "plain": set()}  # the other graphs: {"default"}


def work(torch, name, x, other):
    if name == "dropout":
        return torch.nn.functional.dropout(x, 0.3) + torch.nn.functional.dropout(x, 0.7)
    if name == "rand":
        return torch.rand(N, device="cuda") + torch.randn(N, device="cuda")
    if name == "multinomial":
        return torch.multinomial(torch.softmax(x[:512].reshape(8, 64), -1), 1).float().reshape(8)
    if name == "exponential":
        noise = torch.empty(8, N // 8, device="cuda").exponential_(1)
        return torch.argmax(torch.softmax(x.reshape(8, N // 8), -1) / noise, -1).float()
    if name == "two":
        return torch.rand(N, device="cuda") + torch.rand(N, device="cuda", generator=other)
    if name == "late":
        torch.cuda._sleep(2_000_000)  # a millisecond between the start and the draw
        return torch.nn.functional.dropout(x, 0.5)
    return x * 2


def order():
    """Returns the graph of each replay: all of them in turn, the first more often."""
    keys = list(NAMES)
    return [keys[0] if i % 7 == 3 else keys[i % len(keys)] for i in range(REPLAYS)]


def sequence(torch, replay, seed, other, eager):
    """Returns the results of a hundred replays after manual_seed. If `eager`, other draws outside
    of graphs are between them.
    """
    torch.cuda.manual_seed(seed)
    if other is not None:
        other.manual_seed(seed ^ 0xabcdef)
    rows = []
    for i, key in enumerate(order()):
        rows.append(replay(key))
        if eager and i % 10 == 9:
            rows.append(torch.rand(8, device="cuda").clone())
        if i == REPLAYS // 2:
            torch.cuda.manual_seed(seed + 1)
    torch.cuda.synchronize()
    return [r.cpu().numpy().tobytes() for r in rows]


def save(folder, name, rows):
    with open(os.path.join(folder, name), "wb") as f:
        for row in rows:
            f.write(len(row).to_bytes(8, "little") + row)


def saved(folder, name):
    rows = []
    with open(os.path.join(folder, name), "rb") as f:
        while head := f.read(8):
            rows.append(f.read(int.from_bytes(head, "little")))
    return rows


def compare(what, got, want):
    wrong = [i for i, (a, b) in enumerate(zip(got, want)) if a != b]
    same = len(got) == len(want) and not wrong
    print(f"{what}: {len(got)} rows of {len(want)}, {len(set(got))} distinct, "
          f"{'equal' if same else f'{len(wrong)} differ, first row {wrong[:1]}'}",
          flush=True)
    return same


def capture(folder):
    import foundry
    import torch
    print("torch", torch.__version__, "cuda", torch.version.cuda, flush=True)
    with foundry.Capture() as cap:
        torch.manual_seed(99)
        x = torch.linspace(0.5, 3, N, device="cuda")
        other = torch.Generator(device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for name in NAMES.values():
                work(torch, name, x, other)
        torch.cuda.synchronize()
        graphs, outputs = {}, {}
        for key, name in NAMES.items():
            before = torch.cuda.default_generators[0].get_offset(), other.get_offset()
            began = time.monotonic()
            with cap.graph(key, name=name, stream=stream, generators=[other] if name == "two"
                           else ()) as graph:
                outputs[key] = work(torch, name, x, other)
            graphs[key] = graph
            after = torch.cuda.default_generators[0].get_offset(), other.get_offset()
            found = {g: (by, hex(seed), hex(offset)) for g,
                     (by, seed, offset) in cap.rng_uses[key].items()}
            print(f"graph {key} {name}: {found}, offsets {before} -> {after}, "
                  f"{1000 * (time.monotonic() - began):.1f} ms", flush=True)
            cap.tensor(f"y{key}", outputs[key], use="output")
        cap.tensor("x", x, use="const")
        sealed = cap.seal(os.path.join(folder, "store"), "draws")
        print("sealed", sealed.id[:12], sealed.nodes, "nodes", flush=True)
        recognised = [set(cap.rng_uses[key]) == DRAWN.get(name, {"default"}) for key,
                      name in NAMES.items()]
        assert all(recognised), recognised

        def replay(key):
            graphs[key].replay()
            return outputs[key].clone()

        for i, seed in enumerate(SEEDS):
            for eager in (False, True):
                save(folder, f"want{i}{int(eager)}", sequence(torch, replay, seed, other, eager))
        increments = {key: {g: by for g, (by, _, _) in found.items()} for key,
                      found in cap.rng_uses.items()}
        with open(os.path.join(folder, "facts"), "w", encoding="ascii") as f:
            json.dump({"bytes": {k: v.numel() * v.element_size() for k, v in outputs.items()},
                       "increments": increments}, f)


def on_streams(torch, img, views, late, other):
    """Returns the draws of two graphs that are launched directly after each other, in turn, on
    these streams.
    """
    torch.cuda.manual_seed(77)
    rows = []
    for _ in range(20):
        img.launch(7, late)
        img.launch(2, other)
        torch.cuda.synchronize()
        rows += [views[key].cpu().numpy().tobytes() for key in (7, 2)]
    return rows


def load_with_torch(folder):
    """Loads in a process with torch, whose default generator is used."""
    import foundry
    img = foundry.load("draws", store=os.path.join(folder, "store"), poison=True)
    import torch
    torch.cuda.init()
    other = torch.Generator(device="cuda")
    print("generators", img.generators(), "state", img.rng_state())
    if "generator0" in img.generators():
        img.generator("generator0", other)
    views = {key: torch.from_dlpack(img[f"y{key}"]) for key in NAMES}
    results = []

    def replay(key):
        img.launch(key, torch.cuda.current_stream())
        return views[key].clone()

    for i, seed in enumerate(SEEDS):
        for eager in (False, True):
            got = sequence(torch, replay, seed, other, eager)
            results.append(compare(f"with torch, seed {seed}, eager draws {eager}", got,
                                   saved(folder, f"want{i}{int(eager)}")))
    state = torch.cuda.get_rng_state()
    other.manual_seed(5)
    first = [replay(key).cpu() for key in NAMES]
    torch.cuda.set_rng_state(state)
    other.manual_seed(5)
    again = [replay(key).cpu() for key in NAMES]
    results.append(all(torch.equal(a, b) for a, b in zip(first, again)))
    print("get_rng_state, set_rng_state: the same numbers", results[-1], flush=True)
    if {2, 7} <= NAMES.keys():
        one, two = torch.cuda.Stream(), torch.cuda.Stream()
        results.append(compare("on two streams, beside one",
                               on_streams(torch, img, views, one, two),
                               on_streams(torch, img, views, one, one)))
    torch.cuda.synchronize()
    for key in {1, 6} & NAMES.keys():
        began = time.perf_counter()
        for _ in range(1000):
            img.launch(key, torch.cuda.current_stream())
        took = time.perf_counter() - began
        torch.cuda.synchronize()
        whole = time.perf_counter() - began
        print(f"launch of {NAMES[key]} from Python: {1000 * took:.2f} us to submit, "
              f"{1000 * whole:.2f} us in all", flush=True)
    views.clear()
    img.close()
    assert all(results), results


def plain_sequence(launch, read, seed_all, seed):
    """sequence() without torch and without eager draws."""
    seed_all(seed, seed ^ 0xabcdef)
    rows = []
    for i, key in enumerate(order()):
        launch(key)
        rows.append(read(key))
        if i == REPLAYS // 2:
            seed_all(seed + 1, None)
    return rows


def load_without_torch(folder):
    """Loads with Foundry's package alone, and draws from the image's own state."""
    import foundry
    results = []
    with foundry.load("draws", store=os.path.join(folder, "store"), poison=True) as img:
        def seed_all(seed, other):
            img.set_rng_state(seed)
            if other is not None and "generator0" in img.generators():
                img.set_rng_state(other, name="generator0")

        for i, seed in enumerate(SEEDS):
            got = plain_sequence(img.launch, lambda key: bytes(img.read(f"y{key}")), seed_all, seed)
            results.append(compare(f"without torch, seed {seed}", got, saved(folder, f"want{i}0")))
        for key in {1, 6} & NAMES.keys():
            img.synchronize()
            began = time.perf_counter()
            for _ in range(1000):
                img.launch(key)
            took = time.perf_counter() - began
            img.synchronize()
            whole = time.perf_counter() - began
            print(f"launch of {NAMES[key]} without torch: {1000 * took:.2f} us to submit, "
                  f"{1000 * whole:.2f} us in all", flush=True)
    assert "torch" not in sys.modules
    assert all(results), results


def load_as_c(folder):
    """Loads by the C functions alone."""
    import ctypes
    with open(os.path.join(folder, "facts"), encoding="ascii") as f:
        sizes = {int(k): v for k, v in json.load(f)["bytes"].items()}
    lib = ctypes.CDLL(os.environ["FOUNDRY_LIBRARY"])
    lib.fdry_last_error.restype = ctypes.c_char_p
    store, img = ctypes.c_void_p(), ctypes.c_void_p()

    def call(name, *args):
        assert not getattr(lib, name)(*args), f"{name}: {lib.fdry_last_error().decode()}"

    call("fdry_store_open", os.path.join(folder, "store").encode(), 0, ctypes.byref(store))
    call("fdry_image_load", store, b"draws", None, ctypes.byref(img))

    def seed_all(seed, other):
        call("fdry_image_rng_seed", img, b"default", ctypes.c_uint64(seed))
        if other is not None:
            call("fdry_image_rng_seed", img, b"generator0", ctypes.c_uint64(other))

    def read(key):
        data = ctypes.create_string_buffer(sizes[key])
        call("fdry_image_read", img, f"y{key}".encode(), data, ctypes.c_size_t(sizes[key]), None)
        return data.raw

    results = []
    for i, seed in enumerate(SEEDS):
        got = plain_sequence(lambda key: call("fdry_image_launch", img, ctypes.c_uint64(key), None),
                             read, seed_all, seed)
        results.append(compare(f"as C does, seed {seed}", got, saved(folder, f"want{i}0")))
    lib.fdry_image_unload(img)
    assert all(results), results


def unknown(folder):
    """Tests that a graph with a generator that the capture does not know is refused or never
    captured, and that a graph declared as random without draws is refused.
    """
    import foundry
    import torch
    with foundry.Capture(name="unknown") as cap:
        hidden = torch.Generator(device="cuda")
        stream = torch.cuda.Stream()
        try:
            with cap.graph(1, stream=stream):
                torch.rand(100, device="cuda", generator=hidden)
            print("a generator that was not named: torch captured it, draws", cap.rng_uses)
        except RuntimeError as e:
            print("a generator that was not named: torch says:", str(e).splitlines()[0][:150])
        torch.cuda.synchronize()
        kept = []
        with cap.graph(2, stream=stream):
            kept.append(torch.ones(100, device="cuda"))
        foundry.capture.lib.fdry_capture_rng(cap._handle, 2)
        try:
            cap.seal(os.path.join(folder, "refused"), "unknown")
        except foundry.Error as e:
            assert e.name == "FDRY_E_REFUSED" and "random numbers" in str(e), str(e)
            print("refused:", e)
        else:
            raise AssertionError("not refused")


def multinomial(folder):
    """The same with a graph of multinomial alone."""
    inner = os.path.join(folder, "multinomial")
    os.mkdir(inner)
    os.environ["DRAWS"] = "3"
    assert all(parts.run(part, inner, limit=40)
               for part in ("capture", "load_with_torch", "load_without_torch"))


def whole():
    parts.need()
    with tempfile.TemporaryDirectory() as folder:
        return [parts.run(f.__name__, folder, limit=40) for f in PARTS]


PARTS = (capture, load_with_torch, load_without_torch, load_as_c, unknown, multinomial)

if __name__ == "__main__":
    parts.main(PARTS, whole)
