# SPDX-License-Identifier: Apache-2.0
"""Tests a training loop: one process captures a step with dropout, backward and optimizer; others
continue the training.

Two models, one stepped by SGD with momentum and one by Adam. The capturing process seals, replays a
hundred batches with torch's own graphs, and does the same eagerly from the same state. Loading
processes, with torch and without, train from the image on the same batches. Every loss, every
weight and the optimizers' state must equal those of torch's graphs, bit for bit. Eager steps may
choose other matrix kernels, so they are compared within a tolerance, and the difference is printed.
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
import parts  # noqa: E402
STEPS, ROWS, WIDE, HIDDEN, OUT = 100, 32, 64, 128, 16
SEED = 4321
TOLERANCE = 1e-3  # of the largest value of a tensor
MODELS = {1: "sgd", 2: "adam"}


class Training:
    """A model, its optimizer, and the tensors that a step reads and writes."""

    def __init__(self, torch, which):
        self.model = torch.nn.Sequential(
            torch.nn.Linear(WIDE, HIDDEN), torch.nn.ReLU(), torch.nn.Dropout(0.25),
            torch.nn.Linear(HIDDEN, OUT)).cuda()
        params = self.model.parameters()
        self.optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.9) if which == "sgd" else \
            torch.optim.Adam(params, lr=0.01, capturable=True)
        self.mse = torch.nn.functional.mse_loss
        self.x = torch.zeros(ROWS, WIDE, device="cuda")
        self.t = torch.zeros(ROWS, OUT, device="cuda")

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.mse(self.model(self.x), self.t)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self):
        """Returns the tensors that a step changes, in a fixed order."""
        found = list(self.model.parameters())
        for p in self.model.parameters():
            kept = self.optimizer.state[p]
            found += [kept[name] for name in sorted(kept) if hasattr(kept[name], "data_ptr")]
        return [t.detach() for t in found]

    def put_state(self, values):
        for tensor, value in zip(self.state(), values):
            tensor.copy_(value)


def batches(torch):
    numbers = torch.Generator().manual_seed(3)
    weights = torch.randn(WIDE, OUT, generator=numbers) / WIDE ** 0.5
    made = []
    for _ in range(STEPS):
        x = torch.randn(ROWS, WIDE, generator=numbers)
        made.append((x, x @ weights))
    return made


def data(tensor):
    return tensor.detach().cpu().contiguous().numpy().tobytes()


def train(torch, x, t, step):
    """Returns the losses of a hundred steps, each read before the next step."""
    torch.cuda.manual_seed(SEED)
    losses = []
    for inputs, wanted in batches(torch):
        x.copy_(inputs.pin_memory(), non_blocking=True)
        t.copy_(wanted.pin_memory(), non_blocking=True)
        losses.append(step().clone())
    torch.cuda.synchronize()
    return losses


def path(folder, which, what):
    return os.path.join(folder, f"{which}.{what}")


def save(folder, which, what, rows):
    with open(path(folder, which, what), "wb") as f:
        for row in rows:
            f.write(len(row).to_bytes(8, "little") + row)


def saved(folder, which, what):
    rows = []
    with open(path(folder, which, what), "rb") as f:
        while head := f.read(8):
            rows.append(f.read(int.from_bytes(head, "little")))
    return rows


def compare(what, got, want):
    wrong = [i for i, (a, b) in enumerate(zip(got, want)) if a != b]
    same = len(got) == len(want) and not wrong
    print(f"{what}: {len(got)} of {len(want)}, {len(set(got))} distinct, "
          f"{'equal' if same else f'{len(wrong)} differ, the first is number {wrong[:1]}'}",
          flush=True)
    return same


def near(torch, what, got, want):
    """Returns whether eager results equal those of the graph except for rounding."""
    off = [((a - b).abs().max() / b.abs().max().clamp(min=1e-6)).item() for a, b in zip(got, want)]
    exact = sum(torch.equal(a, b) for a, b in zip(got, want))
    print(f"{what}: {exact} of {len(off)} equal to the bit, largest difference {max(off):.3g}",
          flush=True)
    return max(off) <= TOLERANCE


def reference(torch, folder, which, work, graph, loss):
    """Writes the results of torch's own graph from the sealed state to files, and returns whether
    eager steps agree.
    """
    start = [t.clone() for t in work.state()]

    def replay():
        graph.replay()
        return loss

    losses = train(torch, work.x, work.t, replay)
    end = [t.clone() for t in work.state()]
    assert losses[-1] < losses[0] / 2, "nothing was learnt"
    save(folder, which, "losses", [data(v) for v in losses])
    save(folder, which, "state", [data(v) for v in end])
    save(folder, which, "batches", [data(v) for pair in batches(torch) for v in pair])
    work.put_state(start)
    eager = train(torch, work.x, work.t, work.step)
    return near(torch, f"{which}: eager losses", eager, losses) \
        and near(torch, f"{which}: eager state", work.state(), end)


def capture(folder):
    import foundry
    import torch
    print("torch", torch.__version__, "cuda", torch.version.cuda, flush=True)
    works, graphs, losses = {}, {}, {}
    with foundry.Capture() as cap:
        torch.manual_seed(7)
        stream = torch.cuda.Stream()
        for key, which in MODELS.items():
            works[key] = Training(torch, which)
            with torch.cuda.stream(stream):
                for _ in range(3):
                    works[key].step()
        torch.cuda.synchronize()
        for key, which in MODELS.items():
            work = works[key]
            work.optimizer.zero_grad(set_to_none=True)
            with cap.graph(key, name=which, stream=stream) as graphs[key]:
                losses[key] = work.step()
            cap.tensor(f"{which}.x", work.x)
            cap.tensor(f"{which}.t", work.t)
            cap.tensor(f"{which}.loss", losses[key], use="output")
            for i, tensor in enumerate(work.state()):
                cap.tensor(f"{which}.state{i}", tensor, use="state")
        sealed = cap.seal(os.path.join(folder, "store"), "training")
        print("sealed", sealed.id[:12], sealed.nodes, "nodes, draws",
              {k: sorted(v) for k, v in cap.rng_uses.items()}, flush=True)
        good = [reference(torch, folder, which, works[key], graphs[key], losses[key]) for key,
                which in MODELS.items()]
    assert all(good), good


def load_with_torch(folder):
    import foundry
    img = foundry.load("training", store=os.path.join(folder, "store"), poison=True)
    import torch
    torch.cuda.init()
    results = []
    for key, which in MODELS.items():
        x, t, loss = (torch.from_dlpack(img[f"{which}.{name}"]) for name in ("x", "t", "loss"))

        def step(key=key, loss=loss):
            img.launch(key, torch.cuda.current_stream())
            return loss

        losses = train(torch, x, t, step)
        state = saved(folder, which, "state")
        results.append(compare(f"{which} with torch, losses", [data(v) for v in losses],
                               saved(folder, which, "losses")))
        results.append(compare(f"{which} with torch, state",
                               [bytes(img.read(f"{which}.state{i}")) for i in range(len(state))],
                               state))
        del x, t, loss, step
    img.close()
    assert all(results), results


def load_without_torch(folder):
    """Trains twice in one process, and restores the state in between."""
    import foundry
    results = []
    with foundry.load("training", store=os.path.join(folder, "store"), poison=True) as img:
        for turn in ("first", "after restore()"):
            img.set_rng_state(SEED)
            for key, which in MODELS.items():
                rows, losses = saved(folder, which, "batches"), []
                img.set_rng_state(SEED)
                for i in range(STEPS):
                    img.write(f"{which}.x", rows[2 * i])
                    img.write(f"{which}.t", rows[2 * i + 1])
                    img.launch(key)
                    losses.append(bytes(img.read(f"{which}.loss")))
                state = saved(folder, which, "state")
                results.append(compare(f"{which} without torch, {turn}, losses", losses,
                                       saved(folder, which, "losses")))
                results.append(compare(f"{which} without torch, {turn}, state",
                                       [bytes(img.read(f"{which}.state{i}"))
                                        for i in range(len(state))], state))
            img.restore()
    assert "torch" not in sys.modules
    assert all(results), results


def whole():
    parts.need()
    with tempfile.TemporaryDirectory() as folder:
        return [parts.run(f.__name__, folder) for f in PARTS]


PARTS = (capture, load_with_torch, load_without_torch)

if __name__ == "__main__":
    parts.main(PARTS, whole)
