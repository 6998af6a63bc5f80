"""How cases are drawn by Hypothesis, which makes simpler what fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.fuzz.cases import ADAPTIVE, ALL, FINEST, FIXED, Case

#: dopri8 costs as much as the others together.
METHODS = ADAPTIVE[:3] * 3 + ADAPTIVE[3:] + FIXED
#: Set to a number, tests draw so many times their examples, and new ones in every run.
TIMES = int(os.environ.get("FUZZ", "0"))

T = TypeVar("T")


def examples(count: int) -> settings:
    """The same examples in every run, shrunk when they fail, on machines of any speed."""
    return settings(
        max_examples=count * (TIMES or 1),
        derandomize=not TIMES,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


class Chooser:
    """Choices by Hypothesis."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def pick(self, options: Sequence[T]) -> T:
        """One of several; the first is the simplest."""
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        """A number, both ends included; the lowest is the simplest."""
        return self.draw(st.integers(low, high))


def strategy(maker: Callable[..., Case], *args: Any) -> st.SearchStrategy[Case]:
    """A way of making cases as a strategy of Hypothesis."""
    return st.composite(lambda draw: maker(Chooser(draw), *args))()


# ----------------------------------------------------------------------------- parts


def seldom(choose: Chooser, one_in: int) -> bool:
    """False most of the time."""
    return choose.number(0, one_in - 1) == one_in - 1


def times(choose: Chooser, longest: int = 6) -> tuple[float, ...]:
    """Strictly monotone times in either direction, some of them near each other."""
    gaps = [choose.pick([0.37, 0.011, 0.83, 0.142]) for _ in range(choose.number(1, longest - 1))]
    length = choose.number(20, 150) / 100 * choose.pick([1.0, -1.0])
    start = choose.pick([0.0, 0.3, -1.25])
    parts = [sum(gaps[: i + 1]) / sum(gaps) for i in range(len(gaps))]
    return tuple(round(start + length * part, 6) for part in [0.0, *parts])


def field(choose: Chooser) -> dict[str, Any]:
    """The field's part of a case, without noise."""
    return {
        "seed": choose.number(0, 2**31 - 1),
        "kind": choose.pick(["tanh"] * 6 + ["linear", "free", "time", "constant"]),
        "hidden": choose.number(1, 5),
        "gain": choose.pick([1.0, 2.0, 0.3, 4.0]),
        "drive": choose.pick([0.0, 1.0, 3.0, 8.0]),
        "stiff": choose.pick([0.0, 0.0, 0.0, 4.0, 25.0]),
        "jump": choose.pick(["none"] * 4 + ["told", "untold"]),
        "jump_at": choose.pick([0.41, 0.0, 0.137, 0.93]),
        "uses_time": not seldom(choose, 5),
        "shared": seldom(choose, 4),
        "unused": seldom(choose, 4),
        "frozen": seldom(choose, 4),
        "turned": seldom(choose, 4),
    }


def state(choose: Chooser) -> dict[str, Any]:
    """The state's part of a case."""
    shape = choose.pick(["matrix"] * 3 + ["vector", "scalar", "single", "pair", "nested"])
    return {
        "state": shape,
        "batch": 1 if shape in ("vector", "scalar") else choose.number(1, 4),
        "width": 1 if shape == "scalar" else choose.number(1, 4),
    }


def solve(choose: Chooser, methods: Sequence[str] = METHODS,
          coarsest: float = 1e-2, finest: float = 0.0) -> dict[str, Any]:  # fmt: skip
    """Method, tolerances and steps."""
    method = choose.pick(methods)
    found: dict[str, Any] = {"method": method, "times": times(choose)}
    if method in FIXED:
        found["step_size"] = choose.pick([None, 0.25, 0.07, 0.11])
        found["grid"] = found["step_size"] is None and choose.pick([False, True])
        return found
    low = max(FINEST.get(method, coarsest), finest)
    rtol = choose.pick([tol for tol in (10.0**-n for n in range(1, 10)) if low <= tol <= coarsest])
    # A large first step is rejected, perhaps several times.
    first = choose.pick([1.0, None, 2.0, 0.5, 0.2, 0.01])
    return {**found, "rtol": rtol, "atol": rtol * choose.pick([1.0, 0.1]), "first_step": first}


def gradient(choose: Chooser, count: int) -> dict[str, Any]:
    """What is differentiated, with respect to what, through which call."""
    outputs = [i for i in range(count) if choose.pick([True, False])]
    if not any(outputs):
        outputs.append(count - 1)
    entry = choose.pick(["odeint", "odeint", "block", "closure", "horizon"])
    block = entry in ("block", "horizon")
    return {
        "keep": choose.pick([0, 1, 2, 3, 5, ALL, ALL, None]),
        "entry": entry,
        "calls": 2 if block and seldom(choose, 3) else 1,
        "loss": choose.pick(["squares", "squares", "sum"]),
        "outputs": tuple(outputs),
        "x_grad": not seldom(choose, 4),
        "t_grad": entry != "horizon" and seldom(choose, 4),
        "through": choose.pick(["grad", "backward", "grad", "backward", "state", "parameters"]),
        "again": seldom(choose, 6),
        "context": seldom(choose, 4),
    }


def everything(choose: Chooser, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """All parts of a case; the arguments are those of :func:`solve`."""
    steps = solve(choose, *args, **kwargs)
    return {**field(choose), **state(choose), **steps, **gradient(choose, len(steps["times"]))}


def made(**parts: Any) -> Case:
    """A case of drawn parts, with what cannot be combined put right."""
    if parts.get("entry") == "horizon":
        parts["times"], parts["outputs"] = (parts["times"][0], parts["times"][-1]), (1,)
    if parts.get("noise") == "norm":
        # Batches of few rows have variances near zero, by which everything is magnified.
        parts |= {"batch": 5, "width": max(2, parts["width"])}
        if parts["state"] in ("vector", "scalar"):
            parts["state"] = "matrix"
    if parts.get("noise", "none") != "none":
        parts["kind"] = "tanh"
    if parts["kind"] == "free":
        parts["x_grad"] = True
    if parts.get("dtype") == "float32" or parts["times"][-1] < parts["times"][0]:
        # A strong pull becomes a push backward in time, which magnifies rounding by e^25. In
        # single precision its steps, at the limit of stability, are chosen by rounding.
        parts["stiff"] = min(parts["stiff"], 4.0)
    if parts["jump_at"] == 0.0 and len(parts["times"]) == 2:
        parts["jump_at"] = 0.41
    if parts["jump"] != "none" and parts["jump_at"] == 0.0:
        # The slope at an output that lies on a jump is a matter of taste.
        parts["t_grad"] = False
    return Case(**parts)


# ------------------------------------------------------------------------------ cases


def exact(choose: Chooser) -> Case:
    """For discrete adjoints, which are exact whatever the tolerance."""
    parts = everything(choose)
    parts["dtype"] = choose.pick(["float64"] * 3 + ["float32"])
    return made(**parts, training=not seldom(choose, 5))


def noisy(choose: Chooser, kind: str) -> Case:
    """For fields that are not the same at every call."""
    # Noise is no smaller for smaller steps: a coarse tolerance is all that can be met.
    parts = everything(choose, coarsest=1e-1, finest=1e-2)
    parts |= {"noise": kind, "stiff": 0.0}
    return made(**parts)


def observed(choose: Chooser) -> Case:
    """For observers, under every adjoint."""
    case = exact(choose).but(check="observed", training=True, again=False)
    case = case.but(nodes=choose.number(1, 3), stages=choose.pick([True, False]))
    adjoint = choose.pick(["checkpoint", "checkpoint", "backsolve", "direct", "reversible"])
    # The adjoint is integrated backward here, which is no pleasure along stiff fields.
    case = case.but(adjoint=adjoint, stiff=min(case.stiff, 4.0))
    if case.kind == "free" and case.through == "parameters":
        # No gradient reaches the solve, so that there is nothing to observe.
        case = case.but(through="backward")
    if adjoint == "reversible":
        return case.but(
            method="alf", jump="none", rtol=max(case.rtol, 1e-2), step_size=None, grid=False
        )
    return case


def solution(choose: Chooser) -> Case:
    """For solutions that another library can check."""
    parts = {**field(choose), **state(choose), **solve(choose, ADAPTIVE, 1e-3)}
    # Sensitive fields magnify errors by more than can be bounded beforehand.
    parts["gain"] = min(parts["gain"], 2.0)
    # A first step over a whole oscillation can look accurate; torchdiffeq accepts it as well.
    parts["first_step"] = choose.pick([None, 0.2, 0.01])
    # The horizon of a block is a number of single precision.
    entries = ["odeint", "block", "horizon"] if parts["rtol"] > 1e-6 else ["odeint", "block"]
    return made(**parts, check="solution", entry=choose.pick(entries))


def differences(choose: Chooser) -> Case:
    """For gradients that finite differences can check: steps that do not depend on the state."""
    method = choose.pick([*FIXED, "alf", "dopri5", "dopri8"])
    parts = everything(choose, (method if method in FIXED else "rk4",))
    parts |= {"stiff": min(parts["stiff"], 4.0), "calls": 1, "again": False, "context": False}
    case = made(**parts, check="differences").but(method=method)
    if method in FIXED:
        # The gradient of a time is that of the exact solution, far from that of coarse steps.
        return case.but(t_grad=False, adjoint=choose.pick(["direct", "checkpoint"]))
    case = case.but(step_size=None, grid=False)
    if method == "alf":
        if case.jump == "told":  # the leapfrog takes no jump_t
            case = case.but(jump="untold")
        eta = choose.pick([1.0, 0.9, 0.8])
        return case.but(t_grad=False, adjoint="reversible", eta=eta)
    jump = "told" if case.jump == "untold" else case.jump
    adjoint = choose.pick(["direct", "checkpoint"])
    t_grad = case.entry != "horizon" and jump == "none" and choose.pick([True, False])
    return case.but(jump=jump, adjoint=adjoint, t_grad=t_grad)


def backsolve(choose: Chooser) -> Case:
    """For the continuous adjoint, where running the field backward is well-posed."""
    parts = everything(choose, ADAPTIVE, 1e-4)
    parts |= {"stiff": 0.0, "gain": min(parts["gain"], 1.0), "calls": 1, "again": False}
    parts["jump"] = parts["jump"].replace("untold", "told")
    case = made(**parts, check="backsolve")
    entry = choose.pick(["odeint", "block", "odeint_adjoint", "closure"])
    return case.but(adjoint="backsolve", entry=entry)


def reversible(choose: Chooser) -> Case:
    """For the leapfrog that can be undone."""
    parts = everything(choose, ("dopri5",), 1e-1, 1e-2)
    parts |= {"stiff": 0.0, "t_grad": False, "calls": 1, "again": False}
    parts["jump"] = "none" if parts["jump"] == "told" else parts["jump"]
    case = made(**parts, check="reversible", eta=choose.pick([1.0, 0.95]))
    entry = choose.pick(["odeint", "closure"])
    return case.but(adjoint="reversible", method="alf", entry=entry)


def compiled(choose: Chooser, family: int) -> Case:
    """Data, times and tapes for one of a few blocks that are compiled once."""
    walk = times(choose)
    parts = gradient(choose, len(walk))
    entry = choose.pick(["block", "horizon"])
    return Case(
        check="compiled",
        family=family,
        seed=choose.number(0, 2**31 - 1),
        batch=choose.pick([3, 3, 3, 5]),
        times=walk,
        keep=choose.pick([0, 2, ALL]),
        calls=choose.number(1, 3),
        entry=entry,
        loss=parts["loss"],
        outputs=parts["outputs"],
        x_grad=parts["x_grad"],
        through=parts["through"],
        again=parts["again"],
        context=parts["context"],
    )
