"""Calls of a layer, and the tensors in them.

Hooks are on a layer only while something is being recorded; at all other times the model
is exactly as its author left it. There are two ways to record:

* :func:`recorded_calls` inside a solve: the caller re-evaluates the vector field once at a
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
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from snopt.base.compiler import uncompiled
from snopt.base.copies import Inert, no_hook
from snopt.base.isolation import solver

__all__ = ["Call", "Tap", "leading_size", "recorded_calls", "tensors_in", "training_call"]


@dataclass(frozen=True)
class Call:
    """One call of a layer under :func:`recorded_calls`.

    Attributes:
        name: the layer's name.
        z: its input, detached.
        output: where in the graph its output is. The edge, not the tensor: an activation
            working in place would turn the tensor into its own output.
    """

    name: str
    z: Tensor
    output: GradientEdge


def tensors_in(value: object) -> Iterator[Tensor]:
    """Walk the tensors of nested tuples, lists, dictionaries and dataclasses.

    Example:
        >>> [part.shape[0] for part in tensors_in(([torch.ones(2)], {"mask": torch.ones(3)}, "x"))]
        [2, 3]
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from tensors_in(vars(value))


def leading_size(value: object) -> int:
    """Tell how many examples arguments hold: the leading size of the first that has a batch axis.

    That is the first floating-point tensor of two or more axes; if there is none, the first
    tensor of two or more axes. Of scalars and vectors (times, one example) nothing can be known.

    Args:
        value: arguments, in nested containers.

    Returns:
        The number of examples; 0 if it cannot be known.

    Example:
        >>> t, x = torch.linspace(0, 1, 50), torch.zeros(128, 2)
        >>> leading_size((t, x)), leading_size(t)
        (128, 0)
    """
    batched = [tensor for tensor in tensors_in(value) if tensor.dim() >= 2]
    floating = [tensor for tensor in batched if tensor.is_floating_point()]
    return next((tensor.shape[0] for tensor in [*floating, *batched]), 0)


def training_call(module: nn.Module) -> bool:
    """Tell whether a call happening now is one that its user trains on, and no solver's own."""
    return module.training and torch.is_grad_enabled() and not solver.depth


def _first_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The layer's input, passed by position or as ``input=``; detached."""
    z: Tensor = args[0] if args else kwargs["input"]
    return z.detach()


@contextmanager
def recorded_calls(layers: Mapping[str, nn.Module]) -> Iterator[list[Call]]:
    """Collect every call of the named layers whose output is part of a graph.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> with recorded_calls({"layer": layer}) as calls:
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


class Tap(Inert):
    """A forward hook that reports ``(z, g)`` when the gradient of a call's output arrives.

    Args:
        report: called with the layer's input and its output's gradient, both detached.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> tap = Tap(lambda z, g: print(z.shape, g.shape))
        >>> handle = layer.register_forward_hook(tap, with_kwargs=True)
        >>> layer(torch.zeros(3, 2)).sum().backward()
        torch.Size([3, 2]) torch.Size([3, 2])
    """

    in_copies = staticmethod(no_hook)

    def __init__(self, report: Callable[[Tensor, Tensor], None]) -> None:
        self.report = report

    @uncompiled
    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> None:
        """Watch one call of the layer."""
        if not (training_call(module) and output.requires_grad):
            return
        report, z = self.report, _first_input(args, kwargs)

        def arrived(g: Tensor) -> None:
            # Gradients are enabled during a backward pass only if it is itself to be
            # differentiated; its values belong to an inner derivative, not to the loss.
            if not torch.is_grad_enabled():
                report(z, g.detach())

        output.register_hook(arrived)
