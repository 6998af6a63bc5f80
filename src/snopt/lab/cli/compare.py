"""``snopt compare``: train the same task with several optimizers."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from snopt.lab.cli.options import DEFAULTS, OptimizerName, RunOptions, UsageError
from snopt.lab.cli.screen import WIDTH, print_table
from snopt.lab.config import TaskName
from snopt.lab.recipes.run import compare as run_comparison
from snopt.lab.recipes.run import schedule, troubles
from snopt.lab.report import compare as compared
from snopt.lab.report import read_runs
from snopt.lab.report.tables import Marked, headline, summary_table
from snopt.lab.table import Cell, cell_text


def compare(
    task: TaskName,
    /,
    *,
    optimizers: tuple[OptimizerName, ...] = ("snopt", "adam", "sgd"),
    seeds: int = 3,
    out: Path = Path("out"),
    common: RunOptions = DEFAULTS,
) -> int:
    """Train the same model with several optimizers; print a table and what it shows.

    All start from the same weights and see the same data in the same order. The order in which they
    run changes from seed to seed. Complete runs are not repeated.

    Args:
        task: what to learn.
        optimizers: the optimizers.
        seeds: number of seeds, from 0.
        out: parent of the run folders, OUT/TASK/OPTIMIZER-seedSEED.
        common: options of every run.

    Returns:
        The exit code.
    """
    configs = [common.experiment(task, name) for name in dict.fromkeys(optimizers)]
    if not configs or seeds < 1:
        raise UsageError("there is nothing to compare: give at least one optimizer and one seed")

    watch = common.watch(lambda run: f"{task}: {run.label} (lr {run.config.optimizer.lr:g})")
    done = run_comparison(schedule(configs, seeds, out), watch=watch)
    for comparison in compared(read_runs(run.folder for run, _ in done)):
        found = summary_table(comparison)
        # A column per optimizer.
        cells = [[_text(cell) for cell in row] for row in found.rows]
        header, *rows = zip(found.columns, *cells, strict=True)
        print_table(header, rows)
        print(fill(headline(comparison), WIDTH))
    for trouble in troubles(done):
        print(trouble)
    if done[-1][1].status == "interrupted":
        print("interrupted; run the same command again to continue")
        return 130
    print(f"report with: snopt report {out / task} -o report.html")
    return 0


def _text(cell: Cell) -> str:
    """Return the text of a cell, and whether it is a mean of some of the seeds only.

    Example:
        >>> _text(Marked("0.5", "2.00×, 1 of 3 seeds")), _text(Marked("0.5", "2.00×"))
        ('0.5 (1 of 3 seeds)', '0.5')
    """
    notes = cell.note.split(", ") if isinstance(cell, Marked) else []
    some = next((note for note in notes if note.endswith(" seeds")), "")
    return f"{cell_text(cell)} ({some})" if some else cell_text(cell)
