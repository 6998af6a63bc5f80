"""The small figures of docs/theory; under a minute.

One model for all of them: 32 points of two rings, a field with one hidden layer of 16 that also
sees the time, a linear read-out, double precision.

    kronecker.png   error of the factor integrals against nodes; eigenvalues of the factors
    gap.png         how far Theorem 1 is from the Hessian while the model learns
    low_rank.png    error of Proposition 2 against its rank
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import snopt
from benchmarks.files import DOCS, save_figure
from snopt.lab.paper.curves import clean
from snopt.second_order.low_rank import LowRank
from snopt.second_order.outer_products import gradient_factor, hessian_factors

TIMES = (0.0, 1.0)
STEPS = {"method": "rk4", "options": {"step_size": 0.1}}
LAYERS = {"net.0": "first layer", "net.2": "second layer"}


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.net(torch.cat([x, t.expand(len(x), 1)], dim=1))


class Problem:
    """The model, its data and its cost."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.label = torch.arange(32) % 2
        radius = 0.5 + self.label + 0.1 * torch.randn(32)
        angle = 2 * torch.pi * torch.rand(32)
        self.x = radius[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
        self.field, self.readout = Field(), nn.Linear(2, 2)
        self.model = self.with_block(**STEPS)

    def with_block(self, **solver: object) -> nn.Sequential:
        return nn.Sequential(snopt.NeuralODE(self.field, **solver), self.readout)

    def cost(self, x1: Tensor) -> Tensor:
        return cross_entropy(self.readout(x1), self.label)

    def learn(self, iterations: int) -> Iterator[int]:
        """Train by Adam, giving way before the first and after every iteration."""
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        yield 0
        for i in range(iterations):
            optimizer.zero_grad()
            cross_entropy(self.model(self.x), self.label).backward()
            optimizer.step()
            yield i + 1

    def curvature(self, exact: bool) -> snopt.CostToGo:
        return snopt.differential_programming(
            self.field, self.x, TIMES, self.cost, exact=exact, adjoint="checkpoint", **STEPS
        )

    def factors(self, quadrature: object, **solver: object) -> tuple[dict[str, Tensor], int]:
        """Every layer's A and B by a quadrature rule, and how many steps the solve took."""
        model = self.with_block(**solver)
        # No factor left out, however small the layer.
        options = snopt.KroneckerOptions(quadrature=quadrature, averaging=0.0)
        optimizer = snopt.SNOpt(model, lr=0.0, curvature=options)
        cross_entropy(model(self.x), self.label).backward()
        optimizer.step()
        found = {}
        for name in LAYERS:
            layer = optimizer.factors[f"0.field.{name}"]
            found |= {f"A, {LAYERS[name]}": layer.A, f"B, {LAYERS[name]}": layer.B}
        return found, model[0].stats.accepted


def relative(found: Tensor, true: Tensor) -> float:
    return float(torch.linalg.norm(found - true) / torch.linalg.norm(true))


# ----------------------------------------------------------------------------------- figures


def kronecker(figure: Figure, problem: Problem) -> None:
    """Draw the error of the factor integrals, and the eigenvalues of the factors."""
    fine, _ = problem.factors(snopt.PerStep(6), method="dopri8", rtol=1e-12, atol=1e-12)

    def error(quadrature: object, tolerance: float) -> tuple[float, int]:
        solver = {"rtol": tolerance, "atol": tolerance}
        found, steps = problem.factors(quadrature, **solver)
        return max(relative(found[name], fine[name]) for name in fine), steps

    figure.set_size_inches(10.5, 4)
    left, right = figure.subplots(1, 2)
    counts = (2, 5, 10, 20, 50, 100, 200)
    uniform = [error(snopt.UniformGrid(n), 1e-3)[0] for n in counts]
    left.loglog(counts, uniform, "s-", color="tab:gray", label="UniformGrid(n), tolerance 1e-3")
    for tolerance, colour in {"1e-3": "tab:blue", "1e-6": "tab:orange"}.items():
        rows = {k: error(snopt.PerStep(k), float(tolerance)) for k in (1, 2, 3)}
        places = [(k * steps, found) for k, (found, steps) in rows.items()]
        label = f"PerStep(1, 2, 3), tolerance {tolerance}"
        left.loglog(*zip(*places, strict=True), "o-", color=colour, label=label)
        for k, place in zip(rows, places, strict=True):
            left.annotate(str(k), place, textcoords="offset points", xytext=(5, 6))
    clean(left, "nodes", "largest relative error of a factor")
    left.legend(fontsize=9)
    for (name, matrix), style in zip(
        fine.items(), ("tab:blue", "tab:orange", "tab:green", "tab:red"), strict=True
    ):
        values = torch.linalg.eigvalsh(matrix).flip(0).clamp(min=0)
        right.semilogy(range(1, len(values) + 1), values / values[0], ".-", color=style, label=name)
    clean(right, "number of the eigenvalue", "eigenvalue / largest")
    right.set_ylim(1e-8, 3)
    right.legend(fontsize=9)


def gap(figure: Figure, rows: list[tuple[int, float, float]]) -> None:
    """Draw how far Theorem 1 is from the Hessian, and the loss."""
    when, loss, distance = zip(*rows, strict=True)
    figure.set_size_inches(7, 3.6)
    panel = figure.subplots()
    panel.semilogy(when, distance, "o-", label="‖Theorem 1 - Hessian‖ / ‖Hessian‖, in Q_uu")
    panel.semilogy(when, loss, "s--", color="tab:gray", label="loss")
    clean(panel, "iterations of Adam")
    panel.legend(fontsize=9)


def low_rank(panel: Axes, problem: Problem, title: str) -> None:
    def solved(factors: object) -> LowRank:
        return snopt.low_rank(problem.field, problem.x, TIMES, factors, **STEPS)

    # Factors do not know of one another, and the largest come first: one solve has all ranks.
    found = solved(hessian_factors(problem.cost))
    true, ranks = found.Q_uu, range(1, found.rank)
    values = torch.linalg.eigvalsh(true).abs().sort(descending=True).values
    best = [float(values[r:].norm() / values.norm()) for r in ranks]
    kept = [(found.p[:r].mT * found.sign[:r]) @ found.p[:r] for r in ranks]
    one = solved(gradient_factor(problem.cost)).Q_uu
    # Its scale is arbitrary: the best one shows how good its direction is.
    one = one * (one * true).sum() / one.square().sum()
    ours = [relative(matrix, true) for matrix in kept]
    panel.semilogy(ranks, ours, "o-", ms=4, label="largest eigenvectors of Φ_xx at t1")
    panel.semilogy(ranks, best, "--", color="tab:gray", label="best of that rank")
    panel.semilogy(1, relative(one, true), "*", ms=12, color="tab:red", label="the gradient, Φ_x")
    clean(panel, "rank R", title=title)
    panel.set_ylim(1e-4, 2)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--iterations", type=int, default=300, help="of training; 25 at least")
    parser.add_argument("--out", type=Path, default=DOCS / "theory", help="folder of the pictures")


def main(chosen: argparse.Namespace) -> None:
    """Train the model, looking at its curvature on the way."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    problem = Problem()
    rows: list[tuple[int, float, float]] = []
    figure = Figure(figsize=(10.5, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for i in problem.learn(chosen.iterations):
        if i % 25 == 0:
            hessian, ggn = problem.curvature(exact=True), problem.curvature(exact=False)
            rows.append((i, float(hessian.Q.detach()), relative(ggn.Q_uu, hessian.Q_uu)))
            print("iteration {:3}: loss {:.4f}, Theorem 1 off by {:.3f}".format(*rows[-1]))
        if i in (0, chosen.iterations):
            when = "before" if i == 0 else "after"
            low_rank(panels[int(i > 0)], problem, f"{when} training, loss {rows[-1][1]:.3g}")
    save_figure(chosen.out / "gap.png", partial(gap, rows=rows), dpi=120)
    panels[0].set_ylabel("relative error of Q_uu")
    panels[0].legend(fontsize=9)
    figure.savefig(chosen.out / "low_rank.png", dpi=120)
    save_figure(chosen.out / "kronecker.png", partial(kronecker, problem=problem), dpi=120)
