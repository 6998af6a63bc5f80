"""The integration time t1: learned with the parameters, and fixed to several values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from snopt.lab.config import HorizonConfig, HorizonPolicy, Scale
from snopt.lab.optimizers.registry import PALETTE
from snopt.lab.paper.arms import Arm, arm_item, tuned_arms, with_fewer
from snopt.lab.paper.curves import clean, grid, lines, ticks
from snopt.lab.paper.item import Result, Space
from snopt.lab.paper.names import TASKS, mean_of
from snopt.lab.paper.published import published
from snopt.lab.report.summary import Stat, stat

IMAGES = ("mnist", "cifar10")
POLICIES: dict[HorizonPolicy, str] = {
    "fixed": "t1 fixed",
    "feedback": "feedback policy",
    "gradient": "first-order baseline",
}
COLORS = dict(zip((*POLICIES.values(), *TASKS.values()), (PALETTE[::2] * 3)[:12], strict=True))
ROWS = {"feedback": "snopt", "gradient": "asm"}
"""Rows of the paper's table."""
PAPER = published("table:adap-t1")
FIXED_TIMES = (0.25, 0.5, 0.75, 1.0)
START = 1.0
PENALTIES = {START: 6e-4 * 128, 0.05: 4e-4 * 128, 10.0: 6e-4 * 128}
"""Weight of the penalty on t1 by its initial value. The paper prints none: 6e-4 and 4e-4 are from
the authors' scripts for CIFAR10 (starts at 1 and 0.05), whose program divides the slope of the mean
loss by the batch size, 128, once more. The start at 10 is not the authors'."""
EVERY: dict[Scale, int] = {"smoke": 1, "cpu": 10, "full": 50}
"""Iterations between two updates of t1: 50 in the authors' scripts, 50 to 100 in the paper."""
FEWER = 4
"""Runs at scale ``cpu`` make this many times fewer updates than those of the main comparison."""


def _at(space: Space, task: str, t1: float, policy: HorizonPolicy) -> Arm:
    """Return Adam at its chosen rate, with an initial t1 and a policy."""
    horizon = HorizonConfig()
    if policy != "fixed":
        horizon = HorizonConfig(policy, penalty=PENALTIES[t1], every=EVERY[space.scale])
    [arm] = tuned_arms(space, task, ("adam",))
    config = replace(arm.config, solver=replace(arm.config.solver, horizon=t1), horizon=horizon)
    name, title = f"adam-t1={t1:g}-{policy}", POLICIES[policy]
    return with_fewer(replace(arm, name=name, config=config, title=title, few=True), FEWER)


def _start(arm: Arm) -> str:
    return f"{arm.config.solver.horizon:g}"


def _times(arm: Arm) -> Stat | None:
    """Return the CPU seconds of the runs, in percent of the mean with t1 fixed to 1."""
    whole = mean_of(_at(arm.space, arm.config.task, START, "fixed").cpu_seconds)
    return stat(100 * seconds / whole for seconds in arm.cpu_seconds) if whole else None


def _time(arm: Arm) -> float | None:
    found = _times(arm)
    return found.mean if found else None


def _nfe(arm: Arm) -> float | None:
    """Return the mean number of evaluations of the field per iteration."""
    columns = [run.records.steps.values for run in arm.runs if len(run.records.steps)]
    return mean_of(
        forward + backward
        for each in columns
        for forward, backward in zip(each["nfe_forward"], each["nfe_backward"], strict=True)
    )


# -------------------------------------------------------------------------------------- learned


def learned_arms(space: Space, task: str) -> list[Arm]:
    """Return the arms of all starts: 1, far too short and, on MNIST, far too long."""
    long = task == "mnist" and space.scale != "full"  # the authors have none
    return [
        _at(space, task, start, policy)
        for start in PENALTIES
        for policy in POLICIES
        if (start <= START or long) and (policy != "fixed" or start == START)
    ]


def _penalty(arm: Arm) -> str:
    horizon = arm.config.horizon
    return "-" if horizon.policy == "fixed" else f"{horizon.penalty:.2g}"


def _end(arm: Arm) -> float:
    t1 = arm.curve("training", "horizon")
    return t1["mean"][-1] if t1 else arm.config.solver.horizon


def _published(arm: Arm) -> str:
    config = arm.config
    row = ROWS.get(config.horizon.policy, "-") if config.solver.horizon == START else "-"
    return f"{PAPER.text(row, 'train_time')} / {PAPER.text(row, 'accuracy')}"


def _settings(space: Space) -> list[str]:
    """Return what differs from the paper and the authors' program."""
    every = f"Iterations between two updates of t1: {EVERY[space.scale]}"
    if space.scale != "full":
        every += " (paper: 50 to 100, authors' scripts: 50), since these runs are short"
    return [
        f"{every}.",
        "Penalties are those of the authors' scripts for CIFAR10, times their batch size of 128; "
        "the paper prints none.",
        "The authors' program keeps t1 above 0.1, so its first update from 0.05 is a jump to "
        "0.1. Here t1 stays above 0.01 and changes by at most half of itself in one update.",
    ]


def draw_learned(figure: Any, result: Result) -> None:
    """Draw t1 and accuracy against iterations, one row per data set and start."""
    axes = grid(figure, 2 * len(result.curves), columns=2, height=2.5)[0]
    for k, (title, policies) in enumerate(result.curves.items()):
        for axis, quantity in zip(axes[2 * k :], ("t1", "validation accuracy"), strict=False):
            found = {policy: each[quantity] for policy, each in policies.items()}
            clean(axis, "updates", quantity, title)
            lines(axis, found, "iteration", COLORS)


LEARNED = arm_item(
    "adap-t1",
    ("table:adap-t1", "fig:adap-t1b", "fig:app-adap-t1b"),
    "Learning the integration time",
    lambda space: space.among(IMAGES, smoke=("mnist",)),
    learned_arms,
    "Learning t1 with the parameters; Adam trains the parameters.",
    [
        "data set",
        ("initial t1", _start),
        ("policy", lambda arm: arm.title),
        ("penalty", _penalty),
        ("final t1", _end),
        ("time, % of t1 = 1", _time),
        ("evaluations", _nfe),
        "test accuracy, %",
        (f"paper, CIFAR10, Table {PAPER.number}: time / accuracy", _published),
    ],
    notes=_settings,
    fewer=FEWER,
    panel=lambda arm: f"{TASKS[arm.config.task]}, initial t1 = {_start(arm)}",
    of_arm=lambda arm: {
        "t1": arm.curve("training", "horizon"),
        "validation accuracy": arm.curve("valid", "accuracy"),
    },
    draw=draw_learned,
    caption="Left: where each policy takes t1 from its start. Right: what that does to accuracy.",
)

# ---------------------------------------------------------------------------------------- fixed


def fixed_arms(space: Space, task: str) -> list[Arm]:
    """Return an arm for each value of t1."""
    times = FIXED_TIMES[1::2] if space.scale == "smoke" else FIXED_TIMES
    return [replace(_at(space, task, t1, "fixed"), title=f"{t1:g}") for t1 in times]


def _with_deviation(found: Stat | None, scale: float = 1.0) -> list[float] | None:
    return [scale * found.mean, scale * found.sd] if found else None


def draw_fixed(figure: Any, result: Result) -> None:
    """Draw time and accuracy against t1, with bands of one deviation."""
    words = {"time": "CPU seconds, % of those at t1 = 1", "accuracy": "test accuracy, %"}
    for axis, (key, word) in zip(grid(figure, 2, height=2.9)[0], words.items(), strict=True):
        found: dict[str, Any] = {}
        for task, points in result.curves.items():
            if known := [(float(t1), *each[key]) for t1, each in points.items() if each[key]]:
                t1, mean, sd = np.array(known).T
                found[task] = {"t1": t1, "mean": mean, "below": mean - sd, "above": mean + sd}
        clean(axis, "t1", "", word)
        ticks(axis, FIXED_TIMES)
        lines(axis, found, "t1", COLORS, marker="o")


FIXED = arm_item(
    "fixed-t1",
    ("fig:adap-t1", "fig:app-adap-t1a"),
    "Accuracy and time for fixed integration times",
    lambda space: space.among(IMAGES, cpu=("mnist",)),
    fixed_arms,
    "Training with Adam at fixed t1.",
    [
        *("data set", ("t1", _start), ("time, % of t1 = 1", _time), ("evaluations", _nfe)),
        "test accuracy, %",
    ],
    fewer=FEWER,
    of_arm=lambda arm: {
        "time": _with_deviation(_times(arm)),
        "accuracy": _with_deviation(arm.finals, 100),
    },
    draw=draw_fixed,
    caption="Shorter solves cost less (left); the question is where accuracy begins to suffer "
    "(right). Bands are one deviation over seeds.",
)
