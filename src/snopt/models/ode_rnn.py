"""Time series: a hidden state that flows between observations and jumps at them (ODE-RNN).

    between observations   dx/dt = F(x)
    at an observation      x ← GRU(observation, x)

A whole batch shares each solve. Where its samples have times of their own, sample i's interval is
stretched to s in [0, 1]: dx/ds = Δt_i F(x), with Δt as a constant part of the state, so that the
solve carries it wherever the solver or its adjoint goes.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """A field on ``x``, or on ``(x, duration)`` with each sample's duration brought to one.

    Example:
        >>> field = Stretched(TanhField(2))
        >>> dx, zero = field(torch.tensor(0.0), (torch.zeros(3, 2), torch.zeros(3, 1)))
        >>> dx.abs().sum().item(), zero.shape
        (0.0, torch.Size([3, 1]))
    """

    def __init__(self, field: nn.Module) -> None:
        """Wrap a field that does not depend on time.

        Args:
            field: The field on ``x``.
        """
        super().__init__()
        self.field = field

    def forward(self, t: Tensor, state: State) -> State:
        """Evaluate the field.

        Args:
            t: Time.
            state: ``x``, or the pair of ``x`` and durations, (batch, 1).

        Returns:
            The derivative, in the structure of ``state``.
        """
        if isinstance(state, Tensor):
            return self.field(t, state)
        x, duration = state
        return duration * self.field(t, x), torch.zeros_like(duration)


class ODERNN(nn.Module):
    """A GRU whose hidden state follows an ODE between observations; classifies whole series.

    The read-out is taken at each series' last observation. A value that is missing enters the
    cell as zero (the mean, for standardised data), and ``see_mask`` tells the cell which are;
    where nothing is observed, time passes and the cell is left out.

    Attributes:
        block: The :class:`snopt.NeuralODE` between observations; it carries its step from one
            interval to the next.
        cell: The GRU cell.
        head: The linear read-out.

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
        """Make a classifier of series.

        Args:
            channels: Values in one observation.
            classes: Number of classes.
            hidden: Size of the hidden state.
            field_width: Size of the field's layers; default ``hidden``.
            see_mask: Whether the cell is fed the mask beside the values.
            **solver: Further arguments of :class:`snopt.NeuralODE`.
        """
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
        """Classify series.

        Args:
            x: Observations, (batch, length, channels). What lies beyond a series' length or
                under its mask may be anything, also NaN.
            times: When they were made, (length) for all series or (batch, length) for each; not
                decreasing. Default: one unit apart.
            lengths: Number of observations of each series, (batch); default: all.
            mask: True where a value was observed, (batch, length, channels); default: all.

        Returns:
            Logits, (batch, classes).

        Raises:
            ValueError: Shapes that do not belong together, or lengths out of range.
            InvalidTimes: Times that go back.
        """
        self._check(x, times, lengths, mask)
        steps = x.shape[1] if lengths is None else int(lengths.max())
        alive = None if lengths is None else _alive(lengths, steps)
        observed = (
            None if mask is None else mask[:, :steps].any(dim=2, keepdim=True).transpose(0, 1)
        )
        readings = self._readings(x[:, :steps], mask, alive).unbind()
        durations = _durations(None if times is None else times.to(x), steps, alive)
        state = x.new_zeros(x.shape[0], self.cell.hidden_size)
        for k, reading in enumerate(readings):
            before = state
            state = self.flow(state, durations[k - 1]) if k else state
            after = self.cell(reading, state)
            if observed is not None:
                after = torch.where(observed[k], after, state)
            state = after if alive is None else torch.where(alive[k], after, before)
        return self.head(state)  # type: ignore[no-any-return]

    def flow(self, x: Tensor, duration: Duration) -> Tensor:
        """Let time pass: one solve of the block.

        Args:
            x: Hidden states, (batch, hidden).
            duration: How long: a number, or (batch, 1) for each series its own.

        Returns:
            The hidden states afterwards.
        """
        if isinstance(duration, Tensor):
            return self.block((x, duration))[0]  # type: ignore[no-any-return]
        if duration == 1.0:
            return self.block(x)  # type: ignore[no-any-return]
        return self.block(x, (0.0, duration))[-1] if duration else x

    def _readings(self, x: Tensor, mask: Tensor | None, alive: Tensor | None) -> Tensor:
        """What the cell is fed, (steps, batch, inputs), without anything that is not there."""
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
        """Refuse what does not belong together."""
        if x.ndim != 3 or x.shape[2] != self.channels or x.shape[1] == 0:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; it must be (batch, length, {self.channels}) with "
                "at least one observation."
            )
        batch, length, _ = x.shape
        if times is not None and tuple(times.shape) not in {(length,), (batch, length)}:
            raise ValueError(
                f"times has shape {tuple(times.shape)}; it must be ({length},) or "
                f"({batch}, {length}) to go with x of shape {tuple(x.shape)}."
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
                    "a series."
                )
            low, high = int(lengths.min()), int(lengths.max())
            if low < 1 or high > length:
                raise ValueError(
                    f"lengths go from {low} to {high}; each must be between 1 and {length}, the "
                    "length of x."
                )


def _alive(lengths: Tensor, steps: int) -> Tensor:
    """Which series have not ended, (steps, batch, 1)."""
    return (torch.arange(steps, device=lengths.device)[:, None] < lengths)[:, :, None]


def _durations(times: Tensor | None, steps: int, alive: Tensor | None) -> Sequence[Duration]:
    """The intervals between observations: numbers if all series share them."""
    if times is None:
        return [1.0] * (steps - 1)
    gaps = times[..., :steps].diff(dim=-1)
    if times.ndim == 2:
        gaps = gaps.T[:, :, None]
        if alive is not None:  # padding has no times
            gaps = torch.where(alive[1:], gaps, 0.0)
    if gaps.numel() and not float(gaps.detach().min()) >= 0.0:
        raise InvalidTimes(
            f"times go back (or are not numbers): the smallest interval is {float(gaps.min())}; "
            "sort each series by time."
        )
    return gaps.tolist() if times.ndim == 1 else gaps.unbind()
