"""``snopt train``: start or resume a run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from snopt.lab.cli.options import DEFAULTS, OptimizerName, RunOptions, UsageError
from snopt.lab.cli.own import OwnRun
from snopt.lab.cli.screen import short
from snopt.lab.config import HorizonPolicy, TaskName
from snopt.lab.recipes import experiment_of, run
from snopt.lab.recipes.settings import settings_of
from snopt.lab.train import Outcome

__all__ = ["train"]


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
        optimizer: what trains the model.
        lr: learning rate, instead of the recipe's.
        seed: seed of the initial weights and of the order of the data.
        out: run folder (also -o); default out/TASK/OPTIMIZER-seedSEED.
        resume: resume the run in this folder, with its own settings; no TASK then.
        overwrite: delete the run in the folder, if there is one.
        settings: list what --set can change, with values, and train nothing.
        horizon_policy: how to learn the end of the integration too.
        tensorboard: write TensorBoard events into the run folder as well.
        common: options of every run.

    Returns:
        The exit code.
    """
    if task is None and resume is None:
        raise UsageError("say what to train: snopt train TASK, for example snopt train digits")
    choices = (optimizer, horizon_policy, common.scale)
    if resume is not None:
        chosen = (task, lr, seed, out, overwrite, settings, choices, common.set)
        if chosen != (None, None, 0, None, False, False, DEFAULT_CHOICES, ()):
            raise UsageError(
                "--resume takes task and settings from the run folder; besides it give only "
                "--iterations, --epochs, --until or --max-seconds"
            )
    own = OwnRun.read(resume) if resume is not None else None
    if task is not None and ":" in task:
        if choices != DEFAULT_CHOICES or settings or tensorboard:
            raise UsageError(
                f"{task} makes its own optimizer and model: --optimizer, --horizon-policy, "
                "--scale, --settings and --tensorboard are for the tasks of this package"
            )
        own = OwnRun.of(task, seed, lr, common)
    if own is not None:
        own = own if resume is None else own.longer(common)
        outcome = own.run(
            resume or out, resume=resume is not None, overwrite=overwrite, options=common
        )
        return _conclude(outcome, outcome.last.get("test", {}), common)
    if resume is not None:
        config, folder = common.limited(experiment_of(resume)), resume
    else:
        rate = () if lr is None else (f"lr={lr}",)
        changed = replace(common, set=(*common.set, *rate))
        config = changed.experiment(str(task), optimizer, seed, horizon_policy)
        name = f"{config.optimizer.name}-seed{config.train.seed}"
        folder = out or Path("out") / config.task / name
    if settings:
        for key, value in settings_of(config).items():
            print(f"{key:<24} {setting_text(value)}")
        return 0
    watching = common.listeners(folder, tensorboard=tensorboard)
    outcome = run(
        config, folder, resume=resume is not None, overwrite=overwrite, listeners=watching
    )
    test = outcome.last.get("test", {})
    return _conclude(outcome, {k: v for k, v in test.items() if k == config.metric}, common)


DEFAULT_CHOICES = ("snopt", "fixed", "cpu")
"""Default optimizer, horizon policy and scale."""


def setting_text(value: Any) -> str:
    """Write a value as ``--set`` reads it.

    Example:
        >>> setting_text((0.9, 0.999)), setting_text(None), setting_text(True)
        ('0.9,0.999', 'none', 'true')
    """
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _conclude(outcome: Outcome, test: Mapping[str, float], common: RunOptions) -> int:
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun started
        print("\n".join(conclusion(outcome, test, ended=common.quiet)))
    return outcome.exit_code


def conclusion(outcome: Outcome, test: Mapping[str, float], *, ended: bool = True) -> list[str]:
    """Say how a run ended and what to do next.

    Args:
        outcome: how it ended.
        test: metrics on the test examples.
        ended: say that it ended; progress on the screen has said so.

    Example:
        >>> conclusion(Outcome("interrupted", 7, 1.0, folder=Path("out/a b")), {})
        ['interrupted after 7 iterations and 1.0 s', "resume with: snopt train --resume 'out/a b'"]
    """
    folder = shlex.quote(str(outcome.folder))
    said = f"{outcome.status} after {outcome.iteration} iterations and {outcome.seconds:.1f} s"
    lines = [said] if ended else []
    lines += [f"test {name} {short(value)}" for name, value in test.items()]
    if outcome.status == "interrupted":
        lines.append(f"resume with: snopt train --resume {folder}")
    else:
        lines.append(f"report with: snopt report {folder} -o report.html")
    return lines
