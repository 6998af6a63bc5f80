"""Write docs/peers.md and its figures from ``results/peers.json`` and ``results/growth.json``.

The prose is in ``page.md`` beside this file. A section appears when its part has been measured.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.files import DOCS, RESULTS, WORKLOADS, label, read, spread, surroundings
from benchmarks.peers.figures import draw_growth, draw_peers
from snopt.lab.table import markdown

OURS = {"snopt_checkpoint": "eager", "snopt_compiled": "compiled"}
ORDER = (*WORKLOADS, "digits", "mnist")
ARITHMETIC = ("matrix products", "elementwise", "reductions")
"""Kinds of work, as :mod:`benchmarks.peers.profile` names them, that the mathematics asks for."""
Measured = dict[str, Any]
PARTS = re.split(r"<!-- (\w+) -->\n", Path(__file__).with_name("page.md").read_text("utf-8"))[1:]
TEXT = dict(zip(PARTS[::2], (text.strip() for text in PARTS[1::2]), strict=True))
"""The prose of the page, by section."""


def ordered(measured: Measured) -> list[tuple[str, Measured]]:
    """Return workloads and tasks in a fixed order."""
    return [(name, measured[name]) for name in ORDER if name in measured]


def number(value: float | None) -> str:
    """Format a number with three digits, or a dash."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def table(
    header: str,
    measured: Measured,
    cells: Callable[[Any, Measured], list[str]],
    *,
    of: Callable[[Measured], Measured] = lambda found: found["contenders"],
    where: str = "",
    refused: bool = True,
) -> str:
    """Lay out a row per workload and contender, and one for each that did not run.

    Args:
        header: names of the columns, separated by bars.
        measured: a part.
        cells: the cells of a contender, from its figures and those of the workload.
        of: figures by contender.
        where: suffix of the workload's name, a format of its figures.
        refused: whether to list those that did not run.
    """
    columns, rows = header.split(" | "), []
    for case, found in ordered(measured):
        place = label(case, found.get("form", "plain"))
        named = place + where.format(**found)
        rows += [[named, f"`{name}`", *cells(each, found)] for name, each in of(found).items()]
        blank = [""] * (len(columns) - 3)
        unable = found["cannot_run"] if refused else {}
        rows += [[place, f"`{name}`", why, *blank] for name, why in unable.items()]
    return markdown(columns, rows)


def over_ours(value: float, ours: Mapping[str, float]) -> list[str]:
    """Divide a value by those of our two engines."""
    return [number(value / ours[name]) if name in ours else "–" for name in OURS]


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
    counts = sorted({found["rounds"] for found in measured.values()})
    rounds = " to ".join(str(count) for count in sorted({counts[0], counts[-1]}))
    table = markdown(["workload", "ours", *libraries], rows)
    return f"{TEXT['shortly'].format(rounds=rounds)}\n\n{table}"


def engines(measured: Measured) -> str:
    def cells(figures: Measured, found: Measured) -> list[str]:
        texts = []
        for kind in ("forward", "both"):
            texts.append(number(figures[kind]["median"]) if kind in figures else "–")
            over = figures.get(f"{kind}_over", {})
            texts += [spread(over[ours]) if ours in over else "–" for ours in OURS]
        return texts

    header = (
        "workload | library | forward, s | / eager | / compiled | both, s | / eager | / compiled"
    )
    return f"{TEXT['engines']}\n\n{table(header, measured, cells)}"


def errors(measured: Measured) -> str:
    def cells(figures: Measured, found: Measured) -> list[str]:
        error = figures["error"]
        ours = {name: each["error"]["parameters"] for name, each in found["contenders"].items()}
        cell = f"{error['parameters']:.1e} / {error['inputs']:.1e}"
        return [cell, *over_ours(error["parameters"], ours)]

    def with_reference(found: Measured) -> Measured:
        return {"reference": {"error": found["reference_error"]}} | found["contenders"]

    header = "workload | library | error | / eager | / compiled"
    rows = table(header, measured, cells, of=with_reference, refused=False)
    return f"{TEXT['errors']}\n\n{rows}"


def memory(measured: Measured) -> str:
    def cells(value: float, found: Measured) -> list[str]:
        return [f"{value:.0f}", *over_ours(value, found["megabytes"])]

    header = "workload | library | MB | / eager | / compiled"
    rows = table(header, measured, cells, of=lambda found: found["megabytes"])
    return f"{TEXT['memory']}\n\n{rows}"


def optimizers(measured: Measured) -> str:
    def cells(figures: Measured, found: Measured) -> list[str]:
        every = figures["refresh_every"]
        interval = "–" if every == 1 else str(every)
        return [interval, number(figures["seconds"]["median"]), spread(figures["over_adam"])]

    header = "workload | optimizer | refresh every | seconds | / Adam"
    return f"{TEXT['optimizers']}\n\n{table(header, measured, cells)}"


def targets(measured: Measured) -> str:
    some = next(iter(measured.values()))
    levels = list(next(iter(some["contenders"].values()))["targets"])

    def cells(figures: Measured, found: Measured) -> list[str]:
        texts = [f"{figures['rate']:g}"]
        for there in figures["targets"].values():
            texts += [number(there[key]) for key in ("iterations", "seconds")]
            texts.append(f"{there['reached']} of {len(there['seeds'])}")
        return texts

    header = "task | optimizer | rate"
    header += "".join(f" | iterations to {level} % | seconds | seeds" for level in levels)
    goals = " and ".join(f"{level} %" for level in levels)
    count = len(some["seeds"])
    text = TEXT["targets"].format(targets=goals, every=some["look_every"], seeds=count)
    return f"{text}\n\n{table(header, measured, cells, where=', at most {limit}')}"


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
    return f"{TEXT['growth'].format(**measured['base'])}\n\n{markdown(header, rows)}"


def profile(measured: Measured) -> str:
    texts = [TEXT["profile"]]
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


def environments(peers: Measured) -> str:
    """Return the environment of the first part; the others differ in the date only."""
    for part in peers.values():
        for found in part.values():
            return f"## Measured on\n\n{surroundings(found['environment'])}"
    return ""


SECTIONS: dict[str, tuple[Callable[[Measured], str], ...]] = {
    "engines": (shortly, engines, errors),
    "memory": (memory,),
    "optimizers": (optimizers,),
    "targets": (targets,),
    "growth": (growth,),
    "profile": (profile,),
}


def page(peers: Measured, grown: Measured, pictured: bool) -> str:
    """Return the whole page, with a section for every part that was measured."""
    measured = {**peers, "growth": grown}
    texts = [TEXT["intro"]]
    if pictured:
        texts.append("![Time, memory, gradient error and seconds to an accuracy](peers.png)")
    for part, sections in SECTIONS.items():
        if measured.get(part):
            texts += [section(measured[part]) for section in sections]
    texts.append(environments(peers))
    return "\n\n".join(text for text in texts if text) + "\n"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the page and its figures")


def main(chosen: argparse.Namespace) -> None:
    """Write the page and its figures."""
    measured, grown = read(RESULTS / "peers.json"), read(RESULTS / "growth.json")
    peers = {part: found for part, found in measured.items() if part in SECTIONS}
    if grown:
        draw_growth(grown, chosen.out / "growth.png")
    pictured = draw_peers(peers, chosen.out / "peers.png")
    (chosen.out / "peers.md").write_text(page(peers, grown, pictured), "utf-8")
