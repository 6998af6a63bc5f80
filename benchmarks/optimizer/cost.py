"""What SNOpt costs over Adam: time of an iteration and peak memory on the four workloads.

All run the whole iteration (zero_grad, forward, backward, step) at learning rate zero, so that the
work stays the same; rounds are interleaved and ratios taken within a round. Times are CPU seconds,
which other work on the machine disturbs less than the time of day; run it with one thread.

Between refreshes SNOpt does not change the forward and backward pass, so only its step differs
from Adam's. The difference is a few hundredths of an iteration, less than the noise of whole
iterations on a shared machine; so steps are timed separately. An amortised iteration at
``refresh_every=100`` is Adam's, with SNOpt's step in place of Adam's, plus a hundredth of what a
refresh adds to an iteration.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cpu import rounds
from benchmarks.engine.cases import CASES, build
from benchmarks.engine.contenders import BASELINE, CONTENDERS, SETTLING
from benchmarks.files import RESULTS, WORKLOADS, save
from snopt.lab.paper.peak import in_fresh_process, rise
from snopt.lab.paper.timing import Run, Times, ratios, set_refresh, summary
from snopt.optim import SNOpt

REFRESH_EVERY = 100
STEPS = 20
"""How many steps are timed together."""


class Trained(nn.Module):
    """A workload with the block that integrates its field, as one model."""

    def __init__(self, case: str, contender: str, form: str | None) -> None:
        super().__init__()
        self.workload = build(case, form)
        self.flow = CONTENDERS[contender](self.workload)

    def forward(self) -> Tensor:
        return self.workload(self.flow, self.workload.inputs)


def iteration(
    model: Callable[[], Tensor], optimizer: Any, before: Callable[[], object] = lambda: None
) -> Run:
    """Return an iteration of a model that returns its loss."""

    def run() -> None:
        before()
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    return run


def adam(case: str, contender: str, form: str | None) -> Run:
    model = Trained(case, contender, form)
    run = iteration(model, torch.optim.Adam(model.parameters(), lr=0.0))
    # As many iterations before the measured ones as SNOpt has: the carried step settles.
    run()
    return run


def second_order(case: str, contender: str, form: str | None, *, refresh: bool) -> Run:
    model = Trained(case, contender, form)
    return always(model, SNOpt(model, lr=0.0), refresh=refresh)


def always(model: nn.Module, optimizer: SNOpt, *, refresh: bool) -> Run:
    """Return an iteration that is always a refresh, or never after the first."""
    iteration(model, optimizer)()
    return iteration(model, optimizer, lambda: set_refresh(optimizer, refresh))


def steps(
    case: str, make: Callable[[nn.Module], Sequence[Any]], form: str | None, count: int
) -> Run:
    """Return so many steps of optimizers on one gradient; SNOpt's first one, before, refreshes."""
    model = Trained(case, "snopt_checkpoint", form)
    optimizers = make(model)
    model().backward()

    def run() -> None:
        for _ in range(count):
            for optimizer in optimizers:
                optimizer.step()

    for optimizer in (each for each in optimizers if isinstance(each, SNOpt)):
        optimizer.step()
        set_refresh(optimizer, False)
    return run


def step_seconds(case: str, repeats: int) -> Times:
    runs = {
        "adam": steps(case, lambda m: [torch.optim.Adam(m.parameters(), lr=0.0)], None, STEPS),
        "snopt": steps(case, lambda m: [SNOpt(m, lr=0.0)], None, STEPS),
    }
    times = rounds(runs, repeats, 1)
    return {name: [t / STEPS for t in values] for name, values in times.items()}


def measure(case: str, repeats: int, compiled: bool) -> dict[str, Any]:
    engine = "snopt_compiled" if compiled else "snopt_checkpoint"
    form = CASES[case].forms[-1] if compiled else None
    step = step_seconds(case, repeats)
    runs = {
        "torchdiffeq adam": adam(case, BASELINE, None),
        "adam": adam(case, engine, form),
        "plain": second_order(case, engine, form, refresh=False),
        "refresh": second_order(case, engine, form, refresh=True),
    }
    times = rounds(runs, repeats, SETTLING)
    columns = times["adam"], step["snopt"], step["adam"], times["refresh"], times["plain"]
    times["amortised"] = [
        adam + ours - theirs + (refresh - plain) / REFRESH_EVERY
        for adam, ours, theirs, refresh, plain in zip(*columns, strict=True)
    ]
    over = {f"{name}_over_adam": (name, "adam") for name in ("plain", "refresh", "amortised")}
    over["amortised_over_torchdiffeq"] = ("amortised", "torchdiffeq adam")
    return {
        "engine": engine,
        "rounds": repeats,
        "seconds": {name: summary(values) for name, values in times.items()},
        "step_seconds": {name: summary(values) for name, values in step.items()},
        **{key: summary(ratios(times, *pair)) for key, pair in over.items()},
    }


def peak(case: str, kind: str) -> float:
    """Measure the megabytes of an iteration (a refresh, for SNOpt) with model and optimizer."""
    made: list[Run] = []

    def work() -> None:
        if not made:
            given = (case, "snopt_checkpoint", None)
            made.append(adam(*given) if kind == "adam" else second_order(*given, refresh=True))
        made[0]()

    return rise(work)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--compiled", action="store_true", help="compiled steps")
    parser.add_argument("--memory", action="store_true", help="peak memory as well")
    parser.add_argument("--save", action="store_true", help="write a file a workload")


def main(chosen: argparse.Namespace) -> None:
    """Measure the workloads one by one."""
    engine = "compiled" if chosen.compiled else "eager"
    for case in chosen.cases:
        found = measure(case, chosen.repeats, chosen.compiled)
        if chosen.memory:
            found["megabytes"] = {
                kind: in_fresh_process(peak, case, kind) for kind in ("adam", "refresh")
            }
        seconds = {name: round(s["median"], 4) for name, s in found["seconds"].items()}
        shown = {key: round(found[key]["median"], 3) for key in found if "_over_" in key}
        print(case, seconds, shown, found.get("megabytes", ""), flush=True)
        if chosen.save:
            save(RESULTS / f"optimizer_cost_{engine}_{case}.json", {"cases": {case: found}})
