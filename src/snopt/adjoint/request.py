"""One differentiable solve, described once at the edge and handed to an adjoint."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from snopt.adjoint.observer import NodeObserver
from snopt.base.context import Context, detached, extra, moving, with_context
from snopt.base.errors import GradientError, InvalidOption, SolveError
from snopt.base.isolation import Again, RandomState, solver
from snopt.base.packing import Packing
from snopt.base.types import Field, State, TensorField, real_dtype
from snopt.ode.controller import UNBOUNDED
from snopt.ode.settings import LEAPFROG, Settings
from snopt.ode.solution import SolveStats

#: A kept step takes 1.6 kB besides its state.
MOST_KEPT_STEPS = 500_000


@dataclass
class Request:
    """Everything an adjoint needs to know of one solve.

    Attributes:
        func: The field as the user gave it.
        field: The field on packed states.
        packing: How the user's state is packed.
        times: Requested times, the start first.
        settings: How to solve forward.
        backward: How to solve backward (``backsolve`` only).
        stats: Counts, filled in as forward and backward run.
        first_step: A step carried over from an earlier solve.
        grid: The steps of a fixed-step method, if the user constructs them.
        observer: Told of nodes along the path during the backward pass.
        keep: How many last steps keep their tape from the forward pass (``checkpoint`` only).
        nodes: Gauss nodes a step for the parameter gradient (``backsolve`` only).
        totals: Running totals that also take this solve's backward counts.
        autocast: Autocast's dtype if it was on during the forward pass.
        extra_evaluations: Evaluations of the field outside the solver, which count as well.
        context: What the field is given besides time and state; None for nothing. Its tensors that
            require a gradient are leaves, except under ``direct``.
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
    keep: int = 0
    nodes: int | None = None
    totals: SolveStats | None = None
    autocast: torch.dtype | None = None
    extra_evaluations: int = 0
    context: Context = None

    def targets(self, params: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What to differentiate evaluations of the field for.

        Args:
            params: The field's parameters, and the user's context tensors behind them.

        Returns:
            The parameters, and the leaves that stand for the context tensors.
        """
        own = moving(self.context)
        return (*params[: len(params) - len(own)], *own)

    def took(self, forward: SolveStats) -> None:
        """Take over the counts of the forward solve.

        Args:
            forward: The solver's counts.
        """
        forward.nfe_forward += self.extra_evaluations
        stats = self.stats
        stats.nfe_forward, stats.accepted = forward.nfe_forward, forward.accepted
        stats.rejected, stats.solves = forward.rejected, forward.solves
        stats.first_step, stats.last_step = forward.first_step, forward.last_step
        if self.totals is not None:
            self.totals.nfe_forward += forward.nfe_forward
            self.totals.accepted += forward.accepted
            self.totals.rejected += forward.rejected
            self.totals.solves += forward.solves
            self.totals.first_step = forward.first_step
            self.totals.last_step = forward.last_step

    def took_backward(self, evaluations: int) -> None:
        """Add evaluations of the backward pass.

        Args:
            evaluations: How many.
        """
        self.stats.nfe_backward += evaluations
        if self.totals is not None:
            self.totals.nfe_backward += evaluations

    def tell(self, observer: NodeObserver, t: float, weight: float, x: Tensor, Q_x: Tensor) -> None:
        """Tell an observer of one node, in the user's structure.

        Args:
            observer: The observer.
            t: Time of the node.
            weight: Its quadrature weight.
            x: Packed state.
            Q_x: Packed adjoint.
        """
        time = torch.tensor(t, dtype=real_dtype(x.dtype), device=x.device)
        with torch.no_grad():
            state, adjoint = self.packing.unpack(x.detach()), self.packing.unpack(Q_x.detach())
            more = extra(detached(self.context))
            observer.observe(time, weight, state, adjoint, *more)

    @property
    def too_many_steps(self) -> bool:
        """Whether there are more fixed steps than a backward pass should keep states for."""
        settings = self.settings
        unasked = settings.controller.max_steps == UNBOUNDED
        return unasked and settings.fixed_steps(self.times) > MOST_KEPT_STEPS

    def refuse_steps(self) -> None:
        """Raise for a solve with :attr:`too_many_steps`.

        Raises:
            InvalidOption: Always.
        """
        steps = self.settings.fixed_steps(self.times)
        raise InvalidOption(
            f"option step_size = {self.settings.step_size} makes {steps:,} steps, and this adjoint "
            "keeps a state of each for the backward pass; use a longer step, an adaptive method, "
            "adjoint='backsolve', or torch.no_grad(). If the memory suffices, allow them with "
            f"options={{'max_num_steps': {steps}}}."
        )

    def tapes(self, t: float, h: float) -> bool:
        """Whether a step should keep its tape: the end is at most ``keep`` such steps away.

        Args:
            t: Start of the step.
            h: The step, signed.

        Returns:
            Whether it is among the last.
        """
        return abs(self.times[-1] - t) <= self.keep * abs(h) * (1.0 + 1e-9)

    @contextlib.contextmanager
    def again(self, device: torch.device) -> Iterator[Again]:
        """Evaluate the field in the backward pass: as in the forward pass, but without a trace.

        Args:
            device: The state's device.

        Yields:
            The field, under the forward pass's autocast.
        """
        with contextlib.ExitStack() as scope:
            if self.autocast is not None:
                scope.enter_context(torch.autocast(device.type, dtype=self.autocast))
            yield Again(self.field, self.func, device, scope)

    @contextlib.contextmanager
    def without_draws(self, adjoint: str, device: torch.device) -> Iterator[None]:
        """Solve forward for an adjoint that has to find the same field on the way back.

        Args:
            adjoint: Its name.
            device: The state's device.

        Yields:
            Nothing.

        Raises:
            GradientError: The field draws random numbers.
        """
        state = RandomState(device)
        failure: SolveError | None = None
        try:
            yield
        except SolveError as error:  # perhaps because no step is small enough for noise
            failure = error
        if state.moved():
            raise GradientError(
                f"the field draws random numbers (dropout, noise), so that adjoint={adjoint!r} "
                "would find another field on the way back; use adjoint='checkpoint', which draws "
                "the same numbers again, or draw them once and make them part of the state."
            ) from failure
        if failure is not None:
            raise failure


def edge_field(field: Field, packing: Packing, dtype: torch.dtype, cast: bool,
               context: Context = None) -> TensorField:  # fmt: skip
    """The field on packed states, its output checked at the first call.

    Args:
        field: The user's field.
        packing: How the state is packed.
        dtype: The state's dtype.
        cast: Whether autocast may have lowered the output's precision: it is then cast back,
            so that the state, the errors and the sums stay in the state's own dtype.
        context: What the field is given behind the state; None for nothing.

    Returns:
        The packed field.
    """
    more = extra(context)
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
    """The field's value, or an error that says how a field is called.

    Args:
        field: The user's field.
        t: The time.
        x: The state.
        *more: The context, if there is one.

    Returns:
        What the field returns.

    Raises:
        TypeError: The field does not take these arguments.
    """
    try:
        return field(t, x, *more)
    except TypeError as error:
        try:
            inspect.signature(getattr(field, "forward", field)).bind(t, x, *more)
        except TypeError as mismatch:
            form = "field(t, x, context)" if more else "field(t, x)"
            raise TypeError(
                f"the field {type(field).__name__} cannot be called as {form}: {mismatch}; let it "
                "take the time first, then the state, then the context if the call has "
                "context=..., even if it does not use them."
            ) from error
        except ValueError:  # a callable without a signature
            pass
        raise


class Adjoint(ABC):
    """A way to solve so that autograd can differentiate the result.

    Attributes:
        name: Its name in messages.
        higher: Whether derivatives of every order can be taken.
        default_method: The method if the user names none.
    """

    name: ClassVar[str]
    higher: ClassVar[bool] = False
    default_method: ClassVar[str] = "dopri5"

    @abstractmethod
    def solve(self, request: Request, x0: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
        """Solve.

        Args:
            request: The solve.
            x0: Packed initial state.
            params: Parameters to differentiate for.

        Returns:
            Packed states at the requested times, the initial one first.
        """

    def fitted(self, settings: Settings) -> Adjoint:
        """The adjoint that goes with a method: itself, or another for a black box.

        Args:
            settings: How to solve.

        Returns:
            An adjoint.

        Raises:
            InvalidOption: The method does not go with the adjoint.
        """
        if (self.default_method == LEAPFROG) != (settings.method == LEAPFROG):
            raise InvalidOption(
                f"adjoint={self.name!r} does not go with method={settings.method!r}: the "
                "reversible adjoint is that of the asynchronous leapfrog. Use "
                f"adjoint='reversible', method={LEAPFROG!r}, or another pair."
            )
        return self

    def compiled(self, field: nn.Module, settings: Settings) -> Adjoint:
        """The same adjoint with compiled steps.

        Args:
            field: The module whose steps to compile.
            settings: How to solve.

        Raises:
            InvalidOption: There is none for this adjoint or this method.
        """
        raise InvalidOption(
            f"compile=True does not go with adjoint={self.name!r}, method={settings.method!r}; "
            "use adjoint='checkpoint' with dopri5, tsit5 or bosh3."
        )
