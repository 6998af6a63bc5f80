"""Image classification: convolutions, a Neural ODE, a linear read-out (Appendix A.4)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from snopt.adjoint.block import NeuralODE
from snopt.models.fields import ConvField


def stem(in_channels: int, width: int) -> nn.Sequential:
    """The features: ``Conv(64,3,1) -> ReLU -> Conv(64,4,2) -> ReLU -> Conv(64,4,2)``.

    The strided convolutions are padded by one pixel, as in the model the paper refers to, and none
    has a bias, as in the authors' program.

    Args:
        in_channels: Channels of the images.
        width: Channels of the features.

    Returns:
        The layers; 28x28 pixels become 6x6, 32x32 become 7x7.
    """
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3, 1, bias=False),
        nn.ReLU(),
        nn.Conv2d(width, width, 4, 2, padding=1, bias=False),
        nn.ReLU(),
        nn.Conv2d(width, width, 4, 2, padding=1, bias=False),
    )


def head(width: int, classes: int) -> nn.Sequential:
    """The read-out: mean over pixels, then a linear layer.

    Args:
        width: Channels of the features.
        classes: Number of classes.

    Returns:
        The layers.
    """
    return nn.Sequential(
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
    )


class ImageClassifier(nn.Module):
    """Three convolutions, a Neural ODE with a convolutional field, pooling and a linear layer.

    Attributes:
        stem: The convolutions before the block.
        block: The :class:`snopt.NeuralODE`.
        head: What turns its end state into logits.

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
        """Make a classifier.

        Args:
            in_channels: Channels of the images.
            classes: Number of classes.
            width: Channels of the features and of the ODE's state.
            horizon: End time of the ODE.
            **solver: Further arguments of :class:`snopt.NeuralODE`.
        """
        super().__init__()
        self.stem = stem(in_channels, width)
        self.block = NeuralODE(ConvField(width), horizon, **solver)
        self.head = head(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images.

        Args:
            x: Images, (batch, channels, height, width), at least 6x6 pixels.

        Returns:
            Logits, (batch, classes).
        """
        return self.head(self.block(self.stem(x)))  # type: ignore[no-any-return]
