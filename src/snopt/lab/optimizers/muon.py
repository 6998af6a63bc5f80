"""``torch.optim.Muon`` for weights of any shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

__all__ = ["MatrixMuon"]


class MatrixMuon(Optimizer):
    """Muon for weights of two or more dimensions, each seen as a matrix: outputs times the rest.

    Torch's Muon takes matrices only, and a convolution's weight is not one. It gets parameters of
    its own that share the memory of the weights.

    Example:
        >>> layer = nn.Conv2d(2, 3, 3, bias=False)
        >>> muon = MatrixMuon([layer.weight], lr=0.1)
        >>> before = layer.weight.detach().clone()
        >>> layer(torch.ones(1, 2, 3, 3)).sum().backward()
        >>> muon.step()
        >>> bool((layer.weight != before).any())
        True
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        """Make the optimizer.

        Args:
            params: weights of two dimensions or more.
            lr: learning rate.
            momentum: momentum.
            weight_decay: decoupled weight decay.

        Raises:
            ImportError: This torch has no Muon.
        """
        if not hasattr(torch.optim, "Muon"):
            raise ImportError(
                f"torch {torch.__version__} has no Muon; install torch 2.9 or newer, or choose "
                "another optimizer"
            )
        super().__init__(params, {"lr": lr})
        self.weights: list[nn.Parameter] = self.param_groups[0]["params"]
        self.views = [nn.Parameter(p.detach().view(p.shape[0], -1)) for p in self.weights]
        self.muon = torch.optim.Muon(
            self.views, lr=lr, momentum=momentum, weight_decay=weight_decay
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the weights; return the closure's loss, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for weight, view in zip(self.weights, self.views, strict=True):
            view.grad = None if weight.grad is None else weight.grad.reshape(view.shape)
        # Schedules change the rate of this optimizer's group.
        self.muon.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        self.muon.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the rate and Muon's moments."""
        state: dict[str, Any] = super().state_dict()
        return {**state, "muon": self.muon.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state from :meth:`state_dict`."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "muon"})
        self.muon.load_state_dict(state_dict["muon"])
