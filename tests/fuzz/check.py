"""Judging a case: what it gave, what it should have given, and how far apart they may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import snopt
from snopt.adjoint.quadrature import PerStep
from snopt.ode import runge_kutta
from snopt.ode.step import StageList
from tests.fuzz import compiled
from tests.fuzz.cases import ALL, Case
from tests.fuzz.fields import FuzzField, context_of, initial_parts
from tests.fuzz.references import by_leapfrog, by_scipy, slope_by_differences
from tests.fuzz.solve import (
    Outcome,
    Recorder,
    adjoint_of,
    call,
    distance,
    finished,
    named,
    options_of,
    run,
)

#: Relative errors of gradients that are exact but for rounding.
ROUNDING = {"float64": 1e-8, "float32": 2e-3}
#: Solutions and gradients beyond which rounding errors are not small either.
LARGE = {"float64": 1e4, "float32": 1e2}


@dataclass(frozen=True)
class Verdict:
    """What became of a case.

    Attributes:
        what: What is compared, or why nothing is.
        error: Relative error.
        bound: What it may be.
        solved: Whether there was anything to compare.
    """

    what: str
    error: float = 0.0
    bound: float = 0.0
    solved: bool = True

    @property
    def wrong(self) -> bool:
        """Whether the error is too large, or no number."""
        return not self.error <= self.bound


def unsolved(reason: str) -> Verdict:
    """A case that has no solution to compare."""
    return Verdict(reason, solved=False)


def judge(case: Case) -> Verdict:
    """Run a case's check."""
    return CHECKS[case.check](case)


def attempt(case: Case, adjoint: Any, observer: Recorder | None = None,
            **changes: object) -> Outcome | str:  # fmt: skip
    """Run a case; the name of the error if the solver gives up."""
    try:
        return run(case, adjoint, observer, **changes)
    except RuntimeError as error:
        if not hasattr(error, "step"):  # no failure of a solve
            raise
        return type(error).__name__


def worst(verdicts: list[Verdict]) -> Verdict:
    """The verdict that is farthest from its bound."""
    return max(verdicts, key=lambda v: math.inf if v.wrong else v.error / max(v.bound, 1e-300))


def tame(outcome: Outcome) -> bool:
    """Whether rounding errors stay small: large gradients are those of sensitive solutions."""
    values = [*outcome.outputs, *outcome.gradients.values()]
    limit = LARGE[str(values[0].dtype).removeprefix("torch.")]
    return all(bool((value.abs() < limit).all()) for value in values)


# ------------------------------------------------------------------- exact adjoints


def exact(case: Case) -> Verdict:
    """The checkpointed adjoint, whatever it keeps, gives what backpropagation gives.

    The two add up the stages of a step in different orders. Where rounding then chooses other
    steps, they are compared again with the same sums, so that their steps are equal bit for bit.
    """
    adjoint, label = snopt.Checkpoint(keep=case.keep), f"{case.noise}, keep {kept(case.keep)}"
    expected = attempt(case, "direct")
    verdict = compare(case, attempt(case, adjoint), expected, label)
    if verdict.wrong:
        with same_sums():
            found = attempt(case, adjoint)
        verdict = compare(case, found, expected, f"{label}, same sums")
    return verdict


@contextmanager
def same_sums() -> Iterator[None]:
    """Let steps without a tape add their stages up as steps on the tape do."""

    class Listed(StageList):
        def __init__(self, *_: object) -> None:
            super().__init__()

    with mock.patch.object(runge_kutta, "StageBuffer", Listed):
        yield


def kept(keep: int | None) -> str:
    """How many tapes are kept, in a word."""
    return {None: "by budget", 0: "none", ALL: "all"}.get(keep, "few")


def compare(
    case: Case, found: Outcome | str, expected: Outcome | str, label: str, *, drift: float = 0.0
) -> Verdict:
    """Outputs, gradients and buffers of two runs that should be equal up to rounding.

    Args:
        case: The case.
        found: What is judged.
        expected: What it should be.
        label: What to call it.
        drift: How much a gradient may change with the step sizes, relative to their change.
    """
    if isinstance(found, str) or isinstance(expected, str):
        if found == expected:
            return unsolved(str(found))
        ends = [end if isinstance(end, str) else "a solution" for end in (found, expected)]
        return Verdict(f"{label}: {ends[0]} instead of {ends[1]}", error=math.inf)
    if not tame(expected):
        return unsolved("too large")
    steps = abs(found.step - expected.step) / max(expected.step, 1e-12)
    bound = max(ROUNDING[case.dtype], drift * steps)
    return worst(
        [
            Verdict(f"{label}: {name}", distance(one, other), bound)
            for name, one, other in (
                ("outputs", named(found.outputs), named(expected.outputs)),
                ("gradient", found.gradients, expected.gradients),
                ("buffers", found.buffers, expected.buffers),
            )
        ]
    )


# ------------------------------------------------------------------------ observers


def observed(case: Case) -> Verdict:
    """An observer changes no bit, and its weights add up to the length of the solve."""
    recorder = Recorder(PerStep(nodes=case.nodes, stages=case.stages))
    plain = attempt(case, adjoint_of(case))
    told = attempt(case, adjoint_of(case), recorder)
    if isinstance(plain, str):
        return unsolved(plain)
    if isinstance(told, str):
        # Adjoints that do not walk back along the path on their own do so for an observer.
        walks = case.adjoint in ("direct", "reversible")
        return unsolved(told) if walks else Verdict(f"{told} for the observer", math.inf)
    if not tame(plain):
        return unsolved("too large")
    if not identical(told, plain):
        gap = distance(told.gradients, plain.gradients)
        return Verdict("the observer changed a bit", max(gap, 1e-300), 0.0)
    if not plain.gradients:
        return unsolved("no gradient")
    if not recorder.finite:
        return Verdict("told of a number that is not finite", math.inf)
    length = case.calls * abs(case.span)
    off = abs(recorder.weight - length) / length
    low, high = min(case.times), max(case.times)
    if any(not low - 1e-6 <= t <= high + 1e-6 for t, _ in recorder.nodes):
        return Verdict("told of a node outside of the solve", math.inf)
    # A block's horizon is a number of single precision.
    coarse = case.dtype == "float32" or case.entry == "horizon"
    return Verdict("weights of nodes", off, 1e-5 if coarse else 1e-9)


def identical(one: Outcome, other: Outcome) -> bool:
    """Whether two runs agree in every bit."""
    pairs = [
        (named(one.outputs), named(other.outputs)),
        (one.gradients, other.gradients),
        (one.buffers, other.buffers),
    ]
    return all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) for a, b in pairs
    )


# ------------------------------------------------------------- other ways to the same


def solution(case: Case) -> Verdict:
    """The solution is within its tolerance of scipy's."""
    if case.method == "dopri8" and case.jump == "untold":
        # DOP853 divides one error estimate by another, which a jump can make arbitrarily large.
        return unsolved("an estimate that a jump can deceive")
    case = case.but(x_grad=False)
    found = attempt(case, "checkpoint")
    if isinstance(found, str):
        return unsolved(found)
    if not tame(found):
        return unsolved("too large")
    expected = by_scipy(case)
    if case.entry == "horizon":
        expected = [part[-1:] for part in expected]
    gap = tolerances(case, found.outputs, expected)
    return Verdict("distance from scipy in tolerances", gap, growth(case))


def tolerances(case: Case, found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest distance of two solutions, in tolerances."""
    return max(
        float(((a - b).abs() / (case.atol + case.rtol * b.abs())).max())
        for a, b in zip(found, expected, strict=True)
    )


def growth(case: Case) -> float:
    """How many tolerances a global error may be: what steps add up to, magnified by the field."""
    return 3e3 if case.jump == "untold" else 1e2


def differences(case: Case) -> Verdict:
    """Gradients are slopes of the loss."""
    settings: dict[str, object] = {"rtol": case.rtol, "atol": case.atol}
    sizes, bound = (1e-5, 1e-6, 1e-7, 1e-8), 1e-6
    if case.method == "alf":
        # With such a tolerance steps are as long as they may be, and do not depend on anything.
        settings = {"rtol": 1e6, "atol": 1e6}
        step = 0.06 * abs(case.span)
        settings["options"] = {**options_of(case), "first_step": step, "max_step": step}
    elif case.adaptive:
        # So fine that it does not matter whether the steps change with the state.
        settings = {"rtol": 1e-10, "atol": 1e-10, "options": patient(case)}
        sizes, bound = (1e-4, 1e-5, 1e-6), 1e-4
    try:
        length, gradient, *slopes = slope_by_differences(case, adjoint_of(case), sizes, **settings)
    except RuntimeError as error:
        if not hasattr(error, "step"):
            raise
        return unsolved(type(error).__name__)
    if not math.isfinite(length) or length > LARGE["float64"]:
        return unsolved("too large")
    # The best of several sizes of difference, none of which is right for every field.
    error = min(abs(gradient - slope) for slope in slopes)
    return Verdict(f"gradient of {case.adjoint} and differences", error, bound)


def patient(case: Case) -> dict[str, object]:
    """The case's options, with leave to take more steps."""
    return {**options_of(case), "max_num_steps": 500}


def backsolve(case: Case) -> Verdict:
    """The continuous adjoint is as near to a tight discrete one as its path to the tight path."""
    found = attempt(case, "backsolve")
    tight = case.but(method="dopri8", rtol=1e-10, atol=1e-10, first_step=None, entry="odeint")
    expected = attempt(tight, "direct", options=patient(tight))
    if isinstance(found, str) or isinstance(expected, str):
        return unsolved(found if isinstance(found, str) else "no reference")
    if not tame(expected):
        return unsolved("too large")
    gap, size = (
        sum(float(value.norm()) ** 2 for value in values) ** 0.5
        for values in (
            [found.gradients[name] - value for name, value in expected.gradients.items()],
            expected.gradients.values(),
        )
    )
    error = gap / max(size, 1e-3) / max(case.rtol, case.atol)
    path = tolerances(case, found.outputs, expected.outputs)
    bound = max(5e2, 50.0 * path)
    return Verdict("distance from the exact gradient in tolerances", error, bound)


def reversible(case: Case) -> Verdict:
    """The reversible adjoint gives what backpropagation through the same leapfrog gives."""
    model, parts, called = FuzzField(case), initial_parts(case), []
    context, rate = context_of(case)
    model.register_forward_pre_hook(lambda module, args: called.append(float(args[0])))
    settings = {
        "method": "alf", "rtol": case.rtol, "atol": case.atol, "options": options_of(case),
        "adjoint": snopt.Reversible(eta=case.eta),
    }  # fmt: skip
    try:
        times = list(case.times)
        outputs, counts = call(case, model, parts, times, context=context, **settings)
    except RuntimeError as error:
        if not hasattr(error, "step"):
            raise
        return unsolved(type(error).__name__)
    leaves = {f"x{i}": part for i, part in enumerate(parts)} | dict(model.named_parameters())
    leaves |= rate
    called.clear()
    found = finished(case, outputs, leaves, model, counts)
    if not found.gradients:
        return unsolved("no gradient")
    # Backward, the field is evaluated in the middle of every accepted step, and at the start.
    outputs, leaves, model = by_leapfrog(case, called[-2::-1])
    expected = finished(case, outputs, leaves, model, [])
    if not tame(expected):
        return unsolved("too large")
    # Undoing a damped step magnifies rounding errors.
    magnified = (1.0 / (2.0 * case.eta - 1.0)) ** found.accepted
    bound = max(1e-8, 1e-13 * magnified)
    if bound > 1e-4:
        return unsolved("too many damped steps")
    error = max(
        distance(found.gradients, expected.gradients),
        distance(named(found.outputs), named(expected.outputs)),
    )
    return Verdict("gradient of the same leapfrog", error, bound)


def compiled_steps(case: Case) -> Verdict:
    """Compiled steps give what eager backpropagation gives."""
    found, expected = (compiled.run(case, compile=flag) for flag in (True, False))
    if (found.accepted) != (expected.accepted, expected.rejected):
        return unsolved("rounding chose the steps")
    return compare(case, found, expected, f"compiled, keep {kept(case.keep)}", drift=1e3)


CHECKS: dict[str, Callable[[Case], Verdict]] = {
    "exact": exact,
    "observed": observed,
    "solution": solution,
    "differences": differences,
    "backsolve": backsolve,
    "reversible": reversible,
    "compiled": compiled_steps,
}
