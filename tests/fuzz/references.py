"""Other ways to the same numbers: scipy, finite differences, a leapfrog on the tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from tests.fuzz.cases import Case
from tests.fuzz.fields import FuzzField, context_of, flat, hung, initial_parts, loss_of
from tests.fuzz.solve import call, options_of


def unflat(vector: Tensor, parts: list[Tensor]) -> list[Tensor]:
    """A vector cut into parts of the shapes of others."""
    pieces = vector.split([part.numel() for part in parts])
    return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]


def by_scipy(case: Case) -> list[Tensor]:
    """The solution at all times, tight, with a new start behind a jump."""
    model, parts = FuzzField(case), initial_parts(case)

    def slope(t: float, x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            state = hung(case, unflat(torch.from_numpy(x.copy()), parts))
            out = model(torch.tensor(t, dtype=torch.float64), state)
            return torch.cat([part.reshape(-1) for part in flat(out)]).numpy()

    x = torch.cat([part.detach().reshape(-1) for part in parts]).numpy()
    states, sign = [x], np.sign(case.span)
    jumps = [case.jump_time] if case.jump != "none" else []
    for a, b in pairwise(case.times):
        inside = [jump for jump in jumps if (jump - a) * sign > 0 and (b - jump) * sign > 0]
        for start, end in pairwise([a, *inside, b]):
            x = _segment(slope, case, x, start, end)
        states.append(x)
    rows = torch.from_numpy(np.stack(states))
    split = rows.split([part.numel() for part in parts], dim=1)
    return [piece.reshape(-1, *part.shape) for piece, part in zip(split, parts, strict=True)]


def _segment(slope: Callable[..., np.ndarray], case: Case, x: np.ndarray, start: float,
             end: float) -> np.ndarray:  # fmt: skip
    """One smooth stretch: the field is never asked on the far side of a jump at its ends."""
    low, high = sorted((np.nextafter(start, end), np.nextafter(end, start)))

    def inside(t: float, x: np.ndarray) -> np.ndarray:
        return slope(float(np.clip(t, low, high)), x)

    found = solve_ivp(inside, (start, end), x, method="DOP853", rtol=1e-11, atol=1e-12)
    assert found.success, found.message
    return found.y[:, -1]


def slope_by_differences(case: Case, adjoint: Any, sizes: Sequence[float],
                         **settings: Any) -> list[float]:  # fmt: skip
    """The gradient's length, and the slope along a random direction: by it, then by differences.

    Slopes are divided by the gradient's length, so that their gaps are relative errors.
    """
    model, parts = FuzzField(case), initial_parts(case)
    times: Tensor = torch.tensor(case.times, dtype=torch.float64, requires_grad=case.t_grad)
    leaves = [leaf for leaf in (*parts, times, *model.parameters()) if leaf.requires_grad]
    generator = torch.Generator().manual_seed(case.seed + 3)
    along = [torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype) for leaf in leaves]
    settings = {"method": case.method, "options": options_of(case), "adjoint": adjoint, **settings}

    def loss() -> Tensor:
        torch.manual_seed(case.seed)
        given = times if case.t_grad else list(case.times)
        return loss_of(case, call(case, model, parts, given, **settings)[0])

    found = torch.autograd.grad(loss(), leaves, allow_unused=True)
    gradient = [torch.zeros_like(a) if g is None else g for g, a in zip(found, along, strict=True)]
    # Differences cannot resolve gradients that are smaller still.
    length = max(float(sum((g * g).sum() for g in gradient)) ** 0.5, 1e-4)

    def moved(size: float) -> float:
        before = [leaf.detach().clone() for leaf in leaves]
        with torch.no_grad():
            for leaf, direction in zip(leaves, along, strict=True):
                leaf.add_(direction, alpha=size)
            value = float(loss())
            for leaf, old in zip(leaves, before, strict=True):
                leaf.copy_(old)
        return value

    exact = float(sum((g * a).sum() for g, a in zip(gradient, along, strict=True)))
    slopes = [(moved(size) - moved(-size)) / (2.0 * size) for size in sizes]
    return [length, *(slope / length for slope in (exact, *slopes))]


def by_leapfrog(case: Case, middles: list[float]
                ) -> tuple[list[Tensor], dict[str, Tensor], FuzzField]:  # fmt: skip
    """The asynchronous leapfrog on autograd's tape, over steps with the given middles.

    Returns the states at the requested times, the leaves that they depend on, and the field.
    """
    model, parts = FuzzField(case), initial_parts(case)
    context, rate = context_of(case)
    x = torch.cat([part.reshape(-1) for part in parts])

    def slope(t: float, x: Tensor) -> Tensor:
        out = model(torch.tensor(t, dtype=x.dtype), hung(case, unflat(x, parts)), context)
        return torch.cat([part.reshape(-1) for part in flat(out)])

    t, v, states, wanted = case.times[0], slope(case.times[0], x), [x], list(case.times[1:])
    for middle in middles:
        h = 2.0 * (middle - t)
        half = x + 0.5 * h * v
        v = v + 2.0 * case.eta * (slope(middle, half) - v)
        x, t = half + 0.5 * h * v, t + h
        if wanted and abs(t - wanted[0]) < 1e-9:
            t = wanted.pop(0)
            states.append(x)
    assert not wanted, "the steps do not land on the requested times"
    split = torch.stack(states).split([part.numel() for part in parts], dim=1)
    outputs = [piece.reshape(-1, *part.shape) for piece, part in zip(split, parts, strict=True)]
    leaves = {f"x{i}": part for i, part in enumerate(parts)} | dict(model.named_parameters())
    leaves |= rate
    return outputs, leaves, model
