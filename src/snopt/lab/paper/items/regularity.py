"""Regularity of trained flows: evaluations, and the integrals of ‖∇F‖² and ‖F‖²."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint import NeuralODE
from snopt.lab.config import Experiment, Scale
from snopt.lab.paper.arms import Arm, Columns, arm_jobs, arm_table, trainings, tuned_arms
from snopt.lab.paper.item import Item, Result, Space
from snopt.lab.paper.jobs import Job, Measurement, failure
from snopt.lab.paper.names import TASKS, metric_text
from snopt.lab.paper.published import published
from snopt.lab.paper.scales import cut_notes
from snopt.lab.recipes.build import build_parts, build_task
from snopt.lab.report.summary import stat
from snopt.lab.train import load_checkpoint
from snopt.models import ImageClassifier
from snopt.models.regularity import regularity

TASK: dict[Scale, str] = {"smoke": "digits", "cpu": "mnist", "full": "svhn"}
"""The paper uses SVHN, of which scale ``cpu`` has only a few digits."""
EXAMPLES = 512
BATCH = 128
PAPER = published("table:reg")


def arms_of(space: Space) -> list[Arm]:
    """Return the trained methods."""
    return tuned_arms(space, TASK[space.scale], ("adam", "snopt_amortized", "snopt"))


def measurements(arm: Arm) -> list[Measurement]:
    """Return a job for each run of an arm that finished."""
    made = []
    for run in trainings([arm]):
        if failure(run.folder) is None:
            folder = arm.space.measurement(f"reg-{arm.config.task}-{run.folder.name}")
            # A run that is made again has to be measured again.
            settings = (run.stamp, EXAMPLES, BATCH)
            work = partial(measure, run.config, run.folder)
            made.append(Measurement(folder, work, settings, ("base", "ode", "adjoint", "models")))
    return made


def jobs(space: Space) -> list[Job]:
    """Return tuning and trainings, and then the measurements of the trained models."""
    arms = arms_of(space)
    made = arm_jobs(arms)
    if all(job.done() for job in made):
        made += [job for arm in arms for job in measurements(arm)]
    return made


def measure(config: Experiment, run: Path) -> dict[str, Any]:
    """Measure the trained model of a run folder on test examples.

    Returns:
        ``nfe``, the mean number of evaluations of a forward solve, and the two integrals.
    """
    whole = build_task(config).test
    assert whole is not None
    test = whole.take(EXAMPLES)
    model = build_parts(config, test.spec).model.eval()
    saved = load_checkpoint(run)
    if saved is None:
        raise FileNotFoundError(f"{run} holds no checkpoint; remove the folder to train again")
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
    """Return the block of a classifier and its initial states."""
    if isinstance(model, ImageClassifier):
        return model.block, model.stem(x)
    assert isinstance(model, nn.Sequential)
    assert isinstance(model.block, NeuralODE)
    return model.block, x.flatten(1)


def _mean(arm: Arm, *names: str) -> str:
    """Format the mean over seeds of a measured quantity, or of a sum of several."""
    measured = [job.read() for job in measurements(arm)]
    return metric_text(stat(sum(each[name] for name in names) for each in measured))


COLUMNS: Columns = [
    "method",
    ("NFE", lambda arm: _mean(arm, "nfe")),
    ("regularisation", lambda arm: _mean(arm, "kinetic", "jacobian")),
    ("∫‖∇F‖²", lambda arm: _mean(arm, "jacobian")),
    ("∫‖F‖²", lambda arm: _mean(arm, "kinetic")),
    "test accuracy, %",
    (f"paper, Table {PAPER.number}: NFE", lambda arm: PAPER.text(arm.row, "nfe")),
    ("paper: regularisation", lambda arm: PAPER.text(arm.row, "regularization")),
]


def result(space: Space) -> Result:
    """Collect means over seeds, beside the paper's."""
    task = TASK[space.scale]
    name = TASKS.get(task, task)
    notes = [
        f"Mean over at most {EXAMPLES} test examples: evaluations of a forward solve at the "
        f"tolerance of training, in batches of {BATCH}; integrals at tolerance 1e-5, the "
        "Jacobian's from one draw of signs per example."
    ]
    if task != "svhn":
        notes.append(f"{name} stands in for the paper's SVHN; compare methods only.")
    if space.scale == "cpu":
        notes += cut_notes([task], space.scale)
    return Result([arm_table(f"Trained flows on {name}.", arms_of(space), COLUMNS)], notes)


REGULARITY = Item("reg", ("table:reg",), "Regularity of trained flows", jobs, result)
