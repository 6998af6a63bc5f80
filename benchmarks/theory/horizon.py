"""Learning the horizon on images: T, time an iteration, evaluations and accuracy.

    SNOPT_DATA=... python -m benchmarks.horizon_images                   # MNIST and CIFAR-10
    SNOPT_DATA=... python -m benchmarks.horizon_images --start 0.05      # from far too short
    python -m benchmarks.horizon_images --plot             # the picture and the table in the docs

Three arms start from the same weights and see the same batches: T fixed to where it starts, the
second-order feedback policy, and the first-order baseline. They take turns batch by batch, so that
whatever else the machine does falls on all of them alike. Adam, or SNOpt with its default settings,
trains the parameters. The model is the paper's, narrower: three convolutions, a block of two, a
linear read-out.

MNIST: the training file to train on, the last 2,000 images of the t10k file to test on. CIFAR-10:
the first of its five training files, the first 2,000 images of the test file.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.files import environment
from benchmarks.optimizer_tasks import ConvField
from benchmarks.files import put
from snopt.adjoint import NeuralODE
from snopt.horizon import HorizonOptimizer
from snopt.optim import SNOpt

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "theory" / "horizon.md"
ARMS = ("fixed", "feedback", "gradient")
#: Iterations that one point of a curve stands for.
EVERY = 25
Split = tuple[Tensor, Tensor]


# -------------------------------------------------------------------------------- data


def folder(name: str) -> Path:
    root = os.environ.get("SNOPT_DATA")
    if root is None or not (Path(root) / name).is_dir():
        raise SystemExit(f"set SNOPT_DATA to the folder that holds {name}/ (now: {root!r})")
    return Path(root) / name


def standardised(train: Split, test: Split) -> tuple[Split, Split]:
    """Zero mean and unit deviation of each channel, by the training images."""
    mean = train[0].mean((0, 2, 3), keepdim=True)
    std = train[0].std((0, 2, 3), keepdim=True)
    return ((train[0] - mean) / std, train[1]), ((test[0] - mean) / std, test[1])


def mnist() -> tuple[Split, Split]:
    def split(prefix: str) -> Split:
        raw = gzip.decompress((folder("mnist") / f"{prefix}-images-idx3-ubyte.gz").read_bytes())
        x = np.frombuffer(raw[16:], np.uint8).reshape(-1, 1, 28, 28).astype(np.float32) / 255
        raw = gzip.decompress((folder("mnist") / f"{prefix}-labels-idx1-ubyte.gz").read_bytes())
        return torch.from_numpy(x), torch.from_numpy(np.frombuffer(raw[8:], np.uint8).astype(int))

    x, y = split("t10k")
    return standardised(split("train"), (x[-2000:], y[-2000:]))


def cifar10() -> tuple[Split, Split]:
    def split(name: str) -> Split:
        rows = np.fromfile(folder("cifar10") / name, np.uint8).reshape(-1, 3073)
        x = rows[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
        return torch.from_numpy(x), torch.from_numpy(rows[:, 0].astype(int))

    x, y = split("test_batch.bin")
    return standardised(split("data_batch_1.bin"), (x[:2000], y[:2000]))


TASKS = {"mnist": mnist, "cifar10": cifar10}


# -------------------------------------------------------------------------------- one arm


def image_model(channels: int, width: int, horizon: float) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, 1), nn.ReLU(),
        nn.Conv2d(width, width, 4, 2), nn.ReLU(),
        nn.Conv2d(width, width, 4, 2),
        NeuralODE(ConvField(width), horizon, rtol=1e-3, atol=1e-3),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10),
    )  # fmt: skip


@dataclass
class Arm:
    """A model in training, and its curve."""

    model: nn.Module
    horizon: HorizonOptimizer | None
    optimizer: torch.optim.Optimizer
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    curve: list[dict[str, float]] = field(default_factory=list)

    @property
    def block(self) -> NeuralODE:
        return next(part for part in self.model.modules() if isinstance(part, NeuralODE))

    def train(self, x: Tensor, y: Tensor) -> None:
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        if self.horizon is not None:
            self.horizon.step()
        self.seconds += time.perf_counter() - start
        self.losses.append(loss.item())

    def record(self, iteration: int, test: Split) -> dict[str, float]:
        """Append the means since the last record, and the accuracy now."""
        totals = self.block.totals
        point = {
            "iteration": iteration,
            "horizon": self.block.horizon,
            "seconds": self.seconds / len(self.losses),
            "nfe_forward": totals.nfe_forward / len(self.losses),
            "nfe_backward": totals.nfe_backward / len(self.losses),
            "loss": sum(self.losses) / len(self.losses),
            "accuracy": accuracy(self.model, test),
        }
        self.seconds, self.losses = 0.0, []
        totals.reset()
        self.curve.append(point)
        return point


def accuracy(model: nn.Module, test: Split) -> float:
    model.eval()
    with torch.no_grad():
        right = sum(
            int((model(x).argmax(1) == y).sum())
            for x, y in zip(*(part.split(500) for part in test), strict=True)
        )
    model.train()
    return 100.0 * right / len(test[1])


def make(policy: str, channels: int, seed: int, args: argparse.Namespace) -> Arm:
    torch.manual_seed(seed)
    model = image_model(channels, args.width, args.start)
    horizon = None
    if policy != "fixed":
        rate = args.gradient_lr if policy == "gradient" else args.horizon_lr
        horizon = HorizonOptimizer(model, rate, args.penalty, args.every, policy)
    if args.optimizer == "snopt":
        return Arm(model, horizon, SNOpt(model, lr=args.lr))
    return Arm(model, horizon, torch.optim.Adam(model.parameters(), lr=args.lr))


# -------------------------------------------------------------------------------- a run


def run(task: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    train, test = TASKS[task]()
    arms = {name: make(name, train[0].shape[1], seed, args) for name in ARMS}
    generator = torch.Generator().manual_seed(1000 + seed)
    for i in range(1, args.iterations + 1):
        index = torch.randint(len(train[0]), (args.batch,), generator=generator)
        x, y = train[0][index], train[1][index]
        turn = i % len(ARMS)
        for name in ARMS[turn:] + ARMS[:turn]:
            arms[name].train(x, y)
        if i % EVERY == 0 or i == args.iterations:
            points = {name: arm.record(i, test) for name, arm in arms.items()}
            show(task, i, points)
    return {
        "task": task,
        "seed": seed,
        "settings": {key: value for key, value in vars(args).items() if key != "plot"},
        "arms": {name: arm.curve for name, arm in arms.items()},
    }


def show(task: str, iteration: int, points: dict[str, dict[str, float]]) -> None:
    text = "   ".join(
        f"{name} T {p['horizon']:.3f} {1e3 * p['seconds']:.0f} ms "
        f"nfe {p['nfe_forward']:.1f} {p['accuracy']:.1f}%"
        for name, p in points.items()
    )
    print(f"{task} {iteration:5d}   {text}", flush=True)


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
    "seconds": "seconds an iteration",
    "accuracy": "test accuracy [%]",
}
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10 (part)"}


def by_task(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Runs of the same task and start, which differ by their seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        name = f"{NAMES[result['task']]}, T from {result['settings']['start']:g}"
        found.setdefault(name, []).append(result)
    return found


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Means over seeds, and the range of the seeds around them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = by_task(results)
    figure, axes = pyplot.subplots(
        len(groups), len(PANELS), figsize=(13, 2.8 * len(groups)), squeeze=False
    )
    for row, (title, runs) in zip(axes, groups.items(), strict=True):
        for axis, (key, label) in zip(row, PANELS.items(), strict=True):
            for name, curve in runs[0]["arms"].items():
                values = np.array([[p[key] for p in run["arms"][name]] for run in runs])
                at = [p["iteration"] for p in curve]
                (line,) = axis.plot(at, values.mean(0), label=name, lw=1.4)
                axis.fill_between(
                    at, values.min(0), values.max(0), color=line.get_color(), alpha=0.15, lw=0
                )
            axis.set_xlabel("iteration")
            axis.set_ylabel(label)
        row[0].set_title(title, fontsize=10)
    figure.tight_layout()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), frameon=False)
    figure.subplots_adjust(bottom=0.22 / len(groups) + 0.06)
    figure.savefig(path, dpi=130)
    print(f"wrote {path}")


def table(results: list[dict[str, Any]]) -> str:
    """Means over seeds of the summaries, accuracy with its standard deviation."""
    lines = [
        "| | seconds, fixed = 1 | T at the end | evaluations forward at the end | test accuracy |",
        "|---|---:|---:|---:|---:|",
    ]
    for title, runs in by_task(results).items():
        for arm in ARMS:
            rows = [run["summary"][arm] for run in runs]
            relative, horizon = (
                np.mean([row[key] for row in rows]) for key in ("relative", "horizon")
            )
            nfe = np.mean([run["arms"][arm][-1]["nfe_forward"] for run in runs])
            accuracy = [row["accuracy"] for row in rows]
            deviation = f" ± {np.std(accuracy, ddof=1):.1f}" if len(accuracy) > 1 else ""
            lines.append(
                f"| {title}: {arm} | {relative:.2f} | {horizon:.2f} | {nfe:.1f} "
                f"| {np.mean(accuracy):.1f}{deviation} % |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=sorted(TASKS), default=["mnist", "cifar10"])
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--optimizer", choices=("adam", "snopt"), default="snopt")
    parser.add_argument("--lr", type=float, default=3e-3, help="of the parameters")
    parser.add_argument("--start", type=float, default=1.0, help="initial T")
    parser.add_argument("--horizon-lr", type=float, default=0.1, help="of the feedback policy")
    parser.add_argument("--gradient-lr", type=float, default=0.1, help="of the baseline")
    parser.add_argument("--penalty", type=float, default=1.0, help="c of c/2 T²")
    parser.add_argument("--every", type=int, default=10, help="iterations between updates of T")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--save", type=Path, default=RESULTS / "horizon.json")
    parser.add_argument("--plot", action="store_true", help="only show what --save holds")
    args = parser.parse_args()
    if args.plot:
        results = json.loads(args.save.read_text())["runs"]
        plot(results, PAGE.parent / "horizon.png")
        put(PAGE, {"images": table(results)})
        return
    old = json.loads(args.save.read_text())["runs"] if args.save.exists() else []
    path, args.save = args.save, str(args.save.name)
    for task in args.tasks:
        for seed in args.seeds:
            result = run(task, seed, args)
            result["environment"], result["summary"] = environment(), summary(result)
            key = (task, seed, args.start)
            old = [r for r in old if (r["task"], r["seed"], r["settings"]["start"]) != key]
            old.append(result)
            path.write_text(json.dumps({"runs": old}, indent=1) + "\n")
            for name, row in result["summary"].items():
                print(f"{task} {name:8}", {key: round(value, 3) for key, value in row.items()})


if __name__ == "__main__":
    main()
