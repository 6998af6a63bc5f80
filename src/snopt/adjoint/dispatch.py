"""From a user's call to an adjoint: validate, pack, choose, solve, unpack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.backsolve import solve_backsolve
from snopt.adjoint.checkpoint import solve_checkpoint
from snopt.adjoint.direct import solve_direct
from snopt.adjoint.eager_steps import EAGER
from snopt.adjoint.observer import NodeObserver
from snopt.adjoint.ownership import check_owned
from snopt.adjoint.request import Request, edge_field
from snopt.adjoint.reversible import solve_reversible
from snopt.adjoint.tape_budget import affordable_steps
from snopt.adjoint.times import attach_outputs, attach_start
from snopt.base.errors import InvalidTimes, UnknownName, unknown
from snopt.base.packing import Packing
from snopt.base.types import Field, State, TensorField, leaves
from snopt.ode.controller import reject_unknown
from snopt.ode.settings import LEAPFROG, Settings, check_times
from snopt.ode.solution import SolveStats

ADJOINTS: dict[str, Callable[..., list[Tensor]]] = {
    "checkpoint": partial(solve_checkpoint, runner=EAGER),
    "backsolve": solve_backsolve,
    "reversible": solve_reversible,
    "direct": solve_direct,
}
_BACKSOLVE_OPTIONS = {"nodes"}
_CHECKPOINT_OPTIONS = {"keep"}
_REVERSIBLE_OPTIONS = {"eta"}


@dataclass
class Plan:
    """A solver and an adjoint, read from the user's arguments once.

    Attributes:
        adjoint: Name of the adjoint.
        settings: How to solve forward.
        backward: How to solve backward.
        keep: Last steps whose tape is kept (``checkpoint``); None keeps what the budget allows.
        nodes: Gauss nodes a step (``backsolve``); None chooses by the method's order.
        eta: Damping of the leapfrog (``reversible``).
        solver: What runs the adjoint; the block puts a compiled one here.
    """

    adjoint: str
    settings: Settings
    backward: Settings
    keep: int | None = None
    nodes: int | None = None
    eta: float = 1.0
    solver: Callable[..., list[Tensor]] | None = field(default=None, repr=False)


def make_plan(
    method: str | None,
    rtol: Any,
    atol: Any,
    options: dict[str, Any] | None,
    adjoint: str,
    adjoint_options: dict[str, Any] | None,
    *,
    adjoint_method: str | None = None,
    adjoint_rtol: Any = None,
    adjoint_atol: Any = None,
) -> Plan:
    """Read the arguments that do not change from call to call.

    Args:
        method: Solver; None is dopri5, or the leapfrog under ``adjoint="reversible"``.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        options: The method's options.
        adjoint: Name of the adjoint.
        adjoint_options: The adjoint's options; for ``backsolve`` also the backward solver's.
        adjoint_method: Backward solver of ``backsolve``.
        adjoint_rtol: Its relative tolerance.
        adjoint_atol: Its absolute tolerance.

    Returns:
        The plan.

    Raises:
        UnknownName: An unknown adjoint, method or option, or two that exclude each other.

    Example:
        >>> make_plan(None, 1e-3, 1e-3, None, "reversible", None).settings.method
        'alf'
    """
    if adjoint not in ADJOINTS:
        raise unknown("adjoint", adjoint, ADJOINTS)
    method = method or (LEAPFROG if adjoint == "reversible" else "dopri5")
    if (adjoint == "reversible") != (method == LEAPFROG):
        raise UnknownName(
            f"adjoint={adjoint!r} does not go with method={method!r}: the reversible adjoint is "
            f"that of the asynchronous leapfrog. Use adjoint='reversible', method={LEAPFROG!r}, or "
            "another pair."
        )
    settings = Settings.parse(method, rtol, atol, options)
    if adjoint == "checkpoint" and settings.black_box:
        # A black box's steps cannot be run again one by one; its own tape is as exact.
        adjoint = "backsolve" if method == "scipy_solver" else "direct"
    own = dict(adjoint_options or {})
    plan = Plan(adjoint, settings, settings)
    if adjoint == "checkpoint":
        keep = own.pop("keep", None)
        plan.keep = None if keep is None else int(keep)
        reject_unknown(own, _CHECKPOINT_OPTIONS)
    elif adjoint == "reversible":
        plan.eta = float(own.pop("eta", plan.eta))
        if not 0.5 < plan.eta <= 1.0:
            raise UnknownName(f"eta = {plan.eta} must be above 0.5 and at most 1.")
        reject_unknown(own, _REVERSIBLE_OPTIONS)
    elif adjoint == "backsolve":
        plan.nodes = own.pop("nodes", None)
        back_options = own if own or adjoint_method is not None else options
        plan.backward = Settings.parse(
            adjoint_method or method,
            rtol if adjoint_rtol is None else adjoint_rtol,
            atol if adjoint_atol is None else adjoint_atol,
            {**(back_options or {})},
        ).replaced(grid_constructor=None)
    return plan


def read_times(t: Tensor | Sequence[float]) -> list[float]:
    """Requested times as numbers, checked.

    Args:
        t: A one-dimensional tensor, or a sequence of numbers.

    Returns:
        The times.

    Raises:
        InvalidTimes: Not one-dimensional, not numbers, or not strictly monotone.

    Example:
        >>> read_times(torch.tensor([0.0, 0.5]))
        [0.0, 0.5]
    """
    if isinstance(t, (int, float)):
        raise InvalidTimes(
            f"times are {t}, one number; give the start as well: torch.tensor([0.0, {float(t)}])."
        )
    if isinstance(t, Tensor):
        if t.ndim != 1 or not t.dtype.is_floating_point:
            raise InvalidTimes(
                f"times must be a one-dimensional floating-point tensor, got shape "
                f"{tuple(t.shape)} of {t.dtype}."
            )
        times = t.tolist()
    else:
        times = [float(value) for value in t]
    check_times(times)
    return times


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
    plan: Plan,
    params: tuple[Tensor, ...] | None,
    *,
    observer: NodeObserver | None = None,
    stats: SolveStats | None = None,
    totals: SolveStats | None = None,
    first_step: float | None = None,
) -> tuple[list[Tensor], Packing]:
    """Solve so that autograd can differentiate the result.

    Args:
        func: The user's field.
        y0: Initial state.
        t: Requested times.
        plan: Solver and adjoint.
        params: Parameters; None backpropagates directly, because they are not known.
        observer: Told of nodes along the path during the backward pass.
        stats: Filled with counts.
        totals: Counts are added here too.
        first_step: A step carried over from an earlier solve.

    Returns:
        Packed states at the requested times, and how to unpack them.
    """
    times = read_times(t)
    packing = Packing.of(y0)
    start = x0 = packing.pack(y0)
    device = x0.device
    cast = torch.is_autocast_enabled(device.type)
    adjoint = plan.adjoint if params is not None else "direct"
    checked = edge_field(func, packing, x0.dtype, cast)
    if params is not None and adjoint != "direct":
        checked = _owned(func, checked, params)
    request = Request(
        func, checked, packing, times, plan.settings, plan.backward,
        stats=stats if stats is not None else SolveStats(),
        totals=totals, first_step=first_step, observer=observer,
        nodes=plan.nodes,
        autocast=torch.get_autocast_dtype(device.type) if cast else None,
    )  # fmt: skip
    if adjoint == "checkpoint" and torch.is_grad_enabled():
        with torch.no_grad():
            request.keep = (
                affordable_steps(request, x0.detach(), params or ())
                if plan.keep is None
                else plan.keep
            )
    if plan.settings.grid_constructor is not None:
        request.grid = _constructed_grid(plan, func, y0, t, times)
    moving = isinstance(t, Tensor) and t.requires_grad and torch.is_grad_enabled()
    higher = adjoint == "direct"
    if moving:
        x0 = attach_start(checked, x0, t, higher=higher)  # type: ignore[arg-type]
    if adjoint == "reversible":
        states = solve_reversible(request, x0, params or (), plan.eta)
    elif plan.solver is not None:
        states = plan.solver(request, x0, params or ())
    elif not torch.is_grad_enabled():
        states = solve_direct(request, x0, ())  # nothing to keep for a backward pass
    else:
        states = ADJOINTS[adjoint](request, x0, params or ())
    if moving:
        # The first output is the initial state itself, wherever the solve starts.
        states = [start, *attach_outputs(checked, states, t, higher=higher)[1:]]  # type: ignore[arg-type]
    return states, packing


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


def _constructed_grid(plan: Plan, func: Field, y0: State, t: Tensor | Sequence[float],
                      times: list[float]) -> list[float]:  # fmt: skip
    """The user's own grid for a fixed-step method, as torchdiffeq lets users give it."""
    constructor = plan.settings.grid_constructor
    assert constructor is not None
    like = next(leaves(y0))
    grid = constructor(func, y0, torch.as_tensor(t, dtype=like.dtype)).tolist()
    check_times(grid)
    if abs(grid[0] - times[0]) > 1e-6 or abs(grid[-1] - times[-1]) > 1e-6:
        raise InvalidTimes(
            f"grid_constructor returned a grid from {grid[0]} to {grid[-1]}, but the solve goes "
            f"from {times[0]} to {times[-1]}."
        )
    return [*grid[1:-1], times[-1]]
