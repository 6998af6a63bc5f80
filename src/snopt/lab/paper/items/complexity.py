"""Seconds and memory of an iteration: Adam, SGD and SNOpt on the nine data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, TypeAlias

from snopt.lab.config import Experiment, Scale
from snopt.lab.paper.arms import OPTIMIZERS, tasks_of
from snopt.lab.paper.curves import bars, clean, legend
from snopt.lab.paper.item import Cell, Item, Result, Space, Table
from snopt.lab.paper.iterations import measure_clocks, measure_iterations
from snopt.lab.paper.jobs import Measurement
from snopt.lab.paper.names import METHODS, TASKS, color_of
from snopt.lab.paper.published import PublishedTable, published
from snopt.lab.paper.scales import configuration
from snopt.lab.paper.timing import Times, amortised, ratios
from snopt.lab.paper.version import COMPILED, LIBRARY, TRAINING

Measure: TypeAlias = Callable[[Mapping[str, Experiment], int], dict[str, Any]]
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
    space: Space, name: str, tasks: Iterable[str], measure: Measure, rounds: int
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


def result(space: Space) -> Result:
    """Collect seconds and megabytes, and their ratios to Adam's."""
    runtime, memory = published("table:runtime"), published("table:memory")
    seconds: dict[str, Times] = {}
    megabytes: dict[str, Times] = {}
    refreshes: list[list[Cell]] = []
    for task, job in complexity_jobs(space).items():
        found = job.read()
        every, times = found["refresh_every"], found["seconds"]
        seconds[task] = {
            name: amortised(of["plain"], of.get("refresh", of["plain"]), every[name])
            for name, of in times.items()
        }
        megabytes[task] = {name: [found["megabytes"][name]] for name in OPTIMIZERS}
        for name in COMPARED:
            pair = [median(times[name][kind]) for kind in ("plain", "refresh")]
            refreshes.append([TASKS[task], METHODS[name], *pair, f"{every[name]}"])
    tables = [
        cost_table("Seconds per iteration, refreshes included", seconds, runtime),
        cost_table("Megabytes of an iteration", megabytes, memory),
        Table(
            "Iterations of SNOpt without and with a refresh.",
            ["data set", "method", "seconds, plain", "seconds, refresh", "refreshed every"],
            refreshes,
        ),
    ]
    curves = {"runtime": over_adam(seconds, runtime), "memory": over_adam(megabytes, memory)}
    return Result(tables, notes(space), curves)


def cost_table(caption: str, costs: dict[str, Times], paper: PublishedTable) -> Table:
    """Tabulate costs by data set and method, their ratios to Adam's, and the paper's ratios."""
    columns = ["data set", *(METHODS[name] for name in OPTIMIZERS)]
    columns += [f"{METHODS[name]} / Adam" for name in COMPARED]
    columns += [f"paper, Table {paper.number}: SNOpt / Adam"]
    rows: list[list[Cell]] = []
    for task, found in costs.items():
        cells: list[Cell] = [median(found[name]) for name in OPTIMIZERS]
        over = [f"{median(ratios(found, name, 'adam')):.2f}" for name in COMPARED]
        rows.append([TASKS[task], *cells, *over, paper.text("ratio", task)])
    return Table(f"{caption}.", columns, rows)


def over_adam(costs: dict[str, Times], paper: PublishedTable) -> dict[str, Any]:
    """Return ratios to Adam's costs by method and data set, including the paper's."""
    made: dict[str, Any] = {
        METHODS[name]: {
            TASKS[task]: median(ratios(found, name, "adam")) for task, found in costs.items()
        }
        for name in COMPARED
    }
    theirs = {task: paper.value("ratio", task) for task in costs}
    made[PAPER] = {TASKS[task]: value and value.value for task, value in theirs.items()}
    return made


def notes(space: Space) -> list[str]:
    """Return notes on how it was measured."""
    machine = next(iter(complexity_jobs(space).values())).read()["environment"]
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
    figure.set_size_inches(9, 3.2)
    for axis, (title, methods) in zip(figure.subplots(1, 2), found.curves.items(), strict=True):
        tasks = list(next(iter(methods.values())))
        groups = {task: {m: of[task] for m, of in methods.items()} for task in tasks}
        colors = {m: "#c9ced6" if m == PAPER else color_of(m) for m in methods}
        bars(axis, groups, colors)
        axis.tick_params("x", rotation=30, labelsize=8)
        axis.axhline(1, color="black", linestyle="--", linewidth=0.8)
        clean(axis, "", "relative to Adam", title)
    legend(figure, 3)


COMPLEXITY = Item(
    "complexity",
    ("fig:complexity", "table:runtime", "table:memory"),
    "Seconds and memory of an iteration",
    lambda space: list(complexity_jobs(space).values()),
    result,
    draw,
)

# --------------------------------------------------------------------------------- CPU and wall

WITHIN = 0.05
"""Ratios by CPU seconds and by wall seconds are said to agree within this."""


def clock_jobs(space: Space) -> dict[str, Measurement]:
    """Return the measurements by both clocks: on MNIST except at scale ``smoke``, and on Circle."""
    tasks = space.among(("circle",) if space.scale == "smoke" else ("mnist", "circle"))
    return measurements(space, "clocks", tasks, measure_clocks, 4 * ROUNDS[space.scale])


def clocks(space: Space) -> Result:
    """Compare ratios to Adam's by both clocks."""
    rows: list[list[Cell]] = []
    worst, loads = 0.0, []
    for task, job in clock_jobs(space).items():
        found = job.read()
        loads.append(f"{found['load']:.1f}")
        for name in OPTIMIZERS[1:]:
            cpu, wall = (median(ratios(found[c], name, "adam")) for c in ("cpu", "wall"))
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


CLOCKS = Item(
    "clocks",
    (),
    "CPU seconds and wall seconds",
    lambda space: list(clock_jobs(space).values()),
    clocks,
)
