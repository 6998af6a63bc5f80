"""Put the tables of docs/optimizer.md in their places, from the stored results."""

from __future__ import annotations

import argparse
from statistics import mean
from typing import Any

from benchmarks.files import DOCS, RESULTS, put, read, spread
from snopt.lab.table import markdown

NAMES = {
    "snopt_default": "SNOpt, not tuned",
    "snopt": "SNOpt",
    "snopt_amortized": "SNOpt, `amortized`",
    "soap": "SOAP",
    "muon": "Muon",
    "adam": "Adam",
    "sgd": "SGD, momentum 0.9",
}
RATIOS = ("refresh_over_adam", "amortised_over_adam", "amortised_over_torchdiffeq")


def learning(task: str, key: str, digits: int) -> str:
    """Tabulate methods: means over seeds at the chosen rate, then every seed at the end."""
    methods = read(RESULTS / f"optimizer_learning_{task}.json")["methods"]
    points = [p["iteration"] for p in methods["snopt"]["runs"][0]["curve"]]
    head = [
        "method",
        "rate",
        *(f"{key} at {point}" for point in points),
        *(f"seconds to {point}" for point in points[-2:]),
        "each seed at the end",
    ]
    rows = []
    for method in (name for name in NAMES if name in methods):
        found = methods[method]
        curves = [run["curve"] for run in found["runs"] if len(run["curve"]) == len(points)]
        broken = len(found["runs"]) - len(curves)
        ends = [f"{curve[-1][key]:.{digits}f}" for curve in curves] + ["broke off"] * broken
        rows.append(
            [
                NAMES[method],
                f"{found['best']:g}",
                *_means(curves, key, range(len(points)), digits),
                *_means(curves, "seconds", range(len(points) - 2, len(points)), 1),
                ", ".join(ends),
            ]
        )
    return markdown(head, rows)


def _means(curves: list[Any], key: str, where: range, digits: int) -> list[str]:
    return [f"{mean(c[i][key] for c in curves):.{digits}f}" if curves else "-" for i in where]


def cost() -> str:
    """Tabulate workloads and engines: medians and quartiles of ratios, peak memory."""
    names = [key.replace("_over_", " / ") for key in RATIOS]
    rows = []
    for path in sorted(RESULTS.glob("optimizer_cost_*.json")):
        for case, found in read(path)["cases"].items():
            used = found.get("megabytes")
            memory = f"{used['refresh'] / used['adam']:.2f}" if used else "-"
            ratios = [spread(found[key]) for key in RATIOS]
            rows.append([case, f"`{found['engine'].partition('_')[2]}`", *ratios, memory])
    return markdown(["workload", "engine", *names, "memory / adam"], rows)


def main(chosen: argparse.Namespace) -> None:
    """Write the tables."""
    tables = {
        "mnist": learning("mnist", "accuracy", 1),
        "digits": learning("digits", "loss", 4),
        "cost": cost(),
    }
    put(DOCS / "optimizer.md", tables)
