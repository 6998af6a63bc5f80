"""The tasks of the race, in two parts: one to decide by, one to report.

Nothing that is reported may have been looked at while the optimizer was designed. The splits differ
in tasks and in seeds, and each has images, a series and a density. In ``tune`` test examples are
never touched: runs are judged by the validation part.

Every method trains all parameters, without a schedule; the recipes of the laboratory give data,
model, solver and batch size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from torch import nn
from torch.optim import Optimizer

from snopt.lab.config import Experiment, OptimizerConfig, Scale
from snopt.lab.optimizers import find, make_optimizers
from snopt.lab.recipes import recipe, with_settings
from snopt.lab.train import TrainConfig


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        recipe: The recipe of the laboratory.
        seconds: CPU seconds of one run, unless the command line says otherwise.
        settings: What the recipe is changed by.
    """

    recipe: str
    seconds: float
    settings: tuple[str, ...] = ()


SPLITS: dict[str, dict[str, Task]] = {
    "tune": {
        "digits": Task("digits", 4),
        "mnist16": Task("mnist", 60, ("model.width=16",)),
        "spoken_arabic_digits": Task("spoken_arabic_digits", 90),
        "circle": Task("circle", 60),
    },
    "report": {
        "mnist32": Task("mnist", 90, ("model.width=32",)),
        "cifar10": Task("cifar10", 120, ("model.width=16",)),
        "character_trajectories": Task("character_trajectories", 120),
        "miniboone": Task("miniboone", 90, ("model.width=128",)),
        "two_moons": Task("two_moons", 10),
        "spirals": Task("spirals", 10),
    },
}
SEEDS = {"tune": (10, 11), "report": (0, 1, 2)}
HELD_OUT = 1000
"""The most examples that a run is judged by."""
NEVER = 10**9
"""Updates between evaluations: only the final model is judged."""
RATES: dict[str, tuple[float, ...]] = {
    "snopt": (2e-2,),
    "snopt_amortized": (3e-3, 1e-2, 3e-2, 1e-1),
    "adam": (1e-3, 3e-3, 1e-2, 3e-2),
    "adamw": (1e-3, 3e-3, 1e-2, 3e-2),
    "sgd": (1e-2, 3e-2, 1e-1, 3e-1),
    "muon": (3e-3, 1e-2, 3e-2, 1e-1),
    "soap": (1e-3, 3e-3, 1e-2, 3e-2),
}
"""The methods of the race by their names in the laboratory. SNOpt runs at its default rate, the
others at four rates, 3 apart."""


def registered(name: str, model: nn.Module, lr: float) -> list[Optimizer]:
    """Return the optimizers that ``snopt train`` uses, with their usual settings."""
    return make_optimizers(model, OptimizerConfig(name, lr=lr))


def installed(methods: Iterable[str]) -> list[str]:
    """Leave out methods whose package is not installed, and print which."""
    found = []
    for method in methods:
        try:
            registered(method.partition(":")[0], nn.Linear(1, 1), 0.1)
        except ImportError as missing:
            print(f"{method} is left out: {missing}")
        else:
            found.append(method)
    return found


def experiment(
    task: Task,
    method: str,
    lr: float,
    seed: int,
    budget: tuple[str, float],
    split: str = "report",
    scale: Scale = "cpu",
) -> Experiment:
    """Describe one run.

    Args:
        task: What is learnt.
        method: ``"snopt"``, or with settings of its own ``"snopt:momentum=0.5,damping=1e-3"``.
        lr: Learning rate.
        seed: Decides weights, batches and noise.
        budget: ``"updates"`` or ``"seconds"``, and how many.
        split: Test examples are those of ``"report"`` only.
        scale: ``"smoke"`` for the smallest models and data.
    """
    name, _, settings = method.partition(":")
    config = recipe(task.recipe, "adam", scale)
    if scale != "smoke":
        data = replace(config.data, valid_examples=HELD_OUT, test_examples=HELD_OUT)
        config = with_settings(replace(config, data=data), task.settings)
    unit, amount = budget
    length = {"iterations": int(amount)} if unit == "updates" else {"max_cpu_seconds": amount}
    train = TrainConfig(
        **length, batch_size=config.train.batch_size, seed=seed, evaluate_every=NEVER
    )
    config = replace(
        config,
        data=config.data if split == "report" else replace(config.data, test_examples=0),
        optimizer=OptimizerConfig(name, lr=lr, weight_decay=find(name).weight_decay),
        train=train,
    )
    return with_settings(config, [setting for setting in settings.split(",") if setting])
