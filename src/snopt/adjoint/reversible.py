r"""The reversible adjoint: constant memory and an exact gradient.

The forward pass uses the asynchronous leapfrog and keeps its last state and the step sizes. The
backward pass undoes each step; one evaluation is used for both the inverse and the pull-back. With
cotangents :math:`(\lambda_x, \lambda_v)` after a step,

.. math::
    \nu = \lambda_v + \tfrac h2 \lambda_x, \quad
    \mu = \lambda_x + 2\eta F_x^\top \nu, \quad
    \lambda_x \leftarrow \mu, \quad
    \lambda_v \leftarrow (1 - 2\eta)\, \nu + \tfrac h2 \mu, \quad
    Q_u \mathrel{+}= 2\eta F_u^\top \nu ,

and at the start, where :math:`v = F(t_0, x_0)`, :math:`\lambda_v` is pulled through the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.backsolve import observe_walk
from snopt.adjoint.checkpoint import StepMark, refuse_create_graph
from snopt.adjoint.pullback import GradientSum, tape, vjp
from snopt.adjoint.request import Request
from snopt.base.types import time_tensor
from snopt.ode.reversible import AsynchronousLeapfrog, unleap
from snopt.ode.solve import Step


class Reversed(torch.autograd.Function):
    """Solves by the leapfrog; its backward pass undoes the steps."""

    @staticmethod
    def forward(ctx: Any, request: Request, eta: float, x0: Tensor, *params: Tensor) -> Any:
        """Return the states at the requested times after the first."""
        marks: list[StepMark] = []

        def remember(step: Step) -> None:
            marks.append(StepMark(step.t, step.h, step.outputs))

        settings = request.settings
        stepper = AsynchronousLeapfrog(request.field, settings.tolerance(request.packing), eta)
        with request.without_draws("reversible", x0.device):
            # Steps end at every requested time, because interpolation could not be undone.
            solution = settings.run(
                stepper, x0, request.times,
                first_step=request.first_step, on_step=remember, grid=list(request.times[1:]),
            )  # fmt: skip
        request.took(solution.stats)
        ctx.set_materialize_grads(False)
        ctx.request, ctx.eta, ctx.marks, ctx.outputs = request, eta, marks, len(solution.states) - 1
        states = tuple(solution.states[1:])
        assert stepper.v is not None
        ctx.save_for_backward(*states, stepper.v, *params)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        """Undo the steps and pull the cotangents back."""
        refuse_create_graph("reversible")
        saved, n = ctx.saved_tensors, ctx.outputs
        states, v, params = saved[:n], saved[n], ctx.request.targets(saved[n + 1 :])
        gradient = GradientSum(params)
        with ctx.request.again(v.device) as field:
            request = replace(ctx.request, field=field)
            Q_x = _pull_back(request, ctx.marks, states[-1], v, gradients, gradient, ctx.eta)
            if request.observer is not None:
                observe_walk(request, states, gradients)
        return (None, None, Q_x if ctx.needs_input_grad[2] else None, *gradient.total)


def _pull_back(request: Request, marks: Sequence[StepMark], x: Tensor, v: Tensor,
               gradients: Sequence[Tensor | None], gradient: GradientSum,
               eta: float) -> Tensor:  # fmt: skip
    """Undo all steps, the last one first, and return the cotangent of the initial state."""
    lam_x, lam_v = torch.zeros_like(x), torch.zeros_like(x)
    params = gradient.params
    for mark in reversed(marks):
        h = mark.h
        for index, _ in mark.outputs:
            g = gradients[index - 1]
            if g is not None:
                lam_x = lam_x + g
        x_mid = torch.sub(x, v, alpha=0.5 * h)
        stage = tape(request.field, time_tensor(mark.t + 0.5 * h, x), x_mid)
        x, v = unleap(x_mid, v, stage[1].detach(), h, eta)
        nu = torch.add(lam_v, lam_x, alpha=0.5 * h)
        back, rest = vjp(stage, 2.0 * eta * nu, params)
        gradient.add(rest)
        lam_x = lam_x if back is None else lam_x + back
        lam_v = torch.add((1.0 - 2.0 * eta) * nu, lam_x, alpha=0.5 * h)
    back, rest = vjp(tape(request.field, time_tensor(request.times[0], x), x), lam_v, params)
    gradient.add(rest)
    request.took_backward(len(marks) + 1)
    return lam_x if back is None else lam_x + back
