"""How regular the trained flows are: evaluations, and the integrals of ‖∇F‖² and ‖F‖²."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint import NeuralODE
from snopt.lab.config import Experiment, OptimizerName, Scale
from snopt.lab.paper.arms import Arm, Found, arm_table, trainings, tuned_arms
from snopt.lab.paper.item import Cell, Item, Job, Result, Space
from snopt.lab.paper.jobs import Measurement, failure
from snopt.lab.paper.names import TASKS, stat_text
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import SEEDS, cut_note
from snopt.lab.recipes.build import build_parts, build_task
from snopt.lab.report.summary import stat
from snopt.lab.train import load_checkpoint
from snopt.models import ImageClassifier
from snopt.models.regularity import regularity

__all__ = ["REGULARITY"]

OPTIMIZERS: tuple[OptimizerName, ...] = ("adam", "snopt_amortized", "snopt")
TASK: dict[Scale, str] = {"smoke": "digits", "cpu": "mnist", "full": "svhn"}
"""SVHN is the paper's; at scale ``cpu`` only a few of its digits are at hand."""
EXAMPLES = 512
BATCH = 128


def arms_of(space: Space) -> list[Arm]:
    """Return the trained methods."""
    return tuned_arms(space, TASK[space.scale], OPTIMIZERS)


def measurements(space: Space, arm: Arm) -> list[Measurement]:
    """Return a job for each run of an arm that could be finished."""
    made = []
    for seed in range(SEEDS[space.scale]):
        run = arm.folder(space, seed)
        if failure(run) is None:
            folder = space.measurement(f"reg-{arm.config.task}-{run.name}")
            settings = (arm.config, seed, EXAMPLES, BATCH)
            made.append(Measurement(folder, partial(measure, arm.config, run), settings))
    return made


def jobs(space: Space) -> list[Job]:
    """List tuning and trainings, then what is measured on the trained models."""
    arms = arms_of(space)
    runs = trainings(space, arms)
    made: list[Job] = [*(job for arm in arms for job in arm.tuning), *runs]
    if all(run.done() for run in runs):
        made += [job for arm in arms for job in measurements(space, arm)]
    return made


def measure(config: Experiment, run: Path) -> dict[str, Any]:
    """Measure the trained model of a run on test examples.

    Args:
        config: its experiment.
        run: its folder.

    Returns:
        ``nfe``, the mean over batches of a forward solve's evaluations, and the two integrals.
    """
    whole = build_task(config).test
    assert whole is not None
    test = whole.take(EXAMPLES)
    model = build_parts(config, test.spec).model.eval()
    saved = load_checkpoint(run)
    if saved is None:
        raise FileNotFoundError(f"{run} holds no checkpoint; remove the folder to train anew")
    model.load_state_dict(saved["model"])
    evaluations, found = [], []
    solver = {"method": config.solver.method, "rtol": 1e-5, "atol": 1e-5}
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for batch in test.batches(BATCH):
            block, x = block_and_state(model, batch.x)
            block(x)
            evaluations.append(block.stats.nfe_forward)
            found.append((regularity(block, x, generator=generator, **solver), len(x)))
    total = sum(count for _, count in found)
    return {
        "nfe": statistics.fmean(evaluations),
        "kinetic": sum(each.kinetic * count for each, count in found) / total,
        "jacobian": sum(each.jacobian * count for each, count in found) / total,
    }


def block_and_state(model: nn.Module, x: Tensor) -> tuple[NeuralODE, Tensor]:
    """Return a classifier's block, and the states that it starts from."""
    if isinstance(model, ImageClassifier):
        return model.block, model.stem(x)
    assert isinstance(model, nn.Sequential)
    assert isinstance(model.block, NeuralODE)
    return model.block, x.flatten(1)


def result(space: Space) -> Result:
    """Gather means over seeds, beside the paper's."""
    paper = published("table:reg")

    def mean(*names: str) -> Callable[[Found], Cell]:
        def cell(found: Found) -> Cell:
            measured = [job.read() for job in measurements(space, found.arm)]
            return stat_text(stat(sum(each[name] for name in names) for each in measured))

        return cell

    columns = {
        "method": None,
        "NFE": mean("nfe"),
        "regularisation": mean("kinetic", "jacobian"),
        "∫‖∇F‖²": mean("jacobian"),
        "∫‖F‖²": mean("kinetic"),
        "test accuracy, %": None,
        f"paper, Table {paper.number}: NFE": lambda found: paper.text(found.arm.row, "nfe"),
        "paper: regularisation": lambda found: paper.text(found.arm.row, "regularization"),
    }
    task = TASK[space.scale]
    caption = f"Trained flows on {TASKS.get(task, task)}."
    found = [Found(space, arm) for arm in arms_of(space)]
    return Result([arm_table(caption, found, columns)], notes(space))


def notes(space: Space) -> list[str]:
    """Say what was measured on what."""
    task = TASK[space.scale]
    said = [
        f"Mean over {EXAMPLES} test examples at most: evaluations of a forward solve at the "
        f"tolerance of training, in batches of {BATCH}; integrals at tolerance 1e-5, the "
        "Jacobian's from one draw of signs an example.",
    ]
    if task != "svhn":
        said.append(
            f"{TASKS.get(task, task)} stands in for the paper's SVHN; compare methods only."
        )
    if space.scale == "cpu":
        said.append(cut_note(task, space.scale))
    return said


REGULARITY = Item(
    "reg",
    ("table:reg",),
    "Regularity of trained flows",
    jobs,
    result,
)
