"""From a user's call to an adjoint: validate, pack, choose, solve, unpack."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.adjoints import Direct, adjoint_named
from snopt.adjoint.observer import NodeObserver
from snopt.adjoint.ownership import check_owned
from snopt.adjoint.request import Adjoint, Request, edge_field
from snopt.adjoint.times import attach_outputs, attach_start
from snopt.base.context import Context, detached, moving, with_context
from snopt.base.errors import GradientError
from snopt.base.packing import Packing
from snopt.base.transforms import transforming
from snopt.base.types import Field, State, TensorField, real_dtype
from snopt.ode.callbacks import Callbacks
from snopt.ode.settings import LEAPFROG, Settings
from snopt.ode.solution import SolveStats
from snopt.ode.times import read_times


@dataclass(frozen=True)
class Replay:
    """A path that was walked before, for an adjoint to walk it again.

    Attributes:
        ends: Where its steps ended; None for a method whose steps are not known.
        evaluations: What the first walk took.
    """

    ends: Sequence[float] | None
    evaluations: int


def read_solver(method: str | None, rtol: Any, atol: Any, options: dict[str, Any] | None,
                adjoint: str | Adjoint) -> tuple[Settings, Adjoint]:  # fmt: skip
    """Read the arguments that do not change from call to call.

    Args:
        method: Solver; None is dopri5, or the leapfrog under ``adjoint="reversible"``.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        options: The method's options.
        adjoint: An adjoint, or the name of one.

    Returns:
        How to solve, and the adjoint that goes with it.

    Example:
        >>> read_solver(None, 1e-3, 1e-3, None, "reversible")[0].method
        'alf'
    """
    wanted = adjoint_named(adjoint)
    settings = Settings.parse(method or wanted.default_method, rtol, atol, options)
    return settings, wanted.fitted(settings)


def refuse_removed(arguments: dict[str, Any]) -> None:
    """Answer an argument that is no longer taken.

    Args:
        arguments: What no parameter took.

    Raises:
        TypeError: There is one.
    """
    for name in arguments:
        raise TypeError(
            "adjoint_options is no longer taken: options belong to the adjoint, "
            "for example adjoint=snopt.Checkpoint(keep=0), snopt.Backsolve(nodes=3) or "
            "snopt.Reversible(eta=0.9)."
            if name == "adjoint_options"
            else f"unexpected keyword argument {name!r}."
        )


def find_params(func: Field, adjoint_params: Sequence[Tensor] | None) -> tuple[Tensor, ...] | None:
    """The tensors to return gradients for.

    Args:
        func: The user's field.
        adjoint_params: The user's own list, if any.

    Returns:
        Those that require a gradient; None if they cannot be known.
    """
    if adjoint_params is None and not isinstance(func, nn.Module):
        return None
    found = func.parameters() if adjoint_params is None else adjoint_params  # type: ignore[attr-defined]
    return tuple(p for p in found if p.requires_grad)


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
    """Solve so that autograd can differentiate the result.

    Args:
        func: The user's field.
        y0: Initial state.
        t: Requested times.
        settings: How to solve.
        adjoint: How to differentiate.
        params: Parameters; None backpropagates directly, because they are not known.
        observer: Told of nodes along the path during the backward pass.
        stats: Filled with counts.
        totals: Counts are added here too.
        first_step: A step carried over from an earlier solve.
        replay: The path, if it was walked before; callbacks are then not called again.
        context: What the field is given behind the state; None for nothing.

    Returns:
        Packed states at the requested times, and how to unpack them.
    """
    times = read_times(t)
    packing = Packing.of(y0)
    start = x0 = packing.pack(y0)
    stats = stats if stats is not None else SolveStats()
    if len(times) == 1:
        stats.reset()
        return [x0], packing
    device = x0.device
    if x0.numel() == 0:
        return _of_nothing(with_context(func, context), y0, times, packing, stats), packing
    cast = torch.is_autocast_enabled(device.type)
    if transforming():
        adjoint, observer = _under_transform(adjoint), None
    if params is None:
        adjoint = _without_params(func, adjoint)
    given = params or ()
    if context is not None:
        given = (*given, *moving(context))
        context = context if adjoint.higher else detached(context, leaves=True)
    checked = edge_field(func, packing, x0.dtype, cast, context)
    if params is not None and not adjoint.higher:
        checked = _owned(func, checked, (*params, *moving(context)))
    request = Request(
        func, checked, packing, times, settings, settings,
        stats=stats, totals=totals, first_step=first_step, observer=observer,
        autocast=torch.get_autocast_dtype(device.type) if cast else None, context=context,
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
    with _explained(settings):
        states = adjoint.solve(request, x0, given)
    if timed:
        # The first output is the initial state itself, wherever the solve starts.
        states = [start, *attach_outputs(checked, states, t, higher=higher)[1:]]  # type: ignore[arg-type]
    return states, packing


def _of_nothing(func: Field, y0: State, times: Sequence[float], packing: Packing,
                stats: SolveStats) -> list[Tensor]:  # fmt: skip
    """The states of an empty batch, with gradients of zero, as torch's layers give them."""
    x0 = packing.pack(y0)
    field = edge_field(func, packing, x0.dtype, torch.is_autocast_enabled(x0.device.type))
    slope = field(torch.tensor(times[0], dtype=real_dtype(x0.dtype), device=x0.device), x0)
    stats.reset()
    stats.nfe_forward = stats.solves = 1
    return [x0, *(x0 + slope for _ in times[1:])]


def _owned(func: Field, checked: TensorField, params: tuple[Tensor, ...]) -> TensorField:
    """Look at the first tape of a solve for tensors that would get no gradient."""
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
    """The adjoint under ``torch.func``, which sees through ordinary operations only."""
    if adjoint.higher or adjoint.name == "checkpoint":
        return Direct()  # the same gradient
    raise GradientError(
        f"adjoint={adjoint.name!r} does not support torch.func (grad, vjp, jvp, vmap, ...); use "
        "adjoint='checkpoint' or adjoint='direct'."
    )


@contextlib.contextmanager
def _explained(settings: Settings) -> Iterator[None]:
    """Say what to use where ``torch.func.vmap`` cannot batch a solve."""
    try:
        yield
    except RuntimeError as failure:
        if "vmap" not in str(failure) or not transforming():
            raise
        raise GradientError(
            f"method={settings.method!r} chooses its steps by numbers, which torch.func.vmap does "
            "not have; pass the batch as the state without vmap, or use fixed steps, for example "
            "method='rk4', options={'step_size': 0.1}."
        ) from failure


def _without_params(func: Field, adjoint: Adjoint) -> Adjoint:
    """The adjoint for a field whose parameters are not known: backpropagation finds them."""
    if adjoint.default_method == LEAPFROG:
        raise GradientError(
            f"func is a {type(func).__name__}, not a module, so its parameters are not known to "
            "the reversible adjoint; make it an nn.Module, or pass adjoint_params=(...) (an empty "
            "tuple for none)."
        )
    return adjoint if adjoint.higher else Direct()
