"""``snopt sweep``: search for the learning rate and the weight decay."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from snopt.lab.cli.options import DEFAULTS, OptimizerName, RunOptions, usage
from snopt.lab.cli.screen import print_table, short
from snopt.lab.config import TaskName
from snopt.lab.recipes.run import Run
from snopt.lab.recipes.sweep import Result, SweepConfig, open_study, results, tally, work
from snopt.lab.train import Listener

__all__ = ["sweep"]

BEST = 10
"""How many trials the final table shows."""


def sweep(
    task: TaskName,
    /,
    *,
    optimizer: OptimizerName = "snopt",
    search: Literal["grid", "tpe"] = "grid",
    trials: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    storage: str | None = None,
    heartbeat: int = 30,
    common: RunOptions = DEFAULTS,
) -> int:
    """Search for the learning rate and the weight decay that validate best.

    Start the same command several times, on one machine or (with --storage) on many, and the
    processes share the trials. Failed trials are recorded with their reason, those of processes
    that died are retried, and the same command again continues a sweep that was stopped.

    Args:
        task: what to learn.
        optimizer: whose settings are searched.
        search: the paper's grid, or Optuna's tree-structured Parzen estimator.
        trials: how many; the whole grid, or 30 for tpe, if not given.
        seed: seed of the initial weights and of the order of the data.
        out: folder of the trials; out/sweep/TASK-OPTIMIZER if not given.
        storage: database of the study, as SQLAlchemy writes it; a file study.db in OUT by default.
        heartbeat: seconds between heartbeats of a process.
        common: options of every run.

    Returns:
        The exit code.
    """
    base = common.experiment(task, optimizer, seed)
    folder = out or Path("out") / "sweep" / f"{task}-{optimizer}"
    with usage():
        config = SweepConfig(base, folder, search, trials, storage, heartbeat)

    def watch(run: Run) -> Sequence[Listener]:
        if not common.quiet:
            settings = run.config.optimizer
            decay = f"weight decay {settings.weight_decay:g}"
            print(f"--- {run.folder.name}: lr {settings.lr:g}, {decay}")
        return common.listeners(run.folder)

    study = open_study(config)
    try:
        work(config, study, watch)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue")
        return 130
    count = tally(study)
    print(f"{count.planned} trials: {count.done} done, {count.failed} failed, in {folder}")
    rows = results(study)
    print_results(rows, base.metric)
    if not count.done:
        return 1
    best = [f"{name}={value:g}" for name, value in rows[0].settings.items()]
    scale = [] if common.scale == "cpu" else ["--scale", common.scale]
    words = ["--optimizer", optimizer, *scale, "--set", *common.set, *best]
    print(f"train with the best: snopt train {task} {shlex.join(words)}")
    return 0


def print_results(rows: Sequence[Result], metric: str) -> None:
    """Print the best trials, and all that failed with their reasons."""
    done = [row for row in rows if row.value is not None]
    cells = [
        [short(row.settings.get("lr")), short(row.settings.get("weight_decay")), short(row.value),
         Path(row.folder).name]
        for row in done[:BEST]
    ]  # fmt: skip
    print_table(["lr", "weight decay", f"best valid {metric}", "trial"], cells)
    if len(done) > BEST:
        print(f"... and {len(done) - BEST} more")
    for row in rows:
        if row.value is None:
            settings = ", ".join(f"{name} {value:g}" for name, value in row.settings.items())
            print(f"failed: {settings or 'nothing drawn yet'}: {row.note.splitlines()[0]}")
