"""Measure the engine against its peers, on the four workloads.

Run it in an environment with the packages of ``benchmarks/requirements-peers.txt``. Every workload
of every part is written as soon as it is measured; what other runs have written is kept.

``engines`` times the loss alone and the loss with its gradient, in interleaved rounds, and measures
the error of the gradient. Ratios are the peer's over ours, taken within a round. A peer that takes
longer than six seconds for one iteration runs once, outside the rounds; a peer that cannot run is
recorded with its reason.

``memory`` is the peak of one iteration in a fresh process of one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.engine.accuracy import reference, relative_errors
from benchmarks.engine.cases import CASES
from benchmarks.engine.contenders import CONTENDERS, SETTLING, Trial
from benchmarks.files import RESULTS, WORKLOADS, keep
from benchmarks.measuring import SLOW, interleave, over, peak
from benchmarks.peers.torch_trials import TORCH_PEERS
from snopt.lab.paper.timing import seconds_of, summary

OURS = ("snopt_checkpoint", "snopt_compiled")
PEERS = (
    "torchdiffeq_adjoint",
    "torchdiffeq_direct",
    "torchode_autodiff",
    "torchode_compiled",
    "torchdyn_adjoint",
    "torchdyn_autograd",
    "diffrax_checkpoint",
    "diffrax_backsolve",
)
FEWEST, MOST = 3, 11
Found = TypeVar("Found")


def left_out(case: str, name: str) -> str | None:
    """Return why a pair is not tried; None if it is."""
    if (case, name) == ("image", "diffrax_backsolve"):
        return "not tried: XLA's convolutions on a CPU, see diffrax_checkpoint"
    if case != "ode_rnn" and name == "torchode_compiled":
        return "not tried: only ode_rnn has a field small enough for the loop around it to count"
    return None


def trial(name: str, case: str) -> Any:
    """Prepare one library on one workload; a library is imported only when it is used."""
    form = CASES[case].forms[-1]  # every library, compilers included, can work with this one
    if name.startswith("diffrax"):
        from benchmarks.peers.diffrax_trials import DiffraxTrial

        return DiffraxTrial(name, case, form)
    return Trial(name, case, form, {**CONTENDERS, **TORCH_PEERS})


def fitting(seconds: float, budget: float) -> int:
    """Return how many rounds fit into a budget of seconds, between ``FEWEST`` and ``MOST``."""
    return max(FEWEST, min(MOST, int(budget / seconds)))


def settled(name: str, case: str) -> tuple[Any, float]:
    """Run a library until its time no longer changes; return it and the time of one iteration."""
    candidate = trial(name, case)
    compiles = name.startswith("diffrax") or name.endswith("compiled")
    for _ in range(SETTLING if name in OURS else 2 if compiles else 1):
        seconds = seconds_of(candidate.run)
    if seconds < SLOW:
        candidate.evaluate()
    return candidate, seconds


def tried(
    case: str, names: Sequence[str], function: Callable[[str, str], Found]
) -> tuple[dict[str, Found], dict[str, str]]:
    """Call a function for each library; return the results, and why others have none."""
    found, unable = {}, {}
    for name in names:
        reason = left_out(case, name)
        if reason is None:
            try:
                found[name] = function(name, case)
            except Exception as error:  # noqa: BLE001 - a peer may fail in any way
                reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]:.200}"
        if reason is not None:
            unable[name] = reason
        print(f"{case:14} {name:20} {reason or 'done'}", flush=True)
    return found, unable


def engines(case: str, names: Sequence[str], budget: float) -> dict[str, Any]:
    """Measure time and error of all libraries that can run a workload."""
    exact, own_error = reference(case)
    ready, unable = tried(case, names, settled)
    found: dict[str, dict[str, Any]] = {
        name: {"error": relative_errors(each.gradients(), exact), "both": summary([seconds])}
        for name, (each, seconds) in ready.items()
    }
    able = {name: each for name, (each, seconds) in ready.items() if seconds < SLOW}
    seconds = sum(ready[name][1] for name in able)
    repeats = fitting(1.5 * seconds, budget) if able else 0
    forward = interleave({name: each.evaluate for name, each in able.items()}, repeats)
    both = interleave({name: each.run for name, each in able.items()}, repeats)
    for name in able:
        found[name] |= {"forward": summary(forward[name]), "both": summary(both[name])}
        found[name]["both_over"] = {ours: over(both, name, ours) for ours in OURS if ours in able}
    return {
        "form": CASES[case].forms[-1],
        "rounds": repeats,
        "reference_error": own_error,
        "contenders": found,
        "cannot_run": unable,
    }


def memory(case: str, names: Sequence[str], budget: float) -> dict[str, Any]:
    """Measure the megabytes of all libraries on one workload; the budget is not used."""
    found, unable = tried(case, names, partial(peak, trial))
    return {"megabytes": found, "cannot_run": unable}


PARTS = {"engines": engines, "memory": memory}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--only", nargs="+", default=list(WORKLOADS), choices=WORKLOADS)
    parser.add_argument("--contenders", nargs="+", default=[*OURS, *PEERS], choices=[*OURS, *PEERS])
    parser.add_argument("--seconds", type=float, default=45.0, help="of rounds a workload")
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.json")


def main(chosen: argparse.Namespace) -> None:
    """Measure what the command line asks for."""
    for part in chosen.parts:
        for case in chosen.only:
            found = PARTS[part](case, chosen.contenders, chosen.seconds)
            keep(chosen.out, found, part, case)
