"""Methods of a field that the time loop calls, as in torchdiffeq."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from snopt.base.types import State

NAMES = ("callback_step", "callback_accept_step", "callback_reject_step")


@dataclass(frozen=True)
class Callbacks:
    """The callbacks of a field.

    Attributes:
        functions: the user's methods by name, without suffix.
        unpack: converts the solver's tensor to the state that the methods receive.
    """

    functions: dict[str, Callable[[Tensor, State, Tensor], object]]
    unpack: Callable[[Tensor], State]

    @staticmethod
    def of(func: object, unpack: Callable[[Tensor], State], suffix: str = "") -> Callbacks | None:
        """Return the callbacks of a field, or None; suffix ``"_adjoint"`` for a backward solve.

        Example:
            >>> Callbacks.of(lambda t, x: -x, lambda x: x) is None
            True
        """
        functions = _attributes(func, suffix)
        return Callbacks(functions, unpack) if functions else None

    def call(self, name: str, t: float, x: Tensor, dt: float) -> None:
        """Call the method of this name, if there is one, with a step of length ``dt > 0``."""
        method = self.functions.get(name)
        if method is not None:
            # MPS has no double precision.
            dtype = torch.float32 if x.device.type == "mps" else torch.float64
            time, step = torch.tensor([t, dt], dtype=dtype, device=x.device).unbind(0)
            method(time, self.unpack(x), step)


def _attributes(func: object, suffix: str) -> dict[str, Callable[..., object]]:
    """Return the callbacks that a field has, by name."""
    if isinstance(func, nn.Module) and type(func).__getattr__ is nn.Module.__getattr__:
        # Modules are slow to raise AttributeError.
        own, inner, kind = vars(func), func._modules, type(func)
        names = [
            name for name in NAMES
            if (full := name + suffix) in own or full in inner or hasattr(kind, full)
        ]  # fmt: skip
    else:
        names = [name for name in NAMES if hasattr(func, name + suffix)]
    found = {name: getattr(func, name + suffix) for name in names}
    return {name: method for name, method in found.items() if method is not None}
