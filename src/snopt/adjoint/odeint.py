"""Functions with the signatures of torchdiffeq."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.adjoints import Backsolve
from snopt.adjoint.dispatch import differentiable_solve, find_params, read_solver, refuse_removed
from snopt.adjoint.event import EventFunction, event_solve, event_times, link_event
from snopt.adjoint.observer import NodeObserver
from snopt.adjoint.request import Adjoint
from snopt.base.compiler import uncompiled
from snopt.base.context import Context
from snopt.base.errors import GradientError
from snopt.base.types import Field, State
from snopt.ode.solution import SolveStats


@uncompiled
def odeint(
    func: Field,
    y0: State,
    t: Tensor | Sequence[float],
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
    event_fn: EventFunction | None = None,
    adjoint: str | Adjoint = "checkpoint",
    adjoint_params: Sequence[Tensor] | None = None,
    observer: NodeObserver | None = None,
    stats: SolveStats | None = None,
    context: Context = None,
    **removed: Any,
) -> Any:
    r"""Integrate :math:`\dot x = F(t, x)` through the times ``t``: torchdiffeq's ``odeint``.

    Gradients flow to ``y0``, to ``t`` and to the parameters of ``func``. If ``func`` is not a
    module and ``adjoint_params`` is not given, its parameters are not known, and gradients are
    computed by ``adjoint="direct"``.

    Args:
        func: the field ``F(t, x)``, or ``F(t, x, context)``; ``t`` is a 0-d tensor.
        y0: initial state: a tensor or a nested tuple of tensors.
        t: strictly monotone times, increasing or decreasing, the start first.
        rtol: relative tolerance: a number, a tensor, or one number per tensor of a tuple state.
        atol: absolute tolerance, likewise.
        method: one of euler, midpoint, heun, rk4, bosh3, dopri5 (default), tsit5, dopri8; or any
            other method of torchdiffeq, which then computes the solution.
        options: options of the method, named as in torchdiffeq (``step_size``, ``first_step``,
            ``max_num_steps``, ``norm``, ``step_t``, ``jump_t``, ...).
        event_fn: function of time and state; the solve ends where an entry of its value changes
            sign, and ``t`` is the start and any time in the direction of the solve. Gradients are
            those at a fixed time; :func:`odeint_event` includes those of the event time.
        adjoint: :class:`snopt.Checkpoint`, :class:`snopt.Backsolve`, :class:`snopt.Reversible` or
            :class:`snopt.Direct`, or the name of one (``"checkpoint"``, ...) for its defaults.
        adjoint_params: tensors to compute gradients for; default: the parameters of the module.
        observer: receives states and adjoints along the path during the backward pass.
        stats: filled with the numbers of evaluations and steps, forward and backward.
        context: third argument of the field: tensors in any nesting of tuples, lists and
            dictionaries. Gradients flow to those that require one.
        **removed: removed arguments raise a TypeError with advice.

    Returns:
        states at the times ``t``, stacked on a new first axis (of every part of a tuple). With
        ``event_fn``: the time of the event, and the states at the start and at the event.

    Example:
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> x = odeint(lambda t, x: -x, x0, torch.tensor([0.0, 1.0], dtype=torch.float64))
        >>> x.shape, round(x[-1].item(), 6)
        (torch.Size([2, 1]), 0.367879)
    """
    refuse_removed(removed)
    solver = read_solver(method, rtol, atol, options, adjoint)
    params = find_params(func, adjoint_params)
    return _solved(
        func, y0, t, event_fn, *solver, params, observer=observer, stats=stats, context=context
    )


def _solved(func: Field, y0: State, t: Tensor | Sequence[float], event_fn: EventFunction | None,
            *solver: Any, **more: Any) -> Any:  # fmt: skip
    """Solve through the times, or until an event; return states in the user's structure."""
    if event_fn is not None:
        return event_solve(func, y0, t, event_fn, *solver, **more)
    states, packing = differentiable_solve(func, y0, t, *solver, **more)
    return packing.unpack(torch.stack(states))


@uncompiled
def odeint_adjoint(
    func: Field,
    y0: State,
    t: Tensor | Sequence[float],
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
    event_fn: EventFunction | None = None,
    adjoint_rtol: Any = None,
    adjoint_atol: Any = None,
    adjoint_method: str | None = None,
    adjoint_options: dict[str, Any] | None = None,
    adjoint_params: Sequence[Tensor] | None = None,
    observer: NodeObserver | None = None,
    stats: SolveStats | None = None,
    context: Context = None,
) -> Any:
    r"""Integrate like :func:`odeint` under ``adjoint=Backsolve(...)``: torchdiffeq's function.

    Memory does not depend on the number of steps. The backward pass integrates only
    :math:`(x, Q_x)`; the parameter gradient is a quadrature inside its steps (see
    :mod:`snopt.adjoint.backsolve`), so parameters are excluded from error control, as with
    torchdiffeq's seminorm.

    Args:
        func: the field, a module unless ``adjoint_params`` is given.
        y0: initial state; see :func:`odeint` for this and all arguments without ``adjoint_``.
        t: requested times.
        rtol: relative tolerance.
        atol: absolute tolerance.
        method: forward method.
        options: options of the forward method.
        event_fn: function of time and state that ends the solve.
        adjoint_rtol: relative tolerance of the backward pass; default: ``rtol``.
        adjoint_atol: absolute tolerance of the backward pass; default: ``atol``.
        adjoint_method: backward method; default: ``method``.
        adjoint_options: options of the backward method, and ``nodes`` of :class:`snopt.Backsolve`.
        adjoint_params: tensors to compute gradients for; default: the parameters of the module.
        observer: receives states and adjoints along the path during the backward pass.
        stats: filled with the numbers of evaluations and steps, forward and backward.
        context: third argument of the field.

    Returns:
        what :func:`odeint` returns.

    Raises:
        GradientError: ``func`` is not a module and ``adjoint_params`` is not given.

    Example:
        >>> field = torch.nn.Linear(2, 2)
        >>> x = odeint_adjoint(lambda t, x: field(x), torch.ones(3, 2), torch.tensor([0.0, 1.0]),
        ...                    adjoint_params=tuple(field.parameters()))
        >>> x[-1].sum().backward()
        >>> field.weight.grad.shape
        torch.Size([2, 2])
    """
    params = find_params(func, adjoint_params)
    if params is None:
        raise GradientError(
            f"func is a {type(func).__name__}, not a module, so its parameters are not known; make "
            "it an nn.Module, pass adjoint_params=(...) (an empty tuple if it has none), or use "
            "snopt.odeint."
        )
    own = dict(adjoint_options or {})
    nodes = own.pop("nodes", None)
    back_options = own if own or adjoint_options == {} else None
    backsolve = Backsolve(adjoint_method, adjoint_rtol, adjoint_atol, back_options, nodes)
    solver = read_solver(method, rtol, atol, options, backsolve)
    return _solved(
        func, y0, t, event_fn, *solver, params, observer=observer, stats=stats, context=context
    )


@uncompiled
def odeint_event(func: Field, y0: State, t0: Tensor | float, *, event_fn: EventFunction,
                 reverse_time: bool = False, odeint_interface: Callable[..., Any] = odeint,
                 **kwargs: Any) -> tuple[Tensor, State]:  # fmt: skip
    """Integrate from ``t0`` until an event: torchdiffeq's ``odeint_event``.

    The event time and the state there have first derivatives with respect to ``y0``, ``t0``, the
    parameters of ``func`` and the tensors used by ``event_fn``, by the implicit function theorem.

    Args:
        func: the field ``F(t, x)``.
        y0: initial state: a tensor or a nested tuple of tensors.
        t0: start time.
        event_fn: function of time and state; the solve ends where an entry of its value changes
            sign.
        reverse_time: solve backward in time.
        odeint_interface: :func:`odeint`, :func:`odeint_adjoint`, or a function like them.
        **kwargs: further arguments of the interface.

    Returns:
        the time of the event, and the states at ``t0`` and at the event, stacked on a new first
        axis (of every part of a tuple).

    Example:
        >>> height = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
        >>> t, _ = odeint_event(lambda t, x: -torch.ones_like(x), height, torch.tensor(0.0),
        ...                     event_fn=lambda t, x: x)
        >>> round(t.item(), 4), torch.autograd.grad(t, height)[0]
        (2.0, tensor([1.], dtype=torch.float64))
    """
    t = event_times(t0, y0).reshape(1)
    t = torch.cat([t, t.detach() + (-1.0 if reverse_time else 1.0)])
    event_t, solution = odeint_interface(func, y0, t, event_fn=event_fn, **kwargs)
    if not torch.is_grad_enabled():
        return event_t, solution
    return link_event(func, event_fn, y0, t[0], event_t, solution, kwargs.get("context"))
