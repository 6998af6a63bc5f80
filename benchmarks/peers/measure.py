"""Measure the engine and the optimizer against their peers.

    python -m benchmarks.peers [--parts ...] [--only ...] [--seconds N] [--out FILE]

Run it in an environment with the packages of ``benchmarks/requirements-peers.txt``; the task
``mnist`` also wants ``SNOPT_DATA``. Every workload of every part is written as soon as it is
measured; what other runs have written is kept. ``python -m benchmarks.peers_page`` makes the page.

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
import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.files import environment

RESULTS = Path(__file__).parent / "results"
WORKLOADS = ("image", "ode_rnn", "cnf_miniboone", "cnf_gas")
PARTS = {
    "engines": ("benchmarks.peers.engines", WORKLOADS),
    "memory": ("benchmarks.peers.memory", WORKLOADS),
    "optimizers": ("benchmarks.peers.optimizers", ("image", "ode_rnn", "cnf_gas")),
    "targets": ("benchmarks.peers.targets", ("digits", "mnist")),
    "profile": ("benchmarks.peers.profile", ("ode_rnn", "cnf_gas")),
}
"""The module of each part, with a ``measure(workload, budget)``, and what it is measured on."""


def keep(file: Path, part: str, workload: str, measured: dict[str, Any]) -> None:
    """Put one measurement into the file and leave the others as they are."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept = {name: kept[name] for name in PARTS if name in kept}
    kept.setdefault(part, {})[workload] = measured
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--only", nargs="+", help="only these workloads and tasks")
    parser.add_argument("--seconds", type=float, default=45.0, help="of rounds a workload")
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.json")
    chosen = parser.parse_args()
    for part in chosen.parts:
        module, workloads = PARTS[part]
        for workload in workloads:
            if chosen.only and workload not in chosen.only:
                continue
            start = time.perf_counter()
            try:
                measured = import_module(module).measure(workload, chosen.seconds)
            except SystemExit as missing:  # data that is not there
                print(f"{part} {workload}: left out; {missing}", flush=True)
                continue
            keep(chosen.out, part, workload, {**measured, "environment": environment()})
            print(f"{part} {workload}: {time.perf_counter() - start:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
