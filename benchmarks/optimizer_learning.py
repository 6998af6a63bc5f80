"""How fast optimizers learn: loss and accuracy against iterations and seconds.

    python -m benchmarks.optimizer_learning --task digits --seeds 0 1 2
    SNOPT_DATA=... python -m benchmarks.optimizer_learning --task mnist --seeds 0 1 2

Every method runs at each of its learning rates with the first seed; the best rate (by training
loss averaged over the checkpoints) is then run with the other seeds. ``--only`` names methods,
``--lr`` fixes the rate.
SOAP is that of the package ``pytorch_optimizer`` and is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import snopt
from benchmarks.optimizer_tasks import TASKS, Task
from snopt.curvature import KroneckerOptions
from snopt.optim import SNOpt

RESULTS = Path(__file__).parent / "results"
Make = Callable[[nn.Module, float], Any]


class Muon2d:
    """``torch.optim.Muon`` for weights, reshaped to matrices; Adam for the rest."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        weights = [p for p in model.parameters() if p.dim() >= 2]
        self.shadow = [nn.Parameter(p.detach().flatten(1).clone()) for p in weights]
        self.weights = weights
        self.muon = torch.optim.Muon(self.shadow, lr=lr, weight_decay=0.0)
        self.adam = torch.optim.Adam([p for p in model.parameters() if p.dim() < 2], lr=3e-3)

    def zero_grad(self) -> None:
        for p in self.weights:
            p.grad = None
        self.adam.zero_grad()

    def step(self) -> None:
        for p, s in zip(self.weights, self.shadow, strict=True):
            s.grad = p.grad.flatten(1)
        self.muon.step()
        self.adam.step()
        with torch.no_grad():
            for p, s in zip(self.weights, self.shadow, strict=True):
                p.copy_(s.view_as(p))


def soap(model: nn.Module, lr: float) -> Any:
    from pytorch_optimizer import SOAP

    return SOAP(
        model.parameters(), lr=lr, betas=(0.95, 0.95), precondition_frequency=10, weight_decay=0.0
    )


METHODS: dict[str, tuple[Make, tuple[float, ...]]] = {
    "snopt adam": (lambda m, lr: SNOpt(m, lr=lr), (5e-3, 7e-3, 1e-2)),
    "snopt adam kfc": (
        lambda m, lr: SNOpt(m, lr=lr, curvature=KroneckerOptions(conv="kfc")),
        (2e-3, 5e-3, 1e-2),
    ),
    "snopt amortized": (lambda m, lr: SNOpt(m, lr=lr, rule="amortized"), (1e-2, 2e-2, 5e-2)),
    "adam": (lambda m, lr: torch.optim.Adam(m.parameters(), lr=lr), (1e-3, 3e-3, 1e-2)),
    "sgd": (
        lambda m, lr: torch.optim.SGD(m.parameters(), lr=lr, momentum=0.9),
        (3e-2, 1e-1, 3e-1),
    ),
    "muon": (Muon2d, (1e-2, 3e-2)),
    "soap": (soap, (5e-3, 1e-2, 2e-2)),
}


def evaluate(model: nn.Module, task: Task) -> float:
    model.eval()
    with torch.no_grad():
        x, y = task.test
        right = sum(
            int((model(part).argmax(1) == labels).sum())
            for part, labels in zip(x.split(500), y.split(500), strict=True)
        )
    model.train()
    return 100.0 * right / len(y)


def run(name: str, make: Make, lr: float, seed: int) -> dict[str, Any]:
    """One run: the curve at the task's checkpoints; seconds exclude evaluation."""
    build_task, build_model = TASKS[name]
    task = build_task()
    torch.manual_seed(seed)
    model = build_model()
    optimizer = make(model, lr)
    curve, losses, seconds = [], [], 0.0
    for i, (x, y) in enumerate(task.batches(seed), start=1):
        start = time.perf_counter()
        optimizer.zero_grad()
        try:
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
        except snopt.SolveError:
            break
        optimizer.step()
        seconds += time.perf_counter() - start
        losses.append(float(loss.detach()))
        if i in task.checkpoints:
            recent = losses[-5:]
            curve.append(
                {
                    "iteration": i,
                    "seconds": round(seconds, 2),
                    "loss": round(sum(recent) / len(recent), 5),
                    "accuracy": round(evaluate(model, task), 2),
                }
            )
        if i == task.iterations:
            break
    return {"lr": lr, "seed": seed, "curve": curve}


def mean_loss(result: dict[str, Any], task_end: int) -> float:
    """Mean loss over the checkpoints; infinite for a run that did not get to the end."""
    if not result["curve"] or result["curve"][-1]["iteration"] != task_end:
        return float("inf")
    loss = sum(float(p["loss"]) for p in result["curve"])
    return loss if loss == loss else float("inf")


def show(name: str, result: dict[str, Any]) -> None:
    points = "  ".join(
        f"{p['iteration']}: {p['loss']:.4f} {p['accuracy']:.1f}% {p['seconds']:.0f}s"
        for p in result["curve"]
    )
    print(f"{name:16} lr {result['lr']:<7g} seed {result['seed']}  {points}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=sorted(TASKS), required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=sorted(METHODS))
    parser.add_argument("--lr", type=float, nargs="+")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    end = TASKS[args.task][0]().iterations
    for name in args.only or METHODS:
        make, rates = METHODS[name]
        results = []
        for lr in args.lr or rates:
            try:
                results.append(run(args.task, make, lr, args.seeds[0]))
            except ImportError as missing:
                print(f"{name}: {missing}")
                break
            show(name, results[-1])
        if not results:
            continue
        best = min(results, key=lambda r: mean_loss(r, end))["lr"]
        for seed in args.seeds[1:]:
            results.append(run(args.task, make, best, seed))
            show(name, results[-1])
        if args.save:
            path = RESULTS / f"optimizer_learning_{args.task}_{name.replace(' ', '_')}.json"
            path.write_text(json.dumps({"method": name, "best": best, "runs": results}, indent=1))


if __name__ == "__main__":
    main()
