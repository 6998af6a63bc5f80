"""Protection against gradients and losses that are not finite."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterable, MutableMapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from snopt.base.distributed import world_size
from snopt.optim.averaging import forget_average

__all__ = ["Counts", "Guard", "OnDivergence", "warn", "warn_once"]

OnDivergence: TypeAlias = Literal["skip", "rollback", "raise"]

#: The optimizer's state of each parameter.
States: TypeAlias = MutableMapping[Tensor, dict[str, Any]]

#: Folders of this package and of torch.
_LIBRARIES = tuple(
    os.path.join(os.path.dirname(file), "") for file in (os.path.dirname(__file__), torch.__file__)
)

#: Factor of ``Guard.caution`` per rollback.
CAUTION = 4.0


@dataclass
class Counts:
    """Counts of events since the optimizer was created.

    Attributes:
        iterations: calls of ``step`` (or ``precondition_``).
        refreshes: updates of factors and bases.
        skipped: updates skipped because a gradient or the loss was not finite.
        rollbacks: how often the parameters were restored.
        eigh_failures: failed decompositions; the layer kept its old basis.
        dropped_calls: layer calls not counted in the factors because they were not finite.
        unrecorded: refreshes at which a layer with a gradient had never been recorded.
    """

    iterations: int = 0
    refreshes: int = 0
    skipped: int = 0
    rollbacks: int = 0
    eigh_failures: int = 0
    dropped_calls: int = 0
    unrecorded: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts as plain numbers, for a checkpoint or a record."""
        return asdict(self)


def warn(message: str) -> None:
    """Warn at the user's line: the nearest caller outside of this package and of torch."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level + 1)


def warn_once(counts: Counts, name: str, message: str) -> None:
    """Count an event, and warn the first time only."""
    value = getattr(counts, name) + 1
    setattr(counts, name, value)
    if value == 1:
        warn(f"{message}. Later ones are counted in optimizer.counts.{name}")


@dataclass
class Guard:
    """Protects the parameters from gradients that are not finite.

    Attributes:
        on_divergence: what to do if a gradient is not finite.
        counts: counts of events.
        caution: grows with every rollback; multiplies damping, or divides steps.
    """

    on_divergence: OnDivergence
    counts: Counts = field(default_factory=Counts)
    caution: float = 1.0

    def keep(self, params: Iterable[Tensor], states: States) -> None:
        """Keep a copy of parameters with a finite gradient, if ``on_divergence="rollback"``.

        Args:
            params: the parameters.
            states: the optimizer's state of each; the copy is stored there and is part of
                checkpoints.
        """
        if self.on_divergence == "rollback":
            for param in params:
                states[param]["kept"] = param.detach().clone()

    def diverged(self, states: States) -> None:
        """Raise an error, or count and warn; then roll back if ``on_divergence="rollback"``.

        Args:
            states: the optimizer's state of each parameter.
        """
        where = f"a gradient or the loss is not finite at iteration {self.counts.iterations}"
        where += " on this or another process" if world_size() > 1 else ""
        if self.on_divergence == "raise":
            raise FloatingPointError(
                f"{where}; lower the learning rate, raise the damping, or choose "
                "on_divergence='rollback'"
            )
        warn_once(
            self.counts,
            "skipped",
            f"{where}: skipping this update",
        )
        if self.on_divergence == "rollback":
            self.roll_back(states)

    @torch.no_grad()
    def roll_back(self, states: States) -> bool:
        """Restore the kept values and reset momentum; return False if there are none.

        Args:
            states: the optimizer's state of each parameter.
        """
        kept = [(param, state["kept"]) for param, state in states.items() if "kept" in state]
        if not kept:
            return False
        for param, value in kept:
            param.copy_(value)
        for param, state in states.items():
            forget_average(param, state)
            first = [state["exp_avg"]] if "exp_avg" in state else []
            for tensor in [*state.get("momentum", []), *first]:
                tensor.zero_()
        self.caution *= CAUTION
        self.counts.rollbacks += 1
        return True
