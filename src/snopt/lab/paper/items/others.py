"""Optimizers that the paper does not have, beside Adam and SNOpt."""

from __future__ import annotations

from snopt.lab.config import OptimizerName
from snopt.lab.optimizers import find
from snopt.lab.paper.arms import finals_text, runs_of, trainings
from snopt.lab.paper.item import Cell, Item, Job, Result, Space, Table
from snopt.lab.paper.items.accuracy import tuned_arms
from snopt.lab.paper.items.variants import image_tasks
from snopt.lab.paper.names import METHODS, TASKS, mean_of
from snopt.lab.paper.scales import cut_note
from snopt.lab.report.summary import seconds_per_iteration

__all__ = ["OTHERS"]

BESIDE: tuple[OptimizerName, ...] = ("adam", "adamw", "muon", "soap", "singd", "snopt")


def _optimizers() -> tuple[OptimizerName, ...]:
    """Return those that can be run here."""
    return tuple(name for name in BESIDE if find(name).installed)


def _jobs(space: Space) -> list[Job]:
    made: list[Job] = []
    for task in image_tasks(space):
        arms, waiting = tuned_arms(space, task, _optimizers())
        made += waiting or trainings(space, arms)
    return made


def _result(space: Space) -> Result:
    rows: list[list[Cell]] = []
    for task in image_tasks(space):
        for arm in tuned_arms(space, task, _optimizers())[0]:
            seconds = mean_of(seconds_per_iteration(run) for run in runs_of(space, arm))
            test = finals_text(space, arm)
            rate = f"{arm.config.optimizer.lr:g}"
            rows.append([TASKS[task], METHODS[arm.name], rate, test, seconds])
    columns = ["data set", "method", "rate", "test accuracy, %", "seconds an iteration"]
    table = Table("Optimizers beyond the paper's, tuned alike.", columns, rows)
    missing = [
        f"{METHODS[name]} is left out: `pip install {find(name).package}`."
        for name in BESIDE
        if name not in _optimizers()
    ]
    cuts = [note for task in image_tasks(space) if (note := cut_note(task, space.scale))]
    return Result([table], [*missing, *cuts])


OTHERS = Item("others", (), "Optimizers beyond the paper's", _jobs, _result)
