"""Functions of the shape that users of torchdiffeq know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.adjoints import Backsolve
from snopt.adjoint.dispatch import (
    differentiable_solve,
    find_params,
    read_solver,
    refuse_removed,
)
from snopt.adjoint.event import EventFunction, event_solve, link_event
from snopt.adjoint.observer import NodeObserver
from snopt.adjoint.request import Adjoint
from snopt.base.compiler import uncompiled
from snopt.base.context import Context
from snopt.base.errors import GradientError
from snopt.base.types import Field, State, leaves, real_dtype
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

    Gradients flow to ``y0``, to ``t`` and to the parameters of ``func``. A ``func`` that is not
    a module, and comes without ``adjoint_params``, is backpropagated through directly, because
    what it closes over cannot be known.

    Args:
        func: The field ``F(t, x)``, or ``F(t, x, context)``; ``t`` is a 0-d tensor.
        y0: Initial state: a tensor or a nested tuple of tensors.
        t: Strictly monotone times, increasing or decreasing, the start first.
        rtol: Relative tolerance: a number, a tensor, or one number a part of a tuple state.
        atol: Absolute tolerance, likewise.
        method: One of euler, midpoint, heun, rk4, bosh3, dopri5 (default), tsit5, dopri8, or
            any other method of torchdiffeq, which then does the solving.
        options: The method's options, named as in torchdiffeq (``step_size``, ``first_step``,
            ``max_num_steps``, ``norm``, ``step_t``, ``jump_t``, ...).
        event_fn: A function of time and state. The solve ends where an entry of its value changes
            its sign; ``t`` is the start and any time in the direction of the solve. Gradients
            are those at a fixed time; :func:`odeint_event` has those of the event's time.
        adjoint: :class:`snopt.Checkpoint`, :class:`snopt.Backsolve`, :class:`snopt.Reversible` or
            :class:`snopt.Direct`; or ``"checkpoint"``, ... for one with its defaults.
        adjoint_params: Tensors to return gradients for; default: the module's parameters.
        observer: Told of states and adjoints along the path during the backward pass.
        stats: Filled with evaluations and steps, forward and backward.
        context: Given to the field as its third argument: tensors in any nesting of tuples, lists
            and dictionaries. Gradients flow to those that require one.
        **removed: Answered with a TypeError.

    Returns:
        States at the times ``t``, stacked on a new first axis (of every part of a tuple). With
        ``event_fn``: the time of the event, and the states at the start and there.

    Example:
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> x = odeint(lambda t, x: -x, x0, torch.tensor([0.0, 1.0], dtype=torch.float64))
        >>> x.shape, round(x[-1].item(), 6)
        (torch.Size([2, 1]), 0.367879)
    """
    refuse_removed(removed)
    settings, adjoint = read_solver(method, rtol, atol, options, adjoint)
    params = find_params(func, adjoint_params)
    if event_fn is not None:
        return event_solve(
            func, y0, t, event_fn, settings, adjoint, params,
            observer=observer, stats=stats, context=context,
        )  # fmt: skip
    states, packing = differentiable_solve(
        func, y0, t, settings, adjoint, params,
        observer=observer, stats=stats, context=context,
    )  # fmt: skip
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
    r"""torchdiffeq's ``odeint_adjoint``: the same call, memory independent of the steps.

    Backward only :math:`(x, Q_x)` is integrated; the parameter gradient is a quadrature inside
    its steps (see :mod:`snopt.adjoint.backsolve`), so the parameters take no part in the error
    control, as under torchdiffeq's seminorm.

    Args:
        func: The field, a module (or give ``adjoint_params``).
        y0: Initial state: a tensor or a nested tuple of tensors.
        t: Strictly monotone times, the start first.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        method: Forward method.
        options: Its options.
        event_fn: A function of time and state that ends the solve, as for :func:`odeint`.
        adjoint_rtol: Relative tolerance backward; default as forward.
        adjoint_atol: Absolute tolerance backward; default as forward.
        adjoint_method: Backward method; default as forward.
        adjoint_options: Options of the backward method, and ``nodes``.
        adjoint_params: Tensors to return gradients for.
        observer: Told of states and adjoints along the path during the backward pass.
        stats: Filled with evaluations and steps, forward and backward.
        context: Given to the field as its third argument: tensors in any nesting of tuples, lists
            and dictionaries. Gradients flow to those that require one.

    Returns:
        States at the times ``t``, stacked on a new first axis (of every part of a tuple). With
        ``event_fn``: the time of the event, and the states at the start and there.

    Raises:
        GradientError: ``func`` is no module and ``adjoint_params`` is not given.

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
            "it an nn.Module, pass adjoint_params=(...) (an empty tuple for none), or use "
            "snopt.odeint."
        )
    own = dict(adjoint_options or {})
    nodes = own.pop("nodes", None)
    back_options = own if own or adjoint_options == {} else None
    backsolve = Backsolve(adjoint_method, adjoint_rtol, adjoint_atol, back_options, nodes)
    settings, adjoint = read_solver(method, rtol, atol, options, backsolve)
    if event_fn is not None:
        return event_solve(
            func, y0, t, event_fn, settings, adjoint, params,
            observer=observer, stats=stats, context=context,
        )  # fmt: skip
    states, packing = differentiable_solve(
        func, y0, t, settings, adjoint, params,
        observer=observer, stats=stats, context=context,
    )  # fmt: skip
    return packing.unpack(torch.stack(states))


@uncompiled
def odeint_event(func: Field, y0: State, t0: Tensor | float, *, event_fn: EventFunction,
                 reverse_time: bool = False, odeint_interface: Callable[..., Any] = odeint,
                 **kwargs: Any) -> tuple[Tensor, State]:  # fmt: skip
    """Solve from ``t0`` until an event: torchdiffeq's ``odeint_event``.

    The time of the event and the state there are differentiable, by the implicit function theorem:
    first derivatives with respect to ``y0``, ``t0``, the parameters of ``func``, and what the
    event function depends on.

    Args:
        func: The field ``F(t, x)``.
        y0: Initial state: a tensor or a nested tuple of tensors.
        t0: Start time.
        event_fn: A function of time and state. The solve ends where an entry of its value changes
            its sign.
        reverse_time: Whether to solve backward in time.
        odeint_interface: :func:`odeint`, :func:`odeint_adjoint`, or a function like them.
        **kwargs: Further arguments of the interface.

    Returns:
        The time of the event, and the states at ``t0`` and at the event, stacked on a new first
        axis (of every part of a tuple).

    Example:
        >>> height = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
        >>> t, _ = odeint_event(lambda t, x: -torch.ones_like(x), height, torch.tensor(0.0),
        ...                     event_fn=lambda t, x: x)
        >>> round(t.item(), 4), torch.autograd.grad(t, height)[0]
        (2.0, tensor([1.], dtype=torch.float64))
    """
    start = torch.as_tensor(t0)
    if not start.is_floating_point():
        start = start.to(real_dtype(next(leaves(y0)).dtype))
    t = start.reshape(1)
    t = torch.cat([t, t.detach() + (-1.0 if reverse_time else 1.0)])
    event_t, solution = odeint_interface(func, y0, t, event_fn=event_fn, **kwargs)
    if not torch.is_grad_enabled():
        return event_t, solution
    return link_event(func, event_fn, y0, t[0], event_t, solution, kwargs.get("context"))
