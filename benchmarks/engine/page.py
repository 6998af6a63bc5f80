"""Write the tables of docs/peers.md about the engine, from the stored results."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from benchmarks.files import DOCS, RESULTS, WORKLOADS, label, put, read, spread, surroundings
from snopt.lab.table import markdown

Measured = dict[str, Any]
FILES = {
    "measure": "engine.json",
    "memory": "memory.json",
    "limit": "limit.json",
    "tradeoff": "tradeoff.json",
}
TARGETS = {
    ("image", "plain"): {"snopt_checkpoint": 0.60},
    ("ode_rnn", "plain"): {"snopt_checkpoint": 0.25, "snopt_compiled": 0.08},
    ("cnf_miniboone", "autograd"): {"snopt_checkpoint": 0.42},
    ("cnf_gas", "autograd"): {"snopt_checkpoint": 0.65},
}


def with_part(engine: Measured, part: str) -> list[tuple[str, str, Measured]]:
    """Return ``(case, form, contenders)`` of the workloads of a part, in a fixed order."""
    return [
        (case, form, engine[case][form][part]["contenders"])
        for case in WORKLOADS
        for form in sorted(engine.get(case, {}))
        if part in engine[case][form]
    ]


def time_table(engine: Measured) -> str:
    """Tabulate seconds and ratios to torchdiffeq's ``odeint_adjoint``."""
    rows = []
    for case, form, contenders in with_part(engine, "time"):
        for name, figures in contenders.items():
            target, ratio = TARGETS.get((case, form), {}).get(name), figures["ratio"]
            seconds = f"{figures['seconds']['median']:.3f}"
            goal = f"{target:.2f}" if target else ""
            digits = 3 if ratio["median"] < 0.1 else 2
            rows.append([label(case, form), f"`{name}`", seconds, spread(ratio, digits), goal])
    return markdown(["workload", "contender", "seconds", "ratio (quartiles)", "goal"], rows)


def by_contender(engine: Measured, part: str, cell: Callable[[Measured], str]) -> str:
    """Tabulate a part, one column per contender."""
    found = with_part(engine, part)
    names = list(dict.fromkeys(name for *_, figures in found for name in figures))
    rows = [
        [label(case, form), *(cell(figures[n]) if n in figures else "–" for n in names)]
        for case, form, figures in found
    ]
    return markdown(["workload", *(f"`{name}`" for name in names)], rows)


def growth_table(memory: Measured) -> str:
    """Tabulate peak megabytes of each adjoint against the number of steps."""
    rows = [
        [f"`{name}`", *(f"{value:.1f}" for value in values)]
        for name, values in memory["megabytes"].items()
    ]
    return markdown(["adjoint", *(f"{steps} steps" for steps in memory["steps"])], rows)


def limit_table(limit: Measured) -> str:
    """Tabulate the engine's time over its lower bounds."""
    rows = [
        [label(case, found["form"]), f"`{name}`", f"`{bound}`", spread(ratio), str(found["rounds"]),
         f"{found['goals'][name]:.2f}" if name in found["goals"] else "–"]
        for case, found in limit.items()
        for name, bounds in found["over"].items()
        for bound, ratio in bounds.items()
    ]  # fmt: skip
    return markdown(["workload", "time of", "over", "ratio (quartiles)", "rounds", "goal"], rows)


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


def tables(measured: Measured) -> dict[str, str]:
    """Return the tables of the page by their places in it, from the results of each command."""
    engine = measured["measure"]
    case, form, _ = with_part(engine, "time")[0]
    return {
        "time": time_table(engine),
        "work": by_contender(engine, "work", lambda f: f"{f['forward']} + {f['backward']}"),
        "accuracy": by_contender(
            engine, "accuracy", lambda f: f"{f['parameters']:.1e} / {f['inputs']:.1e}"
        ),
        "memory": by_contender(engine, "memory", lambda f: f"{f['megabytes']:.0f}"),
        "growth": growth_table(measured["memory"]),
        "environment": surroundings(engine[case][form]["time"]["environment"]),
        "limit": limit_table(measured["limit"]),
        "tradeoff": tradeoff_table(measured["tradeoff"]),
    }


def stored() -> dict[str, Measured]:
    """Read the results of the commands whose tables are on the page; all must exist."""
    found = {command: read(RESULTS / file) for command, file in FILES.items()}
    for command in (command for command, results in found.items() if not results):
        raise SystemExit(f"nothing to show yet: run python -m benchmarks.engine {command}")
    return found


def main(chosen: argparse.Namespace) -> None:
    """Write the tables."""
    put(DOCS / "peers.md", tables(stored()))
