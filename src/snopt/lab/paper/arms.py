"""Several ways to train the same thing: arms of a comparison, each with all seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from snopt.lab.config import Experiment
from snopt.lab.paper.item import Space
from snopt.lab.paper.jobs import Training, failure
from snopt.lab.paper.names import stat_text
from snopt.lab.paper.scales import SEEDS
from snopt.lab.recipes.run import recorded
from snopt.lab.report.read import Run, read_run
from snopt.lab.report.summary import Stat, stat

__all__ = ["Arm", "finals", "finals_text", "runs_of", "trainings"]


@dataclass(frozen=True)
class Arm:
    """One way to train.

    Attributes:
        name: names its folders, and its line in a table or figure.
        config: the experiment, of whatever seed.
    """

    name: str
    config: Experiment

    def folder(self, space: Space, seed: int) -> Path:
        """Return the run folder of one seed."""
        return space.run(self.config.task, self.name, seed)


def trainings(space: Space, arms: Sequence[Arm]) -> list[Training]:
    """List the runs of some arms: seeds are the outer loop, and each begins with another arm.

    Whatever slows the machine down for a while so hits all arms alike.
    """
    made = []
    for seed in range(SEEDS[space.scale]):
        turn = seed % len(arms)
        for arm in [*arms[turn:], *arms[:turn]]:
            config = replace(arm.config, train=replace(arm.config.train, seed=seed))
            made.append(Training(config, arm.folder(space, seed)))
    return made


def runs_of(space: Space, arm: Arm) -> list[Run]:
    """Read the records of an arm, one run a seed."""
    return [read_run(arm.folder(space, seed)) for seed in range(SEEDS[space.scale])]


def finals(space: Space, arm: Arm) -> Stat | None:
    """Return the test metric at the end of an arm's runs, over the seeds that got there."""
    values = []
    for job in trainings(space, [arm]):
        outcome = None if failure(job.folder) else recorded(job.config, job.folder)
        if outcome is not None:
            values.append(outcome.last.get("test", {}).get(arm.config.metric))
    return stat(values)


def finals_text(space: Space, arm: Arm) -> str:
    """Write the test metric at the end of an arm's runs, and how many got there if not all did."""
    found, seeds = finals(space, arm), SEEDS[space.scale]
    text = stat_text(found, arm.config.metric)
    return text if found is None or found.count == seeds else f"{text} ({found.count} of {seeds})"
