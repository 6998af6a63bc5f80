"""The NeuralODE block: a solve as an ordinary module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.compiled import CompiledCheckpoint
from snopt.adjoint.dispatch import differentiable_solve, find_params, make_plan
from snopt.adjoint.observer import NodeObserver
from snopt.base.errors import InvalidTimes
from snopt.base.types import State
from snopt.ode.solution import SolveStats


class NeuralODE(nn.Module):
    r"""The map from :math:`x(t_0)` to :math:`x(t_1)` along :math:`\dot x = F(t, x, \theta)`.

    The step that turned out right for the beginning of one call opens the next (``carry_step``),
    which saves the evaluations that would guess it. The horizon and the carried step are part
    of the ``state_dict``, so that a restored run goes on exactly where it stopped.

    Attributes:
        field: The user's field.
        t0: Start time.
        stats: Counts of the latest call; those of the backward pass arrive with it.
        totals: Counts of all calls since ``totals.reset()``.
        observer: When set, calls in training mode tell it of nodes along the path during their
            backward pass.
    """

    horizon_buffer: Tensor
    carried_buffer: Tensor

    def __init__(
        self,
        field: nn.Module,
        horizon: float = 1.0,
        *,
        t0: float = 0.0,
        rtol: Any = 1e-3,
        atol: Any = 1e-3,
        method: str | None = None,
        adjoint: str = "checkpoint",
        options: dict[str, Any] | None = None,
        adjoint_options: dict[str, Any] | None = None,
        compile: bool = False,
        carry_step: bool = True,
    ) -> None:
        """Make a block.

        Args:
            field: A module with ``forward(t, x)``; ``t`` is a 0-d tensor, ``x`` a tensor or a
                nested tuple of tensors.
            horizon: End time ``t1`` of the solve (T in the paper), before or after ``t0``.
            t0: Start time.
            rtol: Relative tolerance.
            atol: Absolute tolerance.
            method: Solver; default dopri5, or the leapfrog under ``adjoint="reversible"``.
            adjoint: ``"checkpoint"``, ``"backsolve"``, ``"reversible"`` or ``"direct"``.
            options: The solver's options, as for :func:`snopt.odeint`.
            adjoint_options: The adjoint's options, as for :func:`snopt.odeint`.
            compile: Compile whole steps and their pull-backs; adaptive native methods under
                ``adjoint="checkpoint"`` only. Falls back to eager with one warning.
            carry_step: Start with the step size of the call before.

        Example:
            >>> class Decay(nn.Module):
            ...     def forward(self, t, x):
            ...         return -x
            >>> block = NeuralODE(Decay(), horizon=1.0, rtol=1e-6, atol=1e-6)
            >>> round(block(torch.ones(1)).item(), 4), block.stats.accepted > 0
            (0.3679, True)
        """
        super().__init__()
        if not isinstance(field, nn.Module):
            raise TypeError(
                f"field is a {type(field).__name__}; wrap it in an nn.Module so that its "
                "parameters are found, or use snopt.odeint."
            )
        self.field, self.t0, self.carry_step = field, float(t0), carry_step
        # Buffers, so that they are saved, restored and kept alike on all ranks with the model.
        self.register_buffer("horizon_buffer", torch.tensor(0.0))
        self.register_buffer("carried_buffer", torch.tensor(0.0))
        self.horizon = horizon
        self._plan = make_plan(method, rtol, atol, options, adjoint, adjoint_options)
        if compile:
            self._plan.solver = CompiledCheckpoint(field, self._plan.settings, self._plan.adjoint)
        self.stats, self.totals = SolveStats(), SolveStats()
        self.observer: NodeObserver | None = None

    @property
    def horizon(self) -> float:
        """End time ``t1``; set it to change the next call.

        Returns:
            The horizon.

        Example:
            >>> block = NeuralODE(nn.Identity(), horizon=2.0)
            >>> block.horizon = 1.5
            >>> block.horizon
            1.5
        """
        return float(self.horizon_buffer)

    @horizon.setter
    def horizon(self, value: float) -> None:
        value = float(value)
        if not math.isfinite(value) or value == self.t0:
            raise InvalidTimes(
                f"horizon = {value} with t0 = {self.t0}: the solve would have no length; choose a "
                "finite horizon different from t0."
            )
        self.horizon_buffer.fill_(value)

    def forward(self, x: State, t: Tensor | Sequence[float] | None = None) -> State:
        """Solve from ``x``.

        Args:
            x: State at the start.
            t: None for the state at the horizon; or times, the start first, for the states at
                all of them.

        Returns:
            ``x(t1)`` in the structure of ``x``; with ``t``, the states stacked on a new first
            axis of every part, as :func:`snopt.odeint` returns them.
        """
        self.stats = SolveStats()
        watched = self.training and torch.is_grad_enabled()
        carried = float(self.carried_buffer) if self.carry_step else 0.0
        states, packing = differentiable_solve(
            self.field, x, (self.t0, self.horizon) if t is None else t, self._plan,
            find_params(self.field, None),
            observer=self.observer if watched else None,
            stats=self.stats, totals=self.totals,
            first_step=carried or None,
        )  # fmt: skip
        if self.training and self.carry_step:
            self.carried_buffer.fill_(self.stats.first_step or 0.0)
        # Copies either way, so that what follows may change them in place (nn.ReLU(inplace=True)).
        return packing.unpack(states[-1].clone() if t is None else torch.stack(states))

    def extra_repr(self) -> str:
        """What ``print(block)`` says besides the field.

        Returns:
            The settings that matter most.
        """
        settings = self._plan.settings
        return (
            f"t0={self.t0}, horizon={self.horizon:g}, method={settings.method!r}, "
            f"adjoint={self._plan.adjoint!r}, rtol={settings.rtol}, atol={settings.atol}"
        )
