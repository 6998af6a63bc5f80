"""How fast optimizers learn: loss and accuracy against iterations and seconds.

    python -m benchmarks.optimizer_learning --task digits
    SNOPT_DATA=... python -m benchmarks.optimizer_learning --task mnist

Every method has four rates, each twice the one before. They are tried on seven eighths of the
training set with a seed that the table does not report; the lowest cross-entropy of the eighth
held out, averaged over the checkpoints, chooses. The chosen rate then learns the whole training
set with three seeds. Methods take turns run by run. What was measured before is kept by method;
``python -m benchmarks.optimizer_table`` prints it.

SOAP is that of the package ``pytorch_optimizer`` and is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import snopt
from benchmarks.environment import environment
from benchmarks.optimizer_tasks import TASKS, Task
from snopt.lab.config import OptimizerConfig
from snopt.lab.optimizers import make_optimizers

RESULTS = Path(__file__).parent / "results"
SEEDS = (0, 1, 2)
TUNING_SEED = 10
UNTUNED = "snopt_default"
"""SNOpt as it comes, at the rate that no one chose for the task."""
RATES: dict[str, tuple[float, ...]] = {
    UNTUNED: (5e-3,),
    "snopt": (2.5e-3, 5e-3, 1e-2, 2e-2),
    "snopt_amortized": (5e-3, 1e-2, 2e-2, 4e-2),
    "soap": (2.5e-3, 5e-3, 1e-2, 2e-2),
    "muon": (1e-2, 2e-2, 4e-2, 8e-2),
    "adam": (1.25e-3, 2.5e-3, 5e-3, 1e-2),
    "sgd": (2.5e-2, 5e-2, 1e-1, 2e-1),
}
"""By the method's name at ``snopt train``; one rate is not tuned."""


def config(method: str, lr: float) -> OptimizerConfig:
    """What ``snopt train`` would be told."""
    return OptimizerConfig("snopt" if method == UNTUNED else method, lr=lr)


def evaluate(model: nn.Module, task: Task) -> tuple[float, float]:
    """Cross-entropy of the images held out, and percentage of right answers."""
    model.eval()
    with torch.no_grad():
        x, y = task.test
        out = torch.cat([model(part) for part in x.split(500)])
    model.train()
    return float(functional.cross_entropy(out, y)), 100.0 * float(
        (out.argmax(1) == y).float().mean()
    )


def run(name: str, task: Task, method: str, lr: float, seed: int) -> dict[str, Any]:
    """One run: the curve at the task's checkpoints; seconds exclude evaluation."""
    torch.manual_seed(seed)
    model = TASKS[name][1]()
    optimizers = make_optimizers(model, config(method, lr))
    curve, losses, seconds = [], [], 0.0
    for i, (x, y) in enumerate(task.batches(seed), start=1):
        start = time.perf_counter()
        for optimizer in optimizers:
            optimizer.zero_grad()
        try:
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
        except snopt.SolveError:
            break
        for optimizer in optimizers:
            optimizer.step()
        seconds += time.perf_counter() - start
        losses.append(float(loss.detach()))
        if i in task.checkpoints:
            held_out, accuracy = evaluate(model, task)
            curve.append(
                {
                    "iteration": i,
                    "seconds": round(seconds, 2),
                    "loss": round(mean(losses[-5:]), 5),
                    "held_out_loss": round(held_out, 5),
                    "accuracy": round(accuracy, 2),
                }
            )
        if i == task.checkpoints[-1]:
            break
    found = {"lr": lr, "seed": seed, "curve": curve}
    show(method, found)
    return found


def badness(result: dict[str, Any], task: Task) -> float:
    """Held-out loss averaged over the checkpoints; infinite for a run that did not end."""
    if len(result["curve"]) < len(task.checkpoints):
        return math.inf
    loss = mean(point["held_out_loss"] for point in result["curve"])
    return loss if math.isfinite(loss) else math.inf


def show(method: str, result: dict[str, Any]) -> None:
    points = "  ".join(
        f"{p['iteration']}: {p['loss']:.4f} {p['accuracy']:.1f}% {p['seconds']:.0f}s"
        for p in result["curve"]
    )
    print(f"{method:16} lr {result['lr']:<7g} seed {result['seed']}  {points}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=sorted(TASKS), required=True)
    parser.add_argument("--only", nargs="+", choices=sorted(RATES), default=list(RATES))
    args = parser.parse_args()
    task, methods = TASKS[args.task][0](), {}
    practice = task.practice()
    for method in args.only:
        try:
            make_optimizers(nn.Linear(1, 1), config(method, 0.1))
        except ImportError as missing:
            print(f"{method}: {missing}")
            continue
        rates = RATES[method]
        tried = [run(args.task, practice, method, lr, TUNING_SEED) for lr in rates if rates[1:]]
        best = min(tried, key=lambda r: badness(r, practice))["lr"] if tried else rates[0]
        methods[method] = {"best": best, "tuning": tried, "runs": []}
    for seed in SEEDS:
        for method, found in methods.items():
            found["runs"].append(run(args.task, task, method, found["best"], seed))
    path = RESULTS / f"optimizer_learning_{args.task}.json"
    known = json.loads(path.read_text())["methods"] if path.exists() else {}
    kept = {"environment": environment(), "methods": {**known, **methods}}
    path.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
