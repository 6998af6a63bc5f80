"""Print the tables of docs/optimizer.md from the stored results.

python -m benchmarks.optimizer_table
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

RESULTS = Path(__file__).parent / "results"


def learning(task: str, key: str, digits: int) -> None:
    """One row a method: mean over seeds at its best learning rate, then every seed at the end."""
    rows = []
    for path in sorted(RESULTS.glob(f"optimizer_learning_{task}_*.json")):
        stored = json.loads(path.read_text())
        runs = [r["curve"] for r in stored["runs"] if r["lr"] == stored["best"] and r["curve"]]
        points = [p["iteration"] for p in max(runs, key=len)]
        whole = [run for run in runs if len(run) == len(points)]
        values = [mean(run[i][key] for run in whole) for i in range(len(points))]
        seconds = mean(run[-1]["seconds"] / run[-1]["iteration"] for run in whole)
        ends = ", ".join(f"{run[-1][key]:.{digits}f}" for run in whole)
        rows.append((stored["method"], stored["best"], values, seconds, ends, len(whole), points))
    if not rows:
        return
    points = rows[0][-1]
    head = " | ".join(f"{key} at {p}" for p in points)
    print(f"\n| {task} | rate | {head} | s/iteration | each seed at the end |")
    print("|---" * (len(points) + 4) + "|")
    for method, best, values, seconds, ends, _, _ in rows:
        cells = " | ".join(f"{v:.{digits}f}" for v in values)
        print(f"| {method} | {best:g} | {cells} | {seconds:.2f} | {ends} |")


def cost() -> None:
    print("\n| workload | engine | refresh / Adam | amortised / Adam | amortised / torchdiffeq |")
    print("|---|---|---|---|---|")
    for path in sorted(RESULTS.glob("optimizer_cost_*.json")):
        for case, found in json.loads(path.read_text())["cases"].items():
            cells = " | ".join(
                ratio(found[key])
                for key in (
                    "refresh_over_adam",
                    "amortised_over_adam",
                    "amortised_over_torchdiffeq",
                )
            )
            print(f"| {case} | {found['engine']} | {cells} |")


def ratio(value: dict[str, Any]) -> str:
    return f"{value['median']:.2f} ({value['lower']:.2f}-{value['upper']:.2f})"


if __name__ == "__main__":
    learning("mnist", "accuracy", 1)
    learning("digits", "loss", 4)
    cost()
