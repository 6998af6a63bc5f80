"""Any torchdiffeq method as a black box with our call."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snopt.base.packing import Packing
from snopt.base.types import TensorField, real_dtype
from snopt.ode.settings import Settings
from snopt.ode.solution import Solution, SolveStats, Status


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
        SolveError: torchdiffeq gave up, or its result is not finite.

    Example:
        >>> x0 = torch.ones(1, dtype=torch.float64)
        >>> settings = Settings.parse("adaptive_heun", 1e-6, 1e-6, None)
        >>> out = solve_black_box(settings, lambda t, x: -x, x0, [0.0, 1.0], Packing.of(x0))
        >>> abs(out.states[-1].item() - 0.36787944) < 1e-4
        True
    """
    import torchdiffeq  # here, because it imports scipy: too slow for `import snopt`

    nfe = 0

    def counted(t: Tensor, x: Tensor) -> Tensor:
        nonlocal nfe
        nfe += 1
        return field(t, x)

    grid = torch.tensor(list(times), dtype=real_dtype(x0.dtype), device=x0.device)
    tolerance = settings.tolerance(packing)
    options = dict(settings.options or {})
    try:
        states = torchdiffeq.odeint(
            counted, x0, grid, rtol=tolerance.rtol, atol=tolerance.atol,
            method=settings.method, options=options or None,
        )  # fmt: skip
    except AssertionError as failure:
        # torchdiffeq reports underflow, too many steps and non-finite states by assertions.
        kind = Status.UNDERFLOW if "underflow" in str(failure) else Status.NON_FINITE
        raise _failure(kind, x0, times) from failure
    if not bool(torch.isfinite(states[-1].detach()).all()):
        raise _failure(Status.NON_FINITE, states[-1].detach(), times)
    return Solution(list(states.unbind(0)), SolveStats(nfe_forward=nfe, solves=1))


def _failure(status: Status, x: Tensor, times: Sequence[float]) -> Exception:
    """The exception of a black box, which does not say where it stopped."""
    norm = float(torch.linalg.vector_norm(x.detach()) / x.numel() ** 0.5)
    return status.error(t=times[0], t1=times[-1], step=float("nan"), norm=norm, steps=0)
