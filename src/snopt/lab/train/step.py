"""One update of the parameters."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from snopt.base.errors import SolveError
from snopt.lab.train.parallel import World
from snopt.lab.train.task import Parts
from snopt.optim import SNOpt

__all__ = ["Update"]


class _NotFinite(Exception):
    """The loss cannot be used; the message says why."""


def needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether an optimizer evaluates the loss itself, as LBFGS does.

    Example:
        >>> params = [nn.Parameter(torch.ones(1))]
        >>> needs_closure(torch.optim.LBFGS(params)), needs_closure(torch.optim.Adam(params))
        (True, False)
    """
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


class Update:
    """Evaluates the loss of a batch, its gradient, and steps every optimizer, the horizon's last.

    Where the loss is not finite, or a solve failed, no parameter changes: :class:`snopt.SNOpt`
    is told, since it may have values to go back to, and the others are not stepped.

    Example:
        >>> model = nn.Linear(1, 1)
        >>> parts = Parts(model, torch.optim.SGD(model.parameters(), lr=0.1))
        >>> update = Update(lambda batch: model(batch).square().mean(), parts)
        >>> first, second = update(torch.ones(2, 1)), update(torch.ones(2, 1))
        >>> second[0] < first[0]
        True
        >>> update(torch.full((2, 1), torch.nan))
        (nan, 'the loss is nan')
    """

    def __init__(
        self,
        loss: Callable[[Any], Tensor],
        parts: Parts,
        *,
        clip: float | None = None,
        world: World | None = None,
    ) -> None:
        """Look at the optimizers.

        Args:
            loss: The loss of a batch.
            parts: The optimizers are taken from here.
            clip: Largest norm of the gradient.
            world: The processes that train together.
        """
        self.loss, self.clip, self.world = loss, clip, world or World()
        self.horizon = parts.horizon
        self.optimizers = [(o, needs_closure(o)) for o in parts.optimizers]
        groups = [group for o in parts.optimizers for group in o.param_groups]
        self.parameters = [param for group in groups for param in group["params"]]

    def __call__(self, batch: Any) -> tuple[float, str | None]:
        """Make one update.

        Args:
            batch: What the loss is of.

        Returns:
            The loss before the update, the mean over processes; and why no update was made, None
            if one was.
        """
        losses: list[float] = []

        def closure() -> float:
            for optimizer, _ in self.optimizers:
                optimizer.zero_grad()
            losses.append(self._differentiate(batch))
            return losses[-1]

        before = self._snapshot()
        skipped = self._skipped()
        try:
            if not all(closing for _, closing in self.optimizers):
                closure()
            for optimizer, closing in self.optimizers:
                optimizer.step(closure) if closing else optimizer.step()
        except _NotFinite as reason:
            self._abandon(before)
            return (losses or [math.nan])[0], str(reason)
        if self._skipped() > skipped:
            return losses[0], "a gradient is not finite"
        if self.horizon is not None:
            self.horizon.step(lambda: self.loss(batch))
        return losses[0], None

    def _differentiate(self, batch: Any) -> float:
        """Leave the gradient of the loss in the parameters; return the loss."""
        reason = ""
        try:
            loss = self.loss(batch)
            value = float(loss.detach())
        except SolveError as error:
            value, reason = math.nan, f"a solve failed: {error}"
        # All processes agree here, before the collective work of the backward pass begins.
        value = self.world.mean(value)
        if not math.isfinite(value):
            raise _NotFinite(reason or f"the loss is {value}")
        try:
            loss.backward()
        except SolveError as error:
            if self.world.size > 1:
                raise
            raise _NotFinite(f"a solve failed: {error}") from None
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        return value

    def _snapshot(self) -> list[Tensor]:
        """Copy the parameters if an optimizer moves them before it knows the loss."""
        if any(closing for _, closing in self.optimizers):
            return [p.detach().clone() for p in self.parameters]
        return []

    @torch.no_grad()
    def _abandon(self, before: list[Tensor]) -> None:
        """Undo what was begun."""
        for param, value in zip(self.parameters, before, strict=False):
            param.copy_(value)
        for optimizer, closing in self.optimizers:
            optimizer.zero_grad()
            if closing:
                # Its history has seen a loss that is not one.
                optimizer.state.clear()
            elif isinstance(optimizer, SNOpt):
                optimizer.step(lambda: math.nan)

    def _skipped(self) -> int:
        return sum(o.counts.skipped for o, _ in self.optimizers if isinstance(o, SNOpt))
