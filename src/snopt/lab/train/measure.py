"""What an iteration cost: evaluations of fields, memory."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from snopt.adjoint import NeuralODE

if sys.platform != "win32":
    import resource

__all__ = ["Meter"]


class Meter:
    """Reads what the blocks of a model and the machine have counted.

    Example:
        >>> class Decay(nn.Module):
        ...     def forward(self, t, x):
        ...         return -x
        >>> block = NeuralODE(Decay(), horizon=1.0)
        >>> meter = Meter(block, torch.device("cpu"))
        >>> meter.reset()
        >>> _ = block(torch.ones(1, 2))
        >>> counts = meter.read()
        >>> counts["nfe_forward"] == block.stats.nfe_forward, counts["horizon"]
        (True, [1.0])
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        """Find the blocks.

        Args:
            model: Its NeuralODE blocks are counted.
            device: Its memory is watched: what is allocated on a GPU, else what the process
                keeps in memory.
        """
        self.blocks = [module for module in model.modules() if isinstance(module, NeuralODE)]
        self.device = device

    def reset(self) -> None:
        """Begin to count anew."""
        for block in self.blocks:
            block.totals.reset()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            # Linux forgets the process's peak so far; elsewhere it stays.
            with suppress(OSError), open("/proc/self/clear_refs", "wb", buffering=0) as file:
                file.write(b"5")

    def read(self) -> dict[str, Any]:
        """Return the counts and the peak of memory since the last reset, for a record."""
        counts: dict[str, Any] = {
            "nfe_forward": sum(block.totals.nfe_forward for block in self.blocks),
            "nfe_backward": sum(block.totals.nfe_backward for block in self.blocks),
            "memory_mb": self.memory(),
        }
        if self.blocks:
            counts["horizon"] = [block.horizon for block in self.blocks]
        return counts

    def memory(self) -> float | None:
        """Return the peak of memory in megabytes, None where the system does not tell."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20
        if sys.platform == "win32":
            return None
        with suppress(OSError, StopIteration):
            # The other counter also knows what the process was before it became this program.
            status = Path("/proc/self/status").read_text("ascii").splitlines()
            line = next(line for line in status if line.startswith("VmHWM:"))
            return round(int(line.split()[1]) / 2**10, 1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
