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
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.engine.cases import CASES, build
from benchmarks.engine.contenders import BASELINE, CONTENDERS, SETTLING
from benchmarks.files import RESULTS, WORKLOADS, save
from benchmarks.measuring import CPU, Iteration, interleave, over
from snopt.lab.paper.peak import in_fresh_process, rise
from snopt.lab.paper.timing import Run, Times, set_refresh, summary
from snopt.optim import SNOpt

REFRESH_EVERY = 100
STEPS = 20
"""How many steps are timed together."""


class Trained(nn.Module):
    """A workload with the block that integrates its field, as one model."""

    def __init__(self, case: str, contender: str, form: str | None = None) -> None:
        super().__init__()
        self.workload = build(case, form)
        self.flow = CONTENDERS[contender](self.workload)

    def forward(self) -> Tensor:
        return self.workload(self.flow, self.workload.inputs)


def trained(kind: str, case: str, contender: str, form: str | None = None) -> Iteration:
    """Return an iteration of ``"adam"``, or SNOpt's, which is ``"plain"`` or a ``"refresh"``."""
    model = Trained(case, contender, form)
    if kind == "adam":
        return Iteration(model, torch.optim.Adam(model.parameters(), lr=0.0))
    return Iteration(model, SNOpt(model, lr=0.0), refresh=kind == "refresh")


def steps(kind: str, case: str) -> Run:
    """Return a function that takes ``STEPS`` plain steps on one gradient."""
    optimizer = trained(kind, case, "snopt_checkpoint").optimizer
    if isinstance(optimizer, SNOpt):
        set_refresh(optimizer, False)

    def run() -> None:
        for _ in range(STEPS):
            optimizer.step()

    return run


def step_seconds(case: str, repeats: int) -> Times:
    runs = {"adam": steps("adam", case), "snopt": steps("plain", case)}
    times = interleave(runs, repeats, 1, CPU)
    return {name: [t / STEPS for t in values] for name, values in times.items()}


def measure(case: str, repeats: int, compiled: bool) -> dict[str, Any]:
    engine = "snopt_compiled" if compiled else "snopt_checkpoint"
    form = CASES[case].forms[-1] if compiled else None
    step = step_seconds(case, repeats)
    made = {kind: trained(kind, case, engine, form) for kind in ("adam", "plain", "refresh")}
    made["torchdiffeq adam"] = trained("adam", case, BASELINE)
    times = interleave({name: each.run for name, each in made.items()}, repeats, SETTLING, CPU)
    columns = times["adam"], step["snopt"], step["adam"], times["refresh"], times["plain"]
    times["amortised"] = [
        adam + ours - theirs + (refresh - plain) / REFRESH_EVERY
        for adam, ours, theirs, refresh, plain in zip(*columns, strict=True)
    ]
    pairs = {f"{name}_over_adam": (name, "adam") for name in ("plain", "refresh", "amortised")}
    pairs["amortised_over_torchdiffeq"] = ("amortised", "torchdiffeq adam")
    return {
        "engine": engine,
        "rounds": repeats,
        "seconds": {name: summary(values) for name, values in times.items()},
        "step_seconds": {name: summary(values) for name, values in step.items()},
        **{key: over(times, *pair) for key, pair in pairs.items()},
    }


def peak(kind: str, case: str) -> float:
    """Measure the megabytes of an iteration (a refresh, for SNOpt) with model and optimizer."""
    made: list[Iteration] = []

    def work() -> None:
        if not made:
            made.append(trained(kind, case, "snopt_checkpoint"))
        made[0].run()

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
                kind: in_fresh_process(peak, kind, case) for kind in ("adam", "refresh")
            }
        seconds = {name: round(s["median"], 4) for name, s in found["seconds"].items()}
        shown = {key: round(found[key]["median"], 3) for key in found if "_over_" in key}
        print(case, seconds, shown, found.get("megabytes", ""), flush=True)
        if chosen.save:
            save(RESULTS / f"optimizer_cost_{engine}_{case}.json", {"cases": {case: found}})
