"""Functions of the shape that users of torchdiffeq know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.dispatch import differentiable_solve, find_params, make_plan
from snopt.adjoint.observer import NodeObserver
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
    adjoint: str = "checkpoint",
    adjoint_params: Sequence[Tensor] | None = None,
    adjoint_options: dict[str, Any] | None = None,
    observer: NodeObserver | None = None,
    stats: SolveStats | None = None,
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
        adjoint: ``"checkpoint"``, ``"backsolve"``, ``"reversible"`` or ``"direct"``.
        adjoint_params: Tensors to return gradients for; default: the module's parameters.
        adjoint_options: ``keep`` (checkpoint: last steps whose tape is kept; default: as many as
            fit into 256 MiB), ``nodes`` (backsolve: Gauss nodes a step), ``eta`` (reversible:
            damping).
        observer: Told of states and adjoints along the path during the backward pass.
        stats: Filled with evaluations and steps, forward and backward.

    Returns:
        States at the times ``t``, stacked on a new first axis (of every part of a tuple).

    Example:
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> x = odeint(lambda t, x: -x, x0, torch.tensor([0.0, 1.0], dtype=torch.float64))
        >>> x.shape, round(x[-1].item(), 6)
        (torch.Size([2, 1]), 0.367879)
    """
    if event_fn is not None:
        import torchdiffeq  # here, because it imports scipy: too slow for `import snopt`

        return torchdiffeq.odeint(
            func, y0, t, rtol=rtol, atol=atol, method=method, options=options, event_fn=event_fn
        )
    plan = make_plan(method, rtol, atol, options, adjoint, adjoint_options)
    params = find_params(func, adjoint_params)
    states, packing = differentiable_solve(
        func, y0, t, plan, params, observer=observer, stats=stats
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
    plan = make_plan(
        method, rtol, atol, options, "backsolve", adjoint_options,
        adjoint_method=adjoint_method, adjoint_rtol=adjoint_rtol, adjoint_atol=adjoint_atol,
    )  # fmt: skip
    states, packing = differentiable_solve(
        func, y0, t, plan, params, observer=observer, stats=stats
    )
    return packing.unpack(torch.stack(states))
