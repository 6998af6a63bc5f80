r"""The adjoint sensitivity method with parameters kept out of the ODE's state.

Backward in time only :math:`(x, Q_x)` is integrated,

.. math::
    \dot x = F, \qquad \dot Q_x = -F_x^\top Q_x,

and everything else is an integral along that path, told to observers at quadrature nodes.
The parameter gradient :math:`Q_u = \int F_u^\top Q_x\,dt` (labels ``eq:adjoint-node`` and
``eq:backward-ode`` in the paper) is the first such observer; curvature is another. Memory does
not depend on the number of steps.
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
from snopt.base.packing import Packing
from snopt.base.types import State, leaves
from snopt.ode.blackbox import solve_black_box
from snopt.ode.runge_kutta import Stepper
from snopt.ode.settings import LEAPFROG, Settings
from snopt.ode.solution import Solution
from snopt.ode.solve import Step
from snopt.ode.tableau import DOPRI5


class PathListener(Protocol):
    """Told of packed states and adjoints at quadrature nodes.

    Attributes:
        quadrature: Where.
    """

    quadrature: Quadrature

    def node(self, t: float, weight: float, x: Tensor, Q_x: Tensor) -> None:
        """Take in one node."""


class ParameterGradient:
    """``Q_u`` as a sum over nodes.

    Attributes:
        quadrature: Gauss nodes inside every step.
        gradient: The sum so far.
    """

    def __init__(self, request: Request, params: Sequence[Tensor], order: int) -> None:
        """Start at zero.

        Args:
            request: The solve.
            params: Parameters.
            order: Order of the method, which decides how many nodes a step needs.
        """
        nodes = request.nodes or max(2, (order + 1) // 2)
        self.quadrature: Quadrature = PerStep(nodes, whole=max(16, nodes))
        self.gradient = GradientSum(params)
        self._request = request
        self._sign = 1.0 if request.times[-1] > request.times[0] else -1.0

    def node(self, t: float, weight: float, x: Tensor, Q_x: Tensor) -> None:
        """Add ``weight * F_u^T Q_x``.

        Args:
            t: Time.
            weight: Quadrature weight.
            x: Packed state.
            Q_x: Packed adjoint.
        """
        _, value = tape(self._request.field, torch.tensor(t, dtype=x.dtype, device=x.device), x)
        self._request.took_backward(1)
        if value.requires_grad and self.gradient.params:
            found = torch.autograd.grad(value, self.gradient.params, Q_x, allow_unused=True)
            self.gradient.add(found, self._sign * weight)


class ToldObserver:
    """A user's observer on the path, told in the user's structure.

    Attributes:
        quadrature: The observer's own.
    """

    def __init__(self, request: Request) -> None:
        """Stand in for the request's observer.

        Args:
            request: A request that has one.
        """
        assert request.observer is not None
        self._request, self._observer = request, request.observer
        self.quadrature = request.observer.quadrature

    def node(self, t: float, weight: float, x: Tensor, Q_x: Tensor) -> None:
        """Pass the node on.

        Args:
            t: Time.
            weight: Quadrature weight.
            x: Packed state.
            Q_x: Packed adjoint.
        """
        self._request.tell(self._observer, t, weight, x, Q_x)


def walk(request: Request, states: Sequence[Tensor], gradients: Sequence[Tensor | None],
         listeners: Sequence[PathListener]) -> Tensor:  # fmt: skip
    """Integrate ``(x, Q_x)`` from the last time to the first, telling listeners on the way.

    The state is set anew at every requested time, so that errors of running the field
    backward do not add up over intervals.

    Args:
        request: The solve.
        states: Packed states at the requested times after the first.
        gradients: Cotangents of these states.
        listeners: Whom to tell.

    Returns:
        ``Q_x`` at the first time.
    """
    settings, times = _walk_settings(request), request.times
    like = states[-1]
    packing = Packing(((torch.Size([like.numel()]),) * 2), (like.numel(),) * 2)
    augmented = _Augmented(request, like)
    settings = settings.replaced(norm=_pair_norm(settings, request.packing, augmented))
    if settings.callbacks is not None:
        settings = settings.replaced(callbacks=replace(settings.callbacks, unpack=augmented.told))
    Q_x: Tensor | None = None
    step = request.stats.last_step
    for i in reversed(range(1, len(times))):
        g = gradients[i - 1]
        if g is not None:
            Q_x = g if Q_x is None else Q_x + g
        if Q_x is None:
            if request.observer is None:
                continue  # nothing depends on what comes later
            Q_x = torch.zeros_like(like)
        pair = torch.cat([states[i - 1].reshape(-1), Q_x.reshape(-1)])
        interval = (times[i], times[i - 1])
        if settings.black_box:
            pair = _walk_black_box(settings, augmented, pair, interval, packing, listeners, request)
        else:
            pair, step = _walk_steps(
                settings, augmented, pair, interval, packing, listeners, request, step
            )
        Q_x = augmented.split(pair)[1]
    request.took_backward(augmented.evaluations)
    return torch.zeros_like(like) if Q_x is None else Q_x


class _Augmented:
    """The field of ``(x, Q_x)``, laid end to end."""

    def __init__(self, request: Request, like: Tensor) -> None:
        self.field, self.shape, self.n = request.field, like.shape, like.numel()
        self.unpack = request.packing.unpack
        self.evaluations = 0

    def told(self, pair: Tensor) -> tuple[Tensor, State, State]:
        """The adjoint state as torchdiffeq's users know it.

        The first part is that of the time gradient, which is not part of the solve; nor are
        those of the parameters, which would follow.
        """
        x, Q_x = self.split(pair)
        return x.new_zeros(()), self.unpack(x), self.unpack(Q_x)

    def split(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """State and adjoint in the state's shape."""
        return pair[: self.n].view(self.shape), pair[self.n :].view(self.shape)

    def __call__(self, t: Tensor, pair: Tensor) -> Tensor:
        """``(F, -F_x^T Q_x)``."""
        x, Q_x = self.split(pair)
        stage = tape(self.field, t, x)
        self.evaluations += 1
        back, _ = vjp(stage, Q_x, ())
        slope = torch.zeros_like(Q_x) if back is None else back.neg_()
        return torch.cat([stage[1].detach().reshape(-1), slope.reshape(-1)])


def _walk_settings(request: Request) -> Settings:
    """The backward method, observed along its own dense output.

    The leapfrog has none that is good enough.
    """
    settings = request.backward
    if settings.method == LEAPFROG:
        return settings.replaced(method="dopri5", tableau=DOPRI5)
    if settings.tableau is not None:
        return settings.replaced(tableau=replace(settings.tableau, outputs=()))
    return settings


def _pair_norm(settings: Settings, packing: Packing, augmented: _Augmented) -> Any:
    """The user's norm, or the larger of the state's and the adjoint's norm."""
    adjoint_norm, own = settings.adjoint_norm, settings.tolerance(packing).norm

    def norm(pair: tuple[Tensor, Tensor]) -> Tensor:
        if adjoint_norm is not None:
            return adjoint_norm(tuple(leaves(augmented.told(torch.cat(pair)))))
        x, Q_x = (part.view(augmented.shape) for part in pair)
        return torch.maximum(own(x), own(Q_x))

    return norm


def _walk_steps(
    settings: Settings,
    augmented: _Augmented,
    pair: Tensor,
    interval: tuple[float, float],
    packing: Packing,
    listeners: Sequence[PathListener],
    request: Request,
    first_step: float | None,
) -> tuple[Tensor, float | None]:
    """Walk one interval by a native method, telling nodes inside every accepted step."""
    t0, t1 = request.times[0], request.times[-1]
    stepper: Stepper = settings.stepper(augmented, pair, packing)

    def tell(step: Step) -> None:
        for listener in listeners:
            for t, weight in listener.quadrature.panel(step.t, step.t1, t0, t1):
                x, Q_x = augmented.split(stepper.interpolate((t - step.t) / step.h))
                listener.node(t, weight, x, Q_x)

    grid = settings.constructed_grid(augmented, augmented.told(pair), interval, pair)
    solution = settings.run(stepper, pair, interval, first_step=first_step, on_step=tell, grid=grid)
    return solution.states[-1], solution.stats.last_step


def _walk_black_box(
    settings: Settings,
    augmented: _Augmented,
    pair: Tensor,
    interval: tuple[float, float],
    packing: Packing,
    listeners: Sequence[PathListener],
    request: Request,
) -> Tensor:
    """Walk one interval by torchdiffeq, with the nodes passed as output times."""
    b, a = interval
    t0, t1 = request.times[0], request.times[-1]
    told: dict[float, list[tuple[PathListener, float]]] = {}
    for listener in listeners:
        for t, weight in listener.quadrature.panel(b, a, t0, t1, whole=True):
            told.setdefault(t, []).append((listener, weight))
    nodes = sorted((t for t in told if t not in (a, b)), reverse=b > a)
    if "step_size" in (settings.options or {}):
        # torchdiffeq's fixed grids interpolate outputs linearly unless told otherwise.
        settings = settings.replaced(options={"interp": "cubic", **(settings.options or {})})
    solution = solve_black_box(settings, augmented, pair, [b, *nodes, a], packing)
    for t, state in zip([b, *nodes, a], solution.states, strict=True):
        for listener, weight in told.get(t, ()):
            listener.node(t, weight, *augmented.split(state))
    return solution.states[-1]


class _Backsolve(torch.autograd.Function):
    """Solve forward keeping only the outputs; integrate the adjoint backward."""

    @staticmethod
    def forward(ctx: Any, request: Request, x0: Tensor, *params: Tensor) -> Any:
        """Solve without a tape.

        Args:
            ctx: Autograd's context.
            request: The solve.
            x0: Packed initial state.
            *params: Parameters.

        Returns:
            States at the requested times after the first.
        """
        with request.without_draws("backsolve", x0.device):
            solution = _forward(request, x0)
        request.took(solution.stats)
        ctx.set_materialize_grads(False)
        ctx.request, ctx.outputs = request, len(solution.states) - 1
        states = tuple(solution.states[1:])
        ctx.save_for_backward(*states, *params)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        """Walk back along the path.

        Args:
            ctx: Autograd's context.
            *gradients: Cotangents of the outputs.

        Returns:
            Cotangents of the inputs.
        """
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
                listeners.append(ToldObserver(request))
            Q_x = walk(request, states, gradients, listeners)
            if apart:
                # More output times may change a black box's steps, so observe on another walk.
                observe_walk(request, states, gradients)
        # As torchdiffeq: a parameter that the field does not use has the gradient zero.
        found = zip(total.gradient.total, params, strict=True)
        rest = [torch.zeros_like(p) if g is None else g for g, p in found]
        return (None, Q_x if ctx.needs_input_grad[1] else None, *rest)


def _forward(request: Request, x0: Tensor) -> Solution:
    """Solve without a tape."""
    settings = request.settings
    if settings.black_box:
        return solve_black_box(settings, request.field, x0, request.times, request.packing)
    stepper = settings.stepper(request.field, x0, request.packing)
    return settings.run(
        stepper, x0, request.times, first_step=request.first_step, grid=request.grid
    )


def observe_walk(request: Request, states: Sequence[Tensor],
                 gradients: Sequence[Tensor | None]) -> None:  # fmt: skip
    """Tell the request's observer by a walk back along the path.

    Args:
        request: The solve, with its observer.
        states: Packed states at the requested times after the first.
        gradients: Cotangents of these states.
    """
    quiet = replace(request, backward=request.backward.replaced(callbacks=None))
    walk(quiet, states, gradients, [ToldObserver(request)])


def solve_backsolve(request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Solve with the adjoint sensitivity method.

    Args:
        request: The solve.
        x0: Packed initial state.
        params: Parameters to differentiate for.

    Returns:
        States at the requested times, the initial one first.
    """
    return [x0, *_Backsolve.apply(request, x0, *params)]
