r"""Time series: an ODE-RNN, whose hidden state follows an ODE and jumps at observations.

.. math::
    \dot x = F(x) \text{ between observations}, \qquad
    x \leftarrow \mathrm{GRU}(\text{observation}, x) \text{ at an observation.}

A whole batch shares each solve. If samples have their own times, the interval of sample i is
stretched to s in [0, 1]: :math:`dx/ds = \Delta t_i F(x)`, with :math:`\Delta t` as a constant part
of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from snopt.adjoint.block import NeuralODE
from snopt.base.errors import InvalidTimes
from snopt.base.types import State
from snopt.models.fields import TanhField

#: The duration of one interval: for all samples, or (batch, 1) for each.
Duration = float | Tensor


class Stretched(nn.Module):
    """A field on ``x``, or on ``(x, duration)`` with each sample's duration scaled to one.

    Example:
        >>> field = Stretched(TanhField(2))
        >>> dx, zero = field(torch.tensor(0.0), (torch.zeros(3, 2), torch.zeros(3, 1)))
        >>> dx.abs().sum().item(), zero.shape
        (0.0, torch.Size([3, 1]))
    """

    def __init__(self, field: nn.Module) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Tensor, state: State) -> State:
        """Evaluate the derivative of a state, in the same structure."""
        if isinstance(state, Tensor):
            return self.field(t, state)
        x, duration = state
        return duration * self.field(t, x), torch.zeros_like(duration)


class ODERNN(nn.Module):
    """A GRU whose hidden state follows an ODE between observations; classifies whole series.

    The read-out is at each series' last observation. A missing value enters the cell as zero (the
    mean, for standardised data); with ``see_mask`` the cell also receives the mask. At a time
    without any observation the cell is skipped.

    Args:
        channels: values per observation.
        classes: number of classes.
        hidden: size of the hidden state.
        field_width: size of the field's layers; default ``hidden``.
        see_mask: pass the mask to the cell in addition to the values.
        **solver: further arguments of :class:`snopt.NeuralODE`.

    Attributes:
        block: the :class:`snopt.NeuralODE` between observations; it keeps its step size from one
            interval to the next.
        cell: the GRU cell.
        head: the linear read-out.

    Example:
        >>> model = ODERNN(channels=3, classes=4, hidden=8)
        >>> series = torch.randn(5, 10, 3)
        >>> model(series).shape
        torch.Size([5, 4])
        >>> model(series, lengths=torch.tensor([10, 7, 3, 1, 10])).shape
        torch.Size([5, 4])
        >>> model(series, times=torch.rand(5, 10).cumsum(1), mask=torch.rand(5, 10, 3) < 0.5).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        hidden: int = 32,
        field_width: int | None = None,
        *,
        see_mask: bool = False,
        **solver: Any,
    ) -> None:
        super().__init__()
        self.channels, self.see_mask = channels, see_mask
        self.block = NeuralODE(Stretched(TanhField(hidden, field_width)), 1.0, **solver)
        self.cell = nn.GRUCell(2 * channels if see_mask else channels, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(
        self,
        x: Tensor,
        times: Tensor | None = None,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return logits, (batch, classes).

        Args:
            x: observations, (batch, length, channels). Values beyond a series' length or outside
                its mask are ignored and may be NaN.
            times: times of the observations, (length) for all series or (batch, length); not
                decreasing. Default: one unit apart.
            lengths: number of observations per series, (batch); default: all.
            mask: True where a value was observed, (batch, length, channels); default: all.
        """
        self._check(x, times, lengths, mask)
        steps = x.shape[1] if lengths is None else int(lengths.max())
        alive = None if lengths is None else _alive(lengths, steps)
        observed = (
            None if mask is None else mask[:, :steps].any(dim=2, keepdim=True).transpose(0, 1)
        )
        readings = self._readings(x[:, :steps], mask, alive).unbind()
        durations = _durations(times, steps, alive, x)
        visits = [
            (
                self.cell,
                reading,
                None if observed is None else observed[k],
                None if alive is None else alive[k],
            )
            for k, reading in enumerate(readings)
        ]
        state = x.new_zeros(x.shape[0], self.cell.hidden_size)
        state = observe(state, state, *visits[0])
        return self.head(self.advance(state, durations, visits[1:]))  # type: ignore[no-any-return]

    def advance(self, x: Tensor, durations: Sequence[Duration],
                visits: Sequence[tuple[Any, ...]]) -> Tensor:  # fmt: skip
        """Integrate hidden states over each duration, and update them after it.

        Args:
            x: hidden states.
            durations: numbers, or tensors of shape (batch, 1).
            visits: for each duration, the last arguments of :func:`observe`.
        """
        for timed, group in groupby(zip(durations, visits, strict=True), key=_timed):
            spans, args = zip(*group, strict=True)
            if isinstance(spans[0], Tensor):
                x = self.block.chain(observe, x, args, beside=[(span,) for span in spans])
            elif timed:
                t = [None if span == 1.0 else (0.0, span) for span in spans]
                x = self.block.chain(observe, x, args, t=t)
            else:
                for visit in args:
                    x = observe(x, x, *visit)
        return x

    def _readings(self, x: Tensor, mask: Tensor | None, alive: Tensor | None) -> Tensor:
        """Return the cell's inputs, (steps, batch, inputs), with zeros for missing values."""
        x = x.transpose(0, 1)
        seen = alive
        if mask is not None:
            mask = mask[:, : x.shape[0]].transpose(0, 1)
            seen = mask if alive is None else mask & alive
        x = x.contiguous() if seen is None else torch.where(seen, x, 0.0)
        if not self.see_mask:
            return x
        ones = torch.ones_like(x)
        return torch.cat([x, ones if seen is None else torch.where(seen, ones, 0.0)], dim=-1)

    def _check(self, x: Tensor, times: Tensor | None, lengths: Tensor | None,
               mask: Tensor | None) -> None:  # fmt: skip
        if x.ndim != 3 or x.shape[2] != self.channels or x.shape[1] == 0:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; it must be (batch, length, {self.channels}) with "
                "at least one observation."
            )
        batch, length, _ = x.shape
        if times is not None and tuple(times.shape) not in {(length,), (batch, length)}:
            raise ValueError(
                f"times has shape {tuple(times.shape)}; it must be ({length},) or "
                f"({batch}, {length}) for x of shape {tuple(x.shape)}."
            )
        if mask is not None and (mask.shape != x.shape or mask.dtype != torch.bool):
            raise ValueError(
                f"mask is {mask.dtype} of shape {tuple(mask.shape)}; it must be bool of x's shape "
                f"{tuple(x.shape)}, True where a value was observed."
            )
        if lengths is not None:
            if lengths.shape != (batch,):
                raise ValueError(
                    f"lengths has shape {tuple(lengths.shape)}; it must be ({batch},), one number "
                    "per series."
                )
            low, high = int(lengths.min()), int(lengths.max())
            if low < 1 or high > length:
                raise ValueError(
                    f"lengths go from {low} to {high}; each must be between 1 and {length}, the "
                    "length of x."
                )


def observe(end: State, start: State, cell: nn.Module, reading: Tensor,
            observed: Tensor | None, alive: Tensor | None) -> Tensor:  # fmt: skip
    """Return the hidden states after an observation.

    Args:
        end: states before it: ``x``, or ``(x, duration)``.
        start: states at the previous observation.
        cell: the GRU cell.
        reading: inputs of the cell, (batch, inputs).
        observed: which series have an observation, (batch, 1); None: all.
        alive: which series have not ended, (batch, 1); None: all.
    """
    x, before = (end, start) if isinstance(end, Tensor) else (end[0], start[0])
    after: Tensor = cell(reading, x)
    if observed is not None:
        after = torch.where(observed, after, x)
    return after if alive is None else torch.where(alive, after, before)


def _timed(visit: tuple[Duration, Any]) -> bool:
    """Return whether time passes before a visit."""
    return isinstance(visit[0], Tensor) or visit[0] != 0.0


def _alive(lengths: Tensor, steps: int) -> Tensor:
    """Return which series have not ended, (steps, batch, 1)."""
    return (torch.arange(steps, device=lengths.device)[:, None] < lengths)[:, :, None]


def _durations(times: Tensor | None, steps: int, alive: Tensor | None,
               like: Tensor) -> Sequence[Duration]:  # fmt: skip
    """Return the intervals between observations; numbers if all series share them."""
    if times is None:
        return [1.0] * (steps - 1)
    # Differences first: large times (seconds since 1970) would lose their digits in a cast.
    gaps = times[..., :steps].diff(dim=-1).to(like)
    if times.ndim == 2:
        gaps = gaps.T[:, :, None]
        if alive is not None:  # times of padding are arbitrary
            gaps = torch.where(alive[1:], gaps, 0.0)
    if gaps.numel() and not float(gaps.detach().min()) >= 0.0:
        raise InvalidTimes(
            f"times decrease (or are not numbers): the smallest interval is {float(gaps.min())}; "
            "sort each series by time."
        )
    return gaps.tolist() if times.ndim == 1 else gaps.unbind()
