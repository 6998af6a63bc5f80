"""Options of Kronecker curvature."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from snopt.adjoint.quadrature import PerStep, Quadrature
from snopt.base.errors import check_count, unknown
from snopt.kronecker.conv import ConvForm
from snopt.kronecker.factors import Sharing
from snopt.second_order.terminal import Loss, Terminal

__all__ = ["KroneckerOptions"]

Reduction = Literal["mean", "sum"]


def _two_nodes_per_step() -> Any:
    # Any, because a frozen dataclass lacks the protocol's settable attribute.
    return PerStep()


@dataclass(frozen=True)
class KroneckerOptions:
    """How Kronecker factors are formed.

    Attributes:
        conv: convolutions as ``"kfc"`` (one factor for input channels and kernel positions
            together, as in the paper) or ``"per_axis"`` (a small factor for each of the two).
        sharing: how positions that share weights are weighted: ``"expand"`` equally (KFC), or
            ``"trace"`` by the norms of input and gradient (trace-restricted; not with
            ``"per_axis"``).
        terminal: Q_xx(t1): ``"gradient"`` (as in the paper, rank one and free), ``"ggn"`` (exact
            factors) or ``"sampled"`` (one random draw). The last two need extra backward passes on
            refresh iterations.
        loss: the loss function of the model's outputs, needed for ``"ggn"`` and ``"sampled"``.
        reduction: whether the loss is a mean or a sum over the batch.
        batch_size: examples in one batch of one process. None reads it from the model's call: the
            leading size of the first floating-point argument with two or more axes. If the model is
            not called, or has no such argument, it is the largest leading size of a layer's output
            or of the state of a solve.
        recurrent: whether to cover recurrent cells and layers.
        quadrature: where along a solve factors are evaluated: ``PerStep(2)`` Gauss nodes in each
            accepted step, or ``UniformGrid(100)`` as the paper does.
        sample: rows per feature that form a factor in one iteration. If the previous refresh
            counted more, a part is used, a different one at each refresh: evenly spaced solves (at
            least 8) or evenly spaced nodes (at least 16), and evenly spaced examples (at least 8)
            for layers with several positions per example, such as convolutions. None uses all, as
            the paper does.
        averaging: weight of the old factors at a refresh; 0 discards them.
        max_size: the largest block of a factor. A larger factor is kept as blocks on its
            diagonal, and a warning names the layer. No layer of the paper's models is that large.

    Example:
        >>> KroneckerOptions().max_size
        2048
        >>> KroneckerOptions(conv="kfac")
        Traceback (most recent call last):
        ...
        snopt.base.errors.UnknownName: unknown conv 'kfac'; did you mean 'kfc'? ...
    """

    conv: ConvForm = "kfc"
    sharing: Sharing = "expand"
    terminal: Terminal = "gradient"
    loss: Loss | None = None
    reduction: Reduction = "mean"
    batch_size: int | None = None
    quadrature: Quadrature = field(default_factory=_two_nodes_per_step)
    sample: int | None = 8
    recurrent: bool = False
    averaging: float = 0.9
    max_size: int = 2048

    def __post_init__(self) -> None:
        """Validate all options."""
        choices: dict[str, Any] = {
            "conv": ConvForm,
            "sharing": Sharing,
            "terminal": Terminal,
            "reduction": Reduction,
        }
        if self.loss is not None:
            choices["loss"] = Loss
        for name, kind in choices.items():
            if getattr(self, name) not in get_args(kind):
                raise unknown(name, getattr(self, name), get_args(kind))
        if self.terminal != "gradient" and self.loss is None:
            raise ValueError(
                f"terminal={self.terminal!r} needs the loss function of the model's outputs: "
                "pass loss='cross_entropy' or loss='squared_error'"
            )
        if self.conv == "per_axis" and self.sharing == "trace":
            raise ValueError(
                "sharing='trace' is not defined for conv='per_axis', whose factors are already "
                "partial traces; use conv='kfc' or sharing='expand'"
            )
        if not 0 <= self.averaging < 1:
            raise ValueError(f"averaging={self.averaging} must lie in [0, 1)")
        check_count("max_size", self.max_size)
        for name in ("batch_size", "sample"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), ", or None")
        if not callable(getattr(self.quadrature, "panel", None)):
            raise TypeError(
                f"quadrature={self.quadrature!r} is not a quadrature rule; pass snopt.PerStep(...) "
                "or snopt.UniformGrid(...)"
            )
