"""The integration time t1: learned with the parameters, and fixed to several values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from snopt.lab.config import Experiment, HorizonConfig, HorizonPolicy, Scale
from snopt.lab.optimizers.registry import PALETTE
from snopt.lab.paper.arms import Arm, finals, finals_text, runs_of, trainings
from snopt.lab.paper.curves import clean, curve, plot
from snopt.lab.paper.item import Cell, Item, Job, Result, Space, Table
from snopt.lab.paper.names import TASKS, mean_of
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import cut_note
from snopt.lab.paper.tuning import tuned
from snopt.lab.report.curves import Quantity
from snopt.lab.report.read import Run

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
LONGER = 2
"""At scale ``cpu`` these runs are so many times as long as the others: t1 moves slowly."""


def _tasks(space: Space) -> list[str]:
    return space.among(IMAGES if space.scale == "full" or space.tasks else ("mnist",))


def base(space: Space, task: str) -> tuple[Experiment | None, list[Job]]:
    """Return a task trained by Adam at its chosen rate, and the tuning that is still to do."""
    config, waiting = tuned(space, task, "adam")
    if config is None or space.scale != "cpu":
        return config, waiting
    length, every = config.train.iterations or 1, config.train.evaluate_every or 1
    return replace(
        config,
        train=replace(config.train, iterations=LONGER * length, evaluate_every=LONGER * every),
    ), waiting


# -------------------------------------------------------------------------------------- learned


def learned_arms(space: Space, task: str) -> tuple[list[Arm], list[Job]]:
    """Return the arms of both starts: 1, and far too short."""
    config, waiting = base(space, task)
    if config is None:
        return [], waiting
    starts = [START] if space.scale == "cpu" and task != "mnist" else [*PENALTIES]
    arms = []
    for start in starts:
        begun = replace(config, solver=replace(config.solver, horizon=start))
        for policy in POLICIES:
            horizon = HorizonConfig()
            if policy != "fixed":
                horizon = HorizonConfig(policy, penalty=PENALTIES[start], every=EVERY[space.scale])
            elif start != START:
                continue
            arms.append(Arm(f"adam-t1={start:g}-{policy}", replace(begun, horizon=horizon)))
    return arms, waiting


def _learned_jobs(space: Space) -> list[Job]:
    made: list[Job] = []
    for task in _tasks(space):
        arms, waiting = learned_arms(space, task)
        made += waiting or trainings(space, arms)
    return made


def _learned_result(space: Space) -> Result:
    paper = published("table:adap-t1")
    rows: list[list[Cell]] = []
    curves: dict[str, Any] = {}
    for task in _tasks(space):
        reference: float | None = None
        for arm in learned_arms(space, task)[0]:
            runs = runs_of(space, arm)
            start, policy = arm.config.solver.horizon, arm.config.horizon.policy
            seconds = mean_of(_seconds(run) for run in runs)
            if policy == "fixed":
                reference = seconds
            time = 100 * seconds / reference if seconds and reference else None
            t1 = curve(runs, Quantity("training", "horizon"))
            group = curves.setdefault(f"{TASKS[task]}, t1 = {start:g} at first", {})
            group[POLICIES[policy]] = {
                "t1": t1,
                "validation accuracy": curve(runs, Quantity("valid", "accuracy")),
            }
            row = ROWS.get(policy, "-") if start == START else "-"
            penalty = "-" if policy == "fixed" else f"{arm.config.horizon.penalty:.2g}"
            rows.append(
                [
                    TASKS[task],
                    f"{start:g}",
                    POLICIES[policy],
                    penalty,
                    t1["mean"][-1] if t1 else start,
                    time,
                    _nfe(runs),
                    finals_text(space, arm),
                    f"{paper.text(row, 'train_time')} / {paper.text(row, 'accuracy')}",
                ]
            )
    columns = [
        "data set",
        "t1 at first",
        "policy",
        "penalty",
        "t1 at the end",
        "time, % of t1 = 1",
        "evaluations",
        "test accuracy, %",
        f"paper, CIFAR10, Table {paper.number}: time / accuracy",
    ]
    caption = "Learning t1 with the parameters; Adam trains the parameters."
    return Result([Table(caption, columns, rows)], [*_settings(space), *_cuts(space)], curves)


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


def _cuts(space: Space) -> list[str]:
    """Say what was cut of each data set."""
    longer = LONGER if space.scale == "cpu" else 1
    notes = [cut_note(task, space.scale, longer) for task in _tasks(space)]
    return [note for note in notes if note]


def _seconds(run: Run) -> float | None:
    return next(reversed(run.records.steps.seconds), None)


def _nfe(runs: list[Run]) -> float | None:
    """Return the mean number of evaluations of the field an iteration."""
    columns = [run.records.steps.values for run in runs if len(run.records.steps)]
    return mean_of(
        forward + backward
        for each in columns
        for forward, backward in zip(each["nfe_forward"], each["nfe_backward"], strict=True)
    )


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


LEARNED = Item(
    "adap-t1",
    ("table:adap-t1", "fig:adap-t1b", "fig:app-adap-t1b"),
    "Learning the integration time",
    _learned_jobs,
    _learned_result,
    draw_learned,
)

# ---------------------------------------------------------------------------------------- fixed


def fixed_arms(space: Space, task: str) -> tuple[list[Arm], list[Job]]:
    """Return an arm for each value of t1."""
    config, waiting = base(space, task)
    if config is None:
        return [], waiting
    times = FIXED_TIMES[::2] if space.scale == "smoke" else FIXED_TIMES
    return [
        Arm(f"adam-t1={t1:g}-fixed", replace(config, solver=replace(config.solver, horizon=t1)))
        for t1 in times
    ], waiting


def _fixed_jobs(space: Space) -> list[Job]:
    made: list[Job] = []
    for task in _tasks(space):
        arms, waiting = fixed_arms(space, task)
        made += waiting or trainings(space, arms)
    return made


def _fixed_result(space: Space) -> Result:
    rows: list[list[Cell]] = []
    curves: dict[str, Any] = {}
    for task in _tasks(space):
        arms = fixed_arms(space, task)[0]
        seconds = [mean_of(_seconds(run) for run in runs_of(space, arm)) for arm in arms]
        longest = seconds[-1]
        for arm, found in zip(arms, seconds, strict=True):
            accuracy = finals(space, arm)
            t1 = arm.config.solver.horizon
            time = 100 * found / longest if found and longest else None
            rows.append(
                [
                    TASKS[task],
                    f"{t1:g}",
                    time,
                    _nfe(runs_of(space, arm)),
                    finals_text(space, arm),
                ]
            )
            if accuracy and time:
                curves.setdefault(TASKS[task], []).append([t1, time, 100 * accuracy.mean])
    columns = [
        "data set",
        "t1",
        "time, % of t1 = 1",
        "evaluations",
        "test accuracy, %",
    ]
    table = Table("Training with Adam at fixed t1.", columns, rows)
    return Result([table], _cuts(space), curves)


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


FIXED = Item(
    "fixed-t1",
    ("fig:adap-t1", "fig:app-adap-t1a"),
    "Accuracy and time for fixed integration times",
    _fixed_jobs,
    _fixed_result,
    draw_fixed,
)
