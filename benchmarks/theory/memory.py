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
from pathlib import Path
from typing import Any

from benchmarks.files import environment
from snopt.lab.paper.growth import AXES, METHODS, Size, slope
from snopt.lab.paper.live_tensors import peak_megabytes
from snopt.lab.paper.peak import in_fresh_process, rise

FILE = Path(__file__).parent / "results" / "second_order_memory.json"

#: What Table 2 says.
CLAIMS = {
    "m": {"Theorem 1": 2, "Proposition 2": 1, "SNOpt": 1, "first-order adjoint": 1},
    "n": {"Theorem 1": 2, "Proposition 2": 1, "SNOpt": 1, "first-order adjoint": 1},
    "R": {"Proposition 2": 1},
    "steps": dict.fromkeys(("Theorem 1", "Proposition 2", "SNOpt", "first-order adjoint"), 0),
}
TINY = Size(4, 2, 1, 2)


def figure_of(method: str, size: Size) -> float:
    return in_fresh_process(__name__ if __name__ != "__main__" else __spec__.name, method,
                            *map(str, size))  # fmt: skip


def measure(axis: str, method: str, tiny: float) -> dict[str, Any]:
    points = []
    for size in AXES[axis][method]:
        peak = figure_of(method, size) - tiny
        sizes = {name: size.along(name) for name in AXES}
        points.append({"x": size.along(axis), "process": round(peak, 3), **sizes})
    return {"points": points, "claimed": CLAIMS[axis].get(method), "tiny_process": round(tiny, 3)}


def count_tensors(axis: str, method: str, found: dict[str, Any]) -> None:
    """Add the bytes of live tensors and both exponents."""
    points = found["points"]
    for point, size in zip(points, AXES[axis][method], strict=True):
        point["tensors"] = round(peak_megabytes(lambda size=size: METHODS[method](size)), 3)
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
        print(json.dumps(rise(lambda: METHODS[method](Size(*map(int, size))))))
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
