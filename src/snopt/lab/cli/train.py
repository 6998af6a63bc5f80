"""``snopt train``: start or resume a run."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from snopt.lab.cli.options import DEFAULTS, OptimizerName, RunOptions, UsageError
from snopt.lab.cli.own import OwnRun
from snopt.lab.config import Experiment, HorizonPolicy, TaskName
from snopt.lab.optimizers import find
from snopt.lab.optimizers.registry import SETTINGS
from snopt.lab.recipes import experiment_of, run
from snopt.lab.recipes.settings import settings_of
from snopt.lab.table import number_text
from snopt.lab.train import Outcome


def train(
    task: TaskName | str | None = None,
    /,
    *,
    optimizer: OptimizerName = "snopt",
    lr: float | None = None,
    seed: int = 0,
    out: Path | None = None,
    resume: Path | None = None,
    overwrite: bool = False,
    settings: bool = False,
    horizon_policy: HorizonPolicy = "fixed",
    tensorboard: bool = False,
    common: RunOptions = DEFAULTS,
) -> int:
    """Train one model, with logs and checkpoints in a run folder.

    Args:
        task: what to learn; or module:function, a function of yours that returns a task and parts.
        optimizer: the optimizer.
        lr: learning rate, instead of the recipe's.
        seed: seed of the initial weights and of the order of the data.
        out: run folder (also -o); default out/TASK/OPTIMIZER-seedSEED.
        resume: resume the run in this folder, with its own settings; without TASK.
        overwrite: delete the run in the folder, if there is one.
        settings: list the settings that --set can change, with their values, and do not train.
        horizon_policy: how to learn the integration time; fixed does not.
        tensorboard: also write TensorBoard events to the run folder.
        common: options of every run.

    Returns:
        The exit code.
    """
    choices, own = (optimizer, horizon_policy, common.scale), None
    if resume is not None:
        chosen = (task, lr, seed, out, overwrite, settings, choices, common.set)
        if chosen != (None, None, 0, None, False, False, DEFAULT_CHOICES, ()):
            raise UsageError(
                "--resume takes task and settings from the run folder; it can only be combined "
                "with --iterations, --epochs, --until, --max-seconds, --tensorboard and --quiet"
            )
        own = OwnRun.read(resume, common)
    elif task is None:
        raise UsageError("say what to train: snopt train TASK, for example snopt train digits")
    elif ":" in task:
        if choices != DEFAULT_CHOICES or settings:
            raise UsageError(
                f"{task} makes its own optimizer and model: --optimizer, --horizon-policy, "
                "--scale and --settings are for the tasks of this package"
            )
        own = OwnRun.of(task, seed, lr, common)
    how: dict[str, Any] = {"resume": resume is not None, "overwrite": overwrite}
    if own is not None:
        outcome = own.run(resume or out, common, tensorboard=tensorboard, **how)
        return _conclude(outcome, None, common)
    if resume is not None:
        config, folder = common.limited(experiment_of(resume)), resume
    else:
        rate = () if lr is None else (f"lr={lr}",)
        changed = replace(common, set=(*common.set, *rate))
        config = changed.experiment(str(task), optimizer, seed, horizon_policy)
        name = f"{config.optimizer.name}-seed{config.train.seed}"
        folder = out or Path("out") / config.task / name
    if settings:
        print_settings(config)
        return 0
    listeners = common.listeners(folder, tensorboard=tensorboard)
    return _conclude(run(config, folder, listeners=listeners, **how), config.metric, common)


DEFAULT_CHOICES = ("snopt", "fixed", "cpu")
"""Default optimizer, horizon policy and scale."""


def print_settings(config: Experiment) -> None:
    """Print the settings that ``--set`` accepts, with their values."""
    unused = set(SETTINGS) - set(find(config.optimizer.name).settings)
    for key, value in settings_of(config).items():
        if key not in unused:
            print(f"{key:<24} {setting_text(value)}")


def setting_text(value: Any) -> str:
    """Return a value as ``--set`` reads it.

    Example:
        >>> setting_text((0.9, 0.999)), setting_text(None), setting_text(True)
        ('0.9,0.999', 'none', 'true')
    """
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _conclude(outcome: Outcome, metric: str | None, common: RunOptions) -> int:
    """Print how a run ended and what to do next; a metric of None stands for all of them."""
    if os.environ.get("RANK", "0") != "0":  # The first process of torchrun prints.
        return outcome.exit_code
    if common.quiet:  # Otherwise the progress has said so.
        print(f"{outcome.status} after {outcome.iteration} iterations and {outcome.seconds:.1f} s")
    for name, value in outcome.last.get("test", {}).items():
        if metric in (None, name):
            print(f"test {name} {number_text(value)}")
    folder = shlex.quote(str(outcome.folder))
    if outcome.status == "interrupted":
        print(f"resume with: snopt train --resume {folder}")
    else:
        print(f"report with: snopt report {folder} -o report.html")
    return outcome.exit_code
