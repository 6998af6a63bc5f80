"""Optimizers of other packages inside one that behaves as the training loop expects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

__all__ = ["MatrixMuon", "Wrapped"]


class Wrapped(Optimizer):
    """An optimizer that delegates its updates to another one.

    Attributes:
        inner: the optimizer that updates the parameters.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float, inner: Any) -> None:
        """Create the wrapper.

        Args:
            params: parameters to train.
            lr: learning rate; schedules change that of the wrapper.
            inner: the optimizer that updates the parameters.
        """
        self.inner = inner
        super().__init__(params, {"lr": lr})

    def before_step(self) -> None:
        """Prepare the inner optimizer for a step."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters; return the loss of the closure, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.before_step()
        self.inner.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        self.inner.step()
        return loss

    def inner_state(self) -> dict[str, Any]:
        """Return the state of the inner optimizer as tensors and plain values."""
        state: dict[str, Any] = self.inner.state_dict()
        return state

    def load_inner_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`inner_state` returned."""
        self.inner.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the learning rate and the state of the inner optimizer."""
        state: dict[str, Any] = super().state_dict()
        return {**state, "inner": self.inner_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state from :meth:`state_dict`."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "inner"})
        self.load_inner_state(state_dict["inner"])


class MatrixMuon(Wrapped):
    """Muon for weights of two or more dimensions, each reshaped to a matrix ``[outputs, rest]``.

    ``torch.optim.Muon`` accepts matrices only, and the weight of a convolution is not one. It
    receives parameters that share the memory of the weights.

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
        """Create the optimizer.

        Args:
            params: weights of two or more dimensions.
            lr: learning rate.
            momentum: momentum.
            weight_decay: decoupled weight decay.

        Raises:
            ImportError: this version of torch has no Muon.
        """
        if not hasattr(torch.optim, "Muon"):
            raise ImportError(
                f"torch {torch.__version__} has no Muon; install torch 2.9 or newer, or choose "
                "another optimizer"
            )
        self.weights = list(params)
        self.views = [nn.Parameter(p.detach().view(p.shape[0], -1)) for p in self.weights]
        muon = torch.optim.Muon(self.views, lr=lr, momentum=momentum, weight_decay=weight_decay)
        super().__init__(self.weights, lr, muon)

    def before_step(self) -> None:
        """Pass the gradients on to the matrices."""
        for weight, view in zip(self.weights, self.views, strict=True):
            view.grad = None if weight.grad is None else weight.grad.reshape(view.shape)
