"""Peak memory of second-order methods as the problem grows (the paper's Table 2).

    python -m benchmarks.second_order_memory [--axes m n R steps] [--methods ...] [--out FILE]
    python -m benchmarks.second_order_memory --plot       # picture of a kept file
    python -m benchmarks.second_order_memory --tensors    # count tensors anew, keep processes

Two figures a point: the most bytes of tensors alive at one time, and how far a process of its own
grows while it computes derivatives once, less what the same method takes on a tiny problem. The
second contains what the allocator holds on to. The field is ``linear -> tanh -> linear`` on d
dimensions for a batch of points, so that m = batch * d and n = 2 (d^2 + d); the exponent is the
slope of a straight line through the logarithms. Double precision, rk4.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import snopt
from benchmarks.environment import environment
from benchmarks.live_tensors import peak_megabytes
from benchmarks.peak import in_fresh_process, rise
from snopt.curvature.low_rank import low_rank
from snopt.curvature.matrix_odes import differential_programming
from snopt.curvature.outer_products import OuterProducts
from snopt.curvature.products import hessian_vector_product
from snopt.optim.snopt import SNOpt

FILE = Path(__file__).parent / "results" / "second_order_memory.json"
DTYPE = torch.float64


class Square(nn.Module):
    """linear -> tanh -> linear, d wide."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.first = nn.Linear(d, d, dtype=DTYPE)
        self.last = nn.Linear(d, d, dtype=DTYPE)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


def cost(x: Tensor) -> Tensor:
    return x.square().mean()


def theorem_1(d: int, batch: int, R: int, steps: int, adjoint: str = "backsolve") -> None:
    x0 = torch.randn(batch, d, dtype=DTYPE)
    differential_programming(Square(d), x0, (0.0, 1.0), cost, adjoint=adjoint, **rk4(steps))


def proposition_2(d: int, batch: int, R: int, steps: int) -> None:
    x0 = torch.randn(batch, d, dtype=DTYPE)
    y = OuterProducts(torch.randn(R, batch * d, dtype=DTYPE), torch.ones(R, dtype=DTYPE))
    low_rank(Square(d), x0, (0.0, 1.0), y, **rk4(steps))


def optimizer_step(d: int, batch: int, R: int, steps: int) -> None:
    block = snopt.NeuralODE(Square(d), adjoint="backsolve", **rk4(steps))
    optimizer = SNOpt(block, lr=0.01, refresh_every=1, refresh_first=1)
    cost(block(torch.randn(batch, d, dtype=DTYPE))).backward()
    optimizer.step()


def first_order(d: int, batch: int, R: int, steps: int) -> None:
    block = snopt.NeuralODE(Square(d), adjoint="backsolve", **rk4(steps))
    cost(block(torch.randn(batch, d, dtype=DTYPE))).backward()


def product(d: int, batch: int, R: int, steps: int, adjoint: str) -> None:
    field, x0 = Square(d), torch.randn(batch, d, dtype=DTYPE)
    v = torch.randn(2 * (d * d + d), dtype=DTYPE)
    hessian_vector_product(field, x0, (0.0, 1.0), cost, v, adjoint=adjoint, **rk4(steps))


def rk4(steps: int) -> dict[str, Any]:
    return {"method": "rk4", "options": {"step_size": 1.0 / steps}}


METHODS: dict[str, Callable[..., None]] = {
    "Theorem 1": theorem_1,
    "Proposition 2": proposition_2,
    "SNOpt": optimizer_step,
    "first-order adjoint": first_order,
    "Theorem 1, checkpoint": lambda *a: theorem_1(*a, adjoint="checkpoint"),
    "product, backsolve": lambda *a: product(*a, adjoint="backsolve"),
    "product, checkpoint": lambda *a: product(*a, adjoint="checkpoint"),
}

Sizes = list[tuple[int, int, int, int]]  # d, batch, R, steps

#: What grows, and for each method the sizes at which what grows outweighs the rest.
AXES: dict[str, dict[str, Sizes]] = {
    "m": {
        "Theorem 1": [(4, b, 1, 2) for b in (60, 100, 160, 256)],
        "Proposition 2": [(8, b, 8, 2) for b in (1000, 2000, 4000, 8000)],
        "SNOpt": [(16, b, 1, 2) for b in (8000, 16000, 32000, 64000)],
        "first-order adjoint": [(16, b, 1, 2) for b in (8000, 16000, 32000, 64000)],
    },
    "n": {
        "Theorem 1": [(d, 2, 1, 2) for d in (12, 16, 20, 26)],
        "Proposition 2": [(d, 1, 8, 2) for d in (128, 180, 256, 360)],
        "SNOpt": [(d, 2, 1, 2) for d in (300, 420, 600, 800)],
        "first-order adjoint": [(d, 2, 1, 2) for d in (400, 560, 800, 1100)],
    },
    "R": {"Proposition 2": [(128, 8, R, 2) for R in (4, 8, 16, 32, 64)]},
    "steps": {
        "Theorem 1": [(16, 8, 1, s) for s in (2, 8, 32)],
        "Proposition 2": [(64, 64, 16, s) for s in (2, 8, 32)],
        "SNOpt": [(64, 2000, 1, s) for s in (2, 8, 32)],
        "first-order adjoint": [(64, 2000, 1, s) for s in (2, 8, 32)],
        "Theorem 1, checkpoint": [(16, 8, 1, s) for s in (2, 8, 32)],
        "product, backsolve": [(16, 8000, 1, s) for s in (2, 8, 32)],
        "product, checkpoint": [(16, 8000, 1, s) for s in (2, 8, 32)],
    },
}
#: What Table 2 says.
CLAIMS = {
    "m": {"Theorem 1": 2, "Proposition 2": 1, "SNOpt": 1, "first-order adjoint": 1},
    "n": {"Theorem 1": 2, "Proposition 2": 1, "SNOpt": 1, "first-order adjoint": 1},
    "R": {"Proposition 2": 1},
    "steps": dict.fromkeys(("Theorem 1", "Proposition 2", "SNOpt", "first-order adjoint"), 0),
}
TINY = (4, 2, 1, 2)


def abscissa(axis: str, size: tuple[int, int, int, int]) -> int:
    d, batch, R, steps = size
    return {"m": d * batch, "n": 2 * (d * d + d), "R": R, "steps": steps}[axis]


def figure_of(method: str, size: tuple[int, int, int, int]) -> float:
    return in_fresh_process(__name__ if __name__ != "__main__" else __spec__.name, method,
                            *map(str, size))  # fmt: skip


def slope(xs: list[float], ys: list[float]) -> float:
    """Least squares through the logarithms."""
    a = [math.log(x) for x in xs]
    b = [math.log(max(y, 1e-3)) for y in ys]
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    top = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return top / sum((x - mean_a) ** 2 for x in a)


def measure(axis: str, method: str, tiny: float) -> dict[str, Any]:
    points = []
    for size in AXES[axis][method]:
        d, batch, R, steps = size
        peak = figure_of(method, size) - tiny
        points.append({"x": abscissa(axis, size), "process": round(peak, 3), "m": d * batch,
                       "n": 2 * (d * d + d), "R": R, "steps": steps})  # fmt: skip
    return {"points": points, "claimed": CLAIMS[axis].get(method), "tiny_process": round(tiny, 3)}


def count_tensors(axis: str, method: str, found: dict[str, Any]) -> None:
    """Add the bytes of live tensors and both exponents."""
    points = found["points"]
    for point, size in zip(points, AXES[axis][method], strict=True):
        point["tensors"] = round(peak_megabytes(lambda size=size: METHODS[method](*size)), 3)
    for key in ("tensors", "process"):
        xs, ys = [p["x"] for p in points], [p[key] for p in points]
        found[f"{key}_exponent"] = round(slope(xs, ys), 3)
        print(f"{axis:6} {method:22} {key:8} exponent {found[f'{key}_exponent']:5.2f}  {ys}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=list(AXES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--tensors", action="store_true")
    parser.add_argument("child", nargs="*", help="method d batch R steps, in a fresh process")
    chosen = parser.parse_args()
    if chosen.child:
        method, *size = chosen.child
        print(json.dumps(rise(lambda: METHODS[method](*map(int, size)))))
        return
    if chosen.plot:
        draw(json.loads(chosen.out.read_text()), chosen.out.with_suffix(".png"))
        return
    kept = json.loads(chosen.out.read_text()) if chosen.out.exists() else {"axes": {}}
    if chosen.tensors:
        for axis, methods in kept["axes"].items():
            for method, found in methods.items():
                count_tensors(axis, method, found)
        chosen.out.write_text(json.dumps(kept, indent=1) + "\n")
        return
    tiny: dict[str, float] = {}
    for axis in chosen.axes:
        for method in AXES[axis]:
            if method in chosen.methods:
                if method not in tiny:
                    tiny[method] = figure_of(method, TINY)
                found = measure(axis, method, tiny[method])
                count_tensors(axis, method, found)
                kept["axes"].setdefault(axis, {})[method] = found
                kept["environment"] = environment()
                chosen.out.parent.mkdir(parents=True, exist_ok=True)
                chosen.out.write_text(json.dumps(kept, indent=1) + "\n")


COLOURS = {
    "Theorem 1": "tab:purple",
    "Proposition 2": "tab:blue",
    "SNOpt": "tab:orange",
    "first-order adjoint": "0.4",
    "Theorem 1, checkpoint": "tab:pink",
    "product, backsolve": "tab:cyan",
    "product, checkpoint": "tab:green",
}


def draw(kept: dict[str, Any], picture: Path) -> None:
    """Megabytes over what grows, one panel an axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 4, figsize=(15, 4.2), layout="constrained")
    titles = {"m": "size of the state, m", "n": "number of parameters, n", "R": "rank R",
              "steps": "number of steps"}  # fmt: skip
    for panel, axis in zip(panels, AXES, strict=True):
        for method, found in kept["axes"].get(axis, {}).items():
            xs = [p["x"] for p in found["points"]]
            label = f"{method}: {found['tensors_exponent']:.2f}"
            for key, style in {"tensors": "o-", "process": ":"}.items():
                ys = [p[key] for p in found["points"]]
                named = label if key == "tensors" else None
                panel.loglog(xs, ys, style, color=COLOURS[method], label=named)
        panel.set_xlabel(titles[axis])
        if axis in ("R", "steps"):
            ticks = {"R": [4, 8, 16, 32, 64], "steps": [2, 8, 32]}[axis]
            panel.set_xticks(ticks, map(str, ticks))
            panel.minorticks_off()
        panel.legend(title="fitted exponent", fontsize=8)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("peak memory, MB: tensors (line), process (dots)")
    figure.savefig(picture, dpi=110)
    print(picture)


if __name__ == "__main__":
    main()
