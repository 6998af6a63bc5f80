"""Compare times at equal gradient error instead of equal tolerance.

Engines that keep the same tolerance differ in the steps they take and so in their errors. Here the
engine also runs at looser tolerances; against each peer counts the loosest one whose gradient error
is at most the peer's. Times are CPU seconds of one thread, in interleaved rounds. ``ode_rnn`` is
left out: every interval is a single step there at any of these tolerances.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine.accuracy import reference, relative_errors
from benchmarks.engine.cases import CASES, Flow, Workload
from benchmarks.engine.contenders import CONTENDERS, Trial, snopt_flow
from benchmarks.files import RESULTS, keep
from benchmarks.measuring import CPU, interleave, over
from benchmarks.peers.torch_trials import TORCH_PEERS

WORKLOADS = ("image", "cnf_miniboone", "cnf_gas")
PEERS = ("torchdiffeq_direct", "torchdyn_autograd", "torchode_autodiff")
LOOSER = (1.0, 3.2, 10.0)
"""Our tolerances over the workload's own."""


def _at(workload: Workload, factor: float) -> Flow:
    workload.tolerance *= factor
    return snopt_flow(workload, "checkpoint")


OURS: dict[str, Callable[[Workload], Flow]] = {
    f"snopt_{factor:g}": partial(_at, factor=factor) for factor in LOOSER
}
"""Our eager engine at each tolerance, from the tightest to the loosest."""


def measure(case: str, peers: Sequence[str], rounds: int) -> dict[str, Any]:
    """Measure error, evaluations and time of everyone on a workload."""
    exact, _ = reference(case)
    form = CASES[case].forms[-1]
    makers = {**CONTENDERS, **TORCH_PEERS, **OURS}
    trials = {name: Trial(name, case, form, makers).settled() for name in (*OURS, *peers)}
    found: dict[str, dict[str, Any]] = {
        name: {
            "error": relative_errors(trial.gradients(), exact)["parameters"],
            "evaluations": trial.evaluations(),
        }
        for name, trial in trials.items()
    }
    times = interleave({name: trial.run for name, trial in trials.items()}, rounds, clock=CPU)
    for peer in peers:
        as_exact = [name for name in OURS if found[name]["error"] <= found[peer]["error"]]
        if as_exact:
            found[peer] |= {"ours": as_exact[-1], "over": over(times, as_exact[-1], peer)}
        print(f"{case:14} {peer:20} {found[peer]}", flush=True)
    return {"form": form, "rounds": rounds, "contenders": found}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--only", nargs="+", default=list(WORKLOADS), choices=WORKLOADS)
    parser.add_argument("--contenders", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS / "equal_error.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure the requested workloads, writing after each."""
    torch.set_num_threads(1)
    for case in chosen.only:
        keep(chosen.out, measure(case, chosen.contenders, chosen.rounds), "workloads", case)
