"""torchode and torchdyn as makers of flows, for the workloads of :mod:`benchmarks.engine.cases`.

Both integrate one tensor: (batch, features) for torchode, any shape for torchdyn. The adapters
below flatten the state and give it back; the fields themselves are the same. Each library is
imported where it is used, so that one can be measured without the other.
"""

from __future__ import annotations

from functools import partial
from math import prod

import torch
from torch import Tensor, nn

from benchmarks.engine.cases import Flow, Workload
from benchmarks.engine.contenders import Makers


class Flattened(nn.Module):
    """A field on one (batch, features) tensor.

    Args:
        field: The field on the workload's own state.
        shapes: Shapes of the state's parts, without the batch.
        single: Whether the state is a tensor rather than a tuple.
    """

    def __init__(self, field: nn.Module, shapes: list[torch.Size], single: bool) -> None:
        super().__init__()
        self.field, self.shapes, self.single = field, shapes, single
        self.sizes = [prod(shape) for shape in shapes]

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field."""
        return self.flat(self.field(t, self.unflat(x)))

    def flat(self, state: Tensor | tuple[Tensor, ...]) -> Tensor:
        """Return the state as (batch, features)."""
        if self.single:
            return state.reshape(len(state), -1)
        return torch.cat([part.reshape(len(part), -1) for part in state], dim=1)

    def unflat(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Undo :meth:`flat`."""
        if self.single:
            return x.reshape(len(x), *self.shapes[0])
        parts = x.split(self.sizes, dim=1)
        pairs = zip(parts, self.shapes, strict=True)
        return tuple(part.reshape(len(x), *shape) for part, shape in pairs)


def _flattened(workload: Workload, state: Tensor | tuple[Tensor, ...]) -> Flattened:
    single = isinstance(state, Tensor)
    shapes = [part.shape[1:] for part in ((state,) if single else state)]
    return Flattened(workload.field, shapes, single)


def _torchode(workload: Workload, compiled: bool = False) -> Flow:
    import torchode

    tolerances = {"rtol": workload.tolerance, "atol": workload.tolerance}
    field, solve = None, None

    def flow(state: Tensor | tuple[Tensor, ...]) -> object:
        nonlocal field, solve
        if field is None:
            field = _flattened(workload, state)
            term = torchode.ODETerm(field, with_stats=False)
            solver = torchode.AutoDiffAdjoint(
                torchode.Dopri5(term=term),
                torchode.IntegralController(term=term, **tolerances),
                backprop_through_step_size_control=False,
            )
            solve = torch.compile(solver.solve) if compiled else solver.solve
        x = field.flat(state)
        span = x.new_zeros(len(x)), x.new_ones(len(x))
        return field.unflat(solve(torchode.InitialValueProblem(x, *span, None)).ys[:, -1])

    return flow


def _torchdyn(workload: Workload, sensitivity: str) -> Flow:
    from torchdyn.core import ODEProblem

    field, problem = None, None
    times = torch.tensor([0.0, 1.0])
    tolerance = workload.tolerance

    def flow(state: Tensor | tuple[Tensor, ...]) -> object:
        nonlocal field, problem
        if field is None:
            field = _flattened(workload, state)
            problem = ODEProblem(
                field,
                solver="dopri5",
                sensitivity=sensitivity,
                rtol=tolerance,
                atol=tolerance,
                rtol_adjoint=tolerance,
                atol_adjoint=tolerance,
            )
        return field.unflat(problem(field.flat(state), times)[1][-1])

    return flow


TORCH_PEERS: Makers = {
    "torchode_autodiff": _torchode,
    "torchode_compiled": partial(_torchode, compiled=True),
    "torchdyn_adjoint": partial(_torchdyn, sensitivity="adjoint"),
    "torchdyn_autograd": partial(_torchdyn, sensitivity="autograd"),
}
