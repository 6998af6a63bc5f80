"""Functions of the shape that users of torchdiffeq know."""

from __future__ import annotations

from collections.abc import Sequence
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
from snopt.adjoint.observer import NodeObserver
from snopt.adjoint.request import Adjoint
from snopt.base.errors import GradientError
from snopt.base.types import Field, State
from snopt.ode.solution import SolveStats


def odeint(
    func: Field,
    y0: State,
    t: Tensor | Sequence[float],
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
    event_fn: Any = None,
    adjoint: str | Adjoint = "checkpoint",
    adjoint_params: Sequence[Tensor] | None = None,
    observer: NodeObserver | None = None,
    stats: SolveStats | None = None,
    **removed: Any,
) -> Any:
    r"""Integrate :math:`\dot x = F(t, x)` through the times ``t``: torchdiffeq's ``odeint``.

    Gradients flow to ``y0``, to ``t`` and to the parameters of ``func``. A ``func`` that is not
    a module, and comes without ``adjoint_params``, is backpropagated through directly, because
    what it closes over cannot be known.

    Args:
        func: The field ``F(t, x)``; ``t`` is a 0-d tensor.
        y0: Initial state: a tensor or a nested tuple of tensors.
        t: Strictly monotone times, increasing or decreasing, the start first.
        rtol: Relative tolerance: a number, a tensor, or one number a part of a tuple state.
        atol: Absolute tolerance, likewise.
        method: One of euler, midpoint, heun, rk4, bosh3, dopri5 (default), tsit5, dopri8, or
            any other method of torchdiffeq, which then does the solving.
        options: The method's options, named as in torchdiffeq (``step_size``, ``first_step``,
            ``max_num_steps``, ``norm``, ``step_t``, ``jump_t``, ...).
        event_fn: Passed on to torchdiffeq together with everything else.
        adjoint: :class:`snopt.Checkpoint`, :class:`snopt.Backsolve`, :class:`snopt.Reversible` or
            :class:`snopt.Direct`; or ``"checkpoint"``, ... for one with its defaults.
        adjoint_params: Tensors to return gradients for; default: the module's parameters.
        observer: Told of states and adjoints along the path during the backward pass.
        stats: Filled with evaluations and steps, forward and backward.
        **removed: Answered with a TypeError.

    Returns:
        States at the times ``t``, stacked on a new first axis (of every part of a tuple).

    Example:
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> x = odeint(lambda t, x: -x, x0, torch.tensor([0.0, 1.0], dtype=torch.float64))
        >>> x.shape, round(x[-1].item(), 6)
        (torch.Size([2, 1]), 0.367879)
    """
    refuse_removed(removed)
    if event_fn is not None:
        import torchdiffeq  # here, because it imports scipy: too slow for `import snopt`

        return torchdiffeq.odeint(
            func, y0, t, rtol=rtol, atol=atol, method=method, options=options, event_fn=event_fn
        )
    settings, adjoint = read_solver(method, rtol, atol, options, adjoint)
    params = find_params(func, adjoint_params)
    states, packing = differentiable_solve(
        func, y0, t, settings, adjoint, params, observer=observer, stats=stats
    )
    return packing.unpack(torch.stack(states))


def odeint_adjoint(
    func: Field,
    y0: State,
    t: Tensor | Sequence[float],
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
    event_fn: Any = None,
    adjoint_rtol: Any = None,
    adjoint_atol: Any = None,
    adjoint_method: str | None = None,
    adjoint_options: dict[str, Any] | None = None,
    adjoint_params: Sequence[Tensor] | None = None,
    observer: NodeObserver | None = None,
    stats: SolveStats | None = None,
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
        event_fn: Passed on to torchdiffeq together with everything else.
        adjoint_rtol: Relative tolerance backward; default as forward.
        adjoint_atol: Absolute tolerance backward; default as forward.
        adjoint_method: Backward method; default as forward.
        adjoint_options: Options of the backward method, and ``nodes``.
        adjoint_params: Tensors to return gradients for.
        observer: Told of states and adjoints along the path during the backward pass.
        stats: Filled with evaluations and steps, forward and backward.

    Returns:
        States at the times ``t``, stacked on a new first axis (of every part of a tuple).

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
    if event_fn is not None:
        import torchdiffeq

        return torchdiffeq.odeint_adjoint(
            func, y0, t, rtol=rtol, atol=atol, method=method, options=options, event_fn=event_fn,
            adjoint_rtol=adjoint_rtol, adjoint_atol=adjoint_atol, adjoint_method=adjoint_method,
            adjoint_options=adjoint_options, adjoint_params=adjoint_params,
        )  # fmt: skip
    params = find_params(func, adjoint_params)
    if params is None:
        raise GradientError(
            f"func is a {type(func).__name__}, not a module, so its parameters are not known; make "
            "it an nn.Module, pass adjoint_params=(...) (an empty tuple for none), or use "
            "snopt.odeint."
        )
    own = dict(adjoint_options or {})
    nodes = own.pop("nodes", None)
    backsolve = Backsolve(adjoint_method, adjoint_rtol, adjoint_atol, own or None, nodes)
    settings, adjoint = read_solver(method, rtol, atol, options, backsolve)
    states, packing = differentiable_solve(
        func, y0, t, settings, adjoint, params, observer=observer, stats=stats
    )
    return packing.unpack(torch.stack(states))
