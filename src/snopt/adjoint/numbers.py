"""Numbers of a module that stay in double precision and move with the module.

A number that is part of a model's state (an end time, a step size) should be saved, restored and
synchronised between ranks, as buffers are. But a buffer is cast with the model, and reading one
from a GPU waits for the GPU. The number is therefore a float, and a float64 buffer holds a copy.
The buffer is read only after something else has written to it (``load_state_dict``, a broadcast).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class ModuleWithNumbers(nn.Module):
    """A module with numbers in double precision, stored in buffers ``<name>_buffer``.

    Example:
        >>> module = ModuleWithNumbers()
        >>> module.add_number("step", 0.1)
        >>> module.half().number("step"), module.step_buffer.dtype
        (0.1, torch.float64)
    """

    def __init__(self) -> None:
        super().__init__()
        #: Per number: its value, and the buffer and version that the value was read from.
        self._numbers: dict[str, tuple[float, Tensor, float]] = {}

    def add_number(self, name: str, value: float) -> None:
        """Add a number with its buffer."""
        buffer = torch.tensor(value, dtype=torch.float64)
        self.register_buffer(f"{name}_buffer", buffer)
        self._numbers[name] = (value, buffer, _version(buffer))

    def number(self, name: str) -> float:
        """Return a number; the buffer is read only if something has written to it."""
        value, known, version = self._numbers[name]
        buffer = self._number_buffer(name)
        if buffer is not known or _version(buffer) != version:
            value = float(buffer)
            self._numbers[name] = (value, buffer, _version(buffer))
        return value

    def set_number(self, name: str, value: float) -> None:
        """Change a number."""
        buffer = self._number_buffer(name)
        buffer.fill_(value)
        self._numbers[name] = (value, buffer, _version(buffer))

    def _number_buffer(self, name: str) -> Tensor:
        buffer = self._buffers[f"{name}_buffer"]
        assert buffer is not None
        return buffer

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move the numbers with the module, without casting them."""
        values = {name: self.number(name) for name in self._numbers}
        for name in values:  # some devices have no float64
            self._buffers[f"{name}_buffer"] = self._number_buffer(name).float()
        super()._apply(fn, recurse)
        for name, value in values.items():
            device = self._number_buffer(name).device
            dtype = torch.float32 if device.type == "mps" else torch.float64
            buffer = torch.tensor(value, dtype=dtype, device=device)
            self._buffers[f"{name}_buffer"] = buffer
            self._numbers[name] = (value, buffer, _version(buffer))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Accept numbers of lower precision, which older checkpoints have."""
        for name in self._numbers:
            key = f"{prefix}{name}_buffer"
            if key in state_dict:
                state_dict[key] = state_dict[key].double()
        super()._load_from_state_dict(state_dict, prefix, *args)


def _version(buffer: Tensor) -> float:
    """Return how often a tensor was written to, or NaN where torch does not count."""
    return math.nan if buffer.is_inference() else buffer._version
