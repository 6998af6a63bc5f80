"""The four adjoints as values: what ``adjoint=`` of a block or of ``odeint`` takes.

An adjoint says how to solve so that autograd can differentiate the result. Strings stand for the
default ones: ``"checkpoint"``, ``"backsolve"``, ``"reversible"``, ``"direct"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from snopt.adjoint.backsolve import solve_backsolve
from snopt.adjoint.checkpoint import solve_checkpoint
from snopt.adjoint.compiled import CompiledCheckpoint
from snopt.adjoint.direct import solve_direct
from snopt.adjoint.eager_steps import EAGER
from snopt.adjoint.request import Adjoint, Request
from snopt.adjoint.reversible import solve_reversible
from snopt.adjoint.tape_budget import steps_to_keep
from snopt.base.errors import InvalidOption, unknown
from snopt.ode.callbacks import Callbacks
from snopt.ode.settings import LEAPFROG, Settings


@dataclass(frozen=True)
class Checkpoint(Adjoint):
    """One state a step is kept, and the tape of the last steps; the rest is run again.

    The gradient is exact for the computed solution.

    Attributes:
        keep: Last steps whose tape is kept; None keeps as many as fit into 256 MiB.

    Example:
        >>> Checkpoint(keep=-1)
        Traceback (most recent call last):
        ...
        snopt.base.errors.InvalidOption: keep = -1 must be a number of steps, or None for as ...
    """

    keep: int | None = None
    name: ClassVar[str] = "checkpoint"

    def __post_init__(self) -> None:
        """Check the number."""
        if self.keep is not None and (not isinstance(self.keep, int) or self.keep < 0):
            raise InvalidOption(
                f"keep = {self.keep!r} must be a number of steps, or None for as many as fit into "
                "256 MiB."
            )

    def fitted(self, settings: Settings) -> Adjoint:
        """The adjoint that solves with these settings.

        Args:
            settings: How to solve.

        Returns:
            Itself; for a black box, whose steps cannot be run again one by one, its own tape,
            which is as exact, or ``backsolve`` where it has none.
        """
        if not settings.black_box:
            return super().fitted(settings)
        if self.keep is not None:
            raise InvalidOption(
                f"keep = {self.keep} has no meaning for method={settings.method!r}, whose steps "
                "are torchdiffeq's own; use Direct() or Backsolve()."
            )
        return Backsolve() if settings.method == "scipy_solver" else Direct()

    def compiled(self, field: nn.Module, settings: Settings) -> Adjoint:
        """The same adjoint with compiled steps.

        Args:
            field: The module whose steps to compile.
            settings: How to solve.

        Returns:
            An adjoint.
        """
        if settings.tableau is None or not settings.tableau.fsal:
            return super().compiled(field, settings)
        return CompiledCheckpoint(field, settings, self.keep)

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve, keeping what the backward pass needs.

        Args:
            request: The solve.
            x0: Packed initial state.
            params: Parameters to differentiate for.

        Returns:
            States at the requested times, the initial one first.
        """
        if not torch.is_grad_enabled():
            return solve_direct(request, x0, ())  # nothing to keep for a backward pass
        request.keep = steps_to_keep(request, x0, params, self.keep)
        return solve_checkpoint(request, x0, params, EAGER)


@dataclass(frozen=True)
class Backsolve(Adjoint):
    """The adjoint sensitivity method: memory independent of the number of steps.

    The state is integrated again on the way back, by its own method if one is given. What is None
    is as in the forward pass.

    Attributes:
        method: Backward method.
        rtol: Relative tolerance backward.
        atol: Absolute tolerance backward.
        options: Options of the backward method, which must be given (if only ``{}``) with another
            method than forward where that has options. ``"norm"`` is a function of the adjoint
            state ``(0, x, Q_x)``, or ``"seminorm"``: the parameters take no part in the error
            control, which is always so here.
        nodes: Gauss nodes a step for the parameter gradient; None chooses by the method's order.
    """

    method: str | None = None
    rtol: Any = None
    atol: Any = None
    options: dict[str, Any] | None = None
    nodes: int | None = None
    name: ClassVar[str] = "backsolve"

    def __post_init__(self) -> None:
        """Check the number of nodes."""
        if self.nodes is not None and (not isinstance(self.nodes, int) or self.nodes < 1):
            raise InvalidOption(f"nodes = {self.nodes!r} must be a positive number of nodes.")

    def fitted(self, settings: Settings) -> Adjoint:
        """Itself, its options checked.

        Args:
            settings: How the way there is solved.

        Returns:
            The adjoint.
        """
        self.backward(settings)
        return super().fitted(settings)

    def backward(self, forward: Settings) -> Settings:
        """How to solve on the way back.

        Args:
            forward: How the way there is solved.

        Returns:
            The settings.

        Raises:
            InvalidOption: Options of the forward method are no options of another one.
        """
        rtol = forward.rtol if self.rtol is None else self.rtol
        atol = forward.atol if self.atol is None else self.atol
        method = self.method or forward.method
        if self.options is None and method == forward.method:
            return forward.replaced(rtol=rtol, atol=atol)
        if self.options is None and forward.options:
            raise InvalidOption(
                f"options={forward.options} are those of method={forward.method!r}; for the "
                f"backward method {method!r} give adjoint_options={{...}} as well, if only {{}}."
            )
        own = {k: v for k, v in (self.options or {}).items() if (k, v) != ("norm", "seminorm")}
        settings = Settings.parse(method, rtol, atol, own)
        return settings.replaced(norm=forward.norm, adjoint_norm=settings.norm)

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve, keeping only the outputs.

        Args:
            request: The solve.
            x0: Packed initial state.
            params: Parameters to differentiate for.

        Returns:
            States at the requested times, the initial one first.
        """
        if not torch.is_grad_enabled():
            return solve_direct(request, x0, ())
        callbacks = Callbacks.of(request.func, request.packing.unpack, "_adjoint")
        request.backward = self.backward(request.settings).calling(callbacks)
        request.nodes = self.nodes
        return solve_backsolve(request, x0, params)


@dataclass(frozen=True)
class Reversible(Adjoint):
    """Constant memory and an exact gradient, by a leapfrog that can be undone.

    Attributes:
        eta: Damping, above 0.5 and at most 1.
    """

    eta: float = 1.0
    name: ClassVar[str] = "reversible"
    default_method: ClassVar[str] = LEAPFROG

    def __post_init__(self) -> None:
        """Check the damping."""
        if not 0.5 < self.eta <= 1.0:
            raise InvalidOption(f"eta = {self.eta} must be above 0.5 and at most 1.")

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve by the leapfrog.

        Args:
            request: The solve.
            x0: Packed initial state.
            params: Parameters to differentiate for.

        Returns:
            States at the requested times, the initial one first.
        """
        return solve_reversible(request, x0, params, self.eta)


@dataclass(frozen=True)
class Direct(Adjoint):
    """Backpropagation through every operation: most memory, derivatives of every order."""

    name: ClassVar[str] = "direct"
    higher: ClassVar[bool] = True

    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve on autograd's tape.

        Args:
            request: The solve.
            x0: Packed initial state.
            params: Not needed: the tape finds them.

        Returns:
            States at the requested times, the initial one first.
        """
        return solve_direct(request, x0, params)


ADJOINTS: dict[str, Adjoint] = {
    adjoint.name: adjoint for adjoint in (Checkpoint(), Backsolve(), Reversible(), Direct())
}


def adjoint_named(adjoint: str | Adjoint) -> Adjoint:
    """The adjoint that a user means.

    Args:
        adjoint: An adjoint, or the name of a default one.

    Returns:
        The adjoint.

    Raises:
        UnknownName: No adjoint of that name.
        TypeError: Neither an adjoint nor a name.

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
