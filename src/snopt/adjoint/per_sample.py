"""Solves with one step size per sample, differentiable by backpropagation."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

from torch import Tensor

from snopt.adjoint.adjoints import adjoint_named
from snopt.adjoint.odeint import odeint
from snopt.adjoint.request import Adjoint, edge_field
from snopt.base.errors import GradientError, InvalidOption, InvalidState
from snopt.base.packing import Packing
from snopt.base.transforms import transforming
from snopt.base.types import Field
from snopt.ode.callbacks import Callbacks
from snopt.ode.per_sample import PerSample
from snopt.ode.settings import Settings
from snopt.ode.solution import SolveStats
from snopt.ode.times import read_times


def odeint_per_sample(
    func: Field,
    y0: Tensor,
    t: Tensor | Sequence[float],
    *,
    rtol: float = 1e-7,
    atol: float = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
    adjoint: str | Adjoint = "direct",
    samples: list[SolveStats] | None = None,
    **unsupported: Any,
) -> Tensor:
    """Integrate like :func:`odeint`, with one step size per sample of the batch.

    ``samples`` receives the counts of every sample. Only adaptive native methods are supported.
    """
    for name, value in unsupported.items():
        if value is not None:
            raise InvalidOption(
                f"per_sample=True does not support {name}=...; use per_sample=False. Tensors that "
                "belong to samples may be appended to the state, with a derivative of zero."
            )
    if adjoint_named(adjoint).name != "direct":
        raise InvalidOption(
            f"adjoint={adjoint!r} needs one step size for the whole batch; use adjoint='direct' "
            "(the default with per_sample=True), or per_sample=False."
        )
    settings = Settings.parse(method or "dopri5", rtol, atol, options)
    _check(func, y0, t, settings)
    if y0.numel() == 0:
        return odeint(func, y0, t, rtol=rtol, atol=atol, method=method, options=options)  # type: ignore[no-any-return]
    packing = Packing.of(y0)
    field = edge_field(func, packing, y0)
    times = read_times(t)
    if len(times) == 1:
        return y0[None]
    solve = PerSample(settings, field, settings.tolerance(packing), y0, times)
    states = solve.run()
    if samples is not None:
        samples += solve.stats
    return states


def _check(func: Field, y0: Any, t: Tensor | Sequence[float], settings: Settings) -> None:
    """Raise an error for arguments that a solve per sample does not support."""
    if not isinstance(y0, Tensor) or y0.ndim == 0:
        raise InvalidState(
            f"per_sample=True needs one tensor with samples on its first axis, got a "
            f"{type(y0).__name__}; concatenate the tensors of a tuple along the last axis."
        )
    if settings.tableau is None or not settings.adaptive:
        raise InvalidOption(
            f"per_sample=True does not support method={settings.method!r}; use bosh3, dopri5, "
            "tsit5 or dopri8."
        )
    given = settings.options or {}
    for name in ("step_t", "jump_t", "norm"):
        if given.get(name) is not None:
            raise InvalidOption(f"per_sample=True does not support option {name!r}; remove it.")
    if not all(isinstance(tol, Real) for tol in (settings.rtol, settings.atol)):
        raise InvalidOption(
            f"per_sample=True needs numbers as tolerances, got rtol={settings.rtol}, "
            f"atol={settings.atol}."
        )
    callbacks = Callbacks.of(func, lambda x: x)
    if callbacks is not None:
        names = " and ".join(callbacks.functions)
        raise InvalidOption(f"per_sample=True does not call {names} of the field; remove it.")
    if isinstance(t, Tensor) and t.requires_grad:
        raise GradientError(
            "per_sample=True has no gradient with respect to times; pass `t.detach()`."
        )
    if transforming():
        raise GradientError(
            "per_sample=True does not support torch.func (grad, vjp, jvp, vmap, ...); use "
            "torch.autograd, or per_sample=False."
        )
