"""What SNOpt costs over Adam: time of an iteration and peak memory on the four workloads.

All run the whole iteration (zero_grad, forward, backward, step) at learning rate zero, so that the
work stays the same; rounds are interleaved and ratios taken within a round.

Between refreshes SNOpt leaves forward and backward pass as they are, so that only its step differs
from Adam's. The difference is a few hundredths of an iteration, and one of whole iterations would
drown in what a shared machine does meanwhile; so steps are timed by themselves. An amortised
iteration at ``refresh_every=100`` is Adam's, with SNOpt's step for Adam's, and a hundredth of what
a refresh adds to an iteration.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.engine.cases import CASES, build
from benchmarks.engine.contenders import BASELINE, CONTENDERS, SETTLING
from benchmarks.files import RESULTS, WORKLOADS, environment, write
from benchmarks.timing import interleave, ratios, summary
from snopt.lab.paper.peak import in_fresh_process, rise
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


def iteration(model: nn.Module, optimizer: Any, before: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        before()
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    return run


def adam(case: str, contender: str, form: str | None) -> Callable[[], None]:
    model = Trained(case, contender, form)
    run = iteration(model, torch.optim.Adam(model.parameters(), lr=0.0), lambda: None)
    # As many iterations before the measured ones as SNOpt has: the carried step settles.
    run()
    return run


def second_order(
    case: str, contender: str, form: str | None, *, refresh: bool, rule: Any = "adam"
) -> Callable[[], None]:
    model = Trained(case, contender, form)
    return always(model, SNOpt(model, lr=0.0, rule=rule), refresh=refresh)


def always(model: nn.Module, optimizer: SNOpt, *, refresh: bool) -> Callable[[], None]:
    """An iteration that is a refresh every time, or never, after a first one that is."""
    iteration(model, optimizer, lambda: None)()
    optimizer.next_refresh = 0 if refresh else 10**9
    optimizer.recorder.arm() if refresh else optimizer.recorder.disarm()

    def every_time() -> None:
        optimizer.next_refresh = 0 if refresh else 10**9

    run = iteration(model, optimizer, every_time)

    def and_arm() -> None:
        if refresh:
            optimizer.recorder.arm()
        run()

    return and_arm


def steps(case: str, make: Callable[[nn.Module], Any]) -> Callable[[], None]:
    """Steps of an optimizer that has its gradients, after a first one that is a refresh."""
    model = Trained(case, "snopt_checkpoint", None)
    optimizer = make(model)
    iteration(model, optimizer, lambda: None)()
    if isinstance(optimizer, SNOpt):
        optimizer.next_refresh = 10**9
        optimizer.recorder.disarm()

    def run() -> None:
        for _ in range(STEPS):
            optimizer.step()

    return run


def step_seconds(case: str, repeats: int) -> dict[str, list[float]]:
    runs = {
        "adam": steps(case, lambda m: torch.optim.Adam(m.parameters(), lr=0.0)),
        "snopt": steps(case, lambda m: SNOpt(m, lr=0.0)),
    }
    times = interleave(runs, repeats, 1)
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
    times = interleave(runs, repeats, SETTLING)
    times["amortised"] = [
        whole + ours - theirs + (refresh - plain) / REFRESH_EVERY
        for whole, ours, theirs, refresh, plain in zip(
            times["adam"],
            step["snopt"],
            step["adam"],
            times["refresh"],
            times["plain"],
            strict=True,
        )
    ]
    return {
        "engine": engine,
        "rounds": repeats,
        "seconds": {name: summary(values) for name, values in times.items()},
        "step_seconds": {name: summary(values) for name, values in step.items()},
        "plain_over_adam": summary(ratios(times, "plain", "adam")),
        "amortised_over_adam": summary(ratios(times, "amortised", "adam")),
        "refresh_over_adam": summary(ratios(times, "refresh", "adam")),
        "amortised_over_torchdiffeq": summary(ratios(times, "amortised", "torchdiffeq adam")),
    }


def peak(case: str, kind: str) -> float:
    """Megabytes of an iteration (of a refresh, for SNOpt), model and optimizer included."""
    made: list[Callable[[], None]] = []

    def work() -> None:
        if not made and kind == "adam":
            made.append(adam(case, "snopt_checkpoint", None))
        elif not made:
            made.append(second_order(case, "snopt_checkpoint", None, refresh=True))
        made[0]()

    return rise(work)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--compiled", action="store_true", help="compiled steps")
    parser.add_argument("--memory", action="store_true", help="peak memory as well")
    parser.add_argument("--save", action="store_true", help="write a file a workload")
    parser.add_argument("--peak", nargs=2, metavar=("CASE", "KIND"))


def main(chosen: argparse.Namespace) -> None:
    """Measure the workloads one by one."""
    if chosen.peak:
        print(json.dumps(peak(*chosen.peak)))
        return
    engine = "compiled" if chosen.compiled else "eager"
    child = ("benchmarks.optimizer", "cost", "--peak")
    for case in chosen.cases:
        found = measure(case, chosen.repeats, chosen.compiled)
        if chosen.memory:
            found["megabytes"] = {
                kind: in_fresh_process(*child, case, kind) for kind in ("adam", "refresh")
            }
        seconds = {name: round(s["median"], 4) for name, s in found["seconds"].items()}
        shown = {key: round(found[key]["median"], 3) for key in found if "_over_" in key}
        print(case, seconds, shown, found.get("megabytes", ""), flush=True)
        if chosen.save:
            kept = {"environment": environment(), "cases": {case: found}}
            write(RESULTS / f"optimizer_cost_{engine}_{case}.json", kept)
