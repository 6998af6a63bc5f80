"""Calls of a layer, and the tensors in them.

A layer has hooks only during a recording; otherwise the model is unchanged. There are two ways to
record:

* :func:`recorded_calls` inside a solve: the caller evaluates the vector field again at a quadrature
  node, and receives every call of a layer during that evaluation. Evaluations by the solver happen
  outside the context and are not recorded.
* :class:`Tap` outside a solve: each call of a layer in training mode with gradients enabled counts
  once, when the gradient of its outputs arrives. A call whose output is never differentiated, or is
  differentiated only inside a differentiable inner pass (``create_graph=True``: gradient penalties,
  divergences), does not count. Calls by a solver (:data:`snopt.base.isolation.solver`), one per
  stage, and calls under ``torch.func`` do not count either. The tap reports why a call did not
  count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from snopt.base.compiler import uncompiled
from snopt.base.copies import Inert, no_hook
from snopt.base.isolation import solver
from snopt.base.transforms import transforming

__all__ = [
    "Arguments",
    "Call",
    "Gradients",
    "Tap",
    "first_input",
    "leading_size",
    "map_tensors",
    "recorded_calls",
    "tensors_in",
    "training_call",
]

#: Positional and keyword arguments of a call, their tensors detached.
Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
#: Gradient of each tensor in a call's output; None for one that no gradient reached.
Gradients: TypeAlias = list[Tensor | None]


@dataclass(frozen=True)
class Call:
    """One call of a layer under :func:`recorded_calls`.

    Attributes:
        name: the layer's name.
        arguments: the arguments of the call, detached.
        outputs: the graph edges of its outputs; None for one that needs no gradient. Edges and not
            tensors, because an in-place activation would change the tensor.
    """

    name: str
    arguments: Arguments
    outputs: tuple[GradientEdge | None, ...]


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists, dictionaries and dataclasses.

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
    """Return the number of examples in arguments: the leading size of the first batched tensor.

    That is the first floating-point tensor of two or more axes; if there is none, the first
    tensor of two or more axes. Scalars and vectors (times, one example) do not count.

    Args:
        value: arguments, in nested containers.

    Returns:
        the number of examples; 0 if unknown.

    Example:
        >>> t, x = torch.linspace(0, 1, 50), torch.zeros(128, 2)
        >>> leading_size((t, x)), leading_size(t)
        (128, 0)
    """
    batched = [tensor for tensor in tensors_in(value) if tensor.dim() >= 2]
    floating = [tensor for tensor in batched if tensor.is_floating_point()]
    return next((tensor.shape[0] for tensor in [*floating, *batched]), 0)


def training_call(module: nn.Module) -> bool:
    """Return whether the current call is part of training and not made by a solver."""
    return _why_not(module) is None


def first_input(arguments: Arguments) -> Tensor:
    """Return the layer's input, passed by position or as ``input=``."""
    args, kwargs = arguments
    z: Tensor = args[0] if args else kwargs["input"]
    return z


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Apply a function to the tensors of nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: map_tensors(function, part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        parts = [map_tensors(function, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _detached(arguments: Arguments) -> Arguments:
    detached: Arguments = map_tensors(Tensor.detach, arguments)
    return detached


@contextmanager
def recorded_calls(layers: Mapping[str, nn.Module]) -> Iterator[list[Call]]:
    """Collect every call of the named layers whose output is part of a graph.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> with recorded_calls({"layer": layer}) as calls:
        ...     _ = layer(torch.zeros(3, 2))
        >>> _ = layer(torch.zeros(3, 2))
        >>> [(call.name, tuple(first_input(call.arguments).shape)) for call in calls]
        [('layer', (3, 2))]
    """
    calls: list[Call] = []

    def hook_for(name: str) -> Callable[..., object]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: object) -> object:
            if not isinstance(output, Tensor):
                output = map_tensors(Tensor.clone, output)  # see _Watched
            edges = [get_gradient_edge(t) if t.requires_grad else None for t in tensors_in(output)]
            if any(edges):
                calls.append(Call(name, _detached((args, kwargs)), tuple(edges)))
            return output

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
    """A forward hook that reports a call when the gradients of its outputs arrive.

    Args:
        report: called with the layer's arguments and its outputs' gradients, all detached.
        miss: called with the reason why a call does not count.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> tap = Tap(lambda arguments, gradients: print(gradients[0].shape), print)
        >>> handle = layer.register_forward_hook(tap, with_kwargs=True)
        >>> layer(torch.zeros(3, 2)).sum().backward()
        torch.Size([3, 2])
        >>> _ = layer.eval()(torch.zeros(3, 2))
        called in evaluation mode only
    """

    in_copies = staticmethod(no_hook)

    def __init__(
        self, report: Callable[[Arguments, Gradients], None], miss: Callable[[str], None]
    ) -> None:
        self.report, self.miss = report, miss

    @uncompiled
    def __call__(self, module: nn.Module, args: Any, kwargs: Any, output: object) -> object:
        """Report one call of the layer when its gradients arrive."""
        reason = _why_not(module)
        if reason is not None:
            self.miss(reason)
        if reason is not None or not any(t.requires_grad for t in tensors_in(output)):
            return None
        report, miss, arguments = self.report, self.miss, _detached((args, kwargs))

        def arrived(*gradients: Tensor | None) -> None:
            # Gradients are enabled in a backward pass only with create_graph=True. Its values then
            # belong to an inner derivative, not to the loss.
            if torch.is_grad_enabled():
                miss("differentiated only with create_graph=True, in an inner derivative")
            else:
                report(arguments, [None if g is None else g.detach() for g in gradients])

        if isinstance(output, Tensor):
            output.register_hook(arrived)
            return None
        copies = iter(_Watched.apply(arrived, *tensors_in(output)))
        return map_tensors(lambda _: next(copies), output)


class _Watched(torch.autograd.Function):
    """Copies of a call's outputs, at which their gradients arrive together.

    A hook on the outputs themselves would be wrong: if output a is computed from output b (the two
    states of an LSTM cell), the gradient of b includes that of a.
    """

    @staticmethod
    def forward(ctx: Any, arrived: Callable[..., None], *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.arrived = arrived
        ctx.set_materialize_grads(False)
        return tuple(output.clone() for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.arrived(*gradients)
        return None, *gradients


def _why_not(module: nn.Module) -> str | None:
    """Return why the current call does not count; None if it does."""
    if solver.depth:
        return (
            "called only in a solve by snopt.odeint; create SNOpt with fields=[field] and pass "
            "observer=optimizer.observer(field) to the solve"
        )
    if transforming():
        return "called under torch.func (grad, vmap, ...) only"
    if not module.training:
        return "called in evaluation mode only"
    return None if torch.is_grad_enabled() else "called without gradients only"
