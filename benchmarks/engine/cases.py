"""The workloads that the engine is measured on.

A :class:`Workload` is a model around one field. It receives the ``flow`` that
integrates the field, so that every library runs the same code around the solve::

    workload = build("image")
    loss = workload(flow, workload.inputs)      # flow: state at 0 -> state at 1

Freshly initialised fields are almost linear and take a step or two. To resemble a trained network,
the weights of the field are multiplied by a gain (:data:`CASES`) after PyTorch's initialisation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.engine.fields import (
    AutogradFlow,
    ConvField,
    SquashNet,
    TangentFlow,
    TanhField,
    amplify,
)

Flow = Callable[[Any], Any]
"""Takes the state (a tensor or a tuple of tensors) at time 0 to the state at time 1."""
Gradients = dict[str, Tensor]
"""Two tensors in float64: ``parameters`` of the field as one vector, and ``inputs``."""

CLASSES = 10


class Workload(nn.Module):
    """A model around one field, with its inputs and the tolerance of its solve.

    The loss is a mean over samples that do not influence one another.

    Attributes:
        field: the vector field, integrated from time 0 to time 1.
        inputs: inputs of the model; gradients are taken with respect to them.
        tolerance: both ``rtol`` and ``atol``.
        batch: number of samples.
        sample_axes: the buffers with one entry per sample, and its axis.
    """

    field: nn.Module
    inputs: Tensor
    sample_axes: dict[str, int]

    def __init__(self, tolerance: float, batch: int) -> None:
        super().__init__()
        self.tolerance, self.batch = tolerance, batch

    def gradients(self, inputs: Tensor) -> Gradients:
        """Return the gradients that a backward pass has left."""
        flat = torch.cat([p.grad.double().flatten() for p in self.field.parameters()])
        return {"parameters": flat, "inputs": inputs.grad.double()}

    def part(self, start: int, size: int) -> Workload:
        """Return a copy that computes the part of the loss that belongs to a few samples.

        The losses of all parts, and so their gradients, add up to those of the whole.
        """
        part = copy.deepcopy(self)
        for name, axis in self.sample_axes.items():
            owner, _, attribute = name.rpartition(".")
            module = part.get_submodule(owner)
            module.register_buffer(attribute, getattr(module, attribute).narrow(axis, start, size))
        return part


class Image(Workload):
    """A convolutional block, mean pooling and a linear read-out; cross-entropy."""

    sample_axes = {"inputs": 0, "labels": 0}

    def __init__(self, tolerance: float, batch: int, channels: int, side: int) -> None:
        super().__init__(tolerance, batch)
        self.field = ConvField(channels)
        self.head = nn.Linear(channels, CLASSES)
        self.register_buffer("inputs", torch.randn(batch, channels, side, side))
        self.register_buffer("labels", torch.randint(CLASSES, (batch,)))

    def forward(self, flow: Flow, inputs: Tensor) -> Tensor:
        """Return the loss of images ``inputs``, (batch, channels, side, side)."""
        logits = self.head(functional.relu(flow(inputs)).mean(dim=(2, 3)))
        return functional.cross_entropy(logits, self.labels, reduction="sum") / self.batch


class OdeRnn(Workload):
    """A GRU cell at every reading and one solve between readings; cross-entropy."""

    sample_axes = {"inputs": 1, "labels": 0}

    def __init__(
        self, tolerance: float, batch: int, intervals: int, channels: int, width: int
    ) -> None:
        super().__init__(tolerance, batch)
        self.width = width
        self.field = TanhField(width)
        self.cell = nn.GRUCell(channels, width)
        self.head = nn.Linear(width, CLASSES)
        self.register_buffer("inputs", torch.randn(intervals, batch, channels))
        self.register_buffer("labels", torch.randint(CLASSES, (batch,)))

    def forward(self, flow: Flow, inputs: Tensor) -> Tensor:
        """Return the loss of series ``inputs``, (intervals, batch, channels)."""
        x = self.cell(inputs[0], inputs.new_zeros(inputs.shape[1], self.width))
        if hasattr(flow, "chain"):
            x = flow.chain(_observed, x, [(self.cell, reading) for reading in inputs[1:]])
        else:
            for reading in inputs[1:]:
                x = self.cell(reading, flow(x))
        x = flow(x)
        return functional.cross_entropy(self.head(x), self.labels, reduction="sum") / self.batch


def _observed(x: Tensor, start: Tensor, cell: nn.Module, reading: Tensor) -> Tensor:
    return cell(reading, x)


class Cnf(Workload):
    """A continuous normalising flow; minus the mean log-likelihood."""

    sample_axes = {"inputs": 0, "field.noise": 0}

    def __init__(
        self, tolerance: float, batch: int, sizes: tuple[int, ...], activation: str, form: str
    ) -> None:
        super().__init__(tolerance, batch)
        net = SquashNet(sizes, activation)
        noise = torch.randn(batch, sizes[0])
        self.field = {"autograd": AutogradFlow, "tangent": TangentFlow}[form](net, noise)
        self.register_buffer("inputs", torch.randn(batch, sizes[0]))

    def forward(self, flow: Flow, inputs: Tensor) -> Tensor:
        """Return the loss of points ``inputs``, (batch, dimensions)."""
        x, log_ratio = flow((inputs, inputs.new_zeros(len(inputs))))
        normal = torch.distributions.Normal(0.0, 1.0)
        log_likelihood = normal.log_prob(x).sum(dim=1) - log_ratio
        return -log_likelihood.sum() / self.batch


@dataclass(frozen=True)
class Case:
    """How to build one workload.

    Attributes:
        make: creates the workload, given the form of its field.
        gain: factor of the weights of the field.
        forms: forms of the field, the usual one first.
    """

    make: Callable[[str], Workload]
    gain: float
    forms: tuple[str, ...] = ("plain",)


FLOW_FORMS = ("autograd", "tangent")

CASES = {
    "image": Case(lambda form: Image(1e-3, batch=128, channels=64, side=7), gain=3.0),
    "ode_rnn": Case(
        lambda form: OdeRnn(1e-3, batch=128, intervals=92, channels=27, width=32), gain=1.5
    ),
    "cnf_miniboone": Case(
        lambda form: Cnf(1e-6, 128, (43, 860, 860, 43), "softplus", form), 3.0, FLOW_FORMS
    ),
    "cnf_gas": Case(
        lambda form: Cnf(1e-6, 1000, (8, 160, 160, 160, 8), "tanh", form), 2.0, FLOW_FORMS
    ),
    "cnf_miniboone_small": Case(
        lambda form: Cnf(1e-6, 128, (43, 128, 128, 43), "softplus", form), 3.0, FLOW_FORMS
    ),
}
"""The four workloads of the tables, and a smaller one for comparisons of source trees."""


def build(name: str, form: str | None = None, seed: int = 0) -> Workload:
    """Build the workload ``name``; the same seed gives the same numbers in every form."""
    case = CASES[name]
    form = form or case.forms[0]
    if form not in case.forms:
        raise ValueError(f"{name} has no form {form!r}; it has {', '.join(case.forms)}")
    torch.manual_seed(seed)
    workload = case.make(form)
    amplify(workload.field, case.gain)
    return workload
