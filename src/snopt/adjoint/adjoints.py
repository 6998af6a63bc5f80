"""The four adjoints, which are the values of ``adjoint=`` in a block or in ``odeint``.

The strings ``"checkpoint"``, ``"backsolve"``, ``"reversible"`` and ``"direct"`` are shorthands for
the adjoints with default settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from snopt.adjoint.backsolve import Backsolved
from snopt.adjoint.checkpoint import solve_checkpoint
from snopt.adjoint.compiled import CompiledCheckpoint
from snopt.adjoint.direct import solve_direct
from snopt.adjoint.eager_steps import EAGER
from snopt.adjoint.request import Adjoint, Request
from snopt.adjoint.reversible import Reversed
from snopt.adjoint.tape_budget import allowed
from snopt.base.errors import InvalidOption, unknown
from snopt.ode.callbacks import Callbacks
from snopt.ode.options import LEAPFROG
from snopt.ode.settings import Settings


@dataclass(frozen=True)
class Checkpoint(Adjoint):
    """Keep one state per step and the tapes of the last steps; recompute the other tapes.

    The gradient is exact for the computed solution.

    Attributes:
        keep: number of last steps whose tape is kept; None keeps the tapes of as many evaluations
            as fit into 192 MiB, and into 1 GiB for all solves that wait for their backward pass.

    Example:
        >>> Checkpoint(keep=-1)
        Traceback (most recent call last):
        ...
        snopt.base.errors.InvalidOption: keep = -1 must be a number of steps, or None for as ...
    """

    keep: int | None = None
    name: ClassVar[str] = "checkpoint"

    def __post_init__(self) -> None:
        if self.keep is not None and (not isinstance(self.keep, int) or self.keep < 0):
            raise InvalidOption(
                f"keep = {self.keep!r} must be a number of steps, or None for as many as fit into "
                "192 MiB."
            )

    def fitted(self, settings: Settings) -> Adjoint:
        """Return this adjoint, or one that supports the black-box method.

        The steps of a black box cannot be run again one by one. Direct backpropagation is as
        exact; Backsolve is used if the method has no tape.
        """
        if not settings.black_box:
            return super().fitted(settings)
        if self.keep is not None:
            raise InvalidOption(
                f"keep = {self.keep} is not supported for method={settings.method!r}, which "
                "uses torchdiffeq's own steps; use Direct() or Backsolve()."
            )
        return Backsolve() if settings.method == "scipy_solver" else Direct()

    def compiled(self, field: nn.Module, settings: Settings) -> Adjoint:
        """Return this adjoint with compiled steps, or raise InvalidOption if it has none."""
        if settings.tableau is None or not settings.tableau.fsal:
            return super().compiled(field, settings)
        return CompiledCheckpoint(field, settings, self.keep)

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve and keep what the backward pass needs; see :meth:`Adjoint.solve`."""
        if not torch.is_grad_enabled():
            return solve_direct(request, x0)
        request.allowed = allowed(request, x0, params, self.keep, slopes=True)
        return solve_checkpoint(request, x0, params, EAGER)


@dataclass(frozen=True)
class Backsolve(Adjoint):
    """The adjoint sensitivity method: memory independent of the number of steps.

    The backward pass integrates the state again. An attribute that is None has the value of the
    forward pass.

    Attributes:
        method: backward method.
        rtol: relative tolerance of the backward pass.
        atol: absolute tolerance of the backward pass.
        options: options of the backward method. They are required (possibly ``{}``) if the methods
            differ and the forward method has options. ``"norm"`` is a function of the adjoint state
            ``(0, x, Q_x)``, or ``"seminorm"``, which excludes the parameters from error control.
            This adjoint always excludes them.
        nodes: Gauss nodes per step for the parameter gradient; None chooses by the method's order.
    """

    method: str | None = None
    rtol: Any = None
    atol: Any = None
    options: dict[str, Any] | None = None
    nodes: int | None = None
    name: ClassVar[str] = "backsolve"

    def __post_init__(self) -> None:
        if self.nodes is not None and (not isinstance(self.nodes, int) or self.nodes < 1):
            raise InvalidOption(f"nodes = {self.nodes!r} must be a positive number of nodes.")

    def fitted(self, settings: Settings) -> Adjoint:
        """Return this adjoint after checking its options."""
        self.backward(settings)
        return super().fitted(settings)

    def backward(self, forward: Settings) -> Settings:
        """Return the settings of the backward pass."""
        rtol = forward.rtol if self.rtol is None else self.rtol
        atol = forward.atol if self.atol is None else self.atol
        method = self.method or forward.method
        if self.options is None and method == forward.method:
            return forward.replaced(rtol=rtol, atol=atol)
        if self.options is None and forward.options:
            raise InvalidOption(
                f"options={forward.options} belong to method={forward.method!r}; pass "
                f"adjoint_options={{...}} (possibly {{}}) for the backward method {method!r}."
            )
        own = {k: v for k, v in (self.options or {}).items() if (k, v) != ("norm", "seminorm")}
        settings = Settings.parse(method, rtol, atol, own)
        return settings.replaced(norm=forward.norm, adjoint_norm=settings.norm)

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve and keep only the outputs; see :meth:`Adjoint.solve`."""
        if not torch.is_grad_enabled():
            return solve_direct(request, x0)
        callbacks = Callbacks.of(request.func, request.packing.unpack, "_adjoint")
        request.backward = self.backward(request.settings).calling(callbacks)
        request.nodes = self.nodes
        return [x0, *Backsolved.apply(request, x0, *params)]


@dataclass(frozen=True)
class Reversible(Adjoint):
    """Constant memory and an exact gradient, with a leapfrog method that can be inverted.

    Attributes:
        eta: damping, above 0.5 and at most 1.
    """

    eta: float = 1.0
    name: ClassVar[str] = "reversible"
    default_method: ClassVar[str] = LEAPFROG

    def __post_init__(self) -> None:
        if not 0.5 < self.eta <= 1.0:
            raise InvalidOption(f"eta = {self.eta} must be above 0.5 and at most 1.")

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve with the leapfrog method; see :meth:`Adjoint.solve`."""
        return [x0, *Reversed.apply(request, self.eta, x0, *params)]


@dataclass(frozen=True)
class Direct(Adjoint):
    """Backpropagation through every operation: most memory, derivatives of every order."""

    name: ClassVar[str] = "direct"
    higher: ClassVar[bool] = True

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve on autograd's tape; see :meth:`Adjoint.solve`."""
        return solve_direct(request, x0)


ADJOINTS: dict[str, Adjoint] = {
    adjoint.name: adjoint for adjoint in (Checkpoint(), Backsolve(), Reversible(), Direct())
}


def adjoint_named(adjoint: str | Adjoint) -> Adjoint:
    """Return the adjoint for a value of ``adjoint=``.

    Example:
        >>> adjoint_named("checkpoint")
        Checkpoint(keep=None)
    """
    if isinstance(adjoint, Adjoint):
        return adjoint
    if not isinstance(adjoint, str):
        raise TypeError(
            f"adjoint is a {type(adjoint).__name__}; use one of {', '.join(map(repr, ADJOINTS))} "
            "or an object such as snopt.Checkpoint(keep=0)."
        )
    if adjoint not in ADJOINTS:
        raise unknown("adjoint", adjoint, ADJOINTS)
    return ADJOINTS[adjoint]
