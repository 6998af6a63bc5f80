r"""The true curvature along the field, :math:`F^\top \Phi_{xx} F`, from values of the loss.

.. math:: F^\top \Phi_{xx} F \approx
    \frac{\Phi(x + hF) - 2\,\Phi(x) + \Phi(x - hF)}{h^2}, \qquad x = x(T)

The solve is the same in all three, only its end is moved, so that the solver's own error does
not enter. Values alone are needed: no gradient, hence nothing that a recorder of curvature or
DistributedDataParallel would take for a training step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from snopt.adjoint.block import NeuralODE
from snopt.base.isolation import preserving
from snopt.base.types import State, leaves, real_dtype
from snopt.horizon.measure import ends_at_horizon

__all__ = ["loss_curvature"]


def loss_curvature(
    blocks: Sequence[NeuralODE], closure: Callable[[], Any], modules: Sequence[nn.Module]
) -> list[float]:
    """Second differences of the loss along the field of each block at its horizon.

    A block that is called several times is moved at all its calls.

    Args:
        blocks: The blocks.
        closure: Evaluates the model on the batch and returns the loss, without ``backward``.
        modules: Their buffers, and the random state, stay as they are.

    Returns:
        One number a block.

    Raises:
        TypeError: The closure did not return a number.
        RuntimeError: The closure differentiates the loss.

    Example:
        >>> class Constant(nn.Module):
        ...     def forward(self, t, x):
        ...         return torch.full_like(x, 3.0)
        >>> block = NeuralODE(Constant()).double()
        >>> x = torch.zeros(1, dtype=torch.float64)
        >>> found = loss_curvature([block], lambda: 0.5 * block(x).square().sum(), [block])
        >>> round(found[0], 4)
        9.0
    """
    device = blocks[0].horizon_buffer.device

    def evaluate(block: NeuralODE | None = None, h: float = 0.0) -> Tensor:
        with ExitStack() as stack:
            for module in modules:
                stack.enter_context(preserving(module, device))
            if block is not None:
                handle = block.register_forward_hook(_moved(h), with_kwargs=True)
                stack.callback(handle.remove)
            return _number(closure)

    found = []
    with torch.no_grad(), _fresh_solves():
        here = evaluate()
        for block in blocks:
            # Between the rounding of a second difference (eps / h²) and its own error (h²).
            h = torch.finfo(here.dtype).eps ** 0.2 * abs(block.horizon - block.t0)
            ahead, behind = evaluate(block, h), evaluate(block, -h)
            found.append(float((ahead.double() - here) - (here.double() - behind)) / h**2)
    return found


@contextmanager
def _fresh_solves() -> Iterator[None]:
    """Let no solve start with a step carried over from another one.

    Each would take other steps than the one before, and the difference of their errors, divided by
    h², would drown what is wanted. Every block that is called is met, also one that nobody named.
    """
    carrying: list[NeuralODE] = []

    def stop(module: nn.Module, args: object) -> None:
        if isinstance(module, NeuralODE) and module.carry_step:
            module.carry_step = False
            carrying.append(module)

    handle = register_module_forward_pre_hook(stop)
    try:
        yield
    finally:
        handle.remove()
        for block in carrying:
            block.carry_step = True


def _number(closure: Callable[[], Any]) -> Tensor:
    try:
        loss = closure()
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        raise RuntimeError(
            "the closure of HorizonOptimizer.step is called without gradients, for the value of "
            "the loss alone: let it evaluate the model and return the loss, without backward"
        ) from error
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise TypeError(
            f"the closure returned a {type(loss).__name__}; let it return the loss, a tensor of "
            "one number"
        )
    return loss.detach()


def _moved(h: float) -> Callable[..., State | None]:
    """A forward hook that moves a block's output by h times the field there."""

    def hook(
        block: NeuralODE, args: tuple[Any, ...], kwargs: dict[str, Any], output: State
    ) -> State | None:
        if not ends_at_horizon(args, kwargs):
            return None
        first = next(leaves(output))
        t = torch.tensor(block.horizon, dtype=real_dtype(first.dtype), device=first.device)
        return _along(output, block.field(t, output), h)

    return hook


def _along(x: State, F: State, h: float) -> State:
    if isinstance(x, Tensor):
        return x + h * F
    return tuple(_along(part, slope, h) for part, slope in zip(x, F, strict=True))
