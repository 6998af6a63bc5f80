"""From the measurements of ``scaling`` to constants, a check, predictions and a picture.

Latency, bandwidth and the cost of a decomposition are fitted to messages and matrices timed by
themselves. A model's own compute is a line through one process's time on the whole batch and on
half of it. Nothing is fitted to an iteration of two processes: the model is checked with those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.optimizer.cost_model import (
    FLOAT,
    Compute,
    Link,
    Machine,
    Sizes,
    plain_seconds,
    refresh_messages,
    refresh_parts,
    refresh_seconds,
)
from snopt.lab.paper.curves import clean, legend, ticks
from snopt.lab.table import markdown

REFRESH_EVERY = 100
PARTS = ("all_reduce", "eigh", "broadcast")
#: A network that was not measured: 10 Gbit/s, 50 microseconds a message.
ETHERNET = Link(50e-6, 1.25e9)


@dataclass(frozen=True)
class Case:
    """A model to measure; ``batch`` examples for all workers together."""

    kind: str
    width: int
    batch: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.width}"


CASES = (
    Case("digits", 64, 128),
    Case("digits", 256, 128),
    Case("image", 16, 32),
    Case("image", 64, 32),
)


def line(points: Mapping[str, float], power: int = 1) -> tuple[float, float]:
    """Fit ``seconds = c0 + c1 size**power``, all relative errors counting alike."""
    sizes = np.array([float(size) for size in points]) ** power
    seconds = np.array(list(points.values()))
    c1, c0 = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    return max(float(c0), 0.0), float(c1)


def fitted(found: dict[str, Any]) -> Machine:
    """Fit the constants of the measured machine."""
    messages = found["2"]["messages"]
    reduce_fixed, reduce_byte = line(messages["all_reduce"])  # 2 α + s / β at two workers
    send_fixed, send_byte = line(messages["broadcast"])  # α + s / β
    eigh_fixed, eigh_cubic = line(found["1"]["decompositions"], power=3)
    return Machine(
        Link(reduce_fixed / 2, 1 / reduce_byte),
        Link(send_fixed, 1 / send_byte),
        eigh_fixed,
        eigh_cubic,
    )


def sizes_of(row: dict[str, Any]) -> Sizes:
    layers = tuple(tuple((g, b) for g, b in layer) for layer in row["sizes"]["layers"])
    return Sizes(row["sizes"]["parameters"], layers)


def own(row: dict[str, Any], case: Case, kind: str) -> Compute:
    """Fit one worker's compute to one process on the whole batch and on half of it."""
    seconds = {}
    for count in (case.batch // 2, case.batch):
        measured = row["examples"][str(count)]
        seconds[count] = measured[kind]
        if kind == "refresh":
            seconds[count] -= measured["parts"]["eigh"]
    half, whole = seconds[case.batch // 2], seconds[case.batch]
    slope = (whole - half) / (case.batch / 2)
    return Compute(whole - slope * case.batch, slope)


def predicted(
    found: dict[str, Any], case: Case, machine: Machine, workers: int, batch: int
) -> dict[str, float]:
    """Predict the seconds of workers that share a batch."""
    row = found["1"][case.name]
    sizes = sizes_of(row)
    plain = plain_seconds(machine, sizes, own(row, case, "plain"), batch, workers)
    refresh = refresh_seconds(machine, sizes, own(row, case, "refresh"), batch, workers)
    amortised = ((REFRESH_EVERY - 1) * plain + refresh) / REFRESH_EVERY
    parts = refresh_parts(machine, sizes, workers)
    return {"plain": plain, "refresh": refresh, "amortised": amortised, **parts}


# ------------------------------------------------------------------------------------ tables


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}"


def measured_table(found: dict[str, Any]) -> str:
    """Tabulate milliseconds on one process and on two."""
    rows = []
    for case in CASES:
        for workers in ("1", "2"):
            for count, row in reversed(found[workers][case.name]["examples"].items()):
                cells = [row["plain"], row["refresh"], *(row["parts"][name] for name in PARTS)]
                rows.append([case.name, workers, count, *map(ms, cells)])
    return markdown(
        ["model", "processes", "examples each", "plain", "refresh", *(f"`{p}`" for p in PARTS)],
        rows,
    )


def bytes_table(found: dict[str, Any]) -> str:
    """Tabulate kilobytes and messages of two processes."""
    rows = []
    for case in CASES:
        sizes = sizes_of(found["1"][case.name])
        factors, bases = refresh_messages(sizes, 2)
        counts = [FLOAT * sizes.parameters, sum(factors), sum(bases)]
        messages = f"{len(factors)} + {len(bases)}"
        rows.append([case.name, *(f"{count / 1024:,.0f}" for count in counts), messages])
    return markdown(
        ["model", "gradients, every iteration", "factors, a refresh", "eigenbases, a refresh",
         "messages of a refresh"], rows)  # fmt: skip


def check_table(found: dict[str, Any]) -> str:
    """Tabulate predicted and measured milliseconds of two processes."""
    machine, rows = fitted(found), []
    for case in CASES:
        guess = predicted(found, case, machine, 2, case.batch)
        row = found["2"][case.name]["examples"][str(case.batch // 2)]
        cells = []
        for kind in ("plain", "refresh"):
            error = 100 * (guess[kind] / row[kind] - 1)
            cells.append(f"{ms(guess[kind])} : {ms(row[kind])} ({error:+.0f}%)")
        cells += [f"{ms(guess[name])} : {ms(row['parts'][name])}" for name in PARTS]
        rows.append([case.name, *cells])
    return markdown(["model", "plain", "refresh", *(f"`{name}`" for name in PARTS)], rows)


def constants(found: dict[str, Any]) -> str:
    """Tabulate the fitted constants."""
    machine = fitted(found)
    rows = [
        [f"`{name}`", f"{1e6 * link.latency:.0f} µs", f"{link.bandwidth / 1e9:.2g} GB/s"]
        for name, link in (("all_reduce", machine.reduce), ("broadcast", machine.send))
    ]
    rows.append(
        ["`eigh`", f"{1e6 * machine.eigh_fixed:.0f} µs", f"{1e9 * machine.eigh_cubic:.2g} ns"]
    )
    return markdown(["", "α or c", "β or d"], rows)


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Return the tables of docs/scaling.md by name."""
    return {
        "measured": measured_table(found),
        "bytes": bytes_table(found),
        "constants": constants(found),
        "check": check_table(found),
    }


def networks(machine: Machine) -> dict[str, Machine]:
    ethernet = Machine(ETHERNET, ETHERNET, machine.eigh_fixed, machine.eigh_cubic)
    return {"loopback": machine, "10 Gbit/s": ethernet}


# ------------------------------------------------------------------------------------ picture


def draw(figure: Any, found: dict[str, Any]) -> None:
    """Draw predicted seconds against workers, every worker with the same share of examples."""
    workers = [1, 2, 4, 8, 16, 32, 64]
    colours = {"plain": "tab:blue", "refresh": "tab:orange"}
    figure.set_size_inches(13, 3.6)
    panels = figure.subplots(1, len(CASES))
    for panel, case in zip(panels, CASES, strict=True):
        pairs = zip(networks(fitted(found)).items(), ("-", "--"), strict=True)
        for (network, machine), style in pairs:
            rows = [predicted(found, case, machine, p, p * case.batch) for p in workers]
            for kind, colour in colours.items():
                values = [1e3 * row[kind] for row in rows]
                panel.plot(workers, values, style, color=colour, label=f"{kind}, {network}")
        clean(panel, "workers", title=f"{case.name}, {case.batch} examples each")
        panel.set_xscale("log")
        ticks(panel, [1, 8, 64])
        panel.set_ylim(bottom=0)
    panels[0].set_ylabel("predicted milliseconds")
    legend(figure, 4, "lower")
