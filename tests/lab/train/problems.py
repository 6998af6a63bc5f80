"""A small task: points on a plane, two classes, a NeuralODE with noise in it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from snopt.adjoint import NeuralODE
from snopt.horizon import HorizonOptimizer
from snopt.lab.train import Parts, TrainConfig, load_checkpoint, read_records, seed_all, train
from snopt.optim import SNOpt


class Batch(NamedTuple):
    x: Tensor
    y: Tensor


class Points:
    """Two noisy half circles; the examples of any size are the first ones of the largest."""

    def __init__(self, count: int, seed: int = 0) -> None:
        draw = torch.Generator().manual_seed(seed)
        angle = torch.rand(count, generator=draw, dtype=torch.float64) * torch.pi
        self.y = torch.arange(count) % 2
        side = 1.0 - 2.0 * self.y
        x = torch.stack([angle.cos() + 0.5 * self.y, side * angle.sin() + 0.3 * self.y], dim=1)
        self.x = x + 0.1 * torch.randn(count, 2, generator=draw, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, indices: Tensor) -> Batch:
        return Batch(self.x[indices], self.y[indices])


class Moons:
    name, metric, mode = "moons", "accuracy", "max"

    def __init__(self, train: int = 60, valid: int = 30, test: int = 30) -> None:
        self.train, self.valid, self.test = Points(train), Points(valid, 1), Points(test, 2)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return functional.cross_entropy(model(batch.x), batch.y)

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        scores = model(batch.x)
        right = (scores.argmax(1) == batch.y).double().mean()
        return {"loss": functional.cross_entropy(scores, batch.y), "accuracy": right}


class Field(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, width), nn.Linear(width, 2)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


def small_model(dropout: float = 0.1, **solver) -> nn.Sequential:
    block = NeuralODE(Field(6), **solver)
    return nn.Sequential(block, nn.Dropout(dropout), nn.Linear(2, 2)).double()


def make_parts(kind: str, dropout: float = 0.1, **solver) -> Parts:
    """Parts by the name of an optimizer; the weights are the same every time."""
    seed_all(0, "weights")
    model = small_model(dropout, **solver)
    params = list(model.parameters())
    if kind == "mixed":
        inner = list(model[0].parameters())
        pair = [torch.optim.SGD(inner, lr=0.1), torch.optim.Adam(model[2].parameters(), lr=0.02)]
        return Parts(model, pair)
    if kind == "horizon":
        learner = HorizonOptimizer(model, lr=0.1, every=3)
        return Parts(model, torch.optim.Adam(params, lr=0.02), horizon=learner)
    if kind == "scheduled":
        sgd = torch.optim.SGD(params, lr=0.1, momentum=0.9)
        decays = torch.optim.lr_scheduler.MultiStepLR(sgd, [4, 8], gamma=0.5)
        return Parts(model, sgd, schedulers=[decays])
    makers = {
        "snopt": lambda: SNOpt(model, lr=0.05, refresh_every=3),
        "amortized": lambda: SNOpt(model, rule="amortized", lr=0.05, refresh_every=3),
        "adam": lambda: torch.optim.Adam(params, lr=0.02),
        "sgd": lambda: torch.optim.SGD(params, lr=0.1, momentum=0.9),
        "lbfgs": lambda: torch.optim.LBFGS(params, lr=0.5, max_iter=3),
    }
    return Parts(model, makers[kind]())


TIMING = {"seconds", "cpu_seconds", "memory_mb", "time"}


def timeless(folder: Path) -> list[dict]:
    """The records without what differs from run to run: times, memory, starts."""
    return [
        {name: value for name, value in record.items() if name not in TIMING | {"message"}}
        for record in read_records(folder)
        if record["kind"] != "start"
    ]


def assert_same_records(one: Path, other: Path) -> None:
    """The records agree, apart from times and memory."""
    assert timeless(one) == timeless(other)


def assert_same_state(one: Path, other: Path) -> None:
    """The latest checkpoints and the best models agree bit for bit, time and identity apart."""
    for best in (False, True):
        first, second = (load_checkpoint(folder, best=best) for folder in (one, other))
        assert first is not None
        for state in (first, second):
            assert len(state.pop("run")) == 32
            for time in ("seconds", "cpu_seconds"):
                state.get("progress", {}).pop(time, None)
        assert_equal(first, second)


def assert_equal(a: object, b: object, where: str = "") -> None:
    assert type(a) is type(b), where
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype, where
        assert torch.equal(a, b), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_equal(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_equal(x, y, f"{where}/{i}")
    else:
        assert a == b, where


class At:
    """A listener that does something when an iteration has been recorded."""

    def __init__(self, iteration: int, action) -> None:
        self.iteration, self.action = iteration, action

    def on_start(self, total, config) -> None: ...

    def on_record(self, record) -> None:
        if record["kind"] == "step" and record["iteration"] == self.iteration:
            self.action()

    def on_end(self, outcome) -> None: ...


def interrupt_at(iteration: int) -> At:
    return At(iteration, lambda: signal.raise_signal(signal.SIGINT))


def crash_at(iteration: int) -> At:
    def crash() -> None:
        raise RuntimeError("a crash")

    return At(iteration, crash)


CONFIG = TrainConfig(iterations=12, batch_size=20, evaluate_every=5, checkpoint_every=4, keep=2)


def main() -> int:
    """Train in a process of its own: ``python problems.py FOLDER KIND ITERATIONS [PARTS...]``."""
    torch.set_num_threads(1)
    folder, kind, iterations = sys.argv[1], sys.argv[2], int(sys.argv[3])
    solver = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    config = TrainConfig(
        iterations=iterations, batch_size=20, evaluate_every=5, checkpoint_every=3, keep=2
    )
    if os.environ.get("RANK", "0") == "0":
        print("ready", flush=True)
    outcome = train(Moons(), make_parts(kind, **solver), config, folder, resume=True)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
