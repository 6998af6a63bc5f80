"""Pictures of a trained model, as numbers for the report to draw."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint import NeuralODE
from snopt.models import CNF

TIMES = 40  # Points per path.
CELLS = 100  # Rows and columns of a grid.

Pictures = dict[str, dict[str, Any]]


@torch.no_grad()
def flow_pictures(model: nn.Module, x: Tensor, y: Tensor) -> Pictures:
    """Return paths of states through a ``flow`` model, and its decision if there are two classes.

    Paths of more than two dimensions are projected on the plane in which their ends differ most.
    Other models have no picture.
    """
    block = getattr(model, "block", None)
    if not isinstance(block, NeuralODE) or not hasattr(model, "readout"):
        return {}
    x = x.to(next(model.parameters()).device)
    times = torch.linspace(block.t0, block.horizon, TIMES)
    paths = block(x.flatten(1), times)
    plane = paths.shape[-1] == 2
    where = "" if plane else ", in the plane in which the ends differ most"
    pictures: Pictures = {
        "flow": {
            "kind": "paths",
            "title": f"paths of test examples through the flow{where}",
            "paths": (paths if plane else projected(paths)).transpose(0, 1).tolist(),
            "classes": y.tolist(),
        }
    }
    if plane and int(y.max()) == 1:
        points, extent = grid_around(x)
        chance = model(points).softmax(dim=1)[:, 1]
        pictures["decision"] = {
            "kind": "grid",
            "title": "probability of the second class, by input",
            "extent": extent,
            "values": chance.reshape(CELLS, CELLS).tolist(),
        }
    return pictures


@torch.no_grad()
def density_pictures(model: CNF, x: Tensor) -> Pictures:
    """Return a two-dimensional density: its values on a grid, samples, and the data."""
    if x.shape[1] != 2:
        return {}
    points, extent = grid_around(x.to(next(model.parameters()).device))
    density = model.log_prob(points).exp()
    samples = model.sample(len(x))
    return {
        "density": {
            "kind": "grid",
            "title": "learned density",
            "extent": extent,
            "values": density.reshape(CELLS, CELLS).tolist(),
        },
        "samples": {"kind": "points", "title": "samples of it", "points": samples.tolist()},
        "data": {"kind": "points", "title": "data", "points": x.tolist()},
    }


def grid_around(x: Tensor, margin: float = 0.15) -> tuple[Tensor, list[float]]:
    """Return the points of a grid around 2-D points, by rows from below, and its extent.

    Example:
        >>> points, extent = grid_around(torch.tensor([[0.0, 0.0], [2.0, 1.0]]), margin=0.0)
        >>> points.shape, extent
        (torch.Size([10000, 2]), [0.0, 2.0, 0.0, 1.0])
    """
    low, high = x.amin(dim=0), x.amax(dim=0)
    edge = margin * (high - low)
    (left, bottom), (right, top) = (low - edge).tolist(), (high + edge).tolist()
    across, up = (torch.linspace(a, b, CELLS) for a, b in ((left, right), (bottom, top)))
    rows, columns = torch.meshgrid(up, across, indexing="ij")
    points = torch.stack([columns.flatten(), rows.flatten()], dim=1)
    return points.to(x), [left, right, bottom, top]


def projected(paths: Tensor) -> Tensor:
    """Project ``[times, batch, dim]`` on the two leading principal directions of the ends."""
    ends = paths[-1] - paths[-1].mean(dim=0)
    _, _, directions = torch.linalg.svd(ends, full_matrices=False)
    plane: Tensor = (paths - paths[-1].mean(dim=0)) @ directions[:2].T
    return plane
