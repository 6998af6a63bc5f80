r"""The adjoint sensitivity method, with the parameters excluded from the ODE's state.

Only :math:`(x, Q_x)` is integrated backward in time,

.. math::
    \dot x = F, \qquad \dot Q_x = -F_x^\top Q_x,

and everything else is an integral along that path, evaluated at quadrature nodes. The parameter
gradient :math:`Q_u = \int F_u^\top Q_x\,dt` (labels ``eq:adjoint-node`` and ``eq:backward-ode`` in
the paper) is one such integral; curvature is another. Memory does not depend on the number of
steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from snopt.adjoint.checkpoint import refuse_create_graph
from snopt.adjoint.pullback import GradientSum, tape, vjp
from snopt.adjoint.quadrature import PerStep, Quadrature
from snopt.adjoint.request import Request
from snopt.base.backprop import backpropagate
from snopt.base.packing import Packing
from snopt.base.types import State, leaves, time_tensor
from snopt.ode.blackbox import solve_black_box
from snopt.ode.options import LEAPFROG
from snopt.ode.runge_kutta import Stepper
from snopt.ode.settings import Settings
from snopt.ode.solve import Step
from snopt.ode.tableau import DOPRI5


class PathListener(Protocol):
    """Receives packed states and adjoints at quadrature nodes."""

    quadrature: Quadrature

    def node(self, t: float, weight: float, x: Tensor, Q_x: Tensor) -> None:
        """Process one node."""


class ParameterGradient:
    """``Q_u`` as a sum over Gauss nodes inside every step; the method's order sets their number."""

    def __init__(self, request: Request, params: Sequence[Tensor], order: int) -> None:
        nodes = request.nodes or max(2, (order + 1) // 2)
        self.quadrature: Quadrature = PerStep(nodes, whole=max(16, nodes))
        self.gradient = GradientSum(params)
        self._request = request
        self._sign = 1.0 if request.times[-1] > request.times[0] else -1.0

    def node(self, t: float, weight: float, x: Tensor, Q_x: Tensor) -> None:
        """Add ``weight * F_u^T Q_x``."""
        _, value = tape(self._request.field, time_tensor(t, x), x)
        self._request.took_backward(1)
        if value.requires_grad and self.gradient.params:
            found = backpropagate((value,), self.gradient.params, (Q_x,))
            self.gradient.add(found, self._sign * weight)


class Observed:
    """The observer of a request as a listener."""

    def __init__(self, request: Request) -> None:
        assert request.observer is not None
        self.quadrature = request.observer.quadrature
        self.node = request.observe


def walk(request: Request, states: Sequence[Tensor], gradients: Sequence[Tensor | None],
         listeners: Sequence[PathListener]) -> Tensor:  # fmt: skip
    """Integrate ``(x, Q_x)`` from the last time to the first, and return ``Q_x`` there.

    ``states`` and their cotangents ``gradients`` are those at the requested times after the first.
    The state is reset at each of these times, so errors of the backward integration do not
    accumulate over intervals.
    """
    way = _Walk(request, states[-1], listeners)
    Q_x: Tensor | None = None
    for i in reversed(range(1, len(request.times))):
        g = gradients[i - 1]
        if g is not None:
            Q_x = g if Q_x is None else Q_x + g
        if Q_x is None:
            if request.observer is None:
                continue  # nothing depends on later states
            Q_x = torch.zeros_like(states[-1])
        Q_x = way.back(states[i - 1], Q_x, request.times[i], request.times[i - 1])
    request.took_backward(way.augmented.evaluations)
    return torch.zeros_like(states[-1]) if Q_x is None else Q_x


class _Augmented:
    """The field of ``(x, Q_x)``, concatenated to one vector."""

    def __init__(self, request: Request, like: Tensor) -> None:
        self.field, self.shape, self.n = request.field, like.shape, like.numel()
        self.unpack = request.packing.unpack
        self.evaluations = 0

    def nested(self, pair: Tensor) -> tuple[Tensor, State, State]:
        """Return the adjoint state in torchdiffeq's layout.

        Its first part, the time gradient, is zero, and the parameter gradients at its end are left
        out: neither is part of the solve.
        """
        x, Q_x = self.split(pair)
        return x.new_zeros(()), self.unpack(x), self.unpack(Q_x)

    def split(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """Return state and adjoint in the shape of the state."""
        return pair[: self.n].view(self.shape), pair[self.n :].view(self.shape)

    def __call__(self, t: Tensor, pair: Tensor) -> Tensor:
        """Return ``(F, -F_x^T Q_x)``."""
        x, Q_x = self.split(pair)
        stage = tape(self.field, t, x)
        self.evaluations += 1
        back, _ = vjp(stage, Q_x, ())
        slope = torch.zeros_like(Q_x) if back is None else back.neg_()
        return torch.cat([stage[1].detach().reshape(-1), slope.reshape(-1)])


class _Walk:
    """Integrates ``(x, Q_x)`` backward over one interval at a time."""

    def __init__(self, request: Request, like: Tensor, listeners: Sequence[PathListener]) -> None:
        self.augmented = _Augmented(request, like)
        self.listeners, self.ends = listeners, (request.times[0], request.times[-1])
        self.packing = Packing((torch.Size([like.numel()]),) * 2, (like.numel(),) * 2)
        self.step = request.stats.last_step
        settings = request.backward
        if settings.method == LEAPFROG:  # its dense output is not accurate enough for nodes
            settings = settings.replaced(method="dopri5", tableau=DOPRI5)
        elif settings.tableau is not None:
            settings = settings.replaced(tableau=replace(settings.tableau, outputs=()))
        self.settings = settings.replaced(norm=self._norm(settings, request.packing))
        if settings.callbacks is not None:
            callbacks = replace(settings.callbacks, unpack=self.augmented.nested)
            self.settings = self.settings.replaced(callbacks=callbacks)

    def _norm(self, settings: Settings, packing: Packing) -> Any:
        """Return the user's norm, or the larger one of the state's and the adjoint's norm."""
        adjoint_norm, own = settings.adjoint_norm, settings.tolerance(packing).norm
        augmented = self.augmented

        def norm(pair: tuple[Tensor, Tensor]) -> Tensor:
            if adjoint_norm is not None:
                return adjoint_norm(tuple(leaves(augmented.nested(torch.cat(pair)))))
            x, Q_x = (part.view(augmented.shape) for part in pair)
            return torch.maximum(own(x), own(Q_x))

        return norm

    def back(self, x: Tensor, Q_x: Tensor, b: float, a: float) -> Tensor:
        """Integrate from ``b`` back to ``a``, and return the adjoint there."""
        pair = torch.cat([x.reshape(-1), Q_x.reshape(-1)])
        step = self._black_box if self.settings.black_box else self._native
        return self.augmented.split(step(pair, b, a))[1]

    def _native(self, pair: Tensor, b: float, a: float) -> Tensor:
        """Integrate with a native method, with nodes inside every accepted step."""
        settings, split = self.settings, self.augmented.split
        stepper: Stepper = settings.stepper(self.augmented, pair, self.packing)

        def listen(step: Step) -> None:
            for listener in self.listeners:
                for t, weight in listener.quadrature.panel(step.t, step.t1, *self.ends):
                    x, Q_x = split(stepper.interpolate((t - step.t) / step.h))
                    listener.node(t, weight, x, Q_x)

        grid = settings.constructed_grid(self.augmented, self.augmented.nested(pair), (b, a), pair)
        solution = settings.run(
            stepper, pair, (b, a), first_step=self.step, on_step=listen, grid=grid
        )
        self.step = solution.stats.last_step
        return solution.states[-1]

    def _black_box(self, pair: Tensor, b: float, a: float) -> Tensor:
        """Integrate with torchdiffeq, with the nodes as output times."""
        settings = self.settings
        wanted: dict[float, list[tuple[PathListener, float]]] = {}
        for listener in self.listeners:
            for t, weight in listener.quadrature.panel(b, a, *self.ends, whole=True):
                wanted.setdefault(t, []).append((listener, weight))
        nodes = sorted((t for t in wanted if t not in (a, b)), reverse=b > a)
        if "step_size" in (settings.options or {}):
            # The default of torchdiffeq's fixed grids is linear interpolation.
            settings = settings.replaced(options={"interp": "cubic", **(settings.options or {})})
        times = [b, *nodes, a]
        solution = solve_black_box(settings, self.augmented, pair, times, self.packing)
        for t, state in zip(times, solution.states, strict=True):
            for listener, weight in wanted.get(t, ()):
                listener.node(t, weight, *self.augmented.split(state))
        return solution.states[-1]


class Backsolved(torch.autograd.Function):
    """Solves forward and keeps only the outputs; integrates the adjoint backward."""

    @staticmethod
    def forward(ctx: Any, request: Request, x0: Tensor, *params: Tensor) -> Any:
        """Return the states at the requested times after the first."""
        with request.without_draws("backsolve", x0.device):
            solution = request.forward(x0)
        request.took(solution.stats)
        ctx.set_materialize_grads(False)
        ctx.request, ctx.outputs = request, len(solution.states) - 1
        states = tuple(solution.states[1:])
        ctx.save_for_backward(*states, *params)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        """Integrate the adjoint backward."""
        refuse_create_graph("backsolve")
        saved = ctx.saved_tensors
        states, params = saved[: ctx.outputs], ctx.request.targets(saved[ctx.outputs :])
        with ctx.request.again(states[0].device) as field:
            request: Request = replace(ctx.request, field=field)
            tableau = request.backward.tableau
            total = ParameterGradient(request, params, 5 if tableau is None else tableau.order)
            listeners: list[PathListener] = [total]
            apart = request.observer is not None and request.backward.black_box
            if request.observer is not None and not apart:
                listeners.append(Observed(request))
            Q_x = walk(request, states, gradients, listeners)
            if apart:
                # More output times may change the steps of a black box, so observe separately.
                observe_walk(request, states, gradients)
        # As in torchdiffeq, the gradient of a parameter that the field does not use is zero.
        found = zip(total.gradient.total, params, strict=True)
        rest = [torch.zeros_like(p) if g is None else g for g, p in found]
        return (None, Q_x if ctx.needs_input_grad[1] else None, *rest)


def observe_walk(request: Request, states: Sequence[Tensor],
                 gradients: Sequence[Tensor | None]) -> None:  # fmt: skip
    """Pass nodes to the observer in a separate backward integration; see :func:`walk`."""
    quiet = replace(request, backward=request.backward.replaced(callbacks=None))
    walk(quiet, states, gradients, [Observed(request)])
