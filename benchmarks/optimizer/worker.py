"""What a process of :mod:`benchmarks.optimizer.releases` does: train a model with its tree.

Old versions of the package work too: only models, ``snopt.NeuralODE`` and ``snopt.SNOpt`` with
default settings are used, and nothing of the laboratory.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import snopt

POINTS = 20
"""How often a run is evaluated: often at first, as points k have (k / POINTS)² of the budget."""
COLUMNS = ("updates", "seconds", "evaluations", "loss", "valid_loss", "accuracy")
"""What is known at a point. Evaluations are those of the field; the training loss is a mean since
the point before; a density has no accuracy."""

Examples = dict[str, Tensor]
Described = tuple[str, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """One run, in tensors, numbers and names that every tree can read.

    Attributes:
        model: name and arguments, for :func:`build`.
        weights: its state before training.
        train: tensors of the examples by name; ``times`` holds for all, the others have rows.
        valid: examples to evaluate with.
        batch_size: examples per update.
        seed: decides batches and noise.
        rate: learning rate of torch's Adam; None for SNOpt with default settings.
        budget: ``"updates"`` or ``"seconds"``, and how many.
    """

    model: Described
    weights: dict[str, Tensor]
    train: Examples
    valid: Examples
    batch_size: int
    seed: int
    rate: float | None
    budget: tuple[str, float]


def trained(run: Run) -> dict[str, Any]:
    """Return rows of ``COLUMNS`` at each point of a run, and why it failed if it did."""
    found: dict[str, Any] = {"curve": []}
    try:
        for row in follow(run):
            short = {name: float(f"{value:.5g}") for name, value in row.items()}
            found["curve"].append([short.get(name) for name in COLUMNS])
    except Exception as error:  # noqa: BLE001 - an older tree may fail in any way
        found["failed"] = f"{type(error).__name__}: {error}"
    return found


def follow(run: Run) -> Iterator[dict[str, float]]:
    """Train, and yield what is known before the first update and at every point after it."""
    model = build(*run.model)
    model.load_state_dict(run.weights)
    torch.manual_seed(run.seed)
    adam = run.rate is not None
    optimizer = torch.optim.Adam(model.parameters(), run.rate) if adam else snopt.SNOpt(model)
    used, losses = {"updates": 0, "seconds": 0.0, "evaluations": 0}, []
    unit, amount = run.budget
    point = 1
    yield {**used, **evaluated(model, optimizer, run.valid)}
    for index in batches(len(run.train["x"]), run.batch_size, run.seed):
        batch = {name: rows(name, run.train, index) for name in run.train}
        before = evaluations(model)
        start = time.process_time()
        optimizer.zero_grad()
        loss = criterion(model, batch)[0]
        loss.backward()
        optimizer.step()
        used["seconds"] += time.process_time() - start
        used["updates"] += 1
        used["evaluations"] += evaluations(model) - before
        losses.append(float(loss.detach()))
        done = used[unit] / amount
        if done >= (point / POINTS) ** 2:
            yield {**used, "loss": fmean(losses), **evaluated(model, optimizer, run.valid)}
            losses.clear()
            point = int(POINTS * done**0.5) + 1
        if done >= 1:
            return


def build(name: str, args: tuple[Any, ...], settings: dict[str, Any]) -> nn.Module:
    """Create a model: a class of ``snopt.models``, or ``"flow"`` or ``"image"`` from parts."""
    own = {"flow": flow, "image": image}.get(name)
    return (own or getattr(import_module("snopt.models"), name))(*args, **settings)


def flow(size: int, width: int, depth: int, classes: int, **settings: Any) -> nn.Module:
    """Create a block on the examples and a linear read-out."""
    field = import_module("snopt.models").TanhField(size, width, depth)
    block, readout = snopt.NeuralODE(field, **settings), nn.Linear(size, classes)
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), block=block, readout=readout))


def image(channels: int, classes: int, width: int, **settings: Any) -> nn.Module:
    """Create the image classifier of today: in the first versions, its stem has biases."""
    sizes = ((channels, 3, 1, 0), (width, 4, 2, 1), (width, 4, 2, 1))
    first, *others = (nn.Conv2d(c, width, *shape, bias=False) for c, *shape in sizes)
    stem = nn.Sequential(first, *(part for conv in others for part in (nn.ReLU(), conv)))
    block = snopt.NeuralODE(import_module("snopt.models").ConvField(width), **settings)
    readout = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
    head = nn.Sequential(nn.ReLU(), *readout)
    return nn.Sequential(OrderedDict(stem=stem, block=block, head=head))


def batches(count: int, size: int, seed: int) -> Iterator[Tensor]:
    """Yield indices of batches of shuffled epochs without end; a short last batch is dropped."""
    generator, size = torch.Generator().manual_seed(seed), min(size, count)
    while True:
        order = torch.randperm(count, generator=generator)
        yield from order[: count - count % size].split(size)


def rows(name: str, examples: Examples, index: Tensor) -> Tensor:
    """Return the rows of a tensor of examples; times have none."""
    return examples[name] if name == "times" else examples[name][index]


def criterion(model: nn.Module, examples: Examples) -> tuple[Tensor, Tensor | None]:
    """Return the loss, and the scores unless the model is a density."""
    if "y" not in examples:
        return model.loss(examples["x"]), None
    about = {name: tensor for name, tensor in examples.items() if name not in ("x", "y")}
    scores = model(examples["x"], **about)
    return functional.cross_entropy(scores, examples["y"]), scores


def evaluated(
    model: nn.Module, optimizer: torch.optim.Optimizer, examples: Examples
) -> dict[str, float]:
    """Return the loss and the accuracy, with averaged weights if the optimizer has them."""
    both = [part for part in (model, optimizer) if hasattr(part, "eval")]
    for part in both:
        part.eval()
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # the same noise at every point
        loss, scores = criterion(model, examples)
    for part in both:
        part.train()
    found = {"valid_loss": float(loss)}
    if scores is not None:
        found["accuracy"] = float((scores.argmax(1) == examples["y"]).double().mean())
    return found


def evaluations(model: nn.Module) -> int:
    """Return how often the fields of a model were evaluated."""
    blocks = (module for module in model.modules() if isinstance(module, snopt.NeuralODE))
    return sum(block.totals.nfe_forward + block.totals.nfe_backward for block in blocks)
