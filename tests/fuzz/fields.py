"""Fields, initial states and losses made from a case and its seed."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from tests.fuzz.cases import Case

#: The jump's and the noise's share of the slope.
JUMP, NOISE = 1.5, 0.05


class Numbers:
    """Random numbers that depend on nothing but a case's seed."""

    def __init__(self, case: Case) -> None:
        self.generator = torch.Generator().manual_seed(case.seed)
        self.dtype = getattr(torch, case.dtype)

    def __call__(self, *shape: int) -> Tensor:
        # Drawn in float64, so that a case is the same problem in both precisions.
        drawn = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return drawn.to(self.dtype)


class FuzzField(nn.Module):
    """A field on a case's state; its parts are switched by the case."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        n, m, random = case.width, case.hidden, Numbers(case)
        scale = case.gain / max(n, m) ** 0.5
        if case.kind in ("tanh", "linear"):
            self.first = nn.Parameter(scale * random(m, n))
            self.bias = nn.Parameter(0.5 * random(m), requires_grad=not case.frozen)
        if case.kind == "tanh" and not case.shared:
            self.second = nn.Parameter(scale * random(n, m))
        if case.kind != "free":
            self.drift = nn.Parameter(0.5 * random(n))
        if case.unused:
            self.unused = nn.Parameter(random(3))
        if case.noise == "dropout":
            self.dropout = nn.Dropout(0.4)
        if case.noise == "norm":
            self.norm = nn.BatchNorm1d(m, dtype=random.dtype)
        self.train(case.training)

    def forward(self, t: Tensor, state: Any, context: Any = None) -> Any:
        shape = self.case.state
        if shape in ("matrix", "vector", "scalar"):
            return self.given(context, self.slope(t, state), state)
        if shape == "single":
            return (self.given(context, self.slope(t, state[0]), state[0]),)
        if shape == "pair":
            x, y = state
            slope = self.given(context, self.slope(t, x), x)
            return slope + 0.1 * y[:, None], (x * x).mean(-1) - y
        x, (y, z) = state
        slope = self.given(context, self.slope(t, x), x)
        return slope + 0.1 * z, ((x * x).mean(-1) - y, y.mean() - 0.5 * z)

    def given(self, context: Any, slope: Tensor, x: Tensor) -> Tensor:
        """The slope with the context's part."""
        if context is None:
            return slope
        return slope + 0.3 * torch.cos(x.reshape(-1, self.case.width) * context["rate"]).view_as(x)

    def slope(self, t: Tensor, x: Tensor) -> Tensor:
        """The slope of the main part of the state, in its shape."""
        case = self.case
        rows = x.reshape(-1, case.width)
        time = t if case.uses_time else torch.zeros_like(t)
        out = self.smooth(time, rows)
        if case.stiff:
            # Along the solve, so that it damps in both directions of time.
            out = out - math.copysign(case.stiff, case.span) * (rows - torch.cos(time))
        if case.jump != "none":
            out = out + torch.where(t >= case.jump_time, JUMP, -JUMP) * (1.0 + 0.3 * torch.sin(out))
        if case.turned:
            out = out.t().contiguous().t()
        return out.reshape(x.shape) if x.shape != out.shape else out

    def smooth(self, t: Tensor, x: Tensor) -> Tensor:
        """The slope without its stiff part and its jump."""
        case = self.case
        wave = case.drive * torch.sin(6.0 * t)
        if case.kind == "free":
            return torch.sin(case.gain * x) * (1.0 + wave) - 0.5 * x
        if case.kind == "time":
            return (self.drift * (1.0 + wave)).expand_as(x)
        if case.kind == "constant":
            return self.drift.expand_as(x)
        inner = x @ self.first.t() + self.bias + wave
        if case.kind == "linear":
            return 0.3 * inner @ self.first + self.drift
        hidden = torch.tanh(inner)
        if case.noise == "norm":
            hidden = hidden + 0.3 * self.norm(hidden)
        second = self.first.t() if case.shared else self.second
        out = hidden @ second.t() + self.drift
        if case.noise == "dropout":
            out = out + NOISE * self.dropout(hidden) @ second.t()
        return out


def initial_parts(case: Case) -> list[Tensor]:
    """The parts of the initial state, left to right, as leaves."""
    random = Numbers(case.but(seed=case.seed + 1))
    n, w = case.batch, case.width
    main = {"vector": (w,), "scalar": ()}.get(case.state, (n, w))
    shapes = [main]
    shapes += {"pair": [(n,)], "nested": [(n,), ()]}.get(case.state, [])
    parts = [random(*shape) for shape in shapes]
    if case.turned and parts[0].ndim == 2:
        parts[0] = parts[0].t().contiguous().t()
    return [part.requires_grad_(case.x_grad) for part in parts]


def context_of(case: Case) -> tuple[Any, dict[str, Tensor]]:
    """The context, computed from a leaf, and that leaf by its name."""
    if not case.context:
        return None, {}
    leaf = Numbers(case.but(seed=case.seed + 4))(case.width).requires_grad_()
    return {"rate": 2.0 * leaf, "name": "rate"}, {"context": leaf}


def hung(case: Case, parts: list[Tensor]) -> Any:
    """Parts in the case's structure."""
    if case.state == "single":
        return (parts[0],)
    if case.state == "pair":
        return parts[0], parts[1]
    if case.state == "nested":
        return parts[0], (parts[1], parts[2])
    return parts[0]


def flat(state: Any) -> list[Tensor]:
    """The parts of a state, left to right."""
    if isinstance(state, Tensor):
        return [state]
    return [leaf for part in state for leaf in flat(part)]


def loss_of(case: Case, outputs: list[Tensor]) -> Tensor:
    """The loss of states stacked over time, the initial one first unless there is one only."""
    random = Numbers(case.but(seed=case.seed + 2))
    chosen = [0] if case.entry == "horizon" else list(case.outputs)
    total = torch.zeros((), dtype=random.dtype)
    for part in outputs:
        used = part[chosen]
        # A plain sum hands down a gradient that is one number seen in every place.
        total = total + (
            used.sum() if case.loss == "sum" else (random(*used.shape) * used**2).sum()
        )
    return total
