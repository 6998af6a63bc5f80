"""Numbers of a module that stay in double precision and travel with it.

A number that is part of a model's state (an end time, a step size) should be saved, restored and
kept alike on all ranks, as buffers are; but a buffer is cast with the model, and to read one from
a GPU the GPU has to finish first. So the number is a float, with a buffer of float64 as its copy:
the buffer is read only after something else has written to it (``load_state_dict``, a broadcast).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class ModuleWithNumbers(nn.Module):
    """A module with numbers in double precision: buffers ``<name>_buffer``.

    Example:
        >>> module = ModuleWithNumbers()
        >>> module.add_number("step", 0.1)
        >>> module.half().number("step"), module.step_buffer.dtype
        (0.1, torch.float64)
    """

    def __init__(self) -> None:
        """Begin without numbers."""
        super().__init__()
        #: Of each number: its value, and the buffer and its version that the value was read from.
        self._numbers: dict[str, tuple[float, Tensor, float]] = {}

    def add_number(self, name: str, value: float) -> None:
        """Add a number.

        Args:
            name: Its name.
            value: Its value.
        """
        buffer = torch.tensor(value, dtype=torch.float64)
        self.register_buffer(f"{name}_buffer", buffer)
        self._numbers[name] = (value, buffer, _version(buffer))

    def number(self, name: str) -> float:
        """A number's value.

        Args:
            name: Its name.

        Returns:
            The value, which is read from the buffer only if that was written to.
        """
        value, known, version = self._numbers[name]
        buffer = self._buffers[f"{name}_buffer"]
        assert buffer is not None
        if buffer is not known or _version(buffer) != version:
            value = float(buffer)
            self._numbers[name] = (value, buffer, _version(buffer))
        return value

    def set_number(self, name: str, value: float) -> None:
        """Change a number.

        Args:
            name: Its name.
            value: Its new value.
        """
        buffer = self._buffers[f"{name}_buffer"]
        assert buffer is not None
        buffer.fill_(value)
        self._numbers[name] = (value, buffer, _version(buffer))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move the numbers with the module, but do not cast them."""
        values = {name: self.number(name) for name in self._numbers}
        for name in values:
            buffer = self._buffers[f"{name}_buffer"]
            assert buffer is not None
            self._buffers[f"{name}_buffer"] = buffer.float()  # some devices have no float64
        super()._apply(fn, recurse)
        for name, value in values.items():
            moved = self._buffers[f"{name}_buffer"]
            assert moved is not None
            dtype = torch.float32 if moved.device.type == "mps" else torch.float64
            buffer = torch.tensor(value, dtype=dtype, device=moved.device)
            self._buffers[f"{name}_buffer"] = buffer
            self._numbers[name] = (value, buffer, _version(buffer))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take numbers of lower precision, too, as older checkpoints have them."""
        for name in self._numbers:
            key = f"{prefix}{name}_buffer"
            if key in state_dict:
                state_dict[key] = state_dict[key].double()
        super()._load_from_state_dict(state_dict, prefix, *args)


def _version(buffer: Tensor) -> float:
    """How often a tensor was written to; NaN, equal to nothing, where torch does not count."""
    return math.nan if buffer.is_inference() else buffer._version
