"""Learning the horizon on images: T, time an iteration, evaluations and accuracy.

    SNOPT_DATA=... python -m benchmarks.theory horizon     # MNIST, from 1 and from 0.05
    SNOPT_DATA=... python -m benchmarks.theory horizon --tasks cifar10 --optimizer snopt
    python -m benchmarks.theory horizon --plot          # the picture and the table in the docs

Four arms start from the same weights and see the same batches: T fixed to where it starts, the
second-order feedback policy and the first-order baseline, with the penalties of the authors'
scripts, and HorizonOptimizer with its defaults. They take turns batch by batch, so that whatever
else the machine does falls on all of them alike; times are CPU seconds. Adam, or SNOpt with its
default settings, trains the parameters. Model and data are those of the laboratory's recipes, the
model narrower.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.files import DOCS, RESULTS, environment, put, read, write
from snopt.lab.config import Experiment, HorizonConfig, HorizonPolicy, OptimizerConfig
from snopt.lab.paper.curves import clean
from snopt.lab.paper.items.horizon import PENALTIES
from snopt.lab.recipes import recipe
from snopt.lab.recipes.build import build_parts, build_task
from snopt.lab.table import markdown
from snopt.lab.train import Parts, Task
from snopt.lab.train.run import evaluate
from snopt.lab.train.seeding import Order
from snopt.lab.train.step import Update

ARMS: dict[str, HorizonPolicy] = {
    "fixed": "fixed", "feedback": "feedback", "gradient": "gradient", "defaults": "feedback",
}  # fmt: skip
TASKS = {"mnist": "MNIST", "cifar10": "CIFAR-10 (part)"}
#: Iterations that one point of a curve stands for.
EVERY = 25
TESTED = 2000


def configured(
    task: str, arm: str, start: float, seed: int, args: argparse.Namespace
) -> Experiment:
    """Describe one arm."""
    config = recipe(task, args.optimizer)
    horizon = HorizonConfig(ARMS[arm])
    if arm != "defaults":
        horizon = replace(horizon, lr=args.horizon_lr, penalty=PENALTIES[start], every=args.every)
    return replace(
        config,
        data=replace(config.data, test_examples=TESTED),
        model=replace(config.model, width=args.width),
        solver=replace(config.solver, horizon=start),
        optimizer=OptimizerConfig(args.optimizer, lr=args.lr),
        train=replace(config.train, seed=seed, batch_size=args.batch),
        horizon=horizon,
    )


@dataclass
class Arm:
    """A model in training, and its curve."""

    task: Task
    parts: Parts
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    curve: list[dict[str, float]] = field(default_factory=list)

    def train(self, batch: Any) -> None:
        """Make one update."""
        start = time.process_time()
        loss, reason = Update(lambda b: self.task.loss(self.parts.model, b), self.parts)(batch)
        self.seconds += time.process_time() - start
        if reason is not None:
            raise RuntimeError(f"no update at iteration {len(self.losses)}: {reason}")
        self.losses.append(loss)

    def record(self, iteration: int, seed: int) -> dict[str, float]:
        """Append the means since the last record, and the accuracy now."""
        block, count = self.parts.model.block, len(self.losses)
        point = {
            "iteration": iteration,
            "horizon": block.horizon,
            "seconds": self.seconds / count,
            "nfe_forward": block.totals.nfe_forward / count,
            "nfe_backward": block.totals.nfe_backward / count,
            "loss": sum(self.losses) / count,
        }
        found = evaluate(self.task, self.parts.model, self.task.test, batch_size=500, seed=seed)
        point["accuracy"] = 100.0 * found["accuracy"]
        self.seconds, self.losses = 0.0, []
        block.totals.reset()
        self.curve.append(point)
        return point


def run(task: str, start: float, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train the arms in turn."""
    names = list(ARMS)
    configs = {arm: configured(task, arm, start, seed, args) for arm in names}
    data = build_task(configs["fixed"])
    arms = {name: Arm(data, build_parts(c, data.train.spec)) for name, c in configs.items()}
    order = Order(len(data.train), args.batch, seed)
    for i in range(1, args.iterations + 1):
        batch, turn = data.train.batch(order.indices(i - 1)), i % len(names)
        for name in names[turn:] + names[:turn]:
            arms[name].train(batch)
        if i % EVERY == 0 or i == args.iterations:
            for name, arm in arms.items():
                p = arm.record(i, seed)
                print(
                    f"{task} {i:5d} {name:8} T {p['horizon']:.3f} {1e3 * p['seconds']:.0f} ms "
                    f"nfe {p['nfe_forward']:.1f} {p['accuracy']:.1f}%",
                    flush=True,
                )
    result = {
        "task": task,
        "start": start,
        "seed": seed,
        "settings": {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()},
        "arms": {name: arm.curve for name, arm in arms.items()},
        "updates": {
            name: [record._asdict() for record in arm.parts.horizon.history]
            for name, arm in arms.items()
            if arm.parts.horizon is not None
        },
    }
    return {**result, "summary": summary(result), "environment": environment()}


def summary(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Whole training time and final accuracy of each arm; time also relative to the fixed one."""
    found = {}
    for name, curve in result["arms"].items():
        steps = np.diff([0, *(p["iteration"] for p in curve)])
        found[name] = {
            "seconds": float(sum(p["seconds"] * n for p, n in zip(curve, steps, strict=True))),
            "horizon": curve[-1]["horizon"],
            "accuracy": float(np.mean([p["accuracy"] for p in curve[-3:]])),
        }
    for row in found.values():
        row["relative"] = row["seconds"] / found["fixed"]["seconds"]
    return found


# -------------------------------------------------------------------------------- page

PANELS = {
    "horizon": "T",
    "nfe_forward": "evaluations forward",
    "seconds": "CPU seconds an iteration",
    "accuracy": "test accuracy [%]",
}


def by_task(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Runs of the same task and start, which differ by their seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        name = f"{TASKS[result['task']]}, T from {result['start']:g}"
        found.setdefault(name, []).append(result)
    return found


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Means over seeds, and the range of the seeds around them."""
    groups = by_task(results)
    figure = Figure(figsize=(13, 2.8 * len(groups)), layout="constrained")
    axes = figure.subplots(len(groups), len(PANELS), squeeze=False)
    for row, (title, runs) in zip(axes, groups.items(), strict=True):
        for axis, (key, name) in zip(row, PANELS.items(), strict=True):
            for arm, curve in runs[0]["arms"].items():
                values = np.array([[p[key] for p in run["arms"][arm]] for run in runs])
                at = [p["iteration"] for p in curve]
                (line,) = axis.plot(at, values.mean(0), label=arm, lw=1.4)
                low, high = values.min(0), values.max(0)
                axis.fill_between(at, low, high, color=line.get_color(), alpha=0.15, lw=0)
            clean(axis, "iteration", name, title if axis is row[0] else "")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=130)


def table(results: list[dict[str, Any]]) -> str:
    """Means over seeds, accuracy with its standard deviation."""
    rows = []
    for title, runs in by_task(results).items():
        for arm in ARMS:
            curves = [run["arms"][arm] for run in runs]
            third = len(curves[0]) // 3
            along = [
                f"{np.mean([curve[i]['horizon'] for curve in curves]):.2f}"
                for i in (third - 1, 2 * third - 1, -1)
            ]
            relative = np.mean([run["summary"][arm]["relative"] for run in runs])
            nfe = np.mean([curve[-1]["nfe_forward"] for curve in curves])
            accuracy = [run["summary"][arm]["accuracy"] for run in runs]
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
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--optimizer", choices=("adam", "snopt"), default="adam")
    parser.add_argument("--lr", type=float, default=3e-3, help="of the parameters")
    starts = list(PENALTIES)
    parser.add_argument("--starts", type=float, nargs="+", choices=starts, default=starts)
    parser.add_argument("--horizon-lr", type=float, default=0.1, help="of T")
    parser.add_argument("--every", type=int, default=10, help="iterations between updates of T")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS / "horizon.json")
    parser.add_argument("--plot", action="store_true", help="only show what --out holds")


def main(chosen: argparse.Namespace) -> None:
    """Train, one seed, task and start after the other; or draw."""
    kept = read(chosen.out).get("runs", [])
    if chosen.plot:
        plot(kept, DOCS / "theory" / "horizon.png")
        put(DOCS / "theory" / "horizon.md", {"images": table(kept)})
        return
    for seed, task, start in product(chosen.seeds, chosen.tasks, chosen.starts):
        result, key = run(task, start, seed, chosen), (task, start, seed)
        kept = [r for r in kept if (r["task"], r["start"], r["seed"]) != key]
        kept.append(result)
        write(chosen.out, {"runs": kept})
