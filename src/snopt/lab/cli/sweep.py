"""``snopt sweep``: search for the learning rate and the weight decay."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from snopt.lab.cli.options import DEFAULTS, OptimizerName, RunOptions, UsageError, usage
from snopt.lab.cli.screen import print_table
from snopt.lab.config import TaskName
from snopt.lab.recipes.run import Run
from snopt.lab.recipes.sweep import SweepConfig, note, open_study, results, tally, work
from snopt.lab.table import number_text

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

BEST = 10  # Trials in the final table.


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
    common: RunOptions = DEFAULTS,
) -> int:
    """Search for the learning rate and the weight decay with the best validation metric.

    Start the same command several times, on one machine or (with --storage and a shared folder) on
    many, and the processes share the trials. Failed trials are recorded with their reason. Trials
    whose process died are retried. Start the same command again to resume a sweep that was stopped.

    Args:
        task: what to learn.
        optimizer: the optimizer to tune.
        search: the paper's grid, or Optuna's tree-structured Parzen estimator.
        trials: number of trials; default the whole grid, or 30 for tpe.
        seed: seed of the initial weights and of the order of the data.
        out: folder of the trials; default out/sweep/TASK-OPTIMIZER.
        storage: SQLAlchemy URL of the study's database; default a file study.db in OUT.
        common: options of every run.

    Returns:
        The exit code.
    """
    chosen = {
        setting.partition("=")[0].strip().removeprefix("optimizer.") for setting in common.set
    }
    for name in ("lr", "weight_decay"):
        if name in chosen:
            raise UsageError(f"{name} is searched; remove it from --set")
    base = common.experiment(task, optimizer, seed)
    if "data.hold_out" in chosen and not base.data.hold_out:
        raise UsageError("data.hold_out=false: a sweep needs validation examples; remove it")
    folder = out or Path("out") / "sweep" / f"{task}-{optimizer}"
    with usage():
        config = SweepConfig(base, folder, search, trials, storage)

    def title(run: Run) -> str:
        settings = run.config.optimizer
        return f"{run.folder.name}: lr {settings.lr:g}, weight decay {settings.weight_decay:g}"

    study = open_study(config)
    try:
        work(config, study, common.watch(title))
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue")
        return 130
    states = tally(study)
    done, failed = states["COMPLETE"], states["FAIL"]
    print(f"{states.total()} trials: {done} done, {failed} failed, in {folder}")
    found = results(study)
    print_results(found, base.metric)
    if not done:
        return 1
    best = [f"{name}={value:g}" for name, value in found[0].params.items()]
    scale = [] if common.scale == "cpu" else ["--scale", common.scale]
    words = ["--optimizer", optimizer, *scale, "--set", *common.set, *best]
    print(f"train with the best: snopt train {task} {shlex.join(words)}")
    return 0


def print_results(trials: Sequence[FrozenTrial], metric: str) -> None:
    """Print the best trials, and all that failed with their reasons."""
    done = [trial for trial in trials if trial.value is not None]
    cells = [
        [*(number_text(trial.params.get(name)) for name in ("lr", "weight_decay")),
         number_text(trial.value),
         Path(trial.user_attrs.get("folder", "")).name]
        for trial in done[:BEST]
    ]  # fmt: skip
    print_table(["lr", "weight decay", f"best valid {metric}", "trial"], cells)
    if len(done) > BEST:
        print(f"... and {len(done) - BEST} more")
    for trial in trials:
        if trial.value is None:
            settings = ", ".join(f"{name} {value:g}" for name, value in trial.params.items())
            print(f"failed: {settings or 'no settings drawn'}: {note(trial)}")
