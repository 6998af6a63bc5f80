"""Put the tables of ``results/peers.json`` and ``results/growth.json`` into docs/peers.md.

The page itself is written by hand. A table is replaced when its part has been measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.files import (
    DOCS,
    RESULTS,
    WORKLOADS,
    label,
    put,
    read,
    spread,
    surroundings,
)
from benchmarks.peers.figures import draw_growth, draw_peers
from snopt.lab.table import markdown

OURS = {"snopt_checkpoint": "eager", "snopt_compiled": "compiled"}
ORDER = (*WORKLOADS, "digits", "mnist")
ARITHMETIC = ("matrix products", "elementwise", "reductions")
"""Kinds of work, as :mod:`benchmarks.peers.profile` names them, that the mathematics asks for."""
PARTS = ("engines", "memory", "optimizers", "targets", "profile")
Measured = dict[str, Any]


def ordered(measured: Measured) -> list[tuple[str, Measured]]:
    """Return workloads and tasks in a fixed order."""
    return [(name, measured[name]) for name in ORDER if name in measured]


def number(value: float | None) -> str:
    """Format a number with three digits, or a dash."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def refused(found: Measured, where: str, columns: int) -> list[list[str]]:
    """Return rows of those that did not run."""
    blank = [""] * (columns - 3)
    return [[where, f"`{name}`", why, *blank] for name, why in found["cannot_run"].items()]


def shortly(measured: Measured) -> str:
    libraries = ("torchdiffeq", "torchdyn", "torchode", "diffrax")
    rows = []
    for case, found in ordered(measured):
        contenders = found["contenders"]
        own = [name for name in OURS if name in contenders]
        ours = min(own, key=lambda name: contenders[name]["both"]["median"])
        cells = [f"{OURS[ours]}, {number(contenders[ours]['both']['median'])} s"]
        for library in libraries:
            ratios = {
                name.partition("_")[2]: figures["both_over"][ours]["median"]
                for name, figures in contenders.items()
                if name.startswith(library) and ours in figures.get("both_over", {})
            }
            best = min(ratios, key=ratios.__getitem__, default=None)
            cells.append("–" if best is None else f"{ratios[best]:.2f} ({best})")
        rows.append([label(case, found["form"]), *cells])
    return markdown(["workload", "ours", *libraries], rows)


def by_library(measured: Measured, cell: Callable[[Measured, str], str | None]) -> str:
    """Tabulate a row per library and a column per workload; a dash where it did not run."""
    found = ordered(measured)
    names = sorted({name for _, figures in found for name in figures["contenders"]})
    rows = [[f"`{n}`", *(cell(figures, n) or "–" for _, figures in found)] for n in names]
    return markdown(["library", *(label(case, figures["form"]) for case, figures in found)], rows)


def engines(measured: Measured) -> str:
    """Tabulate median seconds of loss and gradient, in brackets those of the loss alone."""

    def cell(found: Measured, name: str) -> str | None:
        figures = found["contenders"].get(name)
        if figures is None:
            return None
        alone = f" ({number(figures['forward']['median'])})" if "forward" in figures else ""
        return number(figures["both"]["median"]) + alone

    return by_library(measured, cell)


def errors(measured: Measured) -> str:
    """Tabulate the relative error of the parameters' gradient, and of the reference itself."""

    def cell(found: Measured, name: str) -> str | None:
        figures = found["contenders"].get(name)
        return None if figures is None else f"{figures['error']['parameters']:.1e}"

    reference = [f"{found['reference_error']['parameters']:.1e}" for _, found in ordered(measured)]
    last = " | ".join(["`reference`", *reference])
    return f"{by_library(measured, cell)}\n| {last} |"


def memory(measured: Measured) -> str:
    """Tabulate the megabytes that one iteration adds to a fresh process."""
    found = ordered(measured)
    names = sorted({name for _, figures in found for name in figures["megabytes"]})
    rows = [
        [f"`{n}`", *(number(figures["megabytes"].get(n)) for _, figures in found)] for n in names
    ]
    return markdown(["library", *(f"`{case}`" for case, _ in found)], rows)


def optimizers(measured: Measured) -> str:
    header = ["workload", "optimizer", "refresh every", "seconds", "/ Adam"]
    rows = []
    for case, found in ordered(measured):
        where = label(case, found["form"])
        for name, figures in found["contenders"].items():
            every = figures["refresh_every"]
            seconds = number(figures["seconds"]["median"])
            interval = "–" if every == 1 else str(every)
            rows.append([where, f"`{name}`", interval, seconds, spread(figures["over_adam"])])
        rows += refused(found, where, len(header))
    return markdown(header, rows)


def targets(measured: Measured) -> str:
    some = next(iter(measured.values()))
    levels = list(next(iter(some["contenders"].values()))["targets"])
    header = ["task", "optimizer", "rate"]
    for level in levels:
        header += [f"iterations to {level} %", "seconds", "seeds"]
    rows = []
    for task, found in ordered(measured):
        for name, figures in found["contenders"].items():
            cells = [f"{figures['rate']:g}"]
            for level in levels:
                there = figures["targets"][level]
                cells += [number(there[key]) for key in ("iterations", "seconds")]
                cells.append(f"{there['reached']} of {len(there['seeds'])}")
            rows.append([f"`{task}`, at most {found['limit']}", f"`{name}`", *cells])
        rows += refused(found, f"`{task}`", len(header))
    return markdown(header, rows)


def growth(measured: Measured) -> str:
    header = ["size", "who", "milliseconds", "exponent", "megabytes", "exponent"]
    rows = []
    for axis, found in measured["axes"].items():
        sizes = found["sizes"]
        for name, figures in found["contenders"].items():
            cells = []
            for key in ("milliseconds", "megabytes"):
                first, last = (number(figures[key][i]) for i in (0, -1))
                slope = figures[f"{key}_exponent"]
                cells += [f"{first} → {last}", f"{slope['all']:.2f} ({slope['last']:.2f})"]
            rows.append([f"{axis} {sizes[0]} → {sizes[-1]}", f"`{name}`", *cells])
    return markdown(header, rows)


def profile(measured: Measured) -> str:
    texts = []
    for case, found in ordered(measured):
        halves = [found["seconds"][half]["median"] for half in ("forward", "backward")]
        each = 1e3 * sum(halves) / found["units"]
        forward, backward = found["evaluations"]
        operators = found["operators"]
        unit, units = found["unit"], found["units"]
        texts.append(
            f"`{case}`: {halves[0]:.3g} s forward and {halves[1]:.3g} s backward, {units} {unit}s "
            f"of {each:.3g} ms. {forward} + {backward} evaluations of the field; "
            f"{operators['calls'] / units:.0f} operator calls for every {unit}. "
            f"{overhead(operators['kinds']):.0f} % of the time is not arithmetic: that part is "
            "what `compile=True` works on."
        )
        kinds = sorted(operators["kinds"].items(), key=lambda pair: -pair[1])
        rows = [[name, f"{100 * share:.0f} %"] for name, share in kinds]
        texts.append(markdown(["work", "share of the time"], rows))
        tops = [
            [f"`{name}`", str(calls), f"{100 * share:.1f} %"]
            for name, calls, share in (*operators["top"], *found["functions"])
        ]
        texts.append(markdown(["operator or function", "calls", "own share"], tops))
    return "\n\n".join(texts)


def overhead(kinds: dict[str, float]) -> float:
    """Return the percentage of the time that is not arithmetic."""
    return 100 * sum(share for name, share in kinds.items() if name not in ARITHMETIC)


PLACES: dict[str, tuple[str, Callable[[Measured], str]]] = {
    "peers-short": ("engines", shortly),
    "peers-time": ("engines", engines),
    "peers-accuracy": ("engines", errors),
    "peers-memory": ("memory", memory),
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
    for part in (part for name, part in peers.items() if name in PARTS):
        for figures in part.values():  # all parts share their surroundings but the date
            return {**found, "peers-environment": surroundings(figures["environment"])}
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of peers.md and its figures")


def main(chosen: argparse.Namespace) -> None:
    """Write the tables and the figures."""
    measured, grown = read(RESULTS / "peers.json"), read(RESULTS / "growth.json")
    peers = {part: found for part, found in measured.items() if part in PARTS}
    if grown:
        draw_growth(grown, chosen.out / "growth.png")
    draw_peers(peers, chosen.out / "peers.png")
    put(chosen.out / "peers.md", tables(peers, grown))
