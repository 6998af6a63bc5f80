"""Markdown tables of the measurements, written into ``docs/benchmarks.md``.

    python -m benchmarks.tables

Every figure in that page comes from ``benchmarks/results``: what stands between a pair of
``<!-- name -->`` and ``<!-- /name -->`` is replaced by the table of that name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.pages import put

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"

TARGETS = {
    ("image", "plain"): {"snopt_checkpoint": 0.60},
    ("ode_rnn", "plain"): {"snopt_checkpoint": 0.25, "snopt_compiled": 0.08},
    ("cnf_miniboone", "autograd"): {"snopt_checkpoint": 0.42},
    ("cnf_gas", "autograd"): {"snopt_checkpoint": 0.65},
}


def read(name: str) -> dict[str, Any]:
    """Read ``results/name.json``; empty if it was not measured."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Lay out a table whose first column is text and whose others are numbers."""
    header = list(header)
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *map(list, rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def workloads(results: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """List ``(case, form, measured parts)`` in a fixed order."""
    order = ["image", "ode_rnn", "cnf_miniboone", "cnf_gas"]
    return [
        (case, form, results[case][form])
        for case in order
        if case in results
        for form in sorted(results[case])
    ]


def label(case: str, form: str) -> str:
    """Name a workload in a table."""
    return f"`{case}`" if form == "plain" else f"`{case}`, {form}"


def spread(values: dict[str, float], digits: int = 2) -> str:
    """Write a median with its quartiles."""
    low, mid, high = (f"{values[key]:.{digits}f}" for key in ("lower", "median", "upper"))
    return f"**{mid}** ({low}–{high})"


def time_table() -> str:
    """Tabulate seconds and ratios to torchdiffeq's ``odeint_adjoint``."""
    rows = []
    for case, form, parts in workloads(read("engine")):
        timed = parts.get("time", {}).get("contenders", {})
        for name, figures in timed.items():
            target = TARGETS.get((case, form), {}).get(name)
            rows.append(
                [
                    label(case, form),
                    f"`{name}`",
                    f"{figures['seconds']['median']:.3f}",
                    spread(figures["ratio"], 3 if figures["ratio"]["median"] < 0.1 else 2),
                    f"{target:.2f}" if target else "",
                ]
            )
    return markdown(["workload", "contender", "seconds", "ratio (quartiles)", "goal"], rows)


def _by_contender(part: str, cell: Callable[[dict[str, Any]], str]) -> str:
    found = [
        (label(case, form), parts[part]["contenders"])
        for case, form, parts in workloads(read("engine"))
        if part in parts
    ]
    names = list(dict.fromkeys(name for _, figures in found for name in figures))
    rows = [
        [where, *(cell(figures[name]) if name in figures else "–" for name in names)]
        for where, figures in found
    ]
    return markdown(["workload", *(f"`{name}`" for name in names)], rows)


def work_table() -> str:
    """Tabulate evaluations of the field, forward + backward."""
    return _by_contender("work", lambda figures: f"{figures['forward']} + {figures['backward']}")


def accuracy_table() -> str:
    """Tabulate relative gradient errors, parameters / inputs."""
    return _by_contender(
        "accuracy", lambda figures: f"{figures['parameters']:.1e} / {figures['inputs']:.1e}"
    )


def memory_table() -> str:
    """Tabulate megabytes one iteration takes at its peak."""
    return _by_contender("memory", lambda figures: f"{figures['megabytes']:.0f}")


def growth_table() -> str:
    """Tabulate peak megabytes of each adjoint against the number of steps."""
    found = read("memory")
    if not found:
        return "Not measured."
    rows = [
        [f"`{name}`", *(f"{value:.1f}" for value in values)]
        for name, values in found["megabytes"].items()
    ]
    return markdown(["adjoint", *(f"{steps} steps" for steps in found["steps"])], rows)


def environment_table() -> str:
    """Tabulate what the times were taken on."""
    for _, _, parts in workloads(read("engine")):
        if "time" in parts:
            return surroundings(parts["time"]["environment"])
    return "Not measured."


def surroundings(environment: dict[str, Any]) -> str:
    """Tabulate one environment."""
    rows = [[k.replace("_", " "), str(v)] for k, v in environment.items() if k != "packages"]
    rows += [[f"`{name}`", version] for name, version in environment["packages"].items()]
    return markdown(["", "value"], rows)


TABLES = {
    "time": time_table,
    "work": work_table,
    "accuracy": accuracy_table,
    "memory": memory_table,
    "growth": growth_table,
    "environment": environment_table,
}


def main() -> None:
    """Put every table into its place in the page."""
    put(PAGE, {name: table() for name, table in TABLES.items()})


if __name__ == "__main__":
    main()
