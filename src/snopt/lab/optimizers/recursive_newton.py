r"""Newton's method with Hessian products from the recursive adjoint (``fig:recur-adj``).

The paper compares SNOpt with an optimizer that takes its second derivatives from the recursive
adjoint, and does not say how it turns them into a step. The recursion provides products of
the Hessian H with vectors, so this module uses the standard method for products, truncated Newton:
a step d solves

.. math:: (H + \lambda I)\, d = -g

by a few conjugate-gradient iterations with one product each: the adjoint ODE of the adjoint ODE. H
is the Hessian of the whole model on the batch and may be indefinite; conjugate gradients stop at
negative curvature. The damping follows the rule of Levenberg and Marquardt: it grows when the loss
fell by less than a quarter of what the quadratic model predicts, and shrinks above three quarters.
A step that raises the loss of its batch is not made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from snopt.base.distributed import joined
from snopt.base.errors import SolveError
from snopt.second_order.terminal import leaves_of

__all__ = ["RecursiveNewton", "conjugate_gradients"]

FORCING = 0.1
"""Conjugate gradients stop when the residual is below this fraction of the gradient."""
GROW, SHRINK, REFUSED = 1.5, 1 / 1.5, 4.0
"""Factors of the damping after a poor, a good and a rejected step."""


class RecursiveNewton(Optimizer):
    """Truncated Newton for a whole model; ``step`` requires a closure, as LBFGS does.

    The closure clears the gradients, calls ``backward`` and returns the loss. A step runs it
    twice: the first ``backward`` is differentiable, the second is skipped because only the loss at
    the new parameters is needed. The blocks of the model need an adjoint that can be
    differentiated again: :func:`snopt.lab.optimizers.recursive.recursive_adjoint`, or
    ``adjoint="direct"``.

    Attributes:
        products: Hessian-vector products so far.
        refused: rejected steps so far.

    Example:
        >>> from snopt import NeuralODE
        >>> from snopt.lab.optimizers.recursive import recursive_adjoint
        >>> from snopt.models.fields import TanhField
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(NeuralODE(TanhField(2)), nn.Linear(2, 1))
        >>> handle = recursive_adjoint(model)
        >>> newton = RecursiveNewton(model.parameters())
        >>> x = torch.randn(32, 2)
        >>> def closure():
        ...     newton.zero_grad()
        ...     loss = (model(x).squeeze(1) - x.prod(dim=1)).square().mean()
        ...     loss.backward()
        ...     return loss
        >>> losses = [float(newton.step(closure)) for _ in range(5)]
        >>> losses[-1] < 0.5 * losses[0]
        True
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1.0,
        *,
        damping: float = 0.1,
        cg_iterations: int = 8,
        weight_decay: float = 0.0,
    ) -> None:
        r"""Create the optimizer.

        Args:
            params: parameters to train.
            lr: fraction of the Newton step to take.
            damping: initial :math:`\lambda`; it is adapted, and part of the ``state_dict``.
            cg_iterations: maximum number of conjugate-gradient iterations, and so of products.
            weight_decay: weight of half the squared norm of the parameters in the objective.

        Raises:
            ValueError: a setting is out of range, or there are several parameter groups.
            RuntimeError: several processes train together.
        """
        for name, value in (("lr", lr), ("damping", damping), ("cg_iterations", cg_iterations)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} = {value}; it must be positive")
        if joined():
            raise RuntimeError(
                "RecursiveNewton differentiates gradients, which DistributedDataParallel does not "
                "support; train in one process, or choose another optimizer"
            )
        super().__init__(params, {"lr": lr, "damping": damping, "weight_decay": weight_decay})
        if len(self.param_groups) > 1:
            raise ValueError(
                f"got {len(self.param_groups)} groups of parameters; one Hessian has one group"
            )
        self.cg_iterations = cg_iterations
        self.products = self.refused = 0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Take a step unless it would raise the loss.

        Args:
            closure: clears the gradients, calls ``backward`` and returns the loss.

        Returns:
            The loss before the step.

        Raises:
            RuntimeError: the closure does not call ``backward``.
        """
        group = self.param_groups[0]
        params: list[nn.Parameter] = group["params"]
        tape = _Differentiable()
        with torch.enable_grad(), tape:
            loss = closure()
        loss = loss.detach() if isinstance(loss, Tensor) else loss
        if not tape.gradients:
            raise RuntimeError(
                "the closure did not call loss.backward(); write it as for torch.optim.LBFGS"
            )
        lr: float = group["lr"]
        damping: float = group["damping"]
        decay: float = group["weight_decay"]
        u = _flat(params)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
        g = _flat(gradients) + decay * u

        def product(v: Tensor) -> Tensor:
            self.products += 1
            return tape.product(params, v) + (decay + damping) * v

        d, residual = conjugate_gradients(product, -g, self.cg_iterations)
        # The residual knows the product with d: (H + λ) d = -g - residual.
        bend = float(d @ (-g - residual)) - damping * float(d @ d)
        change = lr * d
        predicted = lr * float(g @ d) + 0.5 * lr**2 * bend
        penalty = decay * float(change @ (u + 0.5 * change))
        before = float(loss)
        _write(params, u + change)
        try:
            after = tape.evaluate(closure) + penalty
        except BaseException:
            self._refuse(u)
            raise
        if not after <= before:
            self._refuse(u)
        elif after - before > 0.25 * predicted:
            group["damping"] *= GROW
        elif after - before < 0.75 * predicted:
            group["damping"] *= SHRINK
        return loss

    def _refuse(self, u: Tensor) -> None:
        group = self.param_groups[0]
        _write(group["params"], u)
        group["damping"] *= REFUSED
        self.refused += 1


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], b: Tensor, iterations: int
) -> tuple[Tensor, Tensor]:
    """Solve ``A d = b`` approximately, starting from zero.

    Args:
        product: maps a vector v to A v; the iteration stops at a product that is not finite or
            fails with a :class:`~snopt.base.errors.SolveError`.
        b: right-hand side.
        iterations: maximum number of products.

    Returns:
        d and the residual ``b - A d``. If the curvature along b itself is negative, d is b.

    Example:
        >>> A, b = torch.diag(torch.tensor([1.0, 4.0])), torch.tensor([2.0, 4.0])
        >>> conjugate_gradients(lambda v: A @ v, b, 2)[0]
        tensor([2., 1.])
    """
    d, residual = torch.zeros_like(b), b.clone()
    direction, size = residual.clone(), float(b @ b)
    enough = FORCING**2 * size
    for iteration in range(iterations):
        if size <= enough:
            break
        try:
            along = product(direction)
        except SolveError:
            along = torch.full_like(direction, math.nan)
        curvature = float(direction @ along)
        if not 0.0 < curvature < math.inf:
            if iteration == 0:
                known = bool(torch.isfinite(along).all())
                return b.clone(), b - along if known else torch.zeros_like(b)
            break
        length = size / curvature
        d += length * direction
        residual -= length * along
        size, last = float(residual @ residual), size
        direction = residual + (size / last) * direction
    return d, residual


class _Differentiable(TorchFunctionMode):
    """Replaces ``loss.backward()`` by one whose gradients can be differentiated again."""

    def __init__(self) -> None:
        super().__init__()
        #: Per call of ``backward``: differentiable gradients by leaf.
        self.gradients: list[dict[Tensor, Tensor]] = []
        self._skip = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.Tensor.backward:
            return func(*args, **(kwargs or {}))
        if not self._skip:
            self._backward(args[0])
        return None

    def _backward(self, loss: Tensor) -> None:
        leaves = leaves_of(loss)
        found = torch.autograd.grad(loss, leaves, create_graph=True)
        self.gradients.append(dict(zip(leaves, found, strict=True)))
        for leaf, gradient in zip(leaves, found, strict=True):
            value = gradient.detach().clone()
            leaf.grad = value if leaf.grad is None else leaf.grad + value

    def product(self, params: list[nn.Parameter], v: Tensor) -> Tensor:
        pieces = v.split([p.numel() for p in params])
        rows: dict[Tensor, Tensor] = dict(zip(params, pieces, strict=True))
        pairs = [
            (gradient, rows[leaf].view_as(leaf))
            for gradients in self.gradients
            for leaf, gradient in gradients.items()
            if leaf in rows and gradient.requires_grad
        ]
        if not pairs:  # no gradient depends on any parameter
            return torch.zeros_like(v)
        outputs, weights = zip(*pairs, strict=True)
        return _flat(
            torch.autograd.grad(outputs, params, weights, retain_graph=True, materialize_grads=True)
        )

    def evaluate(self, closure: Callable[[], Any]) -> float:
        """Return the loss alone; all gradients keep their values."""
        leaves = {leaf: leaf.grad for gradients in self.gradients for leaf in gradients}
        self._skip = True
        try:
            with torch.no_grad(), self:
                return float(closure())
        except SolveError:
            return math.inf
        finally:
            for leaf, gradient in leaves.items():
                leaf.grad = gradient


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _write(params: list[nn.Parameter], values: Tensor) -> None:
    for param, value in zip(params, values.split([p.numel() for p in params]), strict=True):
        param.copy_(value.view_as(param))
