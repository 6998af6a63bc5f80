"""``snopt compare``: the same task by several optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from snopt.lab.cli.screen import print_table, short
from snopt.lab.cli.train import configured, listeners, with_target
from snopt.lab.config import OptimizerName, Scale, TaskName
from snopt.lab.recipes.compare import Row, Run, Table, schedule, table
from snopt.lab.recipes.compare import compare as run_comparison
from snopt.lab.recipes.run import lengthened
from snopt.lab.train import Listener

__all__ = ["compare", "print_comparison"]


def compare(
    task: TaskName,
    /,
    *,
    optimizers: tuple[OptimizerName, ...] = ("snopt", "adam", "sgd"),
    seeds: int = 3,
    scale: Scale = "cpu",
    iterations: int | None = None,
    epochs: int | None = None,
    out: Path = Path("out"),
    set: tuple[str, ...] = (),
    until: str | None = None,
    max_seconds: float | None = None,
    quiet: bool = False,
) -> int:
    """Train the same model with several optimizers, and print a table.

    All start from the same weights and see the same data in the same order. They take turns, in an
    order that changes from seed to seed. Runs that are complete are not repeated.

    Args:
        task: what to learn.
        optimizers: what trains the model, one after the other.
        seeds: how many seeds, from 0.
        scale: full: the paper's set-up; cpu: minutes on two cores; smoke: seconds.
        iterations: updates to make, instead of the recipe's.
        epochs: passes over the data, instead of the recipe's.
        out: runs go to OUT/TASK/OPTIMIZER-seedSEED.
        set: settings as key=value, for all optimizers alike.
        until: stop a run when a validation metric is reached, for example accuracy=0.98.
        max_seconds: stop a run after so many seconds of training.
        quiet: show no progress.

    Returns:
        The exit code.
    """
    configs = [
        with_target(
            lengthened(configured(task, name, scale, 0, set), iterations, epochs),
            until,
            max_seconds,
        )
        for name in dict.fromkeys(optimizers)
    ]
    if not configs or seeds < 1:
        raise ValueError("there is nothing to compare: give at least one optimizer and one seed")

    def watch(run: Run) -> Sequence[Listener]:
        if not quiet:
            print(f"--- {run.config.task}: {run.label} (lr {run.config.optimizer.lr:g})")
        return listeners(run.folder, quiet=quiet)

    done = run_comparison(schedule(configs, seeds, out), watch=watch)
    print_comparison(table(done))
    if done[-1][1].status == "interrupted":
        print("interrupted; the same command goes on where it stopped")
        return 130
    print(f"report with: snopt report {out / task} -o report.html")
    return 0


def print_comparison(found: Table) -> None:
    """Print the table of a comparison.

    Args:
        found: what was found.
    """
    columns: dict[str, Callable[[Row], str]] = {
        "optimizer": lambda row: row.optimizer,
        "lr": lambda row: f"{row.lr:g}",
        "seeds": lambda row: str(row.seeds),
        f"test {found.metric}": lambda row: short(row.final),
        "±": lambda row: short(row.spread),
        f"best valid {found.metric}": lambda row: short(row.best),
        f"iterations to {short(found.target)}": lambda row: short(row.to_target),
        "seconds to it": lambda row: short(row.seconds_to_target),
        "iterations": lambda row: f"{row.iterations:.0f}",
        "seconds": lambda row: f"{row.seconds:.1f}",
    }
    print_table(list(columns), [[cell(row) for cell in columns.values()] for row in found.rows])
    for row in found.rows:
        if row.trouble:
            print(f"{row.optimizer}: {row.trouble}")
