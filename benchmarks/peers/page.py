"""Write the tables and figures of docs/peers.md, from the stored results.

The page itself is written by hand. A table is replaced when everything that it shows has been
measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.files import DOCS, RESULTS, WORKLOADS, label, put, read, save_figure, spread
from benchmarks.peers.figures import UNITS, draw_growth, draw_peers, fastest_of_ours
from snopt.lab.paper.growth import slope
from snopt.lab.table import cell_text, markdown

Measured = dict[str, Any]
FILES = ("peers", "equal_error", "engine", "limit", "tradeoff", "memory", "growth")
FORMS = {"snopt_checkpoint": "eager", "snopt_compiled": "compiled"}
NOTHING = cell_text(None)
LIMITS = {
    "image": {"snopt_checkpoint": 1.10},
    "cnf_miniboone": {"snopt_checkpoint": 1.10},
    "cnf_gas": {"snopt_checkpoint": 1.25},
    "ode_rnn": {"snopt_checkpoint": 1.60, "snopt_compiled": 1.50},
}
"""Goals for the time over the bound; the compiled engine's is the one of a whole step."""
TORCHDIFFEQ, DIFFRAX, LEANEST = 0.055, 0.55, 1.3
"""Goals for the compiled ODE-RNN over torchdiffeq's adjoint and over diffrax, and for memory."""


def ordered(measured: Measured) -> list[tuple[str, Measured]]:
    """Return the workloads in a fixed order."""
    return [(case, measured[case]) for case in WORKLOADS if case in measured]


def names_in(measured: Measured) -> list[str]:
    """Return everyone that ran somewhere, by name."""
    return sorted({name for found in measured.values() for name in found["contenders"]})


def short_table(peers: Measured) -> str:
    """Tabulate the fastest form of each library over the faster one of ours."""
    libraries = ("torchdiffeq", "torchdyn", "torchode", "diffrax")
    rows = []
    for case, found in ordered(peers["engines"]):
        everyone = found["contenders"]
        ours = fastest_of_ours(everyone)
        cells = [f"{FORMS[ours]}, {cell_text(everyone[ours]['both']['median'])} s"]
        for library in libraries:
            forms = {
                figures["both_over"][ours]["median"]: name.partition("_")[2]
                for name, figures in everyone.items()
                if name.startswith(library) and ours in figures.get("both_over", {})
            }
            cells.append(f"{min(forms):.2f} ({forms[min(forms)]})" if forms else NOTHING)
        rows.append([label(case, found["form"]), *cells])
    return markdown(["workload", "ours", *libraries], rows)


def engines_table(peers: Measured) -> str:
    """Tabulate seconds (of the loss alone), gradient error and megabytes, a row per library."""
    found, megabytes = ordered(peers["engines"]), peers.get("memory", {})

    def cell(case: str, figures: Measured, name: str) -> str:
        if name not in figures["contenders"]:
            return NOTHING
        each = figures["contenders"][name]
        alone = f" ({cell_text(each['forward']['median'])})" if "forward" in each else ""
        used = cell_text(megabytes.get(case, {}).get("megabytes", {}).get(name))
        both, error = cell_text(each["both"]["median"]), each["error"]["parameters"]
        return f"{both}{alone} / {error:.0e} / {used}"

    rows = [
        [f"`{name}`", *(cell(case, figures, name) for case, figures in found)]
        for name in names_in(peers["engines"])
    ]
    errors = [f"{figures['reference_error']['parameters']:.0e}" for _, figures in found]
    rows.append(["error of the reference", *errors])
    return markdown(["library", *(label(case, each["form"]) for case, each in found)], rows)


def equal_table(equal: Measured) -> str:
    """Tabulate our eager time over a peer's at no larger gradient error, and both errors."""
    rows = []
    for case, found in ordered(equal["workloads"]):
        everyone = found["contenders"]
        for peer, each in everyone.items():
            if peer.startswith("snopt"):
                continue
            ours = each.get("ours")
            cells = [NOTHING] * 4
            if ours is not None:
                errors = f"{everyone[ours]['error']:.1e} / {each['error']:.1e}"
                evaluations = f"{everyone[ours]['evaluations'][0]} / {each['evaluations'][0]}"
                cells = [ours.partition("_")[2], spread(each["over"]), errors, evaluations]
            rows.append([label(case, found["form"]), f"`{peer}`", *cells])
    head = ["workload", "peer", "our tolerance over its", "time, ours over its (quartiles)",
            "error, ours / its", "evaluations, ours / its"]  # fmt: skip
    return markdown(head, rows)


def torchdiffeq_table(engine: Measured) -> str:
    """Tabulate time, evaluations, gradient error and memory against torchdiffeq."""
    rows = []
    for case, forms in ordered(engine):
        for form, parts in sorted(forms.items()):
            found = {part: parts.get(part, {}).get("contenders", {}) for part in CELLS}
            names = dict.fromkeys(name for each in found.values() for name in each)
            for name in names:
                cells = (
                    text(found[part][name]) if name in found[part] else NOTHING
                    for part, text in CELLS.items()
                )
                rows.append([label(case, form), f"`{name}`", *cells])
    head = ["workload", "contender", "ratio (quartiles)", "evaluations", "gradient error", "MB"]
    return markdown(head, rows)


CELLS: dict[str, Callable[[Measured], str]] = {
    "time": lambda each: spread(each["ratio"], 3 if each["ratio"]["median"] < 0.1 else 2),
    "work": lambda each: f"{each['forward']} + {each['backward']}",
    "accuracy": lambda each: f"{each['parameters']:.1e} / {each['inputs']:.1e}",
    "memory": lambda each: f"{each['megabytes']:.0f}",
}
"""The parts of ``engine measure``, and how each is written."""


def limit_table(limit: Measured) -> str:
    """Tabulate the engine's time over its lower bounds."""
    rows = [
        [label(case, found["form"]), f"`{name}`", f"`{bound}`", spread(ratio), str(found["rounds"])]
        for case, found in limit.items()
        for name, bounds in found["over"].items()
        for bound, ratio in bounds.items()
    ]
    return markdown(["workload", "time of", "over", "ratio (quartiles)", "rounds"], rows)


def tradeoff_table(tradeoff: Measured) -> str:
    """Tabulate time and memory of adjoints as ratios to the default."""
    rows = [
        [label(case, found["form"]), f"`{name}`", spread(each["time"]), str(each["rounds"]),
         f"{each['memory']:.2f}", f"{each['megabytes']:.0f}",
         "{} + {}".format(*each["evaluations"])]
        for case, found in tradeoff.items()
        for name, each in found["contenders"].items()
    ]  # fmt: skip
    head = ["workload", "adjoint", "time (quartiles)", "rounds", "memory", "MB", "evaluations"]
    return markdown(head, rows)


def steps_table(memory: Measured) -> str:
    """Tabulate peak megabytes of each adjoint against the number of steps."""
    rows = [
        [f"`{name}`", *(f"{value:.1f}" for value in values)]
        for name, values in memory["megabytes"].items()
    ]
    return markdown(["adjoint", *(f"{steps} steps" for steps in memory["steps"])], rows)


def growth_table(growth: Measured) -> str:
    """Tabulate the exponents of time and memory, a row per size that grows."""
    names, rows = names_in(growth["axes"]), []
    for axis, found in growth["axes"].items():
        sizes, cells = found["sizes"], []
        for figures in (found["contenders"][name] for name in names):
            cells.append(" / ".join(f"{slope(sizes, figures[key]):.2f}" for key in UNITS))
        rows.append([f"{axis}, {sizes[0]} to {sizes[-1]}", *cells])
    return markdown(["size", *(f"`{name}`" for name in names)], rows)


# -------------------------------------------------------------------------------------- goals


def goals_table(limit: Measured, engine: Measured, peers: Measured) -> str:
    """Tabulate the goals, the medians and whether these are met."""
    rows = [
        [name, f"{goal:g}", shown, "yes" if value <= goal else "**no**"]
        for name, goal, value, shown in goals(limit, engine, peers)
    ]
    return markdown(["goal", "at most", "measured (quartiles)", "met"], rows)


def goals(
    limit: Measured, engine: Measured, peers: Measured
) -> Iterator[tuple[str, float, float, str]]:
    """Yield what a goal is about, the goal, the value, and the value with its spread."""
    for case, each in LIMITS.items():
        for name, goal in each.items():
            bound = "bound" if name == "snopt_checkpoint" else "bound_step"
            ratio = limit[case]["over"][name][bound]
            what = f"time over the bound: `{case}`, {FORMS[name]}"
            yield what, goal, ratio["median"], spread(ratio, 3)
    ratio = engine["ode_rnn"]["plain"]["time"]["contenders"]["snopt_compiled"]["ratio"]
    what = "time over torchdiffeq's adjoint: `ode_rnn`, compiled"
    yield what, TORCHDIFFEQ, ratio["median"], spread(ratio, 3)
    jitted = {
        name: figures["both_over"]["snopt_compiled"]
        for name, figures in peers["engines"]["ode_rnn"]["contenders"].items()
        if name.startswith("diffrax")
    }
    best = min(jitted.values(), key=lambda over: over["median"])
    turned = {"lower": "upper", "median": "median", "upper": "lower"}
    ratio = {key: 1 / best[other] for key, other in turned.items()}
    what = "time over the faster form of diffrax: `ode_rnn`, compiled"
    yield what, DIFFRAX, ratio["median"], spread(ratio, 3)
    for case, found in ordered(peers["memory"]):
        form = peers["engines"][case]["form"]
        used = found["megabytes"]
        peer = min(value for name, value in used.items() if name not in FORMS)
        default = min(used[name] for name in FORMS)
        lean = engine[case][form]["memory"]["contenders"]["snopt_backsolve"]["megabytes"]
        for name, value in (("`Checkpoint()`", default), ("`Backsolve()`", lean)):
            what = f"memory over the leanest peer: `{case}`, {name}"
            yield what, LEANEST, value / peer, f"**{value / peer:.2f}**"


def versions(peers: Measured, engine: Measured) -> str:
    """List machine, dates and packages of the measurements."""
    lines = []
    timed = engine["image"]["plain"]["time"]
    for name, found in (("Peers", peers["engines"]["image"]), ("Against torchdiffeq", timed)):
        given = found["environment"]
        packages = ", ".join(f"{key} {number}" for key, number in given["packages"].items())
        machine = f"{given['processor']}, {given['cores']} cores, Python {given['python']}"
        lines.append(f"- {name}, {given['date'][:10]}, {machine}: {packages}.")
    return "\n".join(lines)


TABLES: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
    "peers-short": (short_table, ("peers",)),
    "peers-engines": (engines_table, ("peers",)),
    "peers-equal": (equal_table, ("equal_error",)),
    "torchdiffeq": (torchdiffeq_table, ("engine",)),
    "goals": (goals_table, ("limit", "engine", "peers")),
    "limit": (limit_table, ("limit",)),
    "tradeoff": (tradeoff_table, ("tradeoff",)),
    "steps": (steps_table, ("memory",)),
    "growth": (growth_table, ("growth",)),
    "environment": (versions, ("peers", "engine")),
}
"""Places on the page: the table, and the files of results that it is made of."""


def stored() -> dict[str, Measured]:
    """Read all results of the page; those that do not exist are empty."""
    return {name: read(RESULTS / f"{name}.json") for name in FILES}


def tables(measured: dict[str, Measured]) -> dict[str, str]:
    """Return the tables whose results exist, by their places on the page."""
    return {
        place: make(*(measured[name] for name in files))
        for place, (make, files) in TABLES.items()
        if all(measured.get(name) for name in files)
    }


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of peers.md and its figures")


def main(chosen: argparse.Namespace) -> None:
    """Write the tables and the figures."""
    measured = stored()
    if measured["growth"]:
        draw = partial(draw_growth, axes=measured["growth"]["axes"])
        save_figure(chosen.out / "growth.png", draw, 200)
    if measured["peers"]:
        draw = partial(draw_peers, engines=measured["peers"]["engines"])
        save_figure(chosen.out / "peers.png", draw, 200)
    put(chosen.out / "peers.md", tables(measured))
