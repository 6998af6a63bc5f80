"""Pretended records of the main comparison and of its searches, as a queue leaves them."""

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path

from snopt.lab.paper.arms import arm_jobs, main_arms
from snopt.lab.paper.item import Space
from snopt.lab.paper.jobs import BEST, FAILED, MEASURED, Job, Measurement, Training
from snopt.lab.recipes.run import describe
from snopt.lab.train.folder import write_json

SPEED = {"snopt": 3.0, "snopt_amortized": 1.5, "muon": 2.0, "soap": 2.2, "sgd": 0.7}
"""How fast a method pretends to learn; others 1."""


def pretend(
    job: Training,
    *,
    value: float | None = None,
    fails: bool = False,
    cost: float = 1.0,
    evaluations: int = 20,
) -> None:
    """Write the record of a run: a validation curve that rises to 0.97, or falls to 1 nat.

    Args:
        job: the run.
        value: validation metric at the end and on test data, in place of that of the curve.
        fails: whether its solver failed.
        cost: factor of the recorded seconds.
        evaluations: in each forward pass.
    """
    job.prepare()
    if fails:
        (job.folder / FAILED).write_text('{"reason": "too stiff"}')
        return
    config = job.config
    total = config.train.iterations or 1
    noise = random.Random(f"{job.folder.name} {config.task}")
    speed = SPEED.get(config.optimizer.name, 1.0) * noise.uniform(0.9, 1.1)
    (job.folder / "config.json").write_text(json.dumps(describe(config)))
    every = config.train.evaluate_every or total
    records = []
    for k in range(total + 1):
        left = math.exp(-4 * speed * k / total) * noise.uniform(0.9, 1.1)
        metric = 0.97 - 0.85 * left if config.metric == "accuracy" else 1 + 2 * left
        if value is not None and k == total:
            metric = value
        seconds = 0.1 * cost * k * (1.2 if "snopt" in config.optimizer.name else 1.0)
        both = {"iteration": k, "seconds": seconds}
        if k:
            spike = 40.0 if noise.random() < 0.03 else 1.0
            step = {"loss": 2 * left * spike + 0.02, "cpu_seconds": seconds, "horizon": 1 - k / 4e3}
            records.append(
                {
                    "kind": "step",
                    **both,
                    **step,
                    "nfe_forward": evaluations,
                    "nfe_backward": evaluations,
                }
            )
        if k % every == 0 or k == total:
            found = {"loss": left, config.metric: metric}
            records.append({"kind": "eval", **both, "split": "valid", "metrics": found})
    final = {"test": {config.metric: metric}}
    records.append({"kind": "end", **both, "status": "finished", "final": final})
    (job.folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    if config.scale == "cpu" and config.data.test_examples != 0:
        (job.folder / BEST).write_text(json.dumps(final["test"]))


def pretend_all(jobs: Iterable[Job], *, failing: Iterable[str] = ()) -> None:
    """Pretend all runs that are ready; those with one of some words in their folder's name fail."""
    for job in jobs:
        if isinstance(job, Training) and job.ready and not job.done():
            pretend(job, fails=any(word in job.folder.name for word in failing))


def pretend_comparison(
    root: Path, tasks: tuple[str, ...], seeds: int = 3, *, failing: tuple[str, ...] = ()
) -> Space:
    """Pretend tuning and runs of the main comparison on some data sets, with some of the seeds."""
    space = Space(root, "cpu")
    for task in tasks:
        for _ in range(2):  # the two rounds of tuning
            pretend_all((j for arm in main_arms(space, task) for j in arm.tuning), failing=failing)
        for job in arm_jobs(main_arms(space, task)):
            if isinstance(job, Measurement):
                pretend_costs(job)
            elif job.config.train.seed < seeds:
                pretend(job)
    return space


def pretend_costs(job: Measurement) -> None:
    """Write seconds of updates and evaluations: a tenth of a second an update."""
    methods = {
        name: {"update": 0.02, "refresh": 0.1 if "snopt" in name else 0.0}
        for name in job.settings[0]
    }
    job.prepare()
    write_json(job.folder / MEASURED, {"evaluation": 0.004, "methods": methods})
