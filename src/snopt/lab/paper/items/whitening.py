r"""Corollary 4: the preconditioned update is gradient descent on a centred, whitened Neural ODE.

A layer of the field computes :math:`h = W \bar z` with :math:`\bar z = (z, 1)`. Its Kronecker
factors along the path are :math:`A = E[\bar z \bar z^\top]` and :math:`B = E[g g^\top]`, with g the
derivative with respect to h. Take roots with :math:`R_A A R_A^\top = I` and
:math:`R_B B R_B^\top = I` and write the same layer as

.. math:: h = R_B^\top W^\dagger (R_A \bar z), \qquad W = R_B^\top W^\dagger R_A .

Gradient descent on :math:`W^\dagger` changes W by :math:`B^{-1} Q_W A^{-1}`, which is
``eq:layer-kfac``. The inputs :math:`R_A \bar z` and the derivatives :math:`R_B g` of the new layer
are whitened. With the Cholesky factor of A, the constant first, :math:`R_A \bar z` is a constant
and the centred, whitened z. Derivatives are centred only in expectation, for labels drawn from the
model.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from snopt.adjoint import UniformGrid, odeint
from snopt.lab.config import Scale
from snopt.lab.paper.item import Cell, Result, Space, Table, measured_item
from snopt.lab.paper.jobs import Measurement
from snopt.lab.paper.problems import DTYPE, TIMES, SmallMLP

SIZES: dict[Scale, tuple[int, int, int]] = {"smoke": (2, 3, 64), "cpu": (4, 8, 512)}
SIZES["full"] = SIZES["cpu"]
"""Dimension, hidden units and number of points."""
NODES = UniformGrid(20)
SOLVER: dict[str, Any] = {"method": "rk4", "options": {"step_size": 1 / 20}}
LAYERS = ("first", "last")
LABELS = {"data": "labels of the data", "drawn": "labels drawn from the model"}
CODE = ("base", "ode", "adjoint", "lab/paper/problems.py", "lab/paper/items/whitening.py")


class Whitened(nn.Module):
    """A linear layer in coordinates in which its factors A and B are the identity."""

    def __init__(self, linear: nn.Linear, A: Tensor, B: Tensor) -> None:
        super().__init__()
        order = torch.arange(len(A)).roll(1)  # the constant first
        root = torch.linalg.cholesky(A[order][:, order])
        self.R_A: Tensor = torch.linalg.inv(root)[:, order.argsort()]
        self.R_B: Tensor = torch.linalg.inv(torch.linalg.cholesky(B))
        self.inner = nn.Linear(len(A), len(B), bias=False)
        weight = torch.linalg.solve(self.R_B.mT, joined(linear.weight, linear.bias).detach())
        self.inner.weight = nn.Parameter(torch.linalg.solve(self.R_A, weight, left=False))

    def forward(self, z: Tensor) -> Tensor:
        """Evaluate the layer."""
        h: Tensor = self.inner(functional.pad(z, (0, 1), value=1.0) @ self.R_A.mT) @ self.R_B
        return h

    def change(self) -> Tensor:
        """Return the change of weight and bias by a step of gradient descent on ``inner``."""
        made: Tensor = -self.R_B.mT @ _grad(self.inner.weight) @ self.R_A
        return made


def along(
    field: nn.Module, layers: dict[str, nn.Module], x0: Tensor, cost: Callable[[Tensor], Tensor]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return inputs and output derivatives of layers at the nodes of a path.

    All nodes have the same weight. Gradients are left on the field.
    """
    inputs: dict[str, list[Tensor]] = {name: [] for name in layers}
    derivatives: dict[str, list[Tensor]] = {name: [] for name in layers}

    def observe(t: Tensor, weight: float, x: Tensor, Q_x: Tensor, *context: Any) -> None:
        outputs: dict[str, Tensor] = {}

        def keep(name: str, layer: nn.Module, z: tuple[Tensor, ...], h: Tensor) -> None:
            inputs[name].append(z[0].detach())
            outputs[name] = h

        hooks = [layer.register_forward_hook(partial(keep, n)) for n, layer in layers.items()]
        with torch.enable_grad():
            slope = field(t, x.detach())
        for hook in hooks:
            hook.remove()
        found = torch.autograd.grad(slope, [*outputs.values()], Q_x)
        for name, g in zip(outputs, found, strict=True):
            derivatives[name].append(g)

    field.zero_grad()
    observer: Any = SimpleNamespace(quadrature=NODES, observe=observe)
    cost(odeint(field, x0, TIMES, observer=observer, **SOLVER)[-1]).backward()
    return {name: (torch.cat(inputs[name]), torch.cat(derivatives[name])) for name in layers}


def factors(z: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Kronecker factors of a layer with a bias, up to the scale of B."""
    z = functional.pad(z, (0, 1), value=1.0)
    return z.mT @ z / len(z), g.mT @ g / len(g)


def joined(weight: Tensor, bias: Tensor) -> Tensor:
    """Return weight and bias as one matrix."""
    return torch.cat([weight, bias[:, None]], dim=1)


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def spread(rows: Tensor, *, centre: bool) -> dict[str, float]:
    """Return how far rows are from centred and whitened.

    Returns:
        ``mean``, the norm of the mean over the root mean square; and ``condition``, the condition
        number of the covariance, or without ``centre`` of the second moment.
    """
    mean = rows.mean(dim=0)
    about = rows - mean if centre else rows
    size = rows.square().sum(dim=1).mean().sqrt()
    condition = torch.linalg.cond(about.mT @ about / len(rows))
    return {"mean": float(mean.norm() / size), "condition": float(condition)}


def problem(dim: int, width: int, batch: int) -> tuple[SmallMLP, Tensor, dict[str, Any]]:
    """Return a field, initial states and the costs by kind of labels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        field, x0 = SmallMLP(dim, width).to(DTYPE), torch.randn(batch, dim, dtype=DTYPE)
        readout = nn.Linear(dim, 3, dtype=DTYPE).requires_grad_(False)
        with torch.no_grad():
            x1 = odeint(field, x0, TIMES, **SOLVER)[-1]
        drawn = torch.multinomial(readout(x1).softmax(dim=1), 1)[:, 0]

    def cost(labels: Tensor, x: Tensor) -> Tensor:
        return functional.cross_entropy(readout(x), labels)

    labels = {"data": (x0[:, 0] > 0).long(), "drawn": drawn}
    return field, x0, {kind: partial(cost, y) for kind, y in labels.items()}


def measure(dim: int, width: int, batch: int) -> dict[str, Any]:
    """Compare updates and statistics of a field F and its preconditioned form F†.

    Returns:
        A list under ``rows``, one entry per kind of labels and layer: the relative difference of
        the updates, and the statistics of inputs and derivatives of both fields.
    """
    field, x0, costs = problem(dim, width, batch)
    rows = []
    for labels, cost in costs.items():
        linear = {name: getattr(field, name) for name in LAYERS}
        plain = along(field, linear, x0, cost)
        whitened = deepcopy(field)
        made = {name: Whitened(linear[name], *factors(*plain[name])) for name in LAYERS}
        for name in LAYERS:
            setattr(whitened, name, made[name])
        found = along(whitened, {name: made[name].inner for name in LAYERS}, x0, cost)
        for name in LAYERS:
            gradient = joined(_grad(linear[name].weight), _grad(linear[name].bias))
            (z, g), (new_z, new_g), (A, B) = plain[name], found[name], factors(*plain[name])
            # eq:layer-kfac
            wanted = -torch.linalg.solve(B, torch.linalg.solve(A, gradient, left=False))
            error = (made[name].change() - wanted).norm() / wanted.norm()
            rows.append(
                {
                    "labels": labels,
                    "layer": name,
                    "difference": float(error),
                    "inputs": [spread(z, centre=True), spread(new_z[:, 1:], centre=True)],
                    "derivatives": [spread(g, centre=False), spread(new_g, centre=False)],
                }
            )
    return {"rows": rows}


def measurements(space: Space) -> dict[str, Measurement]:
    """Return the job."""
    size, folder = SIZES[space.scale], space.measurement("whiten")
    return {"whiten": Measurement(folder, partial(measure, *size), size, CODE)}


def result(space: Space, found: dict[str, Any]) -> Result:
    """Tabulate both networks side by side."""
    rows: list[list[Cell]] = []
    updates: list[list[Cell]] = []
    for row in found["whiten"]["rows"]:
        where = [LABELS[row["labels"]], row["layer"]]
        updates.append([*where, f"{row['difference']:.1e}"])
        for kind in ("inputs", "derivatives"):
            cells = [f"{of[key]:.2g}" for key in ("mean", "condition") for of in row[kind]]
            rows.append([*where, kind, *cells])
    columns = ["labels", "layer", "of", "mean, F", "mean, F†", "condition, F", "condition, F†"]
    dim, width, batch = SIZES[space.scale]
    notes = [
        "mean: norm of the mean over the root mean square; condition: condition number of the "
        "covariance (inputs) or of the second moment (derivatives), over all nodes and points.",
        "The inputs of F† are centred and whitened, its derivatives whitened. Derivatives are "
        "centred in expectation only if labels are drawn from the model (the Fisher matrix); with "
        "the labels of the data, the empirical Fisher matrix of the paper, they need not be.",
        f"linear -> tanh -> linear, {dim} dimensions, {width} hidden units, {batch} points, "
        "double precision, rk4; factors at 20 nodes. Whether preconditioned updates lead to flows "
        "that are easier to integrate is measured by `reg`.",
    ]
    difference = "relative difference between eq:layer-kfac and gradient descent on F†"
    tables = [
        Table("Updates of a layer.", ["labels", "layer", difference], updates),
        Table("Centring and whitening along the path.", columns, rows),
    ]
    return Result(tables, notes)


WHITENING = measured_item(
    "whiten", ("coro:4",), "Corollary 4: the preconditioned Neural ODE", measurements, result
)
