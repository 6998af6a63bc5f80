"""Interleaved rounds of timing, and peak memory in fresh processes.

CPU seconds of one thread also work on a busy machine; seconds of the clock are those that count
for libraries with several threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from snopt.lab.paper.peak import in_fresh_process, rise
from snopt.lab.paper.timing import Run, Times, interleave, ratios, set_refresh, summary

__all__ = ["CPU", "SLOW", "Iteration", "compared", "interleave", "over", "peak"]

CPU = time.process_time
SLOW = 6.0
"""Seconds; what takes longer runs once, outside the rounds."""


class Iteration:
    """One iteration of training, after a first one that lets SNOpt and the step size settle.

    Args:
        loss: returns the loss.
        optimizer: the optimizer.
        refresh: for SNOpt, whether every iteration is a refresh or none but the first.
    """

    def __init__(
        self, loss: Callable[[], Tensor], optimizer: Any, refresh: bool | None = None
    ) -> None:
        self.loss, self.optimizer = loss, optimizer
        self.refresh: bool | None = None
        self.run()
        self.refresh = refresh

    def run(self) -> None:
        """Run it."""
        if self.refresh is not None:
            set_refresh(self.optimizer, self.refresh)
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()


def compared(
    runs: Mapping[str, Run], repeats: int, baseline: str, warmup: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Time contenders side by side; return the ``seconds`` of each and its ``ratio`` to one."""
    times = interleave(runs, repeats, warmup)
    return {
        name: {"seconds": summary(times[name]), "ratio": over(times, name, baseline)}
        for name in runs
    }


def over(times: Times, name: str, baseline: str) -> dict[str, float]:
    """Return median and quartiles of a time over another one, taken within rounds.

    Example:
        >>> over({"a": [1.0, 2.0, 9.0], "b": [1.0, 1.0, 3.0]}, "a", "b")["median"]
        2.0
    """
    return summary(ratios(times, name, baseline))


def peak(make: Callable[..., Any], *arguments: Any) -> float:
    """Measure, in a fresh process, the megabytes that ``make(*arguments).run()`` takes."""
    return in_fresh_process(_peak, make, *arguments)


def _peak(make: Callable[..., Any], *arguments: Any) -> float:
    return rise(make(*arguments).run)
