"""Methods of a field that the time loop calls, as in torchdiffeq."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from snopt.base.types import State

NAMES = ("callback_step", "callback_accept_step", "callback_reject_step")


@dataclass(frozen=True)
class Callbacks:
    """The callbacks that a field has.

    Attributes:
        functions: The user's methods by their names, without a suffix.
        unpack: From the solver's tensor to what the methods are given.
    """

    functions: dict[str, Callable[[Tensor, State, Tensor], object]]
    unpack: Callable[[Tensor], State]

    @staticmethod
    def of(func: object, unpack: Callable[[Tensor], State], suffix: str = "") -> Callbacks | None:
        """Find the callbacks of a field.

        Args:
            func: The user's field.
            unpack: From the solver's tensor to what the methods are given.
            suffix: ``"_adjoint"`` for those of a backward solve.

        Returns:
            The callbacks, or None if the field has none.

        Example:
            >>> Callbacks.of(lambda t, x: -x, lambda x: x) is None
            True
        """
        found = {name: getattr(func, name + suffix, None) for name in NAMES}
        functions = {name: method for name, method in found.items() if method is not None}
        return Callbacks(functions, unpack) if functions else None

    def tell(self, name: str, t: float, x: Tensor, dt: float) -> None:
        """Call one, if the field has it.

        Args:
            name: Its name.
            t: Start of the step.
            x: State there, as the solver has it.
            dt: Length of the step, positive in either direction of time.
        """
        method = self.functions.get(name)
        if method is not None:
            # Not every device has double precision.
            dtype = torch.float32 if x.device.type == "mps" else torch.float64
            time, step = torch.tensor([t, dt], dtype=dtype, device=x.device).unbind(0)
            method(time, self.unpack(x), step)
