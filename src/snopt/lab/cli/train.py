"""``snopt train``: one run, begun or gone on with."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from snopt.base.errors import unknown
from snopt.lab.cli.screen import short
from snopt.lab.config import Experiment, HorizonPolicy, OptimizerName, Scale, TaskName
from snopt.lab.recipes import experiment_of, recipe, run, with_settings
from snopt.lab.recipes.run import lengthened
from snopt.lab.train import Listener, Outcome, TensorBoard, progress

__all__ = ["configured", "listeners", "train", "with_target"]


def train(
    task: TaskName | None = None,
    /,
    *,
    optimizer: OptimizerName = "snopt",
    scale: Scale = "cpu",
    iterations: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    resume: Path | None = None,
    set: tuple[str, ...] = (),
    until: str | None = None,
    max_seconds: float | None = None,
    horizon_policy: HorizonPolicy = "fixed",
    quiet: bool = False,
    tensorboard: bool = False,
) -> int:
    """Train one model, and keep a record of it in a folder.

    Args:
        task: what to learn.
        optimizer: what trains the model.
        scale: full: the paper's set-up; cpu: minutes on two cores; smoke: seconds.
        iterations: updates to make, instead of the recipe's.
        epochs: passes over the data, instead of the recipe's.
        seed: decides the initial weights and the order of the data.
        out: run folder; out/TASK/OPTIMIZER-seedSEED if not given.
        resume: go on with the run in this folder, with its own settings; no TASK then.
        set: settings as key=value: lr=0.01, train.batch_size=64, model.width=32 ...
        until: stop when a validation metric is reached, for example accuracy=0.98.
        max_seconds: stop after so many seconds of training.
        horizon_policy: how to learn the end of the integration too.
        quiet: show no progress.
        tensorboard: write TensorBoard events into the run folder as well.

    Returns:
        The exit code.
    """
    if resume is not None:
        chosen = (task, optimizer, scale, seed, out, set, horizon_policy)
        if chosen != (None, "snopt", "cpu", 0, None, (), "fixed"):
            raise ValueError(
                "--resume takes task and settings from the run folder; besides it give only "
                "--iterations, --epochs, --until or --max-seconds"
            )
        config, folder = experiment_of(resume), resume
    elif task is not None:
        config = configured(task, optimizer, scale, seed, set)
        config = replace(config, horizon=replace(config.horizon, policy=horizon_policy))
        folder = out or Path("out") / config.task / f"{config.optimizer.name}-seed{seed}"
    else:
        raise ValueError("say what to train: snopt train TASK, for example snopt train digits")
    config = with_target(lengthened(config, iterations, epochs), until, max_seconds)
    watching = listeners(folder, quiet=quiet, tensorboard=tensorboard)
    outcome = run(config, folder, resume=resume is not None, listeners=watching)
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun started
        print("\n".join(conclusion(config, outcome)))
    return outcome.exit_code


def configured(
    task: str, optimizer: OptimizerName, scale: Scale, seed: int, settings: Sequence[str]
) -> Experiment:
    """Return a recipe with a seed and the user's settings."""
    config = recipe(task, optimizer, scale)
    config = replace(config, train=replace(config.train, seed=seed))
    return with_settings(config, settings)


def with_target(config: Experiment, until: str | None, max_seconds: float | None) -> Experiment:
    """Add when to stop early.

    Args:
        config: the experiment.
        until: ``"metric=value"``.
        max_seconds: seconds of training.

    Example:
        >>> with_target(recipe("digits"), "accuracy=0.9", None).train.until
        ('accuracy', 0.9)
    """
    if until is not None:
        name, _, text = until.partition("=")
        if name not in (config.metric, "loss"):
            raise unknown(f"metric of {config.task}", name, [config.metric, "loss"])
        try:
            target = (name, float(text))
        except ValueError as error:
            raise ValueError(
                f"--until {until}: {text!r} is no number; write for example {name}=0.98"
            ) from error
        config = replace(config, train=replace(config.train, until=target))
    if max_seconds is not None:
        config = replace(config, train=replace(config.train, max_seconds=max_seconds))
    return config


def listeners(folder: Path, *, quiet: bool, tensorboard: bool = False) -> list[Listener]:
    """Make what watches a run."""
    watching = progress("quiet" if quiet else "auto")
    if tensorboard:
        watching.append(TensorBoard(folder / "tensorboard"))
    return watching


def conclusion(config: Experiment, outcome: Outcome) -> list[str]:
    """Say how a run ended and what can be done next.

    Example:
        >>> outcome = Outcome("interrupted", 7, 1.0, folder=Path("out/a b"))
        >>> conclusion(recipe("digits"), outcome)
        ['interrupted after 7 iterations', "resume with: snopt train --resume 'out/a b'"]
    """
    folder = shlex.quote(str(outcome.folder))
    lines = [f"{outcome.status} after {outcome.iteration} iterations"]
    if config.metric in outcome.last.get("test", {}):
        value = short(outcome.last["test"][config.metric])
        lines[0] += f" and {outcome.seconds:.1f} s: test {config.metric} {value}"
    if outcome.status == "interrupted":
        lines.append(f"resume with: snopt train --resume {folder}")
    else:
        lines.append(f"report with: snopt report {folder} -o report.html")
    return lines
