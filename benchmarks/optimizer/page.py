"""Put tables of docs/optimizer.md in their places, from the stored results."""

from __future__ import annotations

import argparse

from benchmarks.files import DOCS, RESULTS, put, read, spread
from benchmarks.optimizer import releases
from snopt.lab.table import markdown

RATIOS = ("refresh_over_adam", "amortised_over_adam", "amortised_over_torchdiffeq")


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
    """Write the tables of costs and of two source trees."""
    trees = releases.table(read(releases.FILE)["tasks"])
    put(DOCS / "optimizer.md", {"cost": cost(), "releases": trees})
