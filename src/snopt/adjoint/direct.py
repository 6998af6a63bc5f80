"""Plain backpropagation through the steps: more memory, derivatives of every order.

An observer is told by a walk back along the path (see :mod:`snopt.adjoint.backsolve`) that
starts when the gradients of the outputs are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.backsolve import observe_walk
from snopt.adjoint.request import Request
from snopt.base.types import real_dtype
from snopt.ode.blackbox import solve_black_box


class _Watched(torch.autograd.Function):
    """Identity on the outputs; its backward pass walks the path for the observer."""

    @staticmethod
    def forward(ctx: Any, request: Request, *states: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.request = request
        ctx.save_for_backward(*states)
        return tuple(state.view_as(state) for state in states)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        known = [None if gradient is None else gradient.detach() for gradient in gradients]
        states = [state.detach() for state in ctx.saved_tensors]
        with torch.no_grad(), ctx.request.again(states[0].device) as field:
            observe_walk(replace(ctx.request, field=field), states, known)
        return None, *gradients


def _on_tape(request: Request, x0: Tensor) -> bool:
    """Whether autograd will keep the steps."""
    t = torch.tensor(request.times[0], dtype=real_dtype(x0.dtype), device=x0.device)
    return request.field(t, x0).requires_grad


def solve_direct(request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Solve with every operation on autograd's tape.

    Args:
        request: The solve.
        x0: Packed initial state.
        params: Not needed: the tape finds them.

    Returns:
        States at the requested times, the initial one first.
    """
    settings = request.settings
    if request.too_many_steps and torch.is_grad_enabled() and _on_tape(request, x0):
        request.refuse_steps()
    if settings.black_box:
        solution = solve_black_box(settings, request.field, x0, request.times, request.packing)
    else:
        stepper = settings.stepper(
            request.field, x0, request.packing, differentiable=torch.is_grad_enabled()
        )
        solution = settings.run(
            stepper, x0, request.times, first_step=request.first_step, grid=request.grid
        )
    request.took(solution.stats)
    states = solution.states[1:]
    if request.observer is not None and torch.is_grad_enabled() and states:
        states = _Watched.apply(request, *states)
    return [x0, *states]
