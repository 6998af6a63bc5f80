"""Image classification: convolutions, a Neural ODE, a linear read-out (Appendix A.4)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from snopt.adjoint.block import NeuralODE
from snopt.models.fields import ConvField


def stem(in_channels: int, width: int) -> nn.Sequential:
    """Return the features: ``Conv(64,3,1) -> ReLU -> Conv(64,4,2) -> ReLU -> Conv(64,4,2)``.

    The strided convolutions are padded by one pixel, as in the model that the paper refers to, and
    none has a bias, as in the authors' code. 28x28 pixels become 6x6, 32x32 become 7x7.
    """
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3, 1, bias=False),
        nn.ReLU(),
        nn.Conv2d(width, width, 4, 2, padding=1, bias=False),
        nn.ReLU(),
        nn.Conv2d(width, width, 4, 2, padding=1, bias=False),
    )


def head(width: int, classes: int) -> nn.Sequential:
    """Return the read-out: mean over pixels, then a linear layer."""
    return nn.Sequential(
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
    )


class ImageClassifier(nn.Module):
    """Three convolutions, a Neural ODE with a convolutional field, pooling and a linear layer.

    Args:
        in_channels: channels of the images.
        classes: number of classes.
        width: channels of the features and of the ODE's state.
        horizon: end time of the ODE.
        **solver: further arguments of :class:`snopt.NeuralODE`.

    Attributes:
        stem: the convolutions before the block.
        block: the :class:`snopt.NeuralODE`.
        head: the layers from its end state to logits.

    Example:
        >>> import torch
        >>> model = ImageClassifier(in_channels=3, classes=10, width=8)
        >>> model(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int = 1,
        classes: int = 10,
        width: int = 64,
        *,
        horizon: float = 1.0,
        **solver: Any,
    ) -> None:
        super().__init__()
        self.stem = stem(in_channels, width)
        self.block = NeuralODE(ConvField(width), horizon, **solver)
        self.head = head(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits for images of at least 6x6 pixels."""
        return self.head(self.block(self.stem(x)))  # type: ignore[no-any-return]
