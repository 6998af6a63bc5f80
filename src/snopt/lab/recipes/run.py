"""One experiment, from its configuration to its run folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from snopt.lab.config import Experiment
from snopt.lab.recipes.build import build
from snopt.lab.recipes.settings import as_dict, from_dict
from snopt.lab.train import Listener, Outcome, join, read_records, train

__all__ = ["describe", "evaluations", "experiment_of", "lengthened", "recorded", "run"]


def run(
    config: Experiment,
    folder: str | Path,
    *,
    resume: bool = False,
    listeners: Sequence[Listener] = (),
) -> Outcome:
    """Train what a configuration describes, on a GPU if there is one.

    Started by torchrun, the processes share the work.

    Args:
        config: the experiment.
        folder: the run folder.
        resume: go on with the run in the folder.
        listeners: who watches.
    """
    with join("cuda" if torch.cuda.is_available() else None) as world:
        task, parts = build(config, world.device)
        return train(
            task,
            parts,
            config.train,
            folder,
            describe=describe(config),
            resume=resume,
            listeners=listeners,
        )


def describe(config: Experiment) -> dict[str, Any]:
    """Return what a run folder says of its experiment."""
    return {
        "task": config.task,
        "optimizer": config.optimizer.name,
        "seed": config.train.seed,
        "experiment": as_dict(config),
    }


def experiment_of(folder: str | Path) -> Experiment:
    """Read back the experiment of a run folder.

    Args:
        folder: a folder that :func:`run` has written to.
    """
    path = Path(folder) / "config.json"
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder} is no run folder: there is no config.json in it; name the folder that was "
            "given as --out"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}; start the run anew") from error
    if "experiment" not in content:
        raise ValueError(f"{path} was not written by `snopt train`: it names no experiment")
    return from_dict(Experiment, content["experiment"])


def recorded(config: Experiment, folder: str | Path) -> Outcome | None:
    """Read how an experiment ended that has run before.

    Args:
        config: the experiment.
        folder: its run folder.

    Returns:
        The outcome; None if the run has not ended, or can be gone on with.
    """
    folder = Path(folder)
    if not (folder / "config.json").exists():
        return None
    if experiment_of(folder) != config:
        raise ValueError(
            f"{folder} holds a run with other settings; choose another --out, or remove it"
        )
    ends = [record for record in read_records(folder) if record["kind"] == "end"]
    if not ends or ends[-1].get("status") not in ("finished", "target", "budget", "diverged"):
        return None
    known = [value for *_, value in evaluations(folder, config.metric)]
    choose = max if config.mode == "max" else min
    return Outcome(
        status=ends[-1]["status"],
        iteration=ends[-1]["iteration"],
        seconds=ends[-1]["seconds"],
        best=choose(known) if known else None,
        last=ends[-1].get("final", {}),
        folder=folder,
        message="read from its record",
    )


def evaluations(folder: Path, metric: str) -> list[tuple[int, float, float]]:
    """Read the validation metric of a run: iterations, seconds and values that are finite."""
    return [
        (record["iteration"], record["seconds"], record["metrics"][metric])
        for record in read_records(folder)
        if record["kind"] == "eval" and record["split"] == "valid"
        # JSON has no word for what is not finite: it is null there.
        if record["metrics"].get(metric) is not None
    ]


def lengthened(config: Experiment, iterations: int | None, epochs: int | None) -> Experiment:
    """Change how long an experiment takes; None for both leaves it as it is."""
    if iterations is None and epochs is None:
        return config
    return replace(config, train=replace(config.train, iterations=iterations, epochs=epochs))
