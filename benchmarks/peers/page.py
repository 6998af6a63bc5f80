"""Put the tables of ``results/peers.json`` and ``results/growth.json`` into docs/peers.md.

The page itself is written by hand. A table is replaced when its part has been measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.engine.profile import ARITHMETIC
from benchmarks.files import DOCS, RESULTS, WORKLOADS, label, put, read, save_figure, spread
from benchmarks.peers.figures import UNITS, draw_growth, draw_peers
from snopt.lab.paper.growth import slope
from snopt.lab.table import cell_text, markdown

OURS = {"snopt_checkpoint": "eager", "snopt_compiled": "compiled"}
ORDER = (*WORKLOADS, "digits", "mnist")
NOTHING = "–"
Measured = dict[str, Any]


def ordered(measured: Measured) -> list[tuple[str, Measured]]:
    """Return workloads and tasks in a fixed order."""
    return [(name, measured[name]) for name in ORDER if name in measured]


def number(value: float | None) -> str:
    """Format a number with three digits, or a dash."""
    return NOTHING if value is None else cell_text(value)


def contenders(measured: Measured) -> list[str]:
    """Return everyone that ran somewhere, by name."""
    return sorted({name for found in measured.values() for name in found["contenders"]})


def refused(cases: Iterable[tuple[str, Measured]]) -> str:
    """Return a sentence per contender that did not run, with its reason."""
    reasons = [
        f"`{name}` on `{case}`: {why}."
        for case, found in cases
        for name, why in found["cannot_run"].items()
    ]
    return "\n\nDid not run: " + " ".join(reasons) if reasons else ""


def shortly(measured: Measured) -> str:
    libraries = ("torchdiffeq", "torchdyn", "torchode", "diffrax")
    rows = []
    for case, found in ordered(measured):
        everyone = found["contenders"]
        own = [name for name in OURS if name in everyone]
        ours = min(own, key=lambda name: everyone[name]["both"]["median"])
        cells = [f"{OURS[ours]}, {number(everyone[ours]['both']['median'])} s"]
        for library in libraries:
            ratios = {
                name.partition("_")[2]: figures["both_over"][ours]["median"]
                for name, figures in everyone.items()
                if name.startswith(library) and ours in figures.get("both_over", {})
            }
            best = min(ratios, key=ratios.__getitem__, default=None)
            cells.append(NOTHING if best is None else f"{ratios[best]:.2f} ({best})")
        rows.append([label(case, found["form"]), *cells])
    return markdown(["workload", "ours", *libraries], rows)


def engines(measured: Measured, megabytes: Measured) -> str:
    """Tabulate seconds (of the loss alone), gradient error and megabytes, a row per library."""
    found = ordered(measured)

    def cell(case: str, name: str) -> str:
        figures = measured[case]["contenders"].get(name)
        if figures is None:
            return NOTHING
        alone = f" ({number(figures['forward']['median'])})" if "forward" in figures else ""
        used = megabytes.get(case, {}).get("megabytes", {}).get(name)
        parts = [
            f"{number(figures['both']['median'])}{alone}",
            f"{figures['error']['parameters']:.0e}",
            number(used),
        ]
        return " / ".join(parts)

    rows = [
        [f"`{name}`", *(cell(case, name) for case, _ in found)] for name in contenders(measured)
    ]
    errors = [f"{figures['reference_error']['parameters']:.0e}" for _, figures in found]
    rows.append(["error of the reference", *errors])
    return markdown(["library", *(label(case, each["form"]) for case, each in found)], rows)


def optimizers(measured: Measured) -> str:
    """Tabulate seconds of an iteration over Adam's, a row per optimizer."""
    found = ordered(measured)

    def cell(figures: Measured | None) -> str:
        return NOTHING if figures is None else spread(figures["over_adam"])

    rows = []
    for name in contenders(measured):
        each = [case["contenders"].get(name) for _, case in found]
        every = next(figures["refresh_every"] for figures in each if figures)
        interval = NOTHING if every == 1 else str(every)
        rows.append([f"`{name}`", interval, *map(cell, each)])
    names = [label(case, each["form"]) for case, each in found]
    return markdown(["optimizer", "refresh every", *names], rows) + refused(found)


def targets(measured: Measured) -> str:
    """Tabulate iterations and seconds to each accuracy, a row per optimizer."""
    found = ordered(measured)
    some = next(iter(measured.values()))
    levels = list(next(iter(some["contenders"].values()))["targets"])

    def cells(figures: Measured | None) -> list[str]:
        if figures is None:
            return [NOTHING] * (1 + len(levels))
        told = [f"{figures['rate']:g}"]
        for level in levels:
            there = figures["targets"][level]
            seeds = f"{there['reached']} of {len(there['seeds'])} seeds"
            reached = f"{number(there['iterations'])} ({number(there['seconds'])} s)"
            told.append(reached if there["seconds"] is not None else seeds)
        return told

    header = ["optimizer"]
    for task, _ in found:
        header += [f"`{task}`: rate", *(f"to {level} %" for level in levels)]
    rows = [
        [f"`{name}`", *(c for _, task in found for c in cells(task["contenders"].get(name)))]
        for name in contenders(measured)
    ]
    return markdown(header, rows) + refused(found)


def growth(measured: Measured) -> str:
    """Tabulate the exponents of time and memory, a row per size that grows."""
    names = contenders(measured["axes"])
    rows = []
    for axis, found in measured["axes"].items():
        sizes, cells = found["sizes"], []
        for name in names:
            figures = found["contenders"].get(name, {})
            powers = [slope(sizes, figures[key]) for key in UNITS if key in figures]
            cells.append(" / ".join(f"{power:.2f}" for power in powers) or NOTHING)
        rows.append([f"{axis}, {sizes[0]} to {sizes[-1]}", *cells])
    return markdown(["size", *(f"`{name}`" for name in names)], rows)


def profile(measured: Measured) -> str:
    """Tabulate the share of each kind of work, with the share that is not arithmetic last."""
    found = ordered(measured)
    kinds = dict.fromkeys(kind for _, each in found for kind in each["operators"]["kinds"])

    def shares(*counted: str) -> list[str]:
        parts = [
            [each["operators"]["kinds"].get(kind, 0.0) for kind in counted] for _, each in found
        ]
        return [f"{100 * sum(part):.0f} %" for part in parts]

    rows = [[kind, *shares(kind)] for kind in kinds]
    rest = shares(*(kind for kind in kinds if kind not in ARITHMETIC))
    rows.append(["**not arithmetic**", *(f"**{share}**" for share in rest)])
    calls = [f"{each['operators']['calls'] / each['units']:.0f}" for _, each in found]
    rows.append(["operator calls per " + " / ".join(each["unit"] for _, each in found), *calls])
    return markdown(["work", *(f"`{case}`" for case, _ in found)], rows)


def versions(environment: Measured) -> str:
    """Return the packages that were compared, in a line."""
    listed = ", ".join(f"{name} {number}" for name, number in environment["packages"].items())
    return f"{environment['date'][:10]}: {listed}."


PLACES: dict[str, tuple[str, Callable[[Measured], str]]] = {
    "peers-short": ("engines", shortly),
    "peers-iteration": ("optimizers", optimizers),
    "peers-targets": ("targets", targets),
    "peers-growth": ("growth", growth),
    "peers-profile": ("profile", profile),
}
"""Places on the page: the part that was measured, and the table made of it."""


def tables(peers: Measured, grown: Measured) -> dict[str, str]:
    """Return the tables of the measured parts by their places on the page."""
    measured = {**peers, "growth": grown}
    found = {
        name: make(measured[part]) for name, (part, make) in PLACES.items() if measured.get(part)
    }
    if peers.get("engines"):
        found["peers-engines"] = engines(peers["engines"], peers.get("memory", {}))
    for figures in (each for part in peers.values() for each in part.values()):
        # All parts share their surroundings but the date.
        return {**found, "peers-environment": versions(figures["environment"])}
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of peers.md and its figures")


def main(chosen: argparse.Namespace) -> None:
    """Write the tables and the figures."""
    peers, grown = read(RESULTS / "peers.json"), read(RESULTS / "growth.json")
    if grown:
        save_figure(chosen.out / "growth.png", partial(draw_growth, axes=grown["axes"]))
    if peers.get("engines"):
        save_figure(chosen.out / "peers.png", partial(draw_peers, engines=peers["engines"]), 120)
    put(chosen.out / "peers.md", tables(peers, grown))
