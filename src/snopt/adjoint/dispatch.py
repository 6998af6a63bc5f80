"""Validate and pack the arguments of a user's call, and solve with its adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.adjoints import Direct, adjoint_named
from snopt.adjoint.observer import NodeObserver
from snopt.adjoint.ownership import check_owned
from snopt.adjoint.request import Adjoint, Request, autocast_dtype, edge_field
from snopt.adjoint.times import attach_outputs, attach_start
from snopt.base.context import Context, detached, moving, with_context
from snopt.base.errors import GradientError
from snopt.base.modules import parameters_of
from snopt.base.packing import Packing
from snopt.base.transforms import transforming
from snopt.base.types import Field, State, TensorField, time_tensor
from snopt.ode.callbacks import Callbacks
from snopt.ode.options import LEAPFROG
from snopt.ode.settings import Settings
from snopt.ode.solution import SolveStats
from snopt.ode.times import read_times


@dataclass(frozen=True)
class Replay:
    """A path that an adjoint solves again.

    Attributes:
        ends: end times of its steps; None for a method whose steps are not known.
        evaluations: field evaluations of the first solve.
    """

    ends: Sequence[float] | None
    evaluations: int


def read_solver(method: str | None, rtol: Any, atol: Any, options: dict[str, Any] | None,
                adjoint: str | Adjoint) -> tuple[Settings, Adjoint]:  # fmt: skip
    """Return settings and adjoint for arguments that do not change between calls.

    The default method is dopri5, or the leapfrog under ``adjoint="reversible"``.

    Example:
        >>> read_solver(None, 1e-3, 1e-3, None, "reversible")[0].method
        'alf'
    """
    wanted = adjoint_named(adjoint)
    settings = Settings.parse(method or wanted.default_method, rtol, atol, options)
    return settings, wanted.fitted(settings)


def refuse_removed(arguments: dict[str, Any]) -> None:
    """Raise TypeError for unexpected keyword arguments, with advice for removed ones."""
    for name in arguments:
        raise TypeError(
            "adjoint_options was removed: options belong to the adjoint, "
            "for example adjoint=snopt.Checkpoint(keep=0), snopt.Backsolve(nodes=3) or "
            "snopt.Reversible(eta=0.9)."
            if name == "adjoint_options"
            else f"unexpected keyword argument {name!r}."
        )


def find_params(func: Field, adjoint_params: Sequence[Tensor] | None) -> tuple[Tensor, ...] | None:
    """Return the parameters that require a gradient, or None if they are not known."""
    if adjoint_params is None and not isinstance(func, nn.Module):
        return None
    found = parameters_of(func) if adjoint_params is None else adjoint_params  # type: ignore[arg-type]
    return tuple([p for p in found if p.requires_grad])


def differentiable_solve(
    func: Field,
    y0: State,
    t: Tensor | Sequence[float],
    settings: Settings,
    adjoint: Adjoint,
    params: tuple[Tensor, ...] | None,
    *,
    observer: NodeObserver | None = None,
    stats: SolveStats | None = None,
    totals: SolveStats | None = None,
    first_step: float | None = None,
    replay: Replay | None = None,
    context: Context = None,
) -> tuple[list[Tensor], Packing]:
    """Solve differentiably; return packed states at the requested times, and their packing.

    Args:
        func: the user's field.
        y0: initial state.
        t: requested times.
        settings: how to solve.
        adjoint: how to differentiate.
        params: parameters; None (not known) backpropagates directly.
        observer: receives nodes along the path during the backward pass.
        stats: filled with counts.
        totals: running totals to which the counts are added.
        first_step: step size of an earlier solve.
        replay: a path to solve again, without calling callbacks again.
        context: third argument of the field, or None.
    """
    times = read_times(t)
    packing = Packing.of(y0)
    start = x0 = packing.pack(y0)
    stats = stats if stats is not None else SolveStats()
    if len(times) == 1:
        stats.reset()
        return [x0], packing
    if x0.numel() == 0:
        return _empty_batch(with_context(func, context), x0, times, packing, stats), packing
    if transforming():
        adjoint, observer = _under_transform(adjoint), None
    if params is None:
        adjoint = _without_params(func, adjoint)
    given = params or ()
    if context is not None:
        given = (*given, *moving(context))
        context = context if adjoint.higher else detached(context, leaves=True)
    checked = edge_field(func, packing, x0, context)
    if params is not None and not adjoint.higher:
        checked = _owned(func, checked, (*params, *moving(context)))
    request = Request(
        func, checked, packing, times, settings, settings,
        stats=stats, totals=totals, first_step=first_step, observer=observer,
        autocast=autocast_dtype(x0.device), context=context,
    )  # fmt: skip
    if replay is None:
        request.settings = settings.calling(Callbacks.of(func, packing.unpack))
        request.grid = settings.constructed_grid(with_context(func, context), y0, times, x0)
    else:
        request.grid, request.extra_evaluations = replay.ends, replay.evaluations
    timed = isinstance(t, Tensor) and t.requires_grad and torch.is_grad_enabled()
    higher = adjoint.higher
    if timed:
        x0 = attach_start(checked, x0, t, higher=higher)  # type: ignore[arg-type]
    states = _solved(adjoint, request, x0, given)
    if timed:
        # The first output is the initial state itself, which does not depend on the start time.
        states = [start, *attach_outputs(checked, states, t, higher=higher)[1:]]  # type: ignore[arg-type]
    return states, packing


def _empty_batch(func: Field, x0: Tensor, times: Sequence[float], packing: Packing,
                 stats: SolveStats) -> list[Tensor]:  # fmt: skip
    """Return the states of an empty batch; gradients are zero, as in torch's layers."""
    slope = edge_field(func, packing, x0)(time_tensor(times[0], x0), x0)
    stats.reset()
    stats.nfe_forward = stats.solves = 1
    return [x0, *(x0 + slope for _ in times[1:])]


def _owned(func: Field, checked: TensorField, params: tuple[Tensor, ...]) -> TensorField:
    """Return the field; the first tape of a solve is checked for tensors without a gradient."""
    looked = False

    def owned_field(t: Tensor, x: Tensor) -> Tensor:
        nonlocal looked
        value = checked(t, x)
        if not looked and value.requires_grad and x.is_leaf:
            looked = True
            check_owned(func, value, x, params)
        return value

    return owned_field


def _under_transform(adjoint: Adjoint) -> Adjoint:
    """Return the adjoint under ``torch.func``, which needs ordinary operations."""
    if adjoint.higher or adjoint.name == "checkpoint":
        return Direct()  # the same gradient
    raise GradientError(
        f"adjoint={adjoint.name!r} does not support torch.func (grad, vjp, jvp, vmap, ...); use "
        "adjoint='checkpoint' or adjoint='direct'."
    )


def _solved(adjoint: Adjoint, request: Request, x0: Tensor,
            params: Sequence[Tensor]) -> list[Tensor]:  # fmt: skip
    """Solve; raise an error with advice if ``torch.func.vmap`` cannot batch the solve."""
    try:
        return adjoint.solve(request, x0, params)
    except RuntimeError as failure:
        # A batched tensor has neither numbers nor storage to read them from.
        unreadable = any(word in str(failure) for word in ("vmap", "storage"))
        if not (unreadable and transforming()):
            raise
        raise GradientError(
            f"method={request.settings.method!r} chooses its steps by an error estimate, which "
            "torch.func.vmap cannot read; pass the batch as the state without vmap, or use fixed "
            "steps, for example method='rk4', options={'step_size': 0.1}."
        ) from failure


def _without_params(func: Field, adjoint: Adjoint) -> Adjoint:
    """Return the adjoint for a field with unknown parameters, which backpropagation finds."""
    if adjoint.default_method == LEAPFROG:
        raise GradientError(
            f"func is a {type(func).__name__}, not a module, so its parameters are not known to "
            "the reversible adjoint; make it an nn.Module, or pass adjoint_params=(...) (an empty "
            "tuple if it has none)."
        )
    return adjoint if adjoint.higher else Direct()
