"""Errors of first and second derivatives through a solve, side by side (the paper's Table 1).

    python -m benchmarks.second_order_error [--cases ...] [--methods ...] [--out FILE]
    python -m benchmarks.second_order_error --plot        # picture and table of a kept file

The truth is autograd through a dopri8 solve at tolerance 1e-12, in double precision. An error is
the relative distance of products with the same four random vectors: of the Hessian for those
methods that compute the Hessian, of the Gauss-Newton matrix for those that compute that.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import snopt
from benchmarks.environment import environment
from snopt.curvature.low_rank import low_rank
from snopt.curvature.matrix_odes import differential_programming
from snopt.curvature.outer_products import hessian_factors
from snopt.curvature.products import ggn_vector_product, hessian_vector_product
from snopt.curvature.recursive import recursive_gradient, recursive_hessian_product

FILE = Path(__file__).parent / "results" / "second_order_error.json"
PICTURE = FILE.with_suffix(".png")
DTYPE = torch.float64
VECTORS = 4
TIMES = (0.0, 1.0)

#: Solvers by coarseness: tolerances of dopri5, steps of the fixed-step methods.
GRADES: dict[str, list[float]] = {
    "rk4": [1 / 4, 1 / 8, 1 / 16, 1 / 32],
    "implicit_adams": [1 / 8, 1 / 16, 1 / 32, 1 / 64],
    "dopri5": [1e-2, 1e-3, 1e-4, 1e-6],
}


def solver(method: str, grade: float) -> dict[str, Any]:
    """Arguments of one solver at one coarseness."""
    if method == "dopri5":
        return {"method": method, "rtol": grade, "atol": grade}
    tolerance = 1e-6  # of implicit_adams' corrector
    options = {"step_size": grade}
    return {"method": method, "rtol": tolerance, "atol": tolerance, "options": options}


# ------------------------------------------------------------------------------------ cases


class Counted(nn.Module):
    """A field that counts its evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0


class SmallConv(Counted):
    """conv3x3 -> tanh -> conv3x3 with the time as one more channel."""

    def __init__(self, channels: int = 2, width: int = 4, gain: float = 2.0) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels + 1, width, 3, padding=1)
        self.last = nn.Conv2d(width + 1, channels, 3, padding=1)
        louder(self, gain)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        self.count += 1
        x = self.first(torch.cat([x, t.expand_as(x[:, :1])], dim=1))
        x = torch.tanh(x)
        return self.last(torch.cat([x, t.expand_as(x[:, :1])], dim=1))


class SmallMLP(Counted):
    """linear -> tanh -> linear with the time as one more input."""

    def __init__(self, dim: int, width: int, gain: float = 2.0) -> None:
        super().__init__()
        self.first = nn.Linear(dim + 1, width)
        self.last = nn.Linear(width, dim)
        louder(self, gain)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        self.count += 1
        time = t.expand(x.shape[0], 1)
        return self.last(torch.tanh(self.first(torch.cat([x, time], dim=1))))


class TwoScales(SmallMLP):
    """The same with half of the directions contracting fast: run backward, they explode."""

    rate = 12.0

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        fast = torch.arange(x.shape[1]) % 2 == 0
        return super().forward(t, x) - self.rate * x * fast


def louder(field: nn.Module, gain: float) -> None:
    """Make untrained weights as large as trained ones."""
    for parameter in field.parameters():
        parameter.data.mul_(gain)


@dataclass
class Problem:
    """A field, its start and its cost."""

    field: Counted
    x0: Tensor
    cost: Callable[[Tensor], Tensor]

    @property
    def args(self) -> tuple[Any, ...]:
        return self.field, self.x0, TIMES, self.cost

    @property
    def n(self) -> int:
        return sum(p.numel() for p in self.field.parameters())


def conv(gain: float) -> Problem:
    """Two images of 2 x 5 x 5, a linear readout, cross-entropy."""
    field, x0 = SmallConv(gain=gain).to(DTYPE), torch.randn(2, 2, 5, 5, dtype=DTYPE)
    head, labels = nn.Linear(50, 10, dtype=DTYPE).requires_grad_(False), torch.tensor([3, 7])
    return Problem(field, x0, lambda x: functional.cross_entropy(head(x.flatten(1)), labels))


def mlp(dim: int, width: int, batch: int, kind: type[SmallMLP] = SmallMLP) -> Problem:
    """A batch of points, cross-entropy of a linear readout."""
    field, x0 = kind(dim, width).to(DTYPE), torch.randn(batch, dim, dtype=DTYPE)
    head = nn.Linear(dim, 3, dtype=DTYPE).requires_grad_(False)
    labels = torch.arange(batch) % 3
    return Problem(field, x0, lambda x: functional.cross_entropy(head(x), labels))


CASES: dict[str, Callable[[], Problem]] = {
    "conv": lambda: conv(gain=2.0),
    "conv_strong": lambda: conv(gain=6.0),
    "mlp_2d": lambda: mlp(dim=2, width=16, batch=8),
    "mlp_8d": lambda: mlp(dim=8, width=24, batch=4),
    "mlp_two_scales": lambda: mlp(dim=4, width=16, batch=4, kind=TwoScales),
}


# ---------------------------------------------------------------------------- what is compared


def truth(problem: Problem, v: Tensor) -> dict[str, Tensor]:
    """Gradient and products by autograd through a very accurate solve."""
    params = tuple(problem.field.parameters())

    def end() -> Tensor:
        fine = {"method": "dopri8", "rtol": 1e-12, "atol": 1e-12}
        return snopt.odeint(problem.field, problem.x0, TIMES, adjoint="direct", **fine)[-1]

    def flat(parts: tuple[Tensor, ...]) -> Tensor:
        return torch.cat([part.reshape(-1) for part in parts])

    x1 = end()
    gradient = flat(torch.autograd.grad(problem.cost(x1), params, create_graph=True))
    hessian = [flat(torch.autograd.grad(gradient, params, row, retain_graph=True)) for row in v]
    # J v by pulling back twice, then Jᵀ (Φ_xx J v).
    dummy = torch.zeros_like(x1, requires_grad=True)
    pulled = flat(torch.autograd.grad(x1, params, dummy, create_graph=True))
    ggn = []
    for row in v:
        (tangent,) = torch.autograd.grad(pulled, dummy, row, retain_graph=True)
        _, bent = torch.autograd.functional.hvp(problem.cost, x1.detach(), tangent)
        ggn.append(flat(torch.autograd.grad(x1, params, bent, retain_graph=True)))
    return {
        "gradient": gradient.detach(),
        "hessian": torch.stack(hessian).detach(),
        "ggn": torch.stack(ggn).detach(),
    }


def discrete_gradient(problem: Problem, s: dict[str, Any]) -> Tensor:
    """The gradient through the steps taken."""
    x1 = snopt.odeint(problem.field, problem.x0, TIMES, adjoint="checkpoint", **s)[-1]
    found = torch.autograd.grad(problem.cost(x1), tuple(problem.field.parameters()))
    return torch.cat([part.reshape(-1) for part in found])


Method = Callable[[Problem, Tensor, dict[str, Any]], Tensor]

#: Name: (what it is compared with, how it is computed).
CONTENDERS: dict[str, tuple[str, Method]] = {
    "gradient, adjoint": ("gradient", lambda p, v, s: recursive_gradient(*p.args, **s)),
    "gradient, Theorem 1": ("gradient", lambda p, v, s: differential_programming(*p.args, **s).Q_u),
    "gradient, checkpoint": ("gradient", lambda p, v, s: discrete_gradient(p, s)),
    "recursive adjoint": ("hessian", lambda p, v, s: recursive_hessian_product(*p.args, v, **s)),
    "exact": (
        "hessian",
        lambda p, v, s: v @ differential_programming(*p.args, exact=True, **s).Q_uu,
    ),
    "exact, checkpoint": (
        "hessian",
        lambda p, v, s: (
            v @ differential_programming(*p.args, exact=True, adjoint="checkpoint", **s).Q_uu
        ),
    ),
    "product, backsolve": (
        "hessian",
        lambda p, v, s: hessian_vector_product(*p.args, v, adjoint="backsolve", **s),
    ),
    "product, checkpoint": ("hessian", lambda p, v, s: hessian_vector_product(*p.args, v, **s)),
    "Theorem 1": ("ggn", lambda p, v, s: v @ differential_programming(*p.args, **s).Q_uu),
    "Theorem 1, checkpoint": (
        "ggn",
        lambda p, v, s: v @ differential_programming(*p.args, adjoint="checkpoint", **s).Q_uu,
    ),
    "Proposition 2": (
        "ggn",
        lambda p, v, s: low_rank(*p.args[:3], hessian_factors(p.cost), **s).product(v),
    ),
    "GGN product, checkpoint": ("ggn", lambda p, v, s: ggn_vector_product(*p.args, v, **s)),
}


def measure(case: str, methods: list[str]) -> dict[str, Any]:
    """All contenders on one case: error, seconds and evaluations by method and coarseness."""
    torch.manual_seed(0)
    problem = CASES[case]()
    v = torch.linalg.qr(torch.randn(problem.n, VECTORS, dtype=DTYPE))[0].mT
    true = truth(problem, v)
    found: dict[str, Any] = {"m": problem.x0.numel(), "n": problem.n, "methods": {}}
    for method in methods:
        rows = found["methods"][method] = {}
        for grade in GRADES[method]:
            for name, (target, run) in CONTENDERS.items():
                if method == "implicit_adams" and ", checkpoint" in name and target != "gradient":
                    continue  # a black box, whose steps cannot be run again
                problem.field.count, start = 0, time.perf_counter()
                result = run(problem, v, solver(method, grade)).detach()
                seconds = time.perf_counter() - start
                error = torch.linalg.vector_norm(result - true[target])
                error = float(error / torch.linalg.vector_norm(true[target]))
                row = {"grade": grade, "error": error, "seconds": round(seconds, 3)}
                rows.setdefault(name, []).append({**row, "evaluations": problem.field.count})
                print(f"{case:8} {method:15} {grade:8.2g} {name:24} {error:.2e} {seconds:.2f} s")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--methods", nargs="+", default=list(GRADES), choices=list(GRADES))
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--plot", action="store_true")
    chosen = parser.parse_args()
    if chosen.plot:
        draw(json.loads(chosen.out.read_text()), chosen.out.with_suffix(".png"))
        return
    kept = json.loads(chosen.out.read_text()) if chosen.out.exists() else {"cases": {}}
    for case in chosen.cases:
        found = measure(case, chosen.methods)
        old = kept["cases"].get(case, found)
        kept["cases"][case] = {**found, "methods": {**old["methods"], **found["methods"]}}
        kept["environment"] = environment()
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(kept, indent=1) + "\n")


# ------------------------------------------------------------------------------------ picture

LINES = {
    "gradient, adjoint": ("0.6", "--", "gradient, adjoint"),
    "recursive adjoint": ("tab:red", "-", "Hessian, recursive adjoint"),
    "exact": ("tab:blue", "-", "Hessian, Theorem 1 exact"),
    "product, backsolve": ("tab:cyan", ":", "Hessian, product by backsolve"),
    "product, checkpoint": ("tab:green", "-", "Hessian, product by checkpoint"),
    "Theorem 1": ("tab:purple", "-", "Gauss-Newton, Theorem 1"),
}


def draw(kept: dict[str, Any], picture: Path) -> None:
    """Error over coarseness, a row of panels for each case."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cases = kept["cases"]
    figure, axes = plt.subplots(
        len(cases), 3, figsize=(12, 3.1 * len(cases)), layout="constrained", squeeze=False
    )
    for row, case in zip(axes, [case for case in CASES if case in cases], strict=True):
        found = cases[case]
        for panel, method in zip(row, GRADES, strict=True):
            for name, (colour, style, label) in LINES.items():
                points = found["methods"][method].get(name, [])
                xs, ys = [p["grade"] for p in points], [p["error"] for p in points]
                panel.loglog(xs, ys, style, color=colour, marker="o", ms=3, label=label)
            panel.set_title(f"{case} (m={found['m']}, n={found['n']}), {method}", fontsize=10)
            panel.set_xlabel("tolerance" if method == "dopri5" else "step")
            if method != "dopri5":
                panel.set_xticks(GRADES[method], [f"1/{1 / h:.0f}" for h in GRADES[method]])
                panel.minorticks_off()
            panel.grid(alpha=0.3)
        row[0].set_ylabel("relative error")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(picture, dpi=110)
    print(picture)


if __name__ == "__main__":
    main()
