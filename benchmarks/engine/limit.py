"""Loss and gradient against a lower bound: the bare evaluations of the field (``bound.py``).

CPU seconds of one thread, interleaved. The eager engine is divided by the eager bound, the compiled
engine by the compiled one, in which an evaluation and its pull-back are one call. Beside them:
``bound_step``, with as many evaluations in one compiled call as a step has, and ``around``, the
model with its solve replaced by the identity. ``--profile`` adds one iteration of each under
torch's profiler, whose seconds are those of a slowed-down run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.engine.bound import STAGES, Bound, recorded
from benchmarks.engine.cases import CASES
from benchmarks.engine.contenders import CONTENDERS, SETTLING, Trial
from benchmarks.engine.cpu import rounds, seconds
from benchmarks.files import RESULTS, WORKLOADS, environment, read, write
from benchmarks.peers.profile import kind
from snopt.lab.paper.timing import ratios, summary

BOUNDS = {"bound": 0, "bound_compiled": 1, "bound_step": STAGES}
"""Evaluations per compiled call."""
OVER = {
    "snopt_checkpoint": ("bound",),
    "snopt_compiled": ("bound_compiled", "bound_step"),
    "around": ("bound",),
}
"""What each is divided by."""
GOALS = {
    "image": {"snopt_checkpoint": 1.10, "snopt_compiled": 1.10},
    "ode_rnn": {"snopt_checkpoint": 1.60, "snopt_compiled": 1.50},
    "cnf_miniboone": {"snopt_checkpoint": 1.10, "snopt_compiled": 1.10},
    "cnf_gas": {"snopt_checkpoint": 1.25, "snopt_compiled": 1.25},
}
MAKERS = {**CONTENDERS, "around": lambda workload: lambda state: state}
COMPILED = "compiled code"
TOP = 6


def contenders(
    case: str, form: str, over: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Callable[[], None]], dict[str, Any]]:
    """Return what is timed, settled and compiled, and the work of the bound."""
    trials = {name: Trial(name, case, form, MAKERS) for name in over}
    for trial in trials.values():
        trial.settle()
    eager = trials["snopt_checkpoint"]
    calls, pulled = recorded(eager)
    field = eager.workload.field
    needed = dict.fromkeys(bound for bounds in over.values() for bound in bounds)
    bounds = {name: Bound(field, calls, pulled, BOUNDS[name]) for name in needed}
    for bound in bounds.values():
        bound.run()
    work = {
        "evaluations": len(calls),
        "pull_backs": pulled,
        "engine": {name: trials[name].evaluations() for name in over if name != "around"},
    }
    return {name: each.run for name, each in {**trials, **bounds}.items()}, work


def by_kind(run: Callable[[], None]) -> dict[str, Any]:
    """Run once under torch's profiler; return seconds by kind of work and the longest operators.

    The profiler's clock is the wall's, so on a busy machine the kinds exceed the CPU seconds.
    """
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        total = seconds(run)
    events = watched.key_averages()
    spent: dict[str, float] = {}
    for event in events:
        inside = event.key.startswith(("Torch-Compiled", "CompiledFunction", "## Call"))
        place = COMPILED if inside else kind(event.key)
        if "convolution" in event.key:  # under any backend's name
            place = "matrix products"
        spent[place] = spent.get(place, 0.0) + 1e-6 * event.self_cpu_time_total
    ranked = sorted(events, key=lambda event: -event.self_cpu_time_total)[:TOP]
    return {
        "seconds": total,
        "operators": sum(event.count for event in events if event.key.startswith("aten::")),
        "kinds": spent,
        "top": [[each.key, each.count, 1e-6 * each.self_cpu_time_total] for each in ranked],
    }


def measure(case: str, repeats: int, *, eager: bool, profiled: bool) -> dict[str, Any]:
    """Measure one workload."""
    over = {name: each for name, each in OVER.items() if not (eager and name == "snopt_compiled")}
    form = CASES[case].forms[-1]  # the one that a compiler can trace
    runs, work = contenders(case, form, over)
    times = rounds(runs, repeats)
    found = {
        "form": form,
        "rounds": repeats,
        "settling": SETTLING,
        "work": work,
        "seconds": {name: summary(each) for name, each in times.items()},
        "over": {
            name: {bound: summary(ratios(times, name, bound)) for bound in bounds}
            for name, bounds in over.items()
        },
        "goals": GOALS.get(case, {}),
    }
    if profiled:
        found["profile"] = {name: by_kind(run) for name, run in runs.items()}
    return {**found, "environment": environment()}


def show(case: str, found: dict[str, Any]) -> None:
    """Print one line for each ratio."""
    for name, bounds in found["over"].items():
        for bound, ratio in bounds.items():
            spread = f"{ratio['median']:.3f} ({ratio['lower']:.3f}-{ratio['upper']:.3f})"
            print(f"{case:20} {name:18} over {bound:15} {spread}", flush=True)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--cases", nargs="+", default=list(WORKLOADS), choices=CASES)
    parser.add_argument("--repeats", type=int, default=9, help="rounds of timing")
    parser.add_argument("--eager", action="store_true", help="leave out what is compiled")
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    parser.add_argument("--out", type=Path, default=RESULTS / "limit.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure the workloads, writing after each."""
    torch.set_num_threads(1)
    for case in chosen.cases:
        found = measure(case, chosen.repeats, eager=chosen.eager, profiled=chosen.profile)
        show(case, found)
        write(chosen.out, {**read(chosen.out), case: found})
