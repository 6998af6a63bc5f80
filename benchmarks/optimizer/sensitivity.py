"""Sensitivity to SNOpt's settings: each is varied alone around the default, on digits.

Ten minutes on one core. ``--draw`` writes the figure and the table of docs/optimizer.md from the
stored results. scikit-learn's 8x8 digits through a three-layer tanh field, 100 iterations with
three seeds that no default was chosen by. ``conv`` needs convolutions and has its own small model.
A run whose solve fails, or takes more than 200 steps, counts as failed and has no values.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import cache, partial
from itertools import islice
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import snopt
from benchmarks.files import DOCS, RESULTS, put, read, save, save_figure
from benchmarks.optimizer.tasks import installed, registered
from benchmarks.optimizer.worker import batches
from snopt import KroneckerOptions, SNOpt, UniformGrid
from snopt.lab.optimizers import find
from snopt.lab.optimizers.registry import PALETTE
from snopt.lab.paper.curves import clean, lines
from snopt.lab.table import markdown
from snopt.models.fields import ConvField, TanhField

SEEDS, ITERATIONS, LAST, BATCH = (10, 11, 12), 100, 10, 128
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
DEFAULT = "default"
RIVALS = ("adam", "soap", "muon")
FEW_STEPS = {"max_num_steps": 200}


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Return pixels between 0 and 1, as vectors of 64, and labels; shuffled."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return torch.from_numpy(x / 16.0).float()[order], torch.from_numpy(y)[order]


def tanh_model() -> nn.Module:
    field = TanhField(64, depth=3)
    block = snopt.NeuralODE(field, rtol=1e-3, atol=1e-3, options=FEW_STEPS)
    return nn.Sequential(block, nn.Linear(64, 10))


def conv_model() -> nn.Module:
    stem = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, 2, padding=1)]
    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10)]
    block = snopt.NeuralODE(ConvField(16), rtol=1e-3, atol=1e-3, options=FEW_STEPS)
    return nn.Sequential(*stem, block, nn.ReLU(), *head)


def ours(**settings: Any) -> Callable[[nn.Module], Any]:
    return lambda model: [SNOpt(model, **settings)]


def factors(**options: Any) -> Callable[[nn.Module], Any]:
    return ours(curvature=KroneckerOptions(**options))


def settings() -> dict[str, dict[str, Callable[[nn.Module], Any]]]:
    """Return the optimizers of each setting, by value."""
    amortized = {"rule": "amortized"}
    loss = {"loss": "cross_entropy"}
    return {
        DEFAULT: {"": ours()},
        "lr": {f"{v:g}": ours(lr=v) for v in RATES},
        **{
            f"lr of {find(name).label}": {f"{v:g}": partial(registered, name, lr=v) for v in RATES}
            for name in installed(RIVALS)
        },
        "lr of `rule='amortized'`": {f"{v:g}": ours(lr=v, **amortized) for v in RATES},
        "lr of `rule='kronecker'`": {f"{v:g}": ours(lr=v, rule="kronecker") for v in RATES},
        "rule": {v: ours(rule=v) for v in ("amortized", "kronecker")},
        "refresh_first, refresh_every": {
            f"{a}, {b}": ours(refresh_first=a, refresh_every=b)
            for a, b in ((1, 1), (5, 5), (20, 100), (100, 100))
        },
        "damping": {f"{v:g}": ours(damping=v) for v in (1e-5, 1e-3, 1e-2)},
        "damping of `rule='amortized'`": {
            f"{v:g}": ours(damping=v, **amortized) for v in (0.01, 0.2)
        },
        "momentum": {f"{v:g}": ours(momentum=v) for v in (0.0, 0.5, 0.95)},
        "decay": {f"{v:g}": ours(decay=v) for v in (0.9, 0.99, 0.9999)},
        "weight_decay": {f"{v:g}": ours(weight_decay=v) for v in (0.0, 0.1, 1.0, 3.0)},
        "averaging": {f"{v:g}": factors(averaging=v) for v in (0.0, 0.5, 0.97)},
        "terminal": {v: factors(terminal=v, **loss) for v in ("sampled", "ggn")},
        "quadrature": {f"UniformGrid({n})": factors(quadrature=UniformGrid(n)) for n in (3, 30)},
        "scope": {"ode": ours(scope="ode")},
        "fallback_lr with `scope='ode'`": {
            f"{v:g}": ours(scope="ode", fallback_lr=v) for v in (1e-3, 2e-2)
        },
        "conv, convolutional model": {v: factors(conv=v) for v in ("per_axis", "kfc")},
    }


def run(
    make: Callable[[nn.Module], Any], build: Callable[[], nn.Module], seed: int, iterations: int
) -> dict[str, float] | None:
    """Train once; None if a solve fails."""
    (x, y), train = digits(), 1500
    torch.manual_seed(seed)
    model = build()
    optimizers, losses = make(model), []
    start = time.process_time()
    try:
        for index in islice(batches(train, BATCH, 1000 + seed), iterations):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[index]), y[index])
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(float(loss.detach()))
        seconds = time.process_time() - start
        for optimizer in optimizers:
            if isinstance(optimizer, snopt.SNOpt):
                optimizer.eval()  # averaged weights
        model.eval()
        with torch.no_grad():
            right = (model(x[train:]).argmax(1) == y[train:]).double().mean()
    except snopt.SolveError:
        return None
    return {
        "loss": mean(losses[-LAST:]),
        "accuracy": 100 * float(right),
        "seconds": round(seconds, 2),
    }


def measure(iterations: int, only: list[str] | None) -> dict[str, Any]:
    """Vary every setting."""
    torch.set_num_threads(1)
    rows = []
    for setting, values in settings().items():
        if only and setting not in only:
            continue
        build = conv_model if setting.startswith("conv") else tanh_model
        for value, make in values.items():
            runs = [run(make, build, seed, iterations) for seed in SEEDS]
            done = [one for one in runs if one]
            row: dict[str, Any] = {"setting": setting, "value": value, "failed": runs.count(None)}
            for name in ("loss", "accuracy", "seconds") if done else ():
                figures = [one[name] for one in done]
                row[name] = {"mean": mean(figures), "each": figures}
                row[name]["sd"] = stdev(figures) if len(figures) > 1 else None
            rows.append(row)
            print({**row, **{k: v["mean"] for k, v in row.items() if type(v) is dict}}, flush=True)
    return {"seeds": SEEDS, "iterations": iterations, "rows": rows}


def spread(figures: dict[str, Any], digits: int) -> str:
    sd = "" if figures["sd"] is None else f" ± {figures['sd']:.{digits}f}"
    return f"{figures['mean']:.{digits}f}{sd}"


def table(rows: list[dict[str, Any]]) -> str:
    lines, last = [], ""
    for row in rows:
        name = row["setting"] if row["setting"] != last else ""
        last = row["setting"]
        figures = ["–", "–"]
        if "loss" in row:
            figures = [spread(row["loss"], 4), spread(row["accuracy"], 1)]
        failed = f"{row['failed']} of {len(SEEDS)} failed" if row["failed"] else ""
        lines.append([name, row["value"], *figures, failed])
    return markdown(["setting", "value", "training loss", "test accuracy, %", ""], lines)


CURVES = {
    "lr": "SNOpt",
    "lr of `rule='amortized'`": "SNOpt, paper's rule",
    "lr of Adam": "Adam",
    "lr of SOAP": "SOAP",
    "lr of Muon": "Muon",
}
COLOURS = {"SNOpt": PALETTE[0], "SNOpt, paper's rule": PALETTE[1]}
BAND = {"mean": mean, "below": min, "above": max}
CHANCE = 2.4
"""A little above the loss of guessing among ten classes; what is higher is not shown."""


def draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    """Draw loss and accuracy against the learning rate, with bands over seeds."""
    figure.set_size_inches(10, 3.6)
    loss, accuracy = figure.subplots(1, 2)
    loss.set(xscale="log", yscale="log", ylim=(2e-3, CHANCE))
    accuracy.set(xscale="log", ylim=(0, 103))
    title = f"training loss, mean of the last {LAST} of {ITERATIONS} updates"
    for panel, what, name in ((loss, "loss", title), (accuracy, "accuracy", "test accuracy, %")):
        found = {label: curve(rows, setting, what) for setting, label in CURVES.items()}
        clean(panel, "learning rate", title=name)
        lines(panel, found, "rate", COLOURS)
        for line in panel.get_lines():
            line.set(
                marker="o", markersize=4, linewidth=2.4 if line.get_label() == "SNOpt" else 1.3
            )


def curve(rows: list[dict[str, Any]], setting: str, what: str) -> dict[str, list[float]] | None:
    """Return the curve of a setting with its range over seeds; None if it was not measured."""
    found = [row for row in rows if row["setting"] == setting and what in row]
    if not found:
        return None
    each = [row[what]["each"] for row in found]
    curve = {name: list(map(of, each)) for name, of in BAND.items()}
    return {"rate": [float(row["value"]) for row in found], **curve}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--draw", action="store_true", help="figure and table, no measurement")
    parser.add_argument("--only", nargs="+", help="only these settings", choices=settings())
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--out", type=Path, default=RESULTS / "sensitivity.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure, or draw the stored results."""
    if not chosen.draw:
        save(chosen.out, measure(chosen.iterations, chosen.only))
        return
    rows = read(chosen.out)["rows"]
    put(DOCS / "optimizer.md", {"sensitivity": table(rows)})
    save_figure(DOCS / "sensitivity.png", partial(draw, rows=rows))
