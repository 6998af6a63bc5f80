"""Speed against memory: ``keep`` of the checkpointed adjoint, and the other adjoints.

CPU seconds of loss and gradient on one thread, interleaved, and the peak memory of an iteration in
a fresh process, each as a ratio to the default. What takes longer than six seconds runs once,
outside the rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import snopt
from benchmarks.engine.cases import CASES
from benchmarks.engine.contenders import Makers, Trial, snopt_flow
from benchmarks.files import RESULTS, keep
from benchmarks.measuring import CPU, SLOW, interleave, over, peak
from snopt.lab.paper.timing import seconds_of, summary

DEFAULT = "Checkpoint()"
MAKERS: Makers = {
    "Checkpoint(keep=0)": partial(snopt_flow, adjoint=snopt.Checkpoint(keep=0)),
    "Checkpoint(keep=1)": partial(snopt_flow, adjoint=snopt.Checkpoint(keep=1)),
    DEFAULT: partial(snopt_flow, adjoint=snopt.Checkpoint()),
    "Backsolve()": partial(snopt_flow, adjoint=snopt.Backsolve()),
    "Reversible()": partial(snopt_flow, adjoint=snopt.Reversible(), method=None),
    "Direct()": partial(snopt_flow, adjoint=snopt.Direct()),
}
WORKLOADS = ("image", "ode_rnn", "cnf_gas")


def too_slow(name: str, taken: float) -> bool:
    """Return whether one iteration takes too long for rounds; the default never does."""
    return name != DEFAULT and taken > SLOW


def timed(trials: dict[str, Trial], repeats: int) -> dict[str, dict[str, Any]]:
    """Return seconds and evaluations of each, and the ratio of the time to the default's."""
    once = {}
    for name, trial in trials.items():
        trial.run()
        once[name] = seconds_of(partial(_counted, trial), CPU)
    slow = [name for name in trials if too_slow(name, once[name])]
    runs = {name: partial(_counted, trials[name]) for name in trials if name not in slow}
    times = interleave(runs, repeats, clock=CPU)
    usual = summary(times[DEFAULT])["median"]
    found: dict[str, dict[str, Any]] = {}
    for name, trial in trials.items():
        totals = trial.flow.totals
        found[name] = {
            "rounds": len(times.get(name, [1])),
            "seconds": summary(times.get(name, [once[name]])),
            "time": over(times, name, DEFAULT) if name in times else summary([once[name] / usual]),
            "evaluations": [totals.nfe_forward, totals.nfe_backward],
            "steps": totals.accepted,
        }
    return found


def _counted(trial: Trial) -> None:
    trial.flow.totals.reset()
    trial.run()


def measure(case: str, names: Sequence[str], repeats: int) -> dict[str, Any]:
    """Measure one workload; ``names`` include the default."""
    form = CASES[case].forms[-1]
    found = timed({name: Trial(name, case, form, MAKERS) for name in names}, repeats)
    megabytes = {name: peak(Trial, name, case, form, MAKERS) for name in names}
    for name, each in found.items():
        each["megabytes"] = megabytes[name]
        each["memory"] = megabytes[name] / megabytes[DEFAULT]
        print(
            f"{case:20} {name:20} time {each['time']['median']:.3f}  memory {each['memory']:.3f} "
            f"({each['megabytes']:.0f} MB)  evaluations {each['evaluations']}",
            flush=True,
        )
    return {"form": form, "contenders": found}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--cases", nargs="+", default=list(WORKLOADS), choices=CASES)
    parser.add_argument("--adjoints", nargs="+", default=list(MAKERS), choices=MAKERS)
    parser.add_argument("--repeats", type=int, default=7, help="rounds of timing")
    parser.add_argument("--out", type=Path, default=RESULTS / "tradeoff.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure the workloads, writing after each."""
    torch.set_num_threads(1)
    names = dict.fromkeys((*chosen.adjoints, DEFAULT))
    for case in chosen.cases:
        keep(chosen.out, measure(case, list(names), chosen.repeats), case)
