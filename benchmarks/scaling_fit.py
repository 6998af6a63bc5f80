"""From the measurements of ``benchmarks.scaling`` to constants, a check, predictions and a picture.

Latency, bandwidth and the cost of a decomposition are fitted to messages and matrices timed by
themselves. A model's own compute is a line through one process's time on the whole batch and on
half of it. Nothing is fitted to an iteration of two processes: the model is checked with those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cost_model import (
    Compute,
    Link,
    Machine,
    Sizes,
    plain_seconds,
    refresh_messages,
    refresh_parts,
    refresh_seconds,
)

REFRESH_EVERY = 100
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
    rows = np.stack([np.ones_like(sizes), sizes], axis=1) / seconds[:, None]
    c0, c1 = np.linalg.lstsq(rows, np.ones_like(seconds), rcond=None)[0]
    return max(float(c0), 0.0), float(c1)


def fitted(found: dict[str, Any]) -> Machine:
    """The constants of the machine that was measured."""
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
    """One worker's compute, from one process on the whole batch and on half of it."""
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
    """Seconds on so many workers that share a batch."""
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


def print_measured(found: dict[str, Any]) -> None:
    print(
        "\n| model | processes | examples each | plain | refresh | all_reduce | eigh | broadcast |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for case in CASES:
        for workers in ("1", "2"):
            for count, row in reversed(found[workers][case.name]["examples"].items()):
                parts = [row["parts"][name] for name in ("all_reduce", "eigh", "broadcast")]
                cells = [row["plain"], row["refresh"], *parts]
                print(f"| {case.name} | {workers} | {count} | {' | '.join(map(ms, cells))} |")


def print_check(found: dict[str, Any], machine: Machine) -> None:
    print("\n| model | quantity | predicted | measured | error |")
    print("|---|---|---|---|---|")
    for case in CASES:
        guess = predicted(found, case, machine, 2, case.batch)
        row = found["2"][case.name]["examples"][str(case.batch // 2)]
        for name in ("plain", "refresh", "all_reduce", "eigh", "broadcast"):
            true = row[name] if name in row else row["parts"][name]
            error = 100 * (guess[name] / true - 1)
            print(f"| {case.name} | {name} | {ms(guess[name])} | {ms(true)} | {error:+.0f}% |")


def print_predictions(found: dict[str, Any], networks: dict[str, Machine]) -> None:
    print("\n| model | network | workers | plain | refresh | amortised |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        for name, machine in networks.items():
            for workers in (1, 2, 8, 64):
                guess = predicted(found, case, machine, workers, workers * case.batch)
                cells = [guess[kind] for kind in ("plain", "refresh", "amortised")]
                print(f"| {case.name} | {name} | {workers} | {' | '.join(map(ms, cells))} |")


def print_tables(found: dict[str, Any]) -> None:
    machine = fitted(found)
    for name in ("reduce", "send"):
        link = getattr(machine, name)
        print(f"{name}: {1e6 * link.latency:.0f} µs, {link.bandwidth / 1e6:.0f} MB/s")
    print(f"eigh: {1e6 * machine.eigh_fixed:.0f} µs + {1e9 * machine.eigh_cubic:.2f} ns size³")
    for case in CASES:
        sizes = sizes_of(found["1"][case.name])
        counts = [4 * sizes.parameters, sum(sizes.factor_bytes), sum(sizes.basis_bytes)]
        factors, bases = refresh_messages(sizes, 2)
        print(case.name, [f"{n / 1024:.0f} KiB" for n in counts],
              f"{len(factors)} + {len(bases)} messages")  # fmt: skip
    print_measured(found)
    print_check(found, machine)
    print_predictions(found, networks(machine))


def networks(machine: Machine) -> dict[str, Machine]:
    ethernet = Machine(ETHERNET, ETHERNET, machine.eigh_fixed, machine.eigh_cubic)
    return {"loopback": machine, "10 Gbit/s": ethernet}


# ------------------------------------------------------------------------------------ picture


def draw(found: dict[str, Any], picture: Path) -> None:
    """Predicted seconds against workers, every worker with the same share of examples."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    workers = [1, 2, 4, 8, 16, 32, 64]
    colours = {"plain": "tab:blue", "refresh": "tab:orange"}
    figure, panels = plt.subplots(1, len(CASES), figsize=(13, 3.6), layout="constrained")
    for panel, case in zip(panels, CASES, strict=True):
        for (network, machine), style in zip(
            networks(fitted(found)).items(), ("-", "--"), strict=True
        ):
            rows = [predicted(found, case, machine, p, p * case.batch) for p in workers]
            for kind, colour in colours.items():
                values = [1e3 * row[kind] for row in rows]
                panel.plot(workers, values, style, color=colour, label=f"{kind}, {network}")
        panel.set(title=f"{case.name}, {case.batch} examples each", xlabel="workers", xscale="log")
        panel.set_xticks([1, 8, 64], ["1", "8", "64"])
        panel.minorticks_off()
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("predicted milliseconds")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(picture, dpi=120)
