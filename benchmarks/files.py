"""Files of results, the environment of a measurement, and tables and figures of pages."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from snopt.lab.train.folder import environment as run_environment
from snopt.lab.train.folder import package_version, write_json

ROOT = Path(__file__).parent
RESULTS, DOCS = ROOT / "results", ROOT.parent / "docs"
PEERS = ("torchode", "torchdyn", "jax", "diffrax", "equinox", "pytorch_optimizer")
WORKLOADS = ("image", "ode_rnn", "cnf_miniboone", "cnf_gas")
"""The names of :mod:`benchmarks.engine.cases`, in the order of tables."""


def read(file: Path) -> dict[str, Any]:
    """Read a file of results; empty if it does not exist."""
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def save(file: Path, found: Mapping[str, Any]) -> None:
    """Write a file of results, with the environment."""
    write_json(file, {**found, "environment": environment()})


def keep(file: Path, found: Mapping[str, Any], *place: str) -> None:
    """Put results, with the environment, into a place of a file; the rest of the file stays.

    Args:
        file: the file of results; created if it does not exist.
        found: the results.
        place: the keys, from the outermost to the innermost.
    """
    kept = inner = read(file)
    for key in place[:-1]:
        inner = inner.setdefault(key, {})
    inner[place[-1]] = {**found, "environment": environment()}
    write_json(file, kept)


def environment() -> dict[str, Any]:
    """Describe the environment of this process, with the processor and the peers."""
    found = run_environment(torch.device("cpu"), processes=1)
    packages = {**found["packages"], **{name: package_version(name) for name in PEERS}}
    return {
        "date": found["started"],
        **{key: found[key] for key in ("python", "platform", "cores", "threads")},
        "processor": _processor(),
        "packages": {name: number for name, number in packages.items() if number},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def save_figure(file: Path, draw: Callable[[Figure], object], dpi: int = 110) -> None:
    """Draw a matplotlib figure into a file."""
    figure = Figure(layout="constrained")
    draw(figure)
    figure.savefig(file, dpi=dpi)


# ------------------------------------------------------------------------------------- tables


def put(page: Path, tables: Mapping[str, str]) -> None:
    """Replace the tables of a page, each between ``<!-- name -->`` and ``<!-- /name -->``."""
    text = page.read_text("utf-8")
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, found, rest = text.partition(start)
        if not found or end not in rest:
            raise ValueError(f"{page} has no place for the table {name!r}: {start.strip()} {end}")
        text = f"{before}{start}\n{table}\n\n{end}{rest.partition(end)[2]}"
    page.write_text(text, "utf-8")


def label(case: str, form: str) -> str:
    """Name a workload in a table."""
    return f"`{case}`" if form == "plain" else f"`{case}`, {form}"


def spread(values: Mapping[str, float], digits: int = 2) -> str:
    """Format a median with its quartiles."""
    low, mid, high = (f"{values[key]:.{digits}f}" for key in ("lower", "median", "upper"))
    return f"**{mid}** ({low}–{high})"
