"""The solver that all of this package's coupled ODEs are handed to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from snopt.adjoint.odeint import odeint

__all__ = ["Solver"]


@dataclass(frozen=True)
class Solver:
    """A method with its tolerances.

    Attributes:
        method: Any method of :func:`snopt.odeint`.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        options: The method's options, such as ``{"step_size": 0.1}``.
    """

    method: str = "dopri5"
    rtol: float = 1e-7
    atol: float = 1e-9
    options: dict[str, Any] | None = None

    def integrate(
        self,
        slope: Callable[[Tensor, Any], tuple[Tensor, ...]],
        state: tuple[Tensor, ...],
        start: float,
        end: float,
    ) -> tuple[Tensor, ...]:
        """Carry a tuple of tensors from one time to another, without a tape.

        Every part of the tuple is held to the tolerance by itself.

        Args:
            slope: Time derivatives of the parts.
            state: The parts at ``start``.
            start: Where to begin.
            end: Where to end; it may lie before ``start``.

        Returns:
            The parts at ``end``.

        Example:
            >>> (x,) = Solver().integrate(lambda t, s: (-s[0],), (torch.ones(1),), 0.0, 1.0)
            >>> round(x.item(), 4)
            0.3679
        """
        with torch.no_grad():
            states = odeint(
                slope,
                state,
                [start, end],
                rtol=self.rtol,
                atol=self.atol,
                method=self.method,
                options=self.options,
            )
        return tuple(part[-1] for part in states)
