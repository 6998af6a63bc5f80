"""``snopt train``: start or resume a run."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from snopt.lab.cli.options import DEFAULTS, OptimizerName, RunOptions, UsageError
from snopt.lab.cli.screen import short
from snopt.lab.config import Experiment, HorizonPolicy, TaskName
from snopt.lab.recipes import experiment_of, run
from snopt.lab.train import Outcome

__all__ = ["train"]


def train(
    task: TaskName | None = None,
    /,
    *,
    optimizer: OptimizerName = "snopt",
    seed: int = 0,
    out: Path | None = None,
    resume: Path | None = None,
    horizon_policy: HorizonPolicy = "fixed",
    tensorboard: bool = False,
    common: RunOptions = DEFAULTS,
) -> int:
    """Train one model, with logs and checkpoints in a run folder.

    Args:
        task: what to learn.
        optimizer: what trains the model.
        seed: seed of the initial weights and of the order of the data.
        out: run folder (also -o); default out/TASK/OPTIMIZER-seedSEED.
        resume: resume the run in this folder, with its own settings; no TASK then.
        horizon_policy: how to learn the end of the integration too.
        tensorboard: write TensorBoard events into the run folder as well.
        common: options of every run.

    Returns:
        The exit code.
    """
    if resume is not None:
        chosen = (task, optimizer, seed, out, horizon_policy, common.scale, common.set)
        if chosen != (None, "snopt", 0, None, "fixed", "cpu", ()):
            raise UsageError(
                "--resume takes task and settings from the run folder; besides it give only "
                "--iterations, --epochs, --until or --max-seconds"
            )
        config, folder = common.limited(experiment_of(resume)), resume
    elif task is not None:
        config = common.experiment(task, optimizer, seed, horizon_policy)
        name = f"{config.optimizer.name}-seed{config.train.seed}"
        folder = out or Path("out") / config.task / name
    else:
        raise UsageError("say what to train: snopt train TASK, for example snopt train digits")
    watching = common.listeners(folder, tensorboard=tensorboard)
    outcome = run(config, folder, resume=resume is not None, listeners=watching)
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun started
        print("\n".join(conclusion(config, outcome)))
    return outcome.exit_code


def conclusion(config: Experiment, outcome: Outcome) -> list[str]:
    """Say how a run ended and what to do next.

    Example:
        >>> import snopt
        >>> outcome = Outcome("interrupted", 7, 1.0, folder=Path("out/a b"))
        >>> conclusion(snopt.lab.recipes.recipe("digits"), outcome)
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
