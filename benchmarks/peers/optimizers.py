"""Cost of an iteration with each optimizer, at learning rate zero and amortised over refreshes.

Most optimizers work in ``step`` alone. Their iteration is the gradient, timed once a round for
all of them, plus the mean of as many steps as lie between two of their own refreshes. SNOpt and
SINGD also work during the backward pass: their iterations with and without a refresh are
timed whole, and weighted. All use the eager engine but optax, which comes with diffrax.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from benchmarks.optimizer.cost import REFRESH_EVERY, Trained, iteration, second_order, steps
from benchmarks.optimizer.tasks import registered
from benchmarks.peers.engines import first_line, form_of, rounds
from snopt.lab.paper.timing import Run, Times, interleave, ratios, summary
from snopt.lab.paper.timing import amortised as per_iteration

ENGINE = "snopt_checkpoint"
BASELINE = "adam"
REFRESH_AFTER = 10
"""Steps between two refreshes of SOAP and of SINGD, their own defaults or authors' advice."""


def heavyball_soap(model: nn.Module) -> list[Optimizer]:
    import heavyball

    heavyball.utils.compile_mode = None  # its autotuning would take longer than the measurement
    settings = {"betas": (0.95, 0.95), "precondition_frequency": REFRESH_AFTER}
    return [heavyball.SOAP(model.parameters(), lr=0.0, weight_decay=0.0, **settings)]


def singd(model: nn.Module, lr: float, every: int = REFRESH_AFTER) -> list[Optimizer]:
    """Create SINGD for the layers it supports, and Adam for the rest."""
    from singd.optim.optimizer import SINGD

    first = SINGD(model, lr=lr, T=every, warn_unsupported=False)
    known = {id(p) for group in first.param_groups for p in group["params"]}
    rest = [p for p in model.parameters() if id(p) not in known]
    return [first, torch.optim.Adam(rest, lr=lr)] if rest else [first]


#: Those that work in ``step`` alone, and after how many steps their work repeats.
STEPPERS: dict[str, tuple[Callable[[nn.Module], list[Optimizer]], int]] = {
    BASELINE: (partial(registered, "adam", lr=0.0), 1),
    "muon": (partial(registered, "muon", lr=0.0), 1),
    "soap": (partial(registered, "soap", lr=0.0), REFRESH_AFTER),
    "soap_heavyball": (heavyball_soap, REFRESH_AFTER),
}


def gradient(case: str) -> Run:
    """Forward and backward of the model that all train."""
    model = Trained(case, ENGINE, form_of(case))

    def run() -> None:
        model.zero_grad()
        model().backward()

    return run


def singd_iteration(case: str, refresh: bool) -> Run:
    """An iteration in which SINGD renews its factors every time, or never but the first."""
    model = Trained(case, ENGINE, form_of(case))
    first, *rest = singd(model, 0.0, every=1 if refresh else 10**9)

    def others() -> None:
        for other in rest:
            other.step()
            other.zero_grad()

    return iteration(model, first, others)


def makers(case: str) -> dict[str, tuple[dict[str, Callable[[], Run]], int]]:
    """Return makers of the runs of each optimizer, and after how many iterations they repeat.

    Runs are ``steps``, of a whole period; or iterations, ``plain`` and with a ``refresh``.
    """
    form = form_of(case)
    found: dict[str, tuple[dict[str, Callable[[], Run]], int]] = {
        name: ({"steps": partial(steps, case, make, form, period)}, period)
        for name, (make, period) in STEPPERS.items()
    }
    ours = partial(second_order, case, ENGINE, form)
    for name, make, period in (
        ("snopt", ours, REFRESH_EVERY),
        ("singd", partial(singd_iteration, case), REFRESH_AFTER),
    ):
        kinds = {"plain": partial(make, refresh=False), "refresh": partial(make, refresh=True)}
        found[name] = kinds, period

    def optax() -> Run:
        from benchmarks.peers.optax_trials import adam_iteration

        return adam_iteration(case, form)

    if case != "image":  # diffrax takes many seconds there, see the engines
        found["optax_adam_diffrax"] = {"plain": optax}, 1
    return found


def prepare(case: str) -> tuple[dict[str, Run], dict[str, int], dict[str, str]]:
    """Return warmed-up runs, periods, and why other optimizers cannot run."""
    runs: dict[str, Run] = {"gradient": gradient(case)}
    runs["gradient"]()
    periods, unable = {}, {}
    for name, (kinds, period) in makers(case).items():
        periods[name] = period
        try:
            made = {f"{name}/{kind}": make() for kind, make in kinds.items()}
            for run in (*made.values(), *made.values()):
                run()
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way
            unable[name] = first_line(error)
            print(f"{name:20} {unable[name]}", flush=True)
        else:
            runs.update(made)
    return runs, periods, unable


def amortised(times: Times, periods: dict[str, int]) -> Times:
    """Return seconds per iteration in every round, by optimizer."""
    found: Times = {}
    for name, period in periods.items():
        if f"{name}/steps" in times:
            pairs = zip(times["gradient"], times[f"{name}/steps"], strict=True)
            found[name] = [gradient + total / period for gradient, total in pairs]
        elif f"{name}/plain" in times:
            plain = times[f"{name}/plain"]
            refresh = times.get(f"{name}/refresh", plain)
            found[name] = per_iteration(plain, refresh, period)
    return found


def measure(case: str, budget: float) -> dict[str, Any]:
    """Time an iteration of every optimizer on one workload."""
    runs, periods, unable = prepare(case)
    start = time.perf_counter()
    for run in runs.values():
        run()
    repeats = rounds(time.perf_counter() - start, budget)
    times = interleave(runs, repeats, 0)
    whole_iterations = amortised(times, periods)
    contenders = {
        name: {
            "seconds": summary(values),
            "over_adam": summary(ratios(whole_iterations, name, BASELINE)),
            "refresh_every": periods[name],
        }
        for name, values in whole_iterations.items()
    }
    for name, figures in contenders.items():
        print(f"{case:10} {name:20} {figures['over_adam']['median']:.3f}", flush=True)
    return {
        "form": form_of(case),
        "rounds": repeats,
        "runs": {name: summary(values) for name, values in times.items()},
        "contenders": contenders,
        "cannot_run": unable,
    }
