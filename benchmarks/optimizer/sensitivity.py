"""How much SNOpt's settings matter: each is varied alone around the default, on digits.

Ten minutes on one core. ``--draw`` makes the figure and the table of docs/settings.md of what is
stored. 100 iterations of the tanh flow of ``benchmarks.optimizer.small`` with three seeds that no
default was chosen by. ``conv`` needs convolutions and has a small model of its own. A
run whose solve fails, or takes more than 200 steps, is counted as failed and has no figures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn
from torch.nn import functional

import snopt
from benchmarks.files import DOCS, RESULTS, environment, put, read, write
from benchmarks.optimizer.small import accuracy, digits, digits_model
from snopt import KroneckerOptions, SNOpt, UniformGrid
from snopt.lab.config import OptimizerConfig
from snopt.lab.optimizers import find, make_optimizers
from snopt.lab.paper.curves import clean
from snopt.lab.table import markdown
from snopt.models.fields import ConvField

SEEDS, ITERATIONS, LAST = (10, 11, 12), 100, 10
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
DEFAULT = "default"
RIVALS = ("adam", "soap", "muon")


FEW_STEPS = {"max_num_steps": 200}


def tanh_model() -> nn.Module:
    return digits_model(options=FEW_STEPS)


def conv_model() -> nn.Module:
    stem = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, 2, padding=1)]
    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10)]
    block = snopt.NeuralODE(ConvField(16), rtol=1e-3, atol=1e-3, options=FEW_STEPS)
    return nn.Sequential(*stem, block, nn.ReLU(), *head)


def rival(name: str, rate: float) -> Callable[[nn.Module], Any]:
    """An optimizer of the laboratory with its usual settings."""
    return lambda model: make_optimizers(model, OptimizerConfig(name, lr=rate))


def installed(name: str) -> bool:
    """Whether the package of an optimizer is there; says so if it is not."""
    try:
        rival(name, 0.1)(nn.Linear(1, 1))
    except ImportError as missing:
        print(f"{name} is left out: {missing}")
        return False
    return True


def ours(**settings: Any) -> Callable[[nn.Module], Any]:
    return lambda model: SNOpt(model, **settings)


def factors(**options: Any) -> Callable[[nn.Module], Any]:
    return ours(curvature=KroneckerOptions(**options))


def settings() -> dict[str, dict[str, Callable[[nn.Module], Any]]]:
    """The optimizers of each setting, by value."""
    amortized = {"rule": "amortized"}
    loss = {"loss": "cross_entropy"}
    return {
        DEFAULT: {"": ours()},
        "lr": {f"{v:g}": ours(lr=v) for v in RATES},
        **{
            f"lr of {find(name).label}": {f"{v:g}": rival(name, v) for v in RATES}
            for name in RIVALS
            if installed(name)
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
    task = digits()
    torch.manual_seed(seed)
    model = build()
    made = make(model)
    optimizers = made if isinstance(made, list) else [made]
    losses, start = [], time.process_time()
    try:
        for (x, y), _ in zip(task.batches(seed), range(iterations), strict=False):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(float(loss.detach()))
        seconds = time.process_time() - start
        right = accuracy(model, *task.test)
    except snopt.SolveError:
        return None
    return {"loss": mean(losses[-LAST:]), "accuracy": right, "seconds": round(seconds, 2)}


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
    return {"seeds": SEEDS, "iterations": iterations, "environment": environment(), "rows": rows}


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


def draw(rows: list[dict[str, Any]]) -> None:
    """Loss and accuracy against the learning rate."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    panels = figure.subplots(1, 2)
    curves = {"lr": "SNOpt", "lr of `rule='amortized'`": "SNOpt, amortized"}
    curves |= {f"lr of {find(name).label}": find(name).label for name in RIVALS}
    known = {row["setting"] for row in rows}
    curves = {setting: label for setting, label in curves.items() if setting in known}
    names = (f"training loss, last {LAST} of {ITERATIONS}", "test accuracy, %")
    for panel, what, name in zip(panels, ("loss", "accuracy"), names, strict=True):
        for setting, label in curves.items():
            found = [row for row in rows if row["setting"] == setting and what in row]
            rates = [float(row["value"]) for row in found]
            each = [row[what]["each"] for row in found]
            (line,) = panel.plot(rates, [mean(figures) for figures in each], "o-", label=label)
            low, high = [min(figures) for figures in each], [max(figures) for figures in each]
            panel.fill_between(rates, low, high, alpha=0.15, color=line.get_color())
        clean(panel, "learning rate", name)
        panel.set_xscale("log")
    panels[0].set_yscale("log")
    panels[0].legend()
    figure.savefig(DOCS / "sensitivity.png", dpi=110)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--draw", action="store_true", help="figure and table, no measurement")
    parser.add_argument("--only", nargs="+", help="only these settings", choices=settings())
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--out", type=Path, default=RESULTS / "sensitivity.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure, or draw what was measured."""
    if not chosen.draw:
        write(chosen.out, measure(chosen.iterations, chosen.only))
        return
    rows = read(chosen.out)["rows"]
    put(DOCS / "optimizer.md", {"sensitivity": table(rows)})
    draw(rows)
