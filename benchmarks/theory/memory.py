"""Peak memory of second-order methods as the problem grows (the paper's Table 2).

Two figures a point: the most bytes of tensors alive at one time, and how far a process of its own
grows while it computes derivatives once, less what the same method takes on a tiny problem. The
second contains what the allocator holds on to. The field is ``linear -> tanh -> linear`` on d
dimensions for a batch of points, so that m = batch * d and n = 2 (d^2 + d); the exponent is the
slope of a straight line through the logarithms. Double precision, rk4.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.files import RESULTS, environment, read, write
from snopt.lab.paper.curves import clean
from snopt.lab.paper.growth import AXES, METHODS, Size, slope
from snopt.lab.paper.live_tensors import peak_megabytes
from snopt.lab.paper.peak import in_fresh_process, rise

#: What Table 2 says.
CLAIMS = {
    "m": {"Theorem 1": 2, "Proposition 2": 1, "SNOpt": 1, "first-order adjoint": 1},
    "n": {"Theorem 1": 2, "Proposition 2": 1, "SNOpt": 1, "first-order adjoint": 1},
    "R": {"Proposition 2": 1},
    "steps": dict.fromkeys(("Theorem 1", "Proposition 2", "SNOpt", "first-order adjoint"), 0),
}
TINY = Size(4, 2, 1, 2)


def megabytes(method: str, size: Size) -> float:
    """How far a process of its own grows."""
    sizes = map(str, size)
    return in_fresh_process("benchmarks.theory", "memory", "--peak", method, *sizes)


def measure(axis: str, method: str, tiny: float, most: int | None) -> dict[str, Any]:
    """Grow one size; megabytes of the process and of live tensors, and their exponents."""
    points = []
    for size in AXES[axis][method][:most]:
        tensors = peak_megabytes(lambda size=size: METHODS[method](size))
        points.append(
            {
                "x": size.along(axis),
                "process": round(megabytes(method, size) - tiny, 3),
                "tensors": round(tensors, 3),
                **{name: size.along(name) for name in AXES},
            }
        )
    found = {"points": points, "claimed": CLAIMS[axis].get(method), "tiny_process": round(tiny, 3)}
    for key in ("tensors", "process"):
        xs, ys = [p["x"] for p in points], [p[key] for p in points]
        found[f"{key}_exponent"] = round(slope(xs, ys), 3)
        print(f"{axis:6} {method:22} {key:8} exponent {found[f'{key}_exponent']:5.2f}  {ys}")
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=AXES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--sizes", type=int, help="only the first so many; two at least")
    parser.add_argument("--out", type=Path, default=RESULTS / "second_order_memory.json")
    parser.add_argument("--plot", action="store_true", help="only the picture of what is kept")
    parser.add_argument("--peak", nargs=5, metavar=("METHOD", "D", "BATCH", "R", "STEPS"))


def main(chosen: argparse.Namespace) -> None:
    """Measure along the axes, or draw."""
    if chosen.peak:
        method, *size = chosen.peak
        print(json.dumps(rise(lambda: METHODS[method](Size(*map(int, size))))))
        return
    kept = read(chosen.out) or {"axes": {}}
    if chosen.plot:
        draw(kept, chosen.out.with_suffix(".png"))
        return
    tiny: dict[str, float] = {}
    for axis in chosen.axes:
        for method in (method for method in AXES[axis] if method in chosen.methods):
            if method not in tiny:
                tiny[method] = megabytes(method, TINY)
            found = measure(axis, method, tiny[method], chosen.sizes)
            kept["axes"].setdefault(axis, {})[method] = found
            write(chosen.out, {**kept, "environment": environment()})


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
    figure = Figure(figsize=(15, 4.2), layout="constrained")
    panels = figure.subplots(1, 4)
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
        clean(panel, titles[axis])
        if axis in ("R", "steps"):
            ticks = {"R": [4, 8, 16, 32, 64], "steps": [2, 8, 32]}[axis]
            panel.set_xticks(ticks, map(str, ticks))
            panel.minorticks_off()
        panel.legend(title="fitted exponent", fontsize=8)
    panels[0].set_ylabel("peak memory, MB: tensors (line), process (dots)")
    figure.savefig(picture, dpi=110)
