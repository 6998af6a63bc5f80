"""The description of one differentiable solve, and the interface of adjoints."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from snopt.adjoint.observer import NodeObserver
from snopt.base.context import Context, detached, extra, moving, with_context
from snopt.base.errors import GradientError, InvalidOption, SolveError
from snopt.base.isolation import Again, RandomState, solver
from snopt.base.packing import Packing
from snopt.base.types import Field, State, TensorField, time_tensor
from snopt.ode.blackbox import solve_black_box
from snopt.ode.controller import UNBOUNDED
from snopt.ode.options import LEAPFROG
from snopt.ode.runge_kutta import Stepper
from snopt.ode.settings import Settings
from snopt.ode.solution import Solution, SolveStats

#: A kept step takes 1.6 kB in addition to its state.
MOST_KEPT_STEPS = 500_000
#: More steps than any solve takes.
NEVER = 2**50


@dataclass(frozen=True)
class Allowed:
    """What the forward pass of one solve may keep for its backward pass.

    Attributes:
        tapes: number of last field evaluations that keep their tape.
        tape_bytes: bytes of each that count against the budget.
        slope_bytes: bytes of the stage values of other steps.
    """

    tapes: int = 0
    tape_bytes: int = 0
    slope_bytes: int = 0


@dataclass
class Request:
    """Everything that an adjoint needs for one solve.

    Attributes:
        func: the user's field.
        field: the field on packed states.
        packing: maps between the user's states and packed ones.
        times: requested times, the start first.
        settings: how to solve forward.
        backward: how to solve backward (``backsolve`` only).
        stats: counts, filled in by the forward and backward pass.
        first_step: step size of an earlier solve.
        grid: end times of the steps, if they are known beforehand.
        observer: receives nodes along the path during the backward pass.
        allowed: what the forward pass may keep (``checkpoint`` only).
        nodes: Gauss nodes per step for the parameter gradient (``backsolve`` only).
        totals: running totals, to which the counts are added.
        autocast: the dtype of autocast if it was active during the forward pass.
        extra_evaluations: evaluations outside the solver that are added to the counts.
        context: third argument of the field, or None. Its tensors that require a gradient are
            leaves, except under ``direct``.
    """

    func: Field
    field: TensorField
    packing: Packing
    times: Sequence[float]
    settings: Settings
    backward: Settings
    stats: SolveStats = dataclasses.field(default_factory=SolveStats)
    first_step: float | None = None
    grid: Sequence[float] | None = None
    observer: NodeObserver | None = None
    allowed: Allowed = dataclasses.field(default_factory=Allowed)
    nodes: int | None = None
    totals: SolveStats | None = None
    autocast: torch.dtype | None = None
    extra_evaluations: int = 0
    context: Context = None

    def run(self, stepper: Stepper, x0: Tensor, **listeners: Any) -> Solution:
        """Solve with a native method."""
        return self.settings.run(
            stepper, x0, self.times, first_step=self.first_step, grid=self.grid, **listeners
        )

    def forward(self, x0: Tensor, *, differentiable: bool = False) -> Solution:
        """Solve with any method except the leapfrog."""
        settings = self.settings
        if settings.black_box:
            return solve_black_box(settings, self.field, x0, self.times, self.packing)
        return self.run(
            settings.stepper(self.field, x0, self.packing, differentiable=differentiable), x0
        )

    def targets(self, params: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the tensors with respect to which the field is differentiated.

        The last tensors of ``params`` are the user's context; leaves of the solve replace them.
        """
        own = moving(self.context)
        return (*params[: len(params) - len(own)], *own)

    def took(self, forward: SolveStats) -> None:
        """Store the counts of the forward solve."""
        forward.nfe_forward += self.extra_evaluations
        backward = self.stats.nfe_backward
        vars(self.stats).update(vars(forward), nfe_backward=backward)
        if self.totals is not None:
            self.totals.add(forward)

    def took_backward(self, evaluations: int) -> None:
        """Add evaluations of the backward pass."""
        self.stats.nfe_backward += evaluations
        if self.totals is not None:
            self.totals.nfe_backward += evaluations

    def observe(self, t: float, weight: float, x: Tensor, Q_x: Tensor) -> None:
        """Pass one node to the observer, in the user's structure."""
        assert self.observer is not None
        with torch.no_grad():
            state, adjoint = self.packing.unpack(x.detach()), self.packing.unpack(Q_x.detach())
            more = extra(detached(self.context))
            self.observer.observe(time_tensor(t, x), weight, state, adjoint, *more)

    @property
    def too_many_steps(self) -> bool:
        """Whether the backward pass would need the states of too many fixed steps."""
        settings = self.settings
        unasked = settings.controller.max_steps == UNBOUNDED
        return unasked and settings.fixed_steps(self.times) > MOST_KEPT_STEPS

    def refuse_steps(self) -> None:
        """Raise the error for a solve with :attr:`too_many_steps`."""
        steps = self.settings.fixed_steps(self.times)
        raise InvalidOption(
            f"option step_size = {self.settings.step_size} gives {steps:,} steps, and this adjoint "
            "stores one state per step for the backward pass; use a larger step, an adaptive "
            "method, adjoint='backsolve', or torch.no_grad(). If there is enough memory, set "
            f"options={{'max_num_steps': {steps}}}."
        )

    def steps_left(self, t: float, h: float) -> int:
        """Return about how many steps such as ``h`` from ``t`` reach the end, at least one.

        Rounded down below a half: steps grow more often than they shrink.
        """
        left = abs(self.times[-1] - t) / abs(h) if h else math.inf
        return max(1, round(left)) if left < NEVER else NEVER

    def again(self, device: torch.device) -> Again:
        """Return the field for evaluations without side effects, under the same autocast."""
        return Again(self.field, self.func, device, self.autocast)

    @contextlib.contextmanager
    def without_draws(self, adjoint: str, device: torch.device) -> Iterator[None]:
        """Raise GradientError if the field draws random numbers during a forward solve.

        Used by adjoints whose backward pass must evaluate the same field again.
        """
        state = RandomState(device)
        failure: SolveError | None = None
        try:
            yield
        except SolveError as error:  # random numbers may be the reason
            failure = error
        if state.moved():
            raise GradientError(
                f"the field draws random numbers (dropout, noise), so adjoint={adjoint!r} would "
                "evaluate a different field in the backward pass; use adjoint='checkpoint', which "
                "draws the same numbers again, or draw them once and make them part of the state."
            ) from failure
        if failure is not None:
            raise failure


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """Return the dtype of autocast on a device, or None if it is not active."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return None


def edge_field(
    field: Field, packing: Packing, like: Tensor, context: Context = None
) -> TensorField:
    """Return the field on packed states such as ``like``; its first output is checked.

    Under autocast, outputs of lower precision are converted, so states, errors and sums keep
    the precision of the state.
    """
    more, dtype, cast = extra(context), like.dtype, autocast_dtype(like.device) is not None
    inner = packing.wrap(with_context(field, context))
    checked = False

    def packed_field(t: Tensor, x: Tensor) -> Tensor:
        nonlocal checked
        solver.depth += 1
        try:
            if not checked:
                state = packing.unpack(x)
                out = called(field, t, state, *more)
                packing.check_output(out, state, cast=cast)
                checked = True
                return packing.pack(out).to(dtype)
            value = inner(t, x)
        finally:
            solver.depth -= 1
        return value if value.dtype == dtype else value.to(dtype)

    return packed_field


def called(field: Field, t: Tensor, x: State, *more: Context) -> State:
    """Call the field; if its signature does not match, raise an error with the expected one."""
    try:
        return field(t, x, *more)
    except TypeError as error:
        try:
            inspect.signature(getattr(field, "forward", field)).bind(t, x, *more)
        except TypeError as mismatch:
            form = "field(t, x, context)" if more else "field(t, x)"
            raise TypeError(
                f"the field {type(field).__name__} cannot be called as {form}: {mismatch}; it "
                "takes the time first, then the state, then the context if the call has "
                "context=..., even if it does not use them."
            ) from error
        except ValueError:  # a callable without a signature
            pass
        raise


class Adjoint(ABC):
    """A way to make a solve differentiable.

    Attributes:
        name: the name in messages.
        higher: whether derivatives of every order are available.
        default_method: the method if the user names none.
    """

    name: ClassVar[str]
    higher: ClassVar[bool] = False
    default_method: ClassVar[str] = "dopri5"

    @abstractmethod
    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve from the packed state ``x0``, differentiably with respect to it and ``params``.

        Returns:
            packed states at the requested times, the initial one first.
        """

    def fitted(self, settings: Settings) -> Adjoint:
        """Return the adjoint to use with a method: this one, or another for a black box."""
        if (self.default_method == LEAPFROG) != (settings.method == LEAPFROG):
            raise InvalidOption(
                f"adjoint={self.name!r} does not support method={settings.method!r}: the "
                "reversible adjoint needs the asynchronous leapfrog, and no other adjoint supports "
                f"it. Use adjoint='reversible' with method={LEAPFROG!r}, or change both."
            )
        return self

    def compiled(self, field: nn.Module, settings: Settings) -> Adjoint:
        """Return this adjoint with compiled steps, or raise InvalidOption if it has none."""
        raise InvalidOption(
            f"compile=True does not support adjoint={self.name!r}, method={settings.method!r}; "
            "use adjoint='checkpoint' with dopri5, tsit5 or bosh3."
        )
