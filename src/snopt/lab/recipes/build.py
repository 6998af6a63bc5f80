"""Build the task and the parts of an experiment."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from snopt.adjoint import NeuralODE
from snopt.adjoint.blocks import blocks_of
from snopt.base.errors import InvalidOption
from snopt.horizon import HorizonOptimizer
from snopt.lab.config import Experiment, ModelConfig, SolverConfig
from snopt.lab.data import DataCorrupted, Dataset, Spec, Splits, load
from snopt.lab.optimizers import make_optimizers, make_schedulers
from snopt.lab.recipes.tasks import Classification, Density
from snopt.lab.train import Parts, seed_all
from snopt.models import CNF, ODERNN, ImageClassifier, ResidualClassifier
from snopt.models.fields import TanhField


def build(
    config: Experiment, device: torch.device | str = "cpu"
) -> tuple[Classification | Density, Parts]:
    """Build the task and the parts of an experiment.

    The initial weights depend on the seed and the model only: all optimizers start from the same.
    """
    task = build_task(config)
    return task, build_parts(config, task.train.spec, device)


def build_task(config: Experiment) -> Classification | Density:
    """Load the data of an experiment and check it."""
    data_root = os.environ.get("SNOPT_DATA")
    data = config.data
    splits = _loaded(load, data.name, data.preprocessing, data_root)
    if not data.hold_out:
        splits = replace(splits, train=splits.train.joined(splits.valid), valid=splits.test)
    splits = replace(
        splits,
        train=_at_most(splits.train, data.examples),
        valid=_at_most(splits.valid, data.examples, data.valid_examples),
        test=_at_most(splits.test, data.examples, data.test_examples),
    )
    check(splits)
    kind = Density if config.model.kind == "density" else Classification
    test = None if data.test_examples == 0 else splits.test
    return kind(config.task, splits.train, splits.valid, test)


@lru_cache(maxsize=1)
def _loaded(read: Callable[..., Splits], name: str, preprocessing: str, root: str | None) -> Splits:
    """Read a data set once for many runs; no run changes it."""
    return read(name, root, preprocessing=preprocessing)


def _at_most(examples: Dataset, *limits: int | None) -> Dataset:
    counts = [limit for limit in limits if limit is not None]
    return examples.take(min(counts)) if counts else examples


def check(splits: Splits) -> None:
    """Refuse data of the wrong shape or with values that are not finite."""
    for name in ("train", "valid", "test"):
        x = getattr(splits, name).tensors.x
        shape, where = tuple(x.shape[1:]), f"{splits.spec.name}, {name}"
        if shape != splits.spec.shape:
            reason = f"examples have the shape {shape}, but {splits.spec.shape} is expected"
            raise DataCorrupted(where, reason)
        bad = ~torch.isfinite(x).flatten(1).all(dim=1)
        if bad.any():
            first = int(bad.nonzero()[0])
            reason = f"{int(bad.sum())} of {len(bad)} examples hold values that are not finite"
            raise DataCorrupted(where, f"{reason}, the first is number {first}")


def build_parts(config: Experiment, spec: Spec, device: torch.device | str = "cpu") -> Parts:
    """Build the model of an experiment, its optimizers and its schedules."""
    seed_all(config.train.seed, "weights")
    model = build_model(config.model, config.solver, spec).to(device)
    optimizers = make_optimizers(model, config.optimizer)
    horizon = None
    if config.horizon.policy != "fixed":
        horizon = HorizonOptimizer(_only_block(model), **asdict(config.horizon))
    return Parts(model, optimizers, make_schedulers(optimizers, config.optimizer), horizon)


def build_model(config: ModelConfig, solver: SolverConfig, spec: Spec) -> nn.Module:
    """Build a model for data of the given spec."""
    classes = spec.classes or 0
    fits = len(spec.shape) in DIMENSIONS[config.kind]
    if not fits or (classes == 0 and config.kind != "density"):
        raise InvalidOption(
            f"model.kind={config.kind} does not fit {spec.name}, whose examples have the shape "
            f"{spec.shape} and {classes} classes."
        )
    options = solver_options(solver)
    if config.kind == "image":
        return ImageClassifier(spec.shape[0], classes, config.width, **options)
    if config.kind == "residual":
        return ResidualClassifier(spec.shape[0], classes, config.width)
    if config.kind == "series":
        # Its horizon is the time between two observations.
        del options["horizon"]
        return ODERNN(spec.shape[-1], classes, config.width, **options)
    if config.kind == "density":
        settings = {name: getattr(config, name) for name in CNF_SETTINGS}
        return CNF(spec.shape[0], (config.width,) * config.layers, **settings, **options)
    size = torch.Size(spec.shape).numel()
    block = NeuralODE(TanhField(size, config.width, config.layers + 1), **options)
    readout = nn.Linear(size, classes)
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), block=block, readout=readout))


CNF_SETTINGS = (
    "activation", "stacks", "divergence", "hypernetwork", "kinetic", "jacobian", "base_variance",
)  # fmt: skip
DIMENSIONS = {"image": (3,), "residual": (3,), "series": (2,), "density": (1,), "flow": (1, 3)}
"""Dimensions of the examples that each kind of model takes."""


def solver_options(solver: SolverConfig) -> dict[str, Any]:
    """Return the arguments of :class:`snopt.NeuralODE`."""
    options: dict[str, Any] = asdict(solver)
    step_size = options.pop("step_size")
    if step_size is not None:
        options["options"] = {"step_size": step_size}
    return options


def _only_block(model: nn.Module) -> NeuralODE:
    blocks = blocks_of(model)
    if len(blocks) != 1 or isinstance(model, ODERNN):
        raise InvalidOption(
            f"a {type(model).__name__} has no single horizon to learn; use --horizon-policy fixed."
        )
    return blocks[0]
