"""Seconds and memory of an iteration: Adam, SGD and SNOpt on the nine data sets."""

from __future__ import annotations

import statistics
from dataclasses import asdict, replace
from typing import Any

from snopt.lab.config import Experiment, Scale
from snopt.lab.paper.arms import OPTIMIZERS, tasks_of
from snopt.lab.paper.curves import clean, legend
from snopt.lab.paper.item import Cell, Item, Result, Space, Table
from snopt.lab.paper.iterations import amortised, measure_iterations, typical_ratio
from snopt.lab.paper.jobs import Measurement
from snopt.lab.paper.names import METHODS, TASKS, color_of
from snopt.lab.paper.published import PublishedTable, published
from snopt.lab.paper.scales import configuration

__all__ = ["COMPLEXITY"]

ROUNDS: dict[Scale, int] = {"smoke": 2, "cpu": 5, "full": 20}
COMPARED = ("snopt_amortized", "snopt")
PAPER = "paper's own"


def configs_of(task: str, scale: Scale) -> dict[str, Experiment]:
    """Return what is measured of a task: its configurations without compiling."""
    made = {name: configuration(task, name, scale) for name in OPTIMIZERS}
    return {
        name: replace(config, solver=replace(config.solver, compile=False))
        for name, config in made.items()
    }


def measurement(space: Space, task: str) -> Measurement:
    """Return the job of one data set."""

    def measure() -> dict[str, Any]:
        configs = configs_of(task, space.scale)
        found = measure_iterations(configs, ROUNDS[space.scale])
        return {**found, "model": asdict(configs["adam"].model)}

    settings = (configs_of(task, space.scale), ROUNDS[space.scale])
    return Measurement(space.measurement(f"complexity-{task}"), measure, settings)


def measurements(space: Space) -> dict[str, Measurement]:
    """Return the job of every data set."""
    return {task: measurement(space, task) for task in tasks_of(space)}


def result(space: Space) -> Result:
    """Gather seconds and megabytes, and their ratios to Adam's."""
    runtime, memory = published("table:runtime"), published("table:memory")
    seconds: dict[str, dict[str, list[float]]] = {}
    megabytes: dict[str, dict[str, list[float]]] = {}
    refreshes: list[list[Cell]] = []
    for task, job in measurements(space).items():
        found = job.read()
        every = found["refresh_every"]
        times = found["seconds"]
        seconds[task] = {name: amortised(times[name], every[name]) for name in OPTIMIZERS}
        megabytes[task] = {name: [found["megabytes"][name]] for name in OPTIMIZERS}
        for name in COMPARED:
            plain, refresh = (statistics.median(times[name][k]) for k in ("plain", "refresh"))
            refreshes.append([TASKS[task], METHODS[name], plain, refresh, f"{every[name]}"])
    tables = [
        cost_table("Seconds an iteration, refreshes shared out", seconds, runtime),
        cost_table("Megabytes of an iteration", megabytes, memory),
        Table(
            "Iterations of SNOpt without and with a refresh.",
            ["data set", "method", "seconds, plain", "seconds, refresh", "refreshed every"],
            refreshes,
        ),
    ]
    curves = {"runtime": bars(seconds, runtime), "memory": bars(megabytes, memory)}
    return Result(tables, notes(space), curves)


def cost_table(
    caption: str, costs: dict[str, dict[str, list[float]]], paper: PublishedTable
) -> Table:
    """Set costs beside their ratios to Adam's, and those beside the paper's.

    Args:
        caption: what the costs are.
        costs: by data set and method, a value a round.
        paper: the table with the paper's own.
    """
    columns = ["data set", *(METHODS[name] for name in OPTIMIZERS)]
    columns += [f"{METHODS[name]} / Adam" for name in COMPARED]
    columns += [f"paper, Table {paper.number}: SNOpt / Adam"]
    rows: list[list[Cell]] = []
    for task, found in costs.items():
        cells: list[Cell] = [statistics.median(found[name]) for name in OPTIMIZERS]
        ratios = [f"{typical_ratio(found[name], found['adam']):.2f}" for name in COMPARED]
        rows.append([TASKS[task], *cells, *ratios, paper.text("ratio", task)])
    return Table(f"{caption}.", columns, rows)


def bars(costs: dict[str, dict[str, list[float]]], paper: PublishedTable) -> dict[str, Any]:
    """Return ratios to Adam by method and data set, the paper's with them."""
    made: dict[str, Any] = {
        METHODS[name]: {
            TASKS[task]: typical_ratio(found[name], found["adam"]) for task, found in costs.items()
        }
        for name in COMPARED
    }
    theirs = {task: paper.value("ratio", task) for task in costs}
    made[PAPER] = {TASKS[task]: value and value.value for task, value in theirs.items()}
    return made


def notes(space: Space) -> list[str]:
    """Say how it was measured."""
    found = {task: job.read() for task, job in measurements(space).items()}
    machine = next(iter(found.values()))["environment"]
    said = [
        f"{ROUNDS[space.scale]} rounds, in each every method in turn; medians, and of ratios the "
        f"median over rounds. {machine['device']}, {machine['threads']} of {machine['cores']} "
        "cores. On a CPU seconds are those that its cores worked, added up.",
        "Learning rates are zero, so that all methods do the same solves, and forward and backward "
        "pass without a refresh count alike for all; the paper measured while training, where the "
        "number of evaluations differs.",
        "Memory is that of model, optimizer and one iteration (a refresh, for SNOpt). The paper's "
        "values are those of a whole process on a GPU (1.13 GB with the small model of Circle), "
        "a fixed part that draws its ratios towards 1.",
        "SNOpt (default) refreshes more often in the beginning of a run.",
    ]
    if space.scale == "cpu":
        said.append("Series models are not compiled here.")
    for task, each in found.items():
        whole = configuration(task, "adam", "full").model
        said += [
            f"{TASKS[task]}: {name} {each['model'][name]} instead of {getattr(whole, name)}"
            for name in ("width", "stacks")
            if each["model"][name] != getattr(whole, name)
        ]
    return said


def draw(figure: Any, found: Result) -> None:
    """Draw two bar charts: time and memory relative to Adam."""
    figure.set_size_inches(9, 3.2)
    for axis, (title, methods) in zip(figure.subplots(1, 2), found.curves.items(), strict=True):
        width = 0.8 / len(methods)
        for k, (method, ratios) in enumerate(methods.items()):
            places = [i + (k - (len(methods) - 1) / 2) * width for i in range(len(ratios))]
            color = "#c9ced6" if method == PAPER else color_of(method)
            axis.bar(places, list(ratios.values()), width, color=color, label=method)
        tasks = list(next(iter(methods.values())))
        axis.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right", fontsize=8)
        axis.set_axisbelow(True)
        axis.axhline(1, color="black", linestyle="--", linewidth=0.8)
        clean(axis, "", "relative to Adam", title)
    legend(figure, 3)


COMPLEXITY = Item(
    "complexity",
    ("fig:complexity", "table:runtime", "table:memory"),
    "Seconds and memory of an iteration",
    lambda space: list(measurements(space).values()),
    result,
    draw,
)
