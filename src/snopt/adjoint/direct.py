"""Plain backpropagation through the steps: more memory, derivatives of every order.

An observer receives its nodes from a separate backward integration
(:mod:`snopt.adjoint.backsolve`) once the gradients of the outputs are known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.backsolve import observe_walk
from snopt.adjoint.request import Request
from snopt.base.types import time_tensor


class _Watched(torch.autograd.Function):
    """Identity on the outputs; its backward pass computes the observer's nodes."""

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


def solve_direct(request: Request, x0: Tensor) -> list[Tensor]:
    """Solve with every operation on autograd's tape; see :meth:`Adjoint.solve`."""
    live = torch.is_grad_enabled()
    if live and request.too_many_steps:
        slope = request.field(time_tensor(request.times[0], x0), x0)
        if slope.requires_grad:  # autograd would keep the steps
            request.refuse_steps()
    solution = request.forward(x0, differentiable=live)
    request.took(solution.stats)
    states = solution.states[1:]
    if request.observer is not None and live and states:
        states = _Watched.apply(request, *states)
    return [x0, *states]
