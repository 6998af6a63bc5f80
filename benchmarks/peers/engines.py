"""Forward time, forward plus backward time and gradient error of all libraries, interleaved.

The forward pass is the loss alone, with no gradient wanted; forward plus backward is what
training does between two updates. Ratios are the peer's over ours, taken within a round. A peer
that takes longer than :data:`SLOW` seconds for one iteration runs once, outside the rounds; a peer
that cannot run is recorded with its reason.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.engine.accuracy import reference, relative_errors
from benchmarks.engine.cases import CASES
from benchmarks.engine.contenders import CONTENDERS, SETTLING, Trial
from benchmarks.peers.torch_trials import TORCH_PEERS
from snopt.lab.paper.timing import interleave, ratios, summary

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
# The form of the flows' field that every library, compilers included, can work with.
FORMS = {"cnf_miniboone": "tangent", "cnf_gas": "tangent"}
SLOW = 6.0
FEWEST, MOST = 3, 11


def form_of(case: str) -> str:
    """Return the form of a case's field that all libraries use."""
    return FORMS.get(case, CASES[case].forms[0])


def left_out(case: str, name: str) -> str | None:
    """Return why a pair is not tried; None if it is."""
    if (case, name) == ("image", "diffrax_backsolve"):
        return "not tried: XLA's convolutions on a CPU, see diffrax_checkpoint"
    if case != "ode_rnn" and name == "torchode_compiled":
        return "not tried: only ode_rnn has a field small enough for the loop around it to count"
    return None


def trial(name: str, case: str) -> Any:
    """Prepare one library on one workload; a library is imported only when it is used."""
    form = form_of(case)
    if name.startswith("diffrax"):
        from benchmarks.peers.diffrax_trials import DiffraxTrial

        return DiffraxTrial(name, case, form)
    return Trial(name, case, form, {**CONTENDERS, **TORCH_PEERS})


def first_line(error: Exception) -> str:
    """Describe an error in one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def rounds(seconds: float, budget: float) -> int:
    """Return how many rounds fit into a budget of seconds, between ``FEWEST`` and ``MOST``."""
    return max(FEWEST, min(MOST, int(budget / seconds)))


def settled(name: str, case: str) -> tuple[Any, float]:
    """Run a library until its time no longer changes; return it and the time of one iteration."""
    candidate = trial(name, case)
    compiles = name.startswith("diffrax") or name.endswith("compiled")
    for _ in range(SETTLING if name in OURS else 2 if compiles else 1):
        start = time.perf_counter()
        candidate.run()
        seconds = time.perf_counter() - start
    if seconds < SLOW:
        candidate.evaluate()
    return candidate, seconds


def measure(case: str, budget: float) -> dict[str, Any]:
    """Measure all libraries that can run a workload, in interleaved rounds."""
    exact, own_error = reference(case)
    able, found, unable = {}, {}, {}
    for name in (*OURS, *PEERS):
        reason = left_out(case, name)
        if reason is None:
            try:
                candidate, seconds = settled(name, case)
                found[name] = {"error": relative_errors(candidate.gradients(), exact)}
            except Exception as error:  # noqa: BLE001 - a peer may fail in any way
                reason = first_line(error)
        if reason is not None:
            unable[name] = reason
        elif seconds > SLOW:
            found[name]["both"] = summary([seconds])
        else:
            able[name] = candidate, seconds
        print(f"{case:14} {name:20} {reason or f'{seconds:.3f} s'}", flush=True)
    repeats = rounds(1.5 * sum(seconds for _, seconds in able.values()), budget)
    for kind in ("forward", "both"):
        runs = {
            name: candidate.evaluate if kind == "forward" else candidate.run
            for name, (candidate, _) in able.items()
        }
        times = interleave(runs, repeats, 0)
        for name in runs:
            found[name][kind] = summary(times[name])
            if kind == "both":
                over = {ours: ratios(times, name, ours) for ours in OURS if ours in runs}
                found[name]["both_over"] = {ours: summary(each) for ours, each in over.items()}
    return {
        "form": form_of(case),
        "rounds": repeats,
        "reference_error": own_error,
        "contenders": found,
        "cannot_run": unable,
    }
