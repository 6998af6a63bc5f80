"""Seconds and memory of an iteration: Adam, SGD and SNOpt on the nine data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from snopt.lab.config import Experiment, Scale
from snopt.lab.paper.arms import OPTIMIZERS, tasks_of
from snopt.lab.paper.curves import WIDTH, clean, legend
from snopt.lab.paper.item import Cell, Result, Space, Table, measured_item
from snopt.lab.paper.iterations import measure_clocks, measure_iterations
from snopt.lab.paper.jobs import Measurement
from snopt.lab.paper.names import METHODS, TASKS, color_of
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import configuration
from snopt.lab.paper.timing import Times, amortised, ratios
from snopt.lab.paper.version import COMPILED, LIBRARY, TRAINING

Found: TypeAlias = dict[str, dict[str, Any]]
"""What was measured, by data set."""
ROUNDS: dict[Scale, int] = {"smoke": 2, "cpu": 5, "full": 20}
COMPARED = ("snopt_amortized", "snopt")
PAPER = "paper's own"
CODE = (
    *LIBRARY, *COMPILED, *TRAINING,
    *(f"lab/paper/{name}.py" for name in ("iterations", "peak", "timing")),
)  # fmt: skip


def configs_of(task: str, scale: Scale) -> dict[str, Experiment]:
    """Return the experiments by method, without compilation."""
    made = {name: configuration(task, name, scale) for name in OPTIMIZERS}
    return {
        name: replace(config, solver=replace(config.solver, compile=False))
        for name, config in made.items()
    }


def measurements(
    space: Space,
    name: str,
    tasks: Iterable[str],
    measure: Callable[[Mapping[str, Experiment], int], dict[str, Any]],
    rounds: int,
) -> dict[str, Measurement]:
    """Return a job per data set."""
    made = {}
    for task in tasks:
        settings = configs_of(task, space.scale), rounds
        folder = space.measurement(f"{name}-{task}")
        made[task] = Measurement(folder, partial(measure, *settings), settings, CODE)
    return made


def complexity_jobs(space: Space) -> dict[str, Measurement]:
    """Return the measurements of seconds and memory."""
    rounds = ROUNDS[space.scale]
    return measurements(space, "complexity", tasks_of(space), measure_iterations, rounds)


def result(space: Space, found: Found) -> Result:
    """Collect seconds and megabytes, and their ratios to Adam's."""
    seconds: dict[str, Times] = {task: {} for task in found}
    for task, each in found.items():
        for name, of in each["seconds"].items():
            refresh, every = of.get("refresh", of["plain"]), each["refresh_every"][name]
            seconds[task][name] = amortised(of["plain"], refresh, every)
    megabytes = {
        task: {name: [each["megabytes"][name]] for name in OPTIMIZERS}
        for task, each in found.items()
    }
    runtime = "Seconds per iteration, refreshes included."
    times, time_ratios = compared(runtime, seconds, "table:runtime")
    memory, memory_ratios = compared("Megabytes of an iteration.", megabytes, "table:memory")
    refreshes: list[list[Cell]] = []
    for task, each in found.items():
        for name in COMPARED:
            pair = [median(each["seconds"][name][kind]) for kind in ("plain", "refresh")]
            every = f"{each['refresh_every'][name]}"
            refreshes.append([TASKS[task], METHODS[name], *pair, every])
    columns = ["data set", "method", "seconds, plain", "seconds, refresh", "refreshed every"]
    refreshed = Table("Iterations of SNOpt without and with a refresh.", columns, refreshes)
    machine = next(iter(found.values()))["environment"]
    curves = {"runtime": time_ratios, "memory": memory_ratios}
    return Result([times, memory, refreshed], notes(space, machine), curves)


def compared(caption: str, costs: dict[str, Times], label: str) -> tuple[Table, dict[str, Any]]:
    """Compare costs by data set and method.

    Returns:
        The costs, their ratios to Adam's and the paper's ratio as a table; and all ratios by data
        set and method, for the figure.
    """
    paper = published(label)
    columns = ["data set", *(METHODS[name] for name in OPTIMIZERS)]
    columns += [f"{METHODS[name]} / Adam" for name in COMPARED]
    columns += [f"paper, Table {paper.number}: SNOpt / Adam"]
    rows: list[list[Cell]] = []
    over: dict[str, dict[str, float | None]] = {}
    for task, found in costs.items():
        ours = {METHODS[name]: median(ratios(found, name, "adam")) for name in COMPARED}
        cells = [median(found[name]) for name in OPTIMIZERS]
        texts = [f"{value:.2f}" for value in ours.values()]
        rows.append([TASKS[task], *cells, *texts, paper.text("ratio", task)])
        over[TASKS[task]] = {**ours, PAPER: paper.value("ratio", task)}
    return Table(caption, columns, rows), over


def notes(space: Space, machine: Mapping[str, Any]) -> list[str]:
    """Return notes on how it was measured."""
    compiled = " Series models are not compiled." if space.scale == "cpu" else ""
    return [
        f"{ROUNDS[space.scale]} interleaved rounds; medians, also of the ratios within rounds. "
        f"{machine['device']}, {machine['threads']} of {machine['cores']} cores; on a CPU in CPU "
        f"seconds.{compiled}",
        "Learning rates are zero: all methods do the same solves. The paper measured during "
        "training, where the number of evaluations differs.",
        "Memory is that of model, optimizer and one iteration (a refresh, for SNOpt); the paper's "
        "is that of a whole process on a GPU.",
        "SNOpt (default) refreshes more often at the beginning of a run.",
        *([f"Models and batches are those of scale {space.scale}."] * (space.scale != "full")),
    ]


def draw(figure: Any, found: Result) -> None:
    """Draw two bar charts: time and memory relative to Adam."""
    figure.set_size_inches(WIDTH, 3.2)
    for axis, (title, tasks) in zip(figure.subplots(1, 2), found.curves.items(), strict=True):
        names = list(next(iter(tasks.values())))
        for k, name in enumerate(names):
            heights = [np.nan if of[name] is None else of[name] for of in tasks.values()]
            places = np.arange(len(tasks)) + (k - (len(names) - 1) / 2) * 0.8 / len(names)
            color = "#c9ced6" if name == PAPER else color_of(name)
            axis.bar(places, heights, 0.8 / len(names), color=color, label=name)
        axis.set_xticks(range(len(tasks)), list(tasks), rotation=30, fontsize=8)
        axis.axhline(1, color="black", linestyle="--", linewidth=0.8)
        clean(axis, "", "relative to Adam", title)
    legend(figure, 3)


COMPLEXITY = measured_item(
    "complexity",
    ("fig:complexity", "table:runtime", "table:memory"),
    "Seconds and memory of an iteration",
    complexity_jobs,
    result,
    draw,
    caption="Cost of an iteration of SNOpt over that of Adam (dashed: equal).",
)

# --------------------------------------------------------------------------------- CPU and wall

WITHIN = 0.05
"""Ratios by CPU seconds and by wall seconds are said to agree within this."""


def clock_jobs(space: Space) -> dict[str, Measurement]:
    """Return the measurements by both clocks: on MNIST except at scale ``smoke``, and on Circle."""
    tasks = space.among(("mnist", "circle"), smoke=("circle",))
    return measurements(space, "clocks", tasks, measure_clocks, 4 * ROUNDS[space.scale])


def clocks(space: Space, found: Found) -> Result:
    """Compare ratios to Adam's by both clocks."""
    rows: list[list[Cell]] = []
    worst, loads = 0.0, []
    for task, each in found.items():
        loads.append(f"{each['load']:.1f}")
        for name in OPTIMIZERS[1:]:
            cpu, wall = (median(ratios(each[c], name, "adam")) for c in ("cpu", "wall"))
            worst = max(worst, abs(cpu / wall - 1))
            cells = [f"{cpu:.3f}", f"{wall:.3f}", f"{100 * (cpu / wall - 1):+.1f} %"]
            rows.append([TASKS[task], METHODS[name], *cells])
    verdict = "agree" if worst <= WITHIN else "do not agree"
    notes = [
        f"The two ratios {verdict} within {100 * WITHIN:g} %: they differ by at most "
        f"{100 * worst:.1f} %. Ten iterations, one with a refresh, at learning rate zero; "
        f"medians over {4 * ROUNDS[space.scale]} interleaved rounds.",
        f"Load average of the machine: {', '.join(loads)}.",
    ]
    columns = ["data set", "method", "CPU seconds / Adam's", "wall seconds / Adam's", "difference"]
    return Result([Table("Ten iterations by two clocks.", columns, rows)], notes)


CLOCKS = measured_item("clocks", (), "CPU seconds and wall seconds", clock_jobs, clocks)
