# SPDX-License-Identifier: Apache-2.0
"""Tests training of convolutional networks with batch norm: one process captures a step of SGD with
momentum, another continues the training without the model.

torchvision's resnet18 and resnet50 in training mode, whose batch norm by cuDNN passes a flag in
pinned memory. The loading process trains on the same batches: every loss, every weight, momentum
and running statistic must equal those of torch's own graph, bit for bit. torch's graph runs twice
from one state, so a difference between these runs would show that the graph itself is not
deterministic.
"""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "python"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import parts  # noqa: E402
import training  # noqa: E402
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
STEPS, ROWS, SIDE, CLASSES = 20, 8, 96, 10
MODELS = {1: "resnet18", 2: "resnet50"}


class Network:
    """A model, its optimizer, and the tensors that a step reads and writes."""

    def __init__(self, torch, name):
        import torchvision
        self.model = getattr(torchvision.models, name)(num_classes=CLASSES).cuda().train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.entropy = torch.nn.functional.cross_entropy
        self.x = torch.zeros(ROWS, 3, SIDE, SIDE, device="cuda")
        self.t = torch.zeros(ROWS, dtype=torch.int64, device="cuda")

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.entropy(self.model(self.x), self.t)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self):
        """Returns the tensors that a step changes, in a fixed order."""
        weights = list(self.model.parameters())
        momenta = [self.optimizer.state[p]["momentum_buffer"] for p in weights]
        return [t.detach() for t in weights + momenta + list(self.model.buffers())]

    def put_state(self, values):
        for tensor, value in zip(self.state(), values):
            tensor.copy_(value)


def batches(torch):
    numbers = torch.Generator().manual_seed(5)
    return [(torch.randn(ROWS, 3, SIDE, SIDE, generator=numbers),
             torch.randint(CLASSES, (ROWS,), generator=numbers)) for _ in range(STEPS)]


def train(torch, work, graph, loss):
    """Returns the losses of torch's graph, and the state after them."""
    losses = []
    for x, t in batches(torch):
        work.x.copy_(x)
        work.t.copy_(t)
        graph.replay()
        losses.append(training.data(loss))
    return losses, [training.data(t) for t in work.state()]


def reference(torch, folder, name, work, graph, loss):
    start = [t.clone() for t in work.state()]
    losses, end = train(torch, work, graph, loss)
    training.save(folder, name, "losses", losses)
    training.save(folder, name, "state", end)
    training.save(folder, name, "batches",
                  [training.data(v) for pair in batches(torch) for v in pair])
    work.put_state(start)
    again, end_again = train(torch, work, graph, loss)
    return [training.compare(f"{name}: torch's graph again, losses", again, losses),
            training.compare(f"{name}: torch's graph again, state", end_again, end)]


def capture(folder):
    import foundry
    import torch
    print("torch", torch.__version__, "cudnn", torch.backends.cudnn.version(), flush=True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    works, graphs, losses = {}, {}, {}
    store = os.path.join(folder, "store")
    with foundry.Capture(pinned=True) as cap:
        torch.manual_seed(7)
        stream = torch.cuda.Stream()
        for key, name in MODELS.items():
            works[key] = Network(torch, name)
            with torch.cuda.stream(stream):
                for _ in range(3):
                    works[key].step()
        torch.cuda.synchronize()
        for key, name in MODELS.items():
            work = works[key]
            work.optimizer.zero_grad(set_to_none=True)
            with cap.graph(key, name=name, stream=stream) as graphs[key]:
                losses[key] = work.step()
            cap.tensor(f"{name}.x", work.x)
            cap.tensor(f"{name}.t", work.t)
            cap.tensor(f"{name}.loss", losses[key], use="output")
            for i, tensor in enumerate(work.state()):
                cap.tensor(f"{name}.state{i}", tensor, use="state")
        sealed = cap.seal(store, "resnet")
        print("sealed", sealed.id[:12], sealed.nodes, "nodes", flush=True)
        pinned = [line for line in foundry.Store(store).describe("resnet").splitlines()
                  if line.startswith("pinned")]
        print(f"{len(pinned)} lines about pinned memory:", *pinned[:5], sep="\n", flush=True)
        good = [reference(torch, folder, name, works[key], graphs[key], losses[key])
                for key, name in MODELS.items()]
    assert all(map(all, good)), good
    assert pinned, "batch norm by cuDNN uses no pinned memory any more"


def load(folder):
    """Trains twice in one process, and restores the state in between."""
    import foundry
    good = []
    with foundry.load("resnet", store=os.path.join(folder, "store"), poison=True) as img:
        for turn in ("first", "after restore()"):
            for key, name in MODELS.items():
                rows, losses = training.saved(folder, name, "batches"), []
                for i in range(STEPS):
                    img.write(f"{name}.x", rows[2 * i])
                    img.write(f"{name}.t", rows[2 * i + 1])
                    img.launch(key)
                    losses.append(bytes(img.read(f"{name}.loss")))
                state = training.saved(folder, name, "state")
                good.append(training.compare(f"{name}, {turn}, losses", losses,
                                             training.saved(folder, name, "losses")))
                good.append(training.compare(f"{name}, {turn}, state",
                                             [bytes(img.read(f"{name}.state{i}"))
                                              for i in range(len(state))], state))
            img.restore()
    assert "torch" not in sys.modules
    assert all(good), good


def whole():
    parts.need()
    with tempfile.TemporaryDirectory() as folder:
        return [parts.run(f.__name__, folder) for f in PARTS]


PARTS = (capture, load)

if __name__ == "__main__":
    parts.main(PARTS, whole)
