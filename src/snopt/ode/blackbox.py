"""Any torchdiffeq method as a black box with our call."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from snopt.base.errors import InvalidOption, SolveError
from snopt.base.packing import Packing
from snopt.base.types import TensorField, real_dtype
from snopt.ode.options import options_of
from snopt.ode.settings import Settings
from snopt.ode.solution import Solution, SolveStats, Status

#: Evaluations per step of ``max_num_steps``. Only the evaluations of a black box can be counted.
EVALUATIONS_PER_STEP = 5


def solve_black_box(settings: Settings, field: TensorField, x0: Tensor, times: Sequence[float],
                    packing: Packing) -> Solution:  # fmt: skip
    """Solve by torchdiffeq; autograd sees through it where the method allows.

    Args:
        settings: A method of torchdiffeq with its options.
        field: The field on packed states.
        x0: Packed initial state.
        times: Requested times.
        packing: How the state is packed.

    Returns:
        States at the requested times; of the counts only ``nfe_forward`` is known.

    Raises:
        SolveError: torchdiffeq or SciPy gave up, the solve took more than
            ``EVALUATIONS_PER_STEP * max_num_steps`` evaluations, or the result is not finite.

    Example:
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> settings = Settings.parse("adaptive_heun", 1e-6, 1e-6, None)
        >>> out = solve_black_box(settings, lambda t, x: -x, x0, [0.0, 1.0], Packing.of(x0))
        >>> abs(out.states[-1].item() - 0.36787944) < 1e-4
        True
    """
    import torchdiffeq  # here, because it imports scipy: too slow for `import snopt`

    counted = _Counted(settings, field, times)
    with _reported(x0, times):
        states = torchdiffeq.odeint(counted, x0, _grid(x0, times), **_arguments(settings, packing))
    if len(states) < len(times):
        reached = (times[len(states) - 1], times[-1])
        raise _failure(Status.GAVE_UP, states[-1].detach(), reached)
    if not bool(torch.isfinite(states[-1].detach()).all()):
        raise _failure(Status.NON_FINITE, states[-1].detach(), times)
    return Solution(list(states.unbind(0)), SolveStats(nfe_forward=counted.calls, solves=1))


def black_box_event(settings: Settings, field: TensorField, x0: Tensor, times: Sequence[float],
                    packing: Packing, event: Callable[[Tensor, Tensor], Tensor]
                    ) -> tuple[float, Solution]:  # fmt: skip
    """Solve by torchdiffeq until an event.

    Args:
        settings: A method of torchdiffeq with its options.
        field: The field on packed states.
        x0: Packed initial state.
        times: The start, and any time in the direction of the solve.
        packing: How the state is packed.
        event: The event function of a time and a packed state.

    Returns:
        The time of the event, and the states at the start and at the event.

    Raises:
        InvalidOption: ``method="scipy_solver"``, which has no events.
    """
    import torchdiffeq

    if settings.method == "scipy_solver":
        raise InvalidOption(
            "method='scipy_solver' finds no events; use a native method such as dopri5."
        )
    counted = _Counted(settings, field, times)
    with _reported(x0, times):
        t, states = torchdiffeq.odeint(
            counted, x0, _grid(x0, times), event_fn=event, **_arguments(settings, packing)
        )
    return float(t), Solution(list(states), SolveStats(nfe_forward=counted.calls, solves=1))


class _Counted:
    """A field for torchdiffeq, with the user's callbacks, that counts its evaluations."""

    def __init__(self, settings: Settings, field: TensorField, times: Sequence[float]) -> None:
        self.field, self.calls, self.times = field, 0, times
        # Fixed steps are as many as the user asks for, as with native methods.
        adaptive = "max_num_steps" in options_of(settings.method)
        steps = settings.controller.max_steps if adaptive else math.inf
        self.limit = EVALUATIONS_PER_STEP * steps
        if settings.callbacks is not None:
            unpack = settings.callbacks.unpack
            for name, method in settings.callbacks.functions.items():
                setattr(self, name, lambda t, x, dt, call=method: call(t, unpack(x), dt))

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field."""
        self.calls += 1
        if self.calls > self.limit:
            raise _failure(Status.MAX_STEPS, x, (float(t), self.times[-1]))
        return self.field(t, x)


def _grid(x0: Tensor, times: Sequence[float]) -> Tensor:
    """Times as torchdiffeq wants them."""
    return torch.tensor(list(times), dtype=real_dtype(x0.dtype), device=x0.device)


def _arguments(settings: Settings, packing: Packing) -> dict[str, Any]:
    """Tolerances, method and options for torchdiffeq."""
    tolerance, options = settings.tolerance(packing), dict(settings.options or {})
    options.pop("norm", None)
    if settings.method == "scipy_solver":
        options.pop("max_num_steps", None)  # ours: SciPy has no bound
    for name in ("step_t", "jump_t"):
        if options.get(name) is not None:
            options[name] = torch.as_tensor(options[name], dtype=torch.float64)
    if "norm" in options_of(settings.method):
        options["norm"] = tolerance.norm
    return {
        "rtol": tolerance.rtol,
        "atol": tolerance.atol,
        "method": settings.method,
        "options": options,
    }


@contextlib.contextmanager
def _reported(x0: Tensor, times: Sequence[float]) -> Iterator[None]:
    """Turn torchdiffeq's assertions into the errors that native methods raise."""
    try:
        yield
    except SolveError:
        raise  # ours, from the count of evaluations
    except (AssertionError, RuntimeError) as failure:
        for words, status in (
            ("underflow", Status.UNDERFLOW),
            ("non-finite", Status.NON_FINITE),
            ("max_num_steps", Status.MAX_STEPS),
            ("maximum number of iterations", Status.NO_EVENT),
        ):
            if words in str(failure):
                raise _failure(status, x0, times) from failure
        raise


def _failure(status: Status, x: Tensor, times: Sequence[float]) -> Exception:
    """The exception of a black box; where it does not say how far it came, that is the start."""
    norm = float(torch.linalg.vector_norm(x.detach()) / x.numel() ** 0.5)
    return status.error(t=times[0], t1=times[-1], step=math.nan, norm=norm, steps=0)
