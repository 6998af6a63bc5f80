"""The integration time t1: learned with the parameters, and fixed to several values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from snopt.lab.config import HorizonConfig, HorizonPolicy, Scale
from snopt.lab.optimizers.registry import PALETTE
from snopt.lab.paper.arms import (
    Arm,
    Found,
    arm_item,
    cpu_seconds,
    finals,
    runs_of,
    tuned_arms,
)
from snopt.lab.paper.curves import clean, curve, plot
from snopt.lab.paper.item import Cell, Result, Space
from snopt.lab.paper.names import TASKS, mean_of
from snopt.lab.paper.published import published
from snopt.lab.report.curves import Quantity

__all__ = ["FIXED", "LEARNED"]

IMAGES = ("mnist", "cifar10")
POLICIES: dict[HorizonPolicy, str] = {
    "fixed": "t1 fixed",
    "feedback": "feedback policy",
    "gradient": "first-order baseline",
}
ROWS = {"feedback": "snopt", "gradient": "asm"}
"""Their rows in the paper's table."""
FIXED_TIMES = (0.25, 0.5, 0.75, 1.0)
START, START_TOO_SHORT = 1.0, 0.05
PENALTIES = {START: 6e-4 * 128, START_TOO_SHORT: 4e-4 * 128}
"""Weight of the penalty on t1, by where t1 starts. The paper prints none: 6e-4 and 4e-4 are from
the authors' scripts for CIFAR10, whose program divides the slope of the mean loss by the batch
size, 128, once more."""
EVERY: dict[Scale, int] = {"smoke": 1, "cpu": 10, "full": 50}
"""Iterations between two updates of t1: 50 in the authors' scripts, 50 to 100 in the paper."""


def _tasks(space: Space) -> list[str]:
    return space.among(IMAGES if space.scale == "full" or space.tasks else ("mnist",))


def _at(space: Space, task: str, t1: float, policy: HorizonPolicy) -> Arm:
    """Return Adam at its chosen rate, from one t1 with one policy."""
    horizon = HorizonConfig()
    if policy != "fixed":
        horizon = HorizonConfig(policy, penalty=PENALTIES[t1], every=EVERY[space.scale])
    [arm] = tuned_arms(space, task, ("adam",))
    config = replace(arm.config, solver=replace(arm.config.solver, horizon=t1), horizon=horizon)
    return replace(arm, name=f"adam-t1={t1:g}-{policy}", config=config, title=POLICIES[policy])


def _time(found: Found) -> float | None:
    """Return the CPU seconds of training in percent of those with t1 fixed to 1."""
    reference = Found(found.space, _at(found.space, found.arm.config.task, START, "fixed"))
    ours, whole = (mean_of(map(cpu_seconds, each.runs)) for each in (found, reference))
    return 100 * ours / whole if ours and whole else None


def _nfe(found: Found) -> float | None:
    """Return the mean number of evaluations of the field an iteration."""
    columns = [run.records.steps.values for run in found.runs if len(run.records.steps)]
    return mean_of(
        forward + backward
        for each in columns
        for forward, backward in zip(each["nfe_forward"], each["nfe_backward"], strict=True)
    )


# -------------------------------------------------------------------------------------- learned


def learned_arms(space: Space, task: str) -> list[Arm]:
    """Return the arms of both starts: 1, and far too short."""
    starts = [START] if space.scale == "cpu" and task != "mnist" else [*PENALTIES]
    return [
        _at(space, task, start, policy)
        for start in starts
        for policy in POLICIES
        if policy != "fixed" or start == START
    ]


def _learned_columns() -> dict[str, Callable[[Found], Cell] | None]:
    paper = published("table:adap-t1")

    def published_too(found: Found) -> str:
        config = found.arm.config
        row = ROWS.get(config.horizon.policy, "-") if config.solver.horizon == START else "-"
        return f"{paper.text(row, 'train_time')} / {paper.text(row, 'accuracy')}"

    def penalty(found: Found) -> str:
        horizon = found.arm.config.horizon
        return "-" if horizon.policy == "fixed" else f"{horizon.penalty:.2g}"

    def end(found: Found) -> float:
        t1 = curve(found.runs, Quantity("training", "horizon"))
        return t1["mean"][-1] if t1 else found.arm.config.solver.horizon

    return {
        "data set": None,
        "t1 at first": lambda found: f"{found.arm.config.solver.horizon:g}",
        "policy": lambda found: found.arm.title,
        "penalty": penalty,
        "t1 at the end": end,
        "time, % of t1 = 1": _time,
        "evaluations": _nfe,
        "test accuracy, %": None,
        f"paper, CIFAR10, Table {paper.number}: time / accuracy": published_too,
    }


def _learned_curves(space: Space) -> dict[str, Any]:
    curves: dict[str, Any] = {}
    for task in _tasks(space):
        for arm in learned_arms(space, task):
            title = f"{TASKS[task]}, t1 = {arm.config.solver.horizon:g} at first"
            runs = runs_of(space, arm)
            curves.setdefault(title, {})[arm.title] = {
                "t1": curve(runs, Quantity("training", "horizon")),
                "validation accuracy": curve(runs, Quantity("valid", "accuracy")),
            }
    return curves


def _settings(space: Space) -> list[str]:
    """Say how t1 is learned, and what differs from the paper and the authors' program."""
    every = f"Iterations from one update of t1 to the next: {EVERY[space.scale]}"
    if space.scale != "full":
        every += " (paper: 50 to 100, authors' scripts: 50), since these runs are short"
    return [
        f"{every}.",
        "Penalties are those of the authors' scripts for CIFAR10, times their batch size of 128; "
        "the paper prints none.",
        "The authors' program keeps t1 above 0.1, so that its first update from 0.05 is a jump to "
        "0.1. Here t1 stays above 0.01 and changes by half of itself at most in one update.",
    ]


def draw_learned(figure: Any, result: Result) -> None:
    """Draw t1 and accuracy against iterations, a row a data set and start."""
    figure.set_size_inches(9, 2.6 * len(result.curves))
    axes = figure.subplots(len(result.curves), 2, squeeze=False)
    for (title, policies), row in zip(result.curves.items(), axes, strict=True):
        for axis, quantity in zip(row, ("t1", "validation accuracy"), strict=True):
            for color, policy in zip(PALETTE, POLICIES.values(), strict=False):
                found = policies.get(policy, {}).get(quantity)
                if found is not None:
                    plot(axis, found, "iteration", color=color, label=policy)
            clean(axis, "iterations", quantity, title)
    axes[0, 0].legend(frameon=False, fontsize=8)


LEARNED = arm_item(
    "adap-t1",
    ("table:adap-t1", "fig:adap-t1b", "fig:app-adap-t1b"),
    "Learning the integration time",
    _tasks,
    learned_arms,
    {"Learning t1 with the parameters; Adam trains the parameters.": _learned_columns()},
    notes=_settings,
    curves=_learned_curves,
    draw=draw_learned,
)

# ---------------------------------------------------------------------------------------- fixed


def fixed_arms(space: Space, task: str) -> list[Arm]:
    """Return an arm for each value of t1."""
    times = FIXED_TIMES[1::2] if space.scale == "smoke" else FIXED_TIMES
    return [_at(space, task, t1, "fixed") for t1 in times]


def _fixed_curves(space: Space) -> dict[str, Any]:
    curves: dict[str, Any] = {}
    for task in _tasks(space):
        for arm in fixed_arms(space, task):
            accuracy, time = finals(space, arm), _time(Found(space, arm))
            if accuracy and time:
                point = [arm.config.solver.horizon, time, 100 * accuracy.mean]
                curves.setdefault(TASKS[task], []).append(point)
    return curves


def draw_fixed(figure: Any, result: Result) -> None:
    """Draw time and accuracy against t1."""
    figure.set_size_inches(8, 2.8)
    left, right = figure.subplots(1, 2)
    for k, (task, points) in enumerate(result.curves.items()):
        t1, time, accuracy = zip(*points, strict=True)
        left.plot(t1, time, "o-", color=PALETTE[k], label=task)
        right.plot(t1, accuracy, "o-", color=PALETTE[k], label=task)
    clean(left, "t1", "training time, % of t1 = 1")
    clean(right, "t1", "test accuracy, %")
    left.legend(frameon=False, fontsize=8)


FIXED = arm_item(
    "fixed-t1",
    ("fig:adap-t1", "fig:app-adap-t1a"),
    "Accuracy and time for fixed integration times",
    _tasks,
    fixed_arms,
    {
        "Training with Adam at fixed t1.": {
            "data set": None,
            "t1": lambda found: f"{found.arm.config.solver.horizon:g}",
            "time, % of t1 = 1": _time,
            "evaluations": _nfe,
            "test accuracy, %": None,
        }
    },
    curves=_fixed_curves,
    draw=draw_fixed,
)
