"""The discrete counterpart of the image classifier, with residual layers instead of the ODE."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from snopt.models.fields import ConvField
from snopt.models.image import head, stem


class ResidualClassifier(nn.Module):
    r"""The image classifier with residual layers :math:`x_{k+1} = x_k + F(x_k, \theta_k)`.

    Stem, field and head are those of :class:`~snopt.models.image.ImageClassifier`. With one
    layer, the default, it has the same parameters and equals one Euler step of the ODE over
    [0, 1] (Appendix A.5, ``table:resnet``).

    Args:
        in_channels: channels of the images.
        classes: number of classes.
        width: channels of the features.
        depth: number of residual layers, each with its own parameters.

    Example:
        >>> model = ResidualClassifier(in_channels=1, classes=10, width=8)
        >>> model(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self, in_channels: int = 1, classes: int = 10, width: int = 64, depth: int = 1
    ) -> None:
        super().__init__()
        self.stem = stem(in_channels, width)
        self.layers = nn.ModuleList(ConvField(width) for _ in range(depth))
        self.head = head(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits for images of at least 6x6 pixels."""
        x = self.stem(x)
        t = torch.zeros((), dtype=x.dtype, device=x.device)
        for layer in self.layers:
            x = x + layer(t, x)
        return self.head(x)  # type: ignore[no-any-return]
