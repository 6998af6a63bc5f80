"""Learning the horizon on images: T, time an iteration, evaluations and accuracy.

    SNOPT_DATA=... python -m benchmarks.theory horizon     # MNIST, from 1 and from 0.05
    SNOPT_DATA=... python -m benchmarks.theory horizon --tasks cifar10 --set optimizer.name=snopt
    python -m benchmarks.theory horizon --plot          # the picture and the table in the docs

The item ``adap-t1`` of ``snopt paper`` with a narrower model and one more arm. Four arms start from
the same weights and see the same batches: T fixed, the second-order feedback policy and the
first-order baseline with the penalties of the authors' scripts, and HorizonOptimizer with its
defaults. Times are CPU seconds. Adam trains the parameters. Accuracies are on test images.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.files import DOCS, RESULTS, environment, put, read, save_figure
from benchmarks.optimizer.standings import grouped
from snopt.lab.config import Experiment, HorizonConfig, HorizonPolicy, OptimizerConfig
from snopt.lab.optimizers.registry import PALETTE
from snopt.lab.paper.curves import clean, cpu_table, lines
from snopt.lab.paper.items.horizon import PENALTIES
from snopt.lab.recipes import recipe, with_settings
from snopt.lab.recipes import run as train
from snopt.lab.report.read import read_run
from snopt.lab.table import markdown
from snopt.lab.train.folder import write_json

ARMS: dict[str, HorizonPolicy] = {
    "fixed": "fixed", "feedback": "feedback", "gradient": "gradient", "defaults": "feedback",
}  # fmt: skip
TASKS = {"mnist": "MNIST", "cifar10": "CIFAR-10 (part)"}
MEANS = ("nfe_forward", "nfe_backward", "loss")
TESTED = 2000


def configured(task: str, arm: str, start: float, seed: int, settings: Sequence[str]) -> Experiment:
    """Describe one arm."""
    config = recipe(task, "adam")
    horizon = HorizonConfig(ARMS[arm])
    if arm != "defaults":
        horizon = replace(horizon, lr=0.1, penalty=PENALTIES[start], every=10)
    config = replace(
        config,
        # All training images; evaluated on test images along the run.
        data=replace(config.data, hold_out=False, valid_examples=TESTED, test_examples=0),
        model=replace(config.model, width=16),
        solver=replace(config.solver, horizon=start),
        optimizer=OptimizerConfig("adam", lr=3e-3),
        train=replace(
            config.train, seed=seed, batch_size=128, iterations=300, epochs=None, evaluate_every=25
        ),
        horizon=horizon,
    )
    return with_settings(config, settings)


def curve_of(folder: Path, start: float) -> list[dict[str, float]]:
    """Read a run: means between two evaluations, and the accuracy."""
    run = read_run(folder)
    tables = {name: run.records.steps.table(name) for name in ("horizon", *MEANS)}
    found, before, began = [], 0.0, 0.0
    for iteration, ended, accuracy in cpu_table(run, "valid", "accuracy"):
        if not iteration:
            continue
        since = {n: t[(t[:, 0] > before) & (t[:, 0] <= iteration), 2] for n, t in tables.items()}
        found.append(
            {
                "iteration": int(iteration),
                "horizon": float(since["horizon"][-1]) if len(since["horizon"]) else start,
                "seconds": float((ended - began) / (iteration - before)),
                "accuracy": 100.0 * float(accuracy),
                **{name: float(since[name].mean()) for name in MEANS},
            }
        )
        before, began = iteration, ended
    return found


def run(task: str, start: float, seed: int, settings: Sequence[str]) -> dict[str, Any]:
    """Train the arms."""
    curves = {}
    for arm in ARMS:
        with tempfile.TemporaryDirectory() as folder:
            train(configured(task, arm, start, seed, settings), folder)
            curves[arm] = curve_of(Path(folder), start)
        last = curves[arm][-1]
        print(f"{task} {arm:8} T {last['horizon']:.3f} {last['accuracy']:.1f}%", flush=True)
    return {
        "task": task,
        "start": start,
        "seed": seed,
        "settings": settings,
        "arms": curves,
        "environment": environment(),
    }


def seconds_of(curve: list[dict[str, float]]) -> float:
    """Return the CPU seconds of a whole training."""
    steps = np.diff([0, *(point["iteration"] for point in curve)])
    return float(np.dot(steps, [point["seconds"] for point in curve]))


# -------------------------------------------------------------------------------- page

PANELS = {
    "horizon": "T",
    "nfe_forward": "evaluations forward",
    "seconds": "CPU seconds an iteration",
    "accuracy": "test accuracy [%]",
}


def titled(result: dict[str, Any]) -> str:
    """Name task and start of a run; those of one name differ by their seeds."""
    return f"{TASKS[result['task']]}, T from {result['start']:g}"


def draw(figure: Any, results: list[dict[str, Any]]) -> None:
    """Draw means over seeds, and the range of the seeds around them."""
    groups = grouped(results, titled)
    figure.set_size_inches(13, 2.8 * len(groups))
    axes = figure.subplots(len(groups), len(PANELS), squeeze=False)
    for row, (title, runs) in zip(axes, groups.items(), strict=True):
        for axis, (key, name) in zip(row, PANELS.items(), strict=True):
            found = {}
            for arm in ARMS:
                values = np.array([[p[key] for p in run["arms"][arm]] for run in runs])
                found[arm] = {
                    "iteration": [p["iteration"] for p in runs[0]["arms"][arm]],
                    "mean": values.mean(0), "below": values.min(0), "above": values.max(0),
                }  # fmt: skip
            lines(axis, found, "iteration", dict(zip(ARMS, PALETTE[::2], strict=True)))
            clean(axis, "iteration", name, title if axis is row[0] else "")


def table(results: list[dict[str, Any]]) -> str:
    """Means over seeds, accuracy with its standard deviation."""
    rows = []
    for title, runs in grouped(results, titled).items():
        for arm in ARMS:
            curves = [run["arms"][arm] for run in runs]
            third = len(curves[0]) // 3
            along = [
                f"{np.mean([curve[i]['horizon'] for curve in curves]):.2f}"
                for i in (third - 1, 2 * third - 1, -1)
            ]
            relative = np.mean(
                [seconds_of(run["arms"][arm]) / seconds_of(run["arms"]["fixed"]) for run in runs]
            )
            nfe = np.mean([curve[-1]["nfe_forward"] for curve in curves])
            accuracy = [np.mean([point["accuracy"] for point in curve[-3:]]) for curve in curves]
            right = f"{np.mean(accuracy):.1f}"
            if len(runs) > 1:
                right += f" ± {np.std(accuracy, ddof=1):.1f}"
            figures = " / ".join(along), f"{relative:.2f}", f"{nfe:.1f}"
            rows.append([f"{title}: {arm}", *figures, f"{right} %"])
    header = ["", "T after each third", "CPU seconds, fixed = 1", "evaluations forward at the end"]
    return markdown([*header, "test accuracy"], rows)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["mnist"])
    starts = list(PENALTIES)
    parser.add_argument("--starts", type=float, nargs="+", choices=starts, default=starts)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="of all runs")
    parser.add_argument("--out", type=Path, default=RESULTS / "horizon.json")
    parser.add_argument("--plot", action="store_true", help="only show what --out holds")


def main(chosen: argparse.Namespace) -> None:
    """Train, one seed, task and start after the other; or draw."""
    kept = read(chosen.out).get("runs", [])
    if chosen.plot:
        save_figure(DOCS / "theory" / "horizon.png", partial(draw, results=kept), dpi=130)
        put(DOCS / "theory" / "horizon.md", {"images": table(kept)})
        return
    for seed, task, start in product(chosen.seeds, chosen.tasks, chosen.starts):
        result, key = run(task, start, seed, chosen.set), (task, start, seed)
        kept = [r for r in kept if (r["task"], r["start"], r["seed"]) != key]
        kept.append(result)
        write_json(chosen.out, {"runs": kept})
