"""Solves with torchdiffeq's own methods."""

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
from snopt.ode.norms import rms
from snopt.ode.options import options_of
from snopt.ode.settings import Settings
from snopt.ode.solution import Solution, SolveStats, Status

#: Evaluations allowed per step of ``max_num_steps``; steps of a black box cannot be counted.
EVALUATIONS_PER_STEP = 5


def solve_black_box(settings: Settings, field: TensorField, x0: Tensor, times: Sequence[float],
                    packing: Packing) -> Solution:  # fmt: skip
    """Solve with torchdiffeq; differentiable by autograd if the method is.

    The statistics contain only ``nfe_forward``.

    Raises:
        SolveError: torchdiffeq or SciPy failed, the solve took more than
            ``EVALUATIONS_PER_STEP * max_num_steps`` evaluations, or the result is not finite.

    Example:
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> settings = Settings.parse("adaptive_heun", 1e-6, 1e-6, None)
        >>> out = solve_black_box(settings, lambda t, x: -x, x0, [0.0, 1.0], Packing.of(x0))
        >>> abs(out.states[-1].item() - 0.36787944) < 1e-4
        True
    """
    states, stats = _run(settings, field, x0, times, packing)
    if len(states) < len(times):
        reached = (times[len(states) - 1], times[-1])
        raise _failure(Status.GAVE_UP, states[-1].detach(), reached)
    if not bool(torch.isfinite(states[-1].detach()).all()):
        raise _failure(Status.NON_FINITE, states[-1].detach(), times)
    return Solution(list(states.unbind(0)), stats)


def black_box_event(settings: Settings, field: TensorField, x0: Tensor, times: Sequence[float],
                    packing: Packing, event: Callable[[Tensor, Tensor], Tensor]
                    ) -> tuple[float, Solution]:  # fmt: skip
    """Solve with torchdiffeq until an event; ``times[1]`` only sets the direction."""
    if settings.method == "scipy_solver":
        raise InvalidOption(
            "method='scipy_solver' does not support events; use a native method such as dopri5."
        )
    (t, states), stats = _run(settings, field, x0, times, packing, event_fn=event)
    return float(t), Solution(list(states), stats)


def _run(settings: Settings, field: TensorField, x0: Tensor, times: Sequence[float],
         packing: Packing, **event: Any) -> tuple[Any, SolveStats]:  # fmt: skip
    """Return what torchdiffeq's ``odeint`` returns, and the number of evaluations."""
    import torchdiffeq  # here, because it imports scipy, which would slow down `import snopt`

    counted = _Counted(settings, field, times)
    grid = torch.tensor(list(times), dtype=real_dtype(x0.dtype), device=x0.device)
    with _reported(x0, times):
        found = torchdiffeq.odeint(counted, x0, grid, **_arguments(settings, packing), **event)
    return found, SolveStats(nfe_forward=counted.calls, solves=1)


class _Counted:
    """A field for torchdiffeq, with the user's callbacks, that counts its evaluations."""

    def __init__(self, settings: Settings, field: TensorField, times: Sequence[float]) -> None:
        self.field, self.calls, self.times = field, 0, times
        # The number of fixed steps is the user's choice, as with native methods.
        adaptive = "max_num_steps" in options_of(settings.method)
        steps = settings.controller.max_steps if adaptive else math.inf
        self.limit = EVALUATIONS_PER_STEP * steps
        if settings.callbacks is not None:
            unpack = settings.callbacks.unpack
            for name, method in settings.callbacks.functions.items():
                setattr(self, name, lambda t, x, dt, call=method: call(t, unpack(x), dt))

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        """Evaluate the field and count the evaluation."""
        self.calls += 1
        if self.calls > self.limit:
            where = f"after {self.calls - 1:,} evaluations "
            raise _failure(Status.MAX_STEPS, x, (float(t), self.times[-1]), where)
        return self.field(t, x)


def _arguments(settings: Settings, packing: Packing) -> dict[str, Any]:
    """Return tolerances, method and options for torchdiffeq."""
    tolerance, options = settings.tolerance(packing), dict(settings.options or {})
    options.pop("norm", None)
    if settings.method == "scipy_solver":
        options.pop("max_num_steps", None)  # enforced here; SciPy has no such option
    for name in ("step_t", "jump_t"):
        if options.get(name) is not None:
            options[name] = torch.as_tensor(options[name], dtype=torch.float64)
    if "norm" in options_of(settings.method):
        options["norm"] = tolerance.norm
    method, rtol, atol = settings.method, tolerance.rtol, tolerance.atol
    return {"rtol": rtol, "atol": atol, "method": method, "options": options}


@contextlib.contextmanager
def _reported(x0: Tensor, times: Sequence[float]) -> Iterator[None]:
    """Replace torchdiffeq's assertions by the errors of native methods."""
    try:
        yield
    except SolveError:
        raise  # from the limit on evaluations
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


def _failure(status: Status, x: Tensor, times: Sequence[float], where: str = "") -> Exception:
    # torchdiffeq does not report the time it reached, so ``times[0]`` is mostly the start.
    norm = float(rms(x.detach()))
    return status.error(t=times[0], t1=times[-1], step=math.nan, norm=norm, steps=0, where=where)
