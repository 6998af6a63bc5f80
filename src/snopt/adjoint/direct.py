"""Plain backpropagation through the steps: more memory, derivatives of every order.

An observer is told by a walk back along the path (see :mod:`snopt.adjoint.backsolve`) that
starts when the gradient arrives at the initial state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.backsolve import observe_walk
from snopt.adjoint.request import Request
from snopt.ode.blackbox import solve_black_box


class Watch:
    """Collects the cotangents of a solve's outputs and starts the walk at its beginning.

    Two identities are put on the tape: one on the outputs, which remembers their cotangents,
    and one on the initial state, which the backward pass reaches last.
    """

    def __init__(self, request: Request) -> None:
        """Watch one solve.

        Args:
            request: The solve, with its observer.
        """
        self.request = request
        self.states: list[Tensor] = []
        self.gradients: list[Tensor | None] = []

    def start(self, x0: Tensor) -> Tensor:
        """Mark the initial state.

        Args:
            x0: Packed initial state.

        Returns:
            The same values, on the tape.
        """
        source = x0 if x0.requires_grad else x0.detach().requires_grad_()
        return _Start.apply(self, source)  # type: ignore[no-any-return]

    def end(self, states: Sequence[Tensor]) -> list[Tensor]:
        """Mark the outputs.

        Args:
            states: Packed states after the first time.

        Returns:
            The same values, on the tape.
        """
        self.states = [state.detach() for state in states]
        self.gradients = [None] * len(states)
        return [_End.apply(self, i, state) for i, state in enumerate(states)]


class _Start(torch.autograd.Function):
    """Identity; its backward runs when the whole solve has been pulled back."""

    @staticmethod
    def forward(ctx: Any, watch: Watch, x0: Tensor) -> Tensor:
        ctx.watch = watch
        return x0.view_as(x0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        watch: Watch = ctx.watch
        with torch.no_grad(), watch.request.again(gradient.device) as field:
            request = replace(watch.request, field=field)
            observe_walk(request, watch.states, watch.gradients)
        return None, gradient


class _End(torch.autograd.Function):
    """Identity; its backward remembers the cotangent of one output."""

    @staticmethod
    def forward(ctx: Any, watch: Watch, index: int, x: Tensor) -> Tensor:
        ctx.watch, ctx.index = watch, index
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        ctx.watch.gradients[ctx.index] = gradient.detach()
        return None, None, gradient


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
    watch = Watch(request) if request.observer is not None and torch.is_grad_enabled() else None
    start = watch.start(x0) if watch is not None else x0
    if settings.black_box:
        solution = solve_black_box(settings, request.field, start, request.times, request.packing)
    else:
        stepper = settings.stepper(
            request.field, start, request.packing, differentiable=torch.is_grad_enabled()
        )
        solution = settings.run(
            stepper, start, request.times, first_step=request.first_step, grid=request.grid
        )
    request.took(solution.stats)
    states = solution.states[1:]
    return [x0, *(watch.end(states) if watch is not None else states)]
