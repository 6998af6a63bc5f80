"""Which calls of a layer count.

Hooks are on a layer only while something is being recorded; at all other times the model
is exactly as its author left it. There are two ways to record:

* :func:`recording` inside a solve: the caller re-evaluates the vector field once at a
  quadrature node, and every call of a layer during that evaluation is returned. Whatever the
  solver evaluates for itself happens outside the context and leaves no trace.
* :class:`Tap` outside a solve: each call of a layer in training mode with gradients
  enabled counts once, when the gradient of its output arrives. A call whose output is
  never differentiated, or is differentiated only inside a differentiable inner pass
  (``create_graph=True``: gradient penalties, divergences), does not count, nor does a call that
  a solver makes (:data:`snopt.base.isolation.solver`): there are as many as its steps have
  stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from snopt.base.isolation import solver

__all__ = ["Call", "Tap", "recording"]


@dataclass(frozen=True)
class Call:
    """One call of a layer under :func:`recording`.

    Attributes:
        name: the layer's name.
        z: its input, detached.
        output: where in the graph its output is. The edge, not the tensor: an activation
            working in place would turn the tensor into its own output.
    """

    name: str
    z: Tensor
    output: GradientEdge


def _first_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The layer's input, passed by position or as ``input=``; detached."""
    z: Tensor = args[0] if args else kwargs["input"]
    return z.detach()


@contextmanager
def recording(layers: Mapping[str, nn.Module]) -> Iterator[list[Call]]:
    """Collect every call of the named layers whose output is part of a graph.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> with recording({"layer": layer}) as calls:
        ...     _ = layer(torch.zeros(3, 2))
        >>> _ = layer(torch.zeros(3, 2))
        >>> [(call.name, tuple(call.z.shape)) for call in calls]
        [('layer', (3, 2))]
    """
    calls: list[Call] = []

    def hook_for(name: str) -> Callable[..., None]:
        def hook(
            module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
        ) -> None:
            if output.requires_grad:
                z = _first_input(args, kwargs)
                calls.append(Call(name, z, get_gradient_edge(output)))

        return hook

    handles = [
        layer.register_forward_hook(hook_for(name), with_kwargs=True)
        for name, layer in layers.items()
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


class Tap:
    """A forward hook that reports ``(z, g)`` when the gradient of a call's output arrives.

    It is a class of its own, not a closure, so that a model may be copied or pickled while
    it is being recorded: the copy's tap is inert.

    Args:
        report: called with the layer's input and its output's gradient, both detached.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> tap = Tap(lambda z, g: print(z.shape, g.shape))
        >>> handle = layer.register_forward_hook(tap, with_kwargs=True)
        >>> layer(torch.zeros(3, 2)).sum().backward()
        torch.Size([3, 2]) torch.Size([3, 2])
    """

    def __init__(self, report: Callable[[Tensor, Tensor], None] | None) -> None:
        self.report = report

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> None:
        """Watch one call of the layer."""
        if self.report is None or not module.training or solver.depth:
            return
        if not (torch.is_grad_enabled() and output.requires_grad):
            return
        report, z = self.report, _first_input(args, kwargs)

        def arrived(g: Tensor) -> None:
            # Gradients are enabled during a backward pass only if it is itself to be
            # differentiated; its values belong to an inner derivative, not to the loss.
            if not torch.is_grad_enabled():
                report(z, g.detach())

        output.register_hook(arrived)

    def __reduce__(self) -> tuple[type[Tap], tuple[None]]:
        return Tap, (None,)
