"""Measure the engine and the optimizer against their peers.

Run it in an environment with the packages of ``benchmarks/requirements-peers.txt``; the task
``mnist`` also wants ``SNOPT_DATA``. Every workload of every part is written as soon as it is
measured; what other runs have written is kept.

=============  =====================================================================
part           measures
=============  =====================================================================
``engines``    forward, forward plus backward, gradient error, on the four workloads
``memory``     memory of an iteration, in fresh processes
``optimizers``  an iteration under each optimizer, amortised
``targets``    seconds and iterations to a stated accuracy
``profile``    where the time of an iteration goes
=============  =====================================================================
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module
from pathlib import Path

from benchmarks.files import RESULTS, WORKLOADS, keep

PARTS = {
    "engines": WORKLOADS,
    "memory": WORKLOADS,
    "optimizers": ("image", "ode_rnn", "cnf_gas"),
    "targets": ("digits", "mnist"),
    "profile": ("ode_rnn", "cnf_gas"),
}
"""What a part is measured on. It is a module of this group with ``measure(workload, budget)``."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--only", nargs="+", help="only these workloads and tasks")
    parser.add_argument("--seconds", type=float, default=45.0, help="of rounds a workload")
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure what the command line asks for."""
    known = {workload for part in chosen.parts for workload in PARTS[part]}
    if strange := set(chosen.only or ()) - known:
        raise SystemExit(f"{sorted(strange)} are not of {chosen.parts}; known: {sorted(known)}")
    for part in chosen.parts:
        for workload in (name for name in PARTS[part] if name in (chosen.only or [name])):
            start = time.perf_counter()
            try:
                measure = import_module(f"benchmarks.peers.{part}").measure
                measured = measure(workload, chosen.seconds)
            except SystemExit as missing:  # data that is not there
                print(f"{part} {workload}: left out; {missing}", flush=True)
                continue
            keep(chosen.out, measured, part, workload)
            print(f"{part} {workload}: {time.perf_counter() - start:.0f} s in all", flush=True)
