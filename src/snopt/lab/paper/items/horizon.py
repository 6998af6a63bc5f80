"""The integration time t1: learned with the parameters, and fixed to several values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snopt.lab.config import HorizonConfig, HorizonPolicy, Scale
from snopt.lab.optimizers.registry import PALETTE
from snopt.lab.paper.arms import Arm, Columns, arm_item, tuned_arms, with_fewer
from snopt.lab.paper.curves import clean, lines, ticks
from snopt.lab.paper.item import Result, Space
from snopt.lab.paper.names import TASKS, mean_of
from snopt.lab.paper.published import published
from snopt.lab.report.summary import stat

IMAGES = ("mnist", "cifar10")
POLICIES: dict[HorizonPolicy, str] = {
    "fixed": "t1 fixed",
    "feedback": "feedback policy",
    "gradient": "first-order baseline",
}
ROWS = {"feedback": "snopt", "gradient": "asm"}
"""Rows of the paper's table."""
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


def _times(arm: Arm) -> list[float]:
    """Return the CPU seconds of each run, in percent of the mean with t1 fixed to 1."""
    whole = mean_of(_at(arm.space, arm.config.task, START, "fixed").cpu_seconds)
    return [100 * seconds / whole for seconds in arm.cpu_seconds] if whole else []


def _time(arm: Arm) -> float | None:
    return mean_of(_times(arm))


def _nfe(arm: Arm) -> float | None:
    """Return the mean number of evaluations of the field per iteration."""
    columns = [run.records.steps.values for run in arm.runs if len(run.records.steps)]
    return mean_of(
        forward + backward
        for each in columns
        for forward, backward in zip(each["nfe_forward"], each["nfe_backward"], strict=True)
    )


# -------------------------------------------------------------------------------------- learned


def learned_tasks(space: Space) -> list[str]:
    """Return the data sets: images, at scale ``smoke`` MNIST only."""
    return space.among(("mnist",) if space.scale == "smoke" and not space.tasks else IMAGES)


def learned_arms(space: Space, task: str) -> list[Arm]:
    """Return the arms of all starts: 1, far too short and, on MNIST, far too long."""
    starts = [start for start in PENALTIES if start <= START or task == "mnist"]
    if space.scale == "full":
        starts = [start for start in starts if start <= START]  # as the authors
    return [
        _at(space, task, start, policy)
        for start in starts
        for policy in POLICIES
        if policy != "fixed" or start == START
    ]


def _learned_columns() -> Columns:
    paper = published("table:adap-t1")

    def published_too(arm: Arm) -> str:
        config = arm.config
        row = ROWS.get(config.horizon.policy, "-") if config.solver.horizon == START else "-"
        return f"{paper.text(row, 'train_time')} / {paper.text(row, 'accuracy')}"

    def penalty(arm: Arm) -> str:
        horizon = arm.config.horizon
        return "-" if horizon.policy == "fixed" else f"{horizon.penalty:.2g}"

    def end(arm: Arm) -> float:
        t1 = arm.curve("training", "horizon")
        return t1["mean"][-1] if t1 else arm.config.solver.horizon

    return {
        "data set": None,
        "initial t1": lambda arm: f"{arm.config.solver.horizon:g}",
        "policy": lambda arm: arm.title,
        "penalty": penalty,
        "final t1": end,
        "time, % of t1 = 1": _time,
        "evaluations": _nfe,
        "test accuracy, %": None,
        f"paper, CIFAR10, Table {paper.number}: time / accuracy": published_too,
    }


def _learned_curves(space: Space) -> dict[str, Any]:
    curves: dict[str, Any] = {}
    for task in learned_tasks(space):
        for arm in learned_arms(space, task):
            title = f"{TASKS[task]}, initial t1 = {arm.config.solver.horizon:g}"
            curves.setdefault(title, {})[arm.title] = {
                "t1": arm.curve("training", "horizon"),
                "validation accuracy": arm.curve("valid", "accuracy"),
            }
    return curves


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
    figure.set_size_inches(9, 2.6 * len(result.curves))
    axes = figure.subplots(len(result.curves), 2, squeeze=False)
    for (title, policies), row in zip(result.curves.items(), axes, strict=True):
        for axis, quantity in zip(row, ("t1", "validation accuracy"), strict=True):
            found = {policy: each[quantity] for policy, each in policies.items()}
            colors = dict(zip(POLICIES.values(), PALETTE[::2], strict=False))
            lines(axis, found, "iteration", colors)
            clean(axis, "updates", quantity, title)


LEARNED = arm_item(
    "adap-t1",
    ("table:adap-t1", "fig:adap-t1b", "fig:app-adap-t1b"),
    "Learning the integration time",
    learned_tasks,
    learned_arms,
    {"Learning t1 with the parameters; Adam trains the parameters.": _learned_columns()},
    notes=_settings,
    fewer=FEWER,
    curves=_learned_curves,
    draw=draw_learned,
    caption="Left: where each policy takes t1 from its start. Right: what that does to accuracy.",
)

# ---------------------------------------------------------------------------------------- fixed


def _fixed_tasks(space: Space) -> list[str]:
    return space.among(IMAGES, few=("mnist",))


def fixed_arms(space: Space, task: str) -> list[Arm]:
    """Return an arm for each value of t1."""
    times = FIXED_TIMES[1::2] if space.scale == "smoke" else FIXED_TIMES
    return [_at(space, task, t1, "fixed") for t1 in times]


def draw_fixed(figure: Any, result: Result) -> None:
    """Draw time and accuracy against t1."""
    figure.set_size_inches(8.5, 2.8)
    panels = figure.subplots(1, 2)
    words = ("training time, % of t1 = 1", "test accuracy, %")
    for axis, word, key in zip(panels, words, ("time", "accuracy"), strict=True):
        found = {
            task: {
                "t1": [point["t1"] for point in points],
                "mean": [point[key][0] for point in points],
                "below": [point[key][0] - point[key][1] for point in points],
                "above": [point[key][0] + point[key][1] for point in points],
            }
            for task, points in result.curves.items()
        }
        lines(axis, found, "t1", dict(zip(found, PALETTE[::2], strict=False)))
        for line in axis.get_lines():
            line.set_marker("o")
        ticks(axis, FIXED_TIMES)
        clean(axis, "t1", word)


def _fixed_curves(space: Space) -> dict[str, Any]:
    curves: dict[str, Any] = {}
    for task in _fixed_tasks(space):
        for arm in fixed_arms(space, task):
            times = stat(_times(arm))
            if arm.finals and times:
                point = {
                    "t1": arm.config.solver.horizon,
                    "time": [times.mean, times.sd],
                    "accuracy": [100 * arm.finals.mean, 100 * arm.finals.sd],
                }
                curves.setdefault(TASKS[task], []).append(point)
    return curves


FIXED = arm_item(
    "fixed-t1",
    ("fig:adap-t1", "fig:app-adap-t1a"),
    "Accuracy and time for fixed integration times",
    _fixed_tasks,
    fixed_arms,
    {
        "Training with Adam at fixed t1.": {
            "data set": None,
            "t1": lambda arm: f"{arm.config.solver.horizon:g}",
            "time, % of t1 = 1": _time,
            "evaluations": _nfe,
            "test accuracy, %": None,
        }
    },
    fewer=FEWER,
    curves=_fixed_curves,
    draw=draw_fixed,
    caption="Shorter solves cost less; the question is where accuracy begins to suffer. Bands are "
    "deviations over seeds.",
)
