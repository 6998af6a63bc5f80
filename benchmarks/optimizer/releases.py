"""The default optimizer before and after: ``SNOpt(model)`` of another source tree and of this one.

    python -m benchmarks.optimizer releases --against ../first/src
    python -m benchmarks.optimizer releases --against ../first/src --tasks digits --updates 50

Each tree trains in its own process, on one thread, with default settings: the same data, initial
weights, batches and CPU seconds (without evaluation). Solver and adjoint are the trees' own too.
Adam of torch in this tree is a reference; its rate is the best of four by validation loss. Runs
are judged by at most 1,000 validation examples, at averaged weights if a tree has them; test
examples are never touched.

The results are written after every run. A run is made again if its settings, its tree or the code
that trains (``worker.py``) have changed. ``python -m benchmarks.optimizer page`` writes the table.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import snopt
from benchmarks.engine.against import process_of
from benchmarks.files import RESULTS, read, save
from benchmarks.optimizer.standings import number
from benchmarks.optimizer.tasks import RATES, Task, experiment
from benchmarks.optimizer.worker import COLUMNS, Described, Examples, Run, trained
from snopt.lab.config import Experiment
from snopt.lab.data import Batch, Spec
from snopt.lab.paper.version import code_version, stamp
from snopt.lab.recipes.build import CNF_SETTINGS, build_parts, build_task, solver_options
from snopt.lab.table import markdown

TASKS = {
    "digits": Task("digits", 4),
    "two_moons": Task("two_moons", 6),
    "spirals": Task("spirals", 8),
    "mnist16": Task("mnist", 30, ("model.width=16",)),
    "spoken_arabic_digits": Task("spoken_arabic_digits", 30),
    # The first versions have no other variance.
    "circle": Task("circle", 30, ("model.base_variance=1.0",)),
    "miniboone": Task("miniboone", 30, ("model.width=128",)),
}
SEEDS = 2
BEFORE, AFTER = "before", "after"
FILE = RESULTS / "releases.json"


@dataclass(frozen=True)
class Arm:
    """One way to train: SNOpt of a tree, or Adam with a rate.

    Attributes:
        name: its name in the results.
        process: the process of its tree.
        code: the digest of its tree.
        rate: learning rate of Adam; None for SNOpt.
    """

    name: str
    process: Executor
    code: str
    rate: float | None = None


def arms(trees: dict[str, tuple[Path, Executor]], rates: Sequence[float]) -> list[Arm]:
    """List SNOpt of both trees, and Adam of this tree with each rate."""
    snopts = [Arm(name, process, digest(source)) for name, (source, process) in trees.items()]
    ours = snopts[-1]
    return [*snopts, *(Arm(f"adam {rate:g}", ours.process, ours.code, rate) for rate in rates)]


def digest(source: Path) -> str:
    """Digest the code that a run depends on: of a tree without its laboratory, and the worker."""
    package = source / "snopt"
    names = sorted(path.name for path in package.iterdir() if (path / "__init__.py").exists())
    tree = code_version(tuple(name for name in names if name != "lab"), package)
    return f"{tree}-{code_version(('worker.py',), Path(__file__).parent)}"


def described(config: Experiment, spec: Spec) -> Described:
    """Describe the model of an experiment by a call that old trees have."""
    model, solver, shape = config.model, solver_options(config.solver), spec.shape
    if model.kind == "flow":
        size = torch.Size(shape).numel()
        return "flow", (size, model.width, model.layers + 1, spec.classes), solver
    if model.kind == "image":
        return "image", (shape[0], spec.classes, model.width), solver
    if model.kind == "series":
        del solver["horizon"]
        return "ODERNN", (shape[-1], spec.classes, model.width), solver
    settings = {name: getattr(model, name) for name in CNF_SETTINGS}
    if settings["base_variance"] == 1.0:
        del settings["base_variance"]  # the default, and no argument of old trees
    return "CNF", (shape[0], (model.width,) * model.layers), {**settings, **solver}


def tensors(batch: Batch) -> Examples:
    """Return the tensors of a batch by name."""
    return {name: tensor for name, tensor in vars(batch).items() if tensor is not None}


def prepared(config: Experiment, rate: float | None, budget: tuple[str, float]) -> Run:
    """Load data and create initial weights with the laboratory of this tree."""
    task, seed = build_task(config), config.train.seed
    spec = task.train.spec
    weights = build_parts(config, spec).model.state_dict()
    train, valid = tensors(task.train.tensors), tensors(task.valid.tensors)
    size = config.train.batch_size
    return Run(described(config, spec), weights, train, valid, size, seed, rate, budget)


def do(found: dict[str, Any], name: str, seed: int, arm: Arm, budget: tuple[str, float]) -> bool:
    """Make a run unless the results have it; return whether it was made."""
    # The rate of SNOpt is there for completeness: each tree uses its own default.
    method, rate = ("snopt", RATES["snopt"][0]) if arm.rate is None else ("adam", arm.rate)
    config = experiment(TASKS[name], method, rate, seed, budget, "tune")
    made_by = {**stamp(config, ()), "code": arm.code}
    runs = found.setdefault(name, {}).setdefault(arm.name, {})
    if runs.get(str(seed), {}).get("stamp") == made_by:
        return False
    result = arm.process.submit(trained, prepared(config, arm.rate, budget)).result()
    if arm.rate is not None:
        result["curve"] = result["curve"][-1:]  # only its end is shown
    runs[str(seed)] = {"stamp": made_by, "budget": budget, **result}
    last = dict(zip(COLUMNS, result["curve"][-1], strict=True)) if result["curve"] else {}
    print(f"{name} {arm.name} seed {seed}: {last} {result.get('failed', '')}", flush=True)
    return True


# -------------------------------------------------------------------------------------- table


Made = dict[str, dict[str, Any]]
"""The runs of one arm on one task, by seed."""


def column(curve: Sequence[Sequence[float | None]], name: str) -> list[float]:
    """Return a column of a curve; NaN where there is nothing, or was no number."""
    values = [row[COLUMNS.index(name)] for row in curve]
    return [math.nan if value is None else value for value in values]


def end(run: dict[str, Any], name: str) -> float:
    """The last value of a column; NaN if there is none."""
    return [*column(run["curve"][-1:], name), math.nan][0]


def final(run: dict[str, Any]) -> float:
    """The validation loss at the end; infinite if the run failed or the loss is not finite."""
    loss = math.nan if "failed" in run else end(run, "valid_loss")
    return loss if math.isfinite(loss) else math.inf


def loss(made: Made) -> float:
    """The final validation loss, over seeds; infinite if a run failed."""
    return fmean(map(final, made.values()))


def last(made: Made, name: str) -> float:
    """The last value of a column, over seeds; NaN if a run has none."""
    return fmean(end(run, name) for run in made.values())


def outcome(made: Made) -> str:
    """Write loss and accuracy, or how many runs failed."""
    failed = sum(math.isinf(final(run)) for run in made.values())
    if failed:
        return f"{failed} of {len(made)} failed"
    accuracy = last(made, "accuracy")
    return number(loss(made)) + ("" if math.isnan(accuracy) else f" ({accuracy:.1%})")


def overtaking(before: Made, after: Made) -> str:
    """CPU seconds of ``after`` to the final training loss of ``before``, over seeds."""
    found = []
    for seed, run in before.items():
        curve = after.get(seed, {"curve": []})["curve"]
        target = column(run["curve"][-1:], "loss") if math.isfinite(final(run)) else []
        places = zip(column(curve, "seconds"), column(curve, "loss"), strict=True)
        found += [seconds for seconds, value in places if [value] <= target][:1]
    if len(found) == len(before):
        return number(fmean(found))
    return f"{len(found)} of {len(before)} seeds" if found else "–"


def table(found: dict[str, Any]) -> str:
    """Tabulate the tasks: validation of each arm, updates, training loss, seconds to the old one.

    A training loss is the mean over the last tenth of the budget.
    """
    header = [
        "task", "budget", "before", "after", "Adam, best rate", "updates", "training loss",
        "CPU s to the training loss before",
    ]  # fmt: skip
    lines = []
    for task in (name for name in TASKS if {BEFORE, AFTER} <= found.get(name, {}).keys()):
        adams = {name: made for name, made in found[task].items() if name not in (BEFORE, AFTER)}
        before, after = both = found[task][BEFORE], found[task][AFTER]
        best = min(adams, key=lambda name: loss(adams[name]), default=None)
        unit, amount = next(iter(after.values()))["budget"]
        line = [f"`{task}`", f"{amount:g} {'s' if unit == 'seconds' else unit}"]
        line += map(outcome, both)
        line += [f"{outcome(adams[best])}, {best.partition(' ')[2]}" if best else "–"]
        line += [
            " → ".join(number(last(made, name)) for made in both) for name in ("updates", "loss")
        ]
        lines.append([*line, overtaking(before, after)])
    return markdown(header, lines)


# ------------------------------------------------------------------------------------ command


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--against", type=Path, required=True, help="src folder of the other tree")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many, from 0")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--seconds", type=float, help="CPU seconds of a run; default: the task's")
    budget.add_argument("--updates", type=int, help="updates of a run, in place of seconds")
    parser.add_argument("--adam", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, default=FILE)


def main(chosen: argparse.Namespace) -> None:
    """Make the runs that are missing, and show the table."""
    sources = chosen.against.expanduser().resolve(), Path(snopt.__file__).resolve().parents[1]
    with process_of(sources[0]) as there, process_of(sources[1]) as here:
        trees = dict(zip((BEFORE, AFTER), zip(sources, (there, here), strict=True), strict=True))
        ways = arms(trees, RATES["adam"] if chosen.adam else ())
        found = read(chosen.out).get("tasks", {})
        for seed, name, arm in product(range(chosen.seeds), chosen.tasks, ways):
            amount = chosen.updates or chosen.seconds or TASKS[name].seconds
            if do(found, name, seed, arm, ("updates" if chosen.updates else "seconds", amount)):
                save(chosen.out, {"tasks": found})
    print(table(found))
