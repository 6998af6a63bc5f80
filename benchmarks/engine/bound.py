"""A lower bound of an iteration: the evaluations of the field that its solve needs, and no solver.

The evaluations of one forward solve are recorded. The bound repeats them in one loop, and pulls a
cotangent back through as many as accepted steps have stages. Stages are not combined, errors not
estimated, parameter gradients not summed, and the model around the solve is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from benchmarks.engine.contenders import Trial
from snopt.adjoint.compiled_passes import compiler_options
from snopt.adjoint.compiled_steps import apart
from snopt.ode.tableau import DOPRI5

STAGES = DOPRI5.stages
Call = tuple[Tensor, Any]
"""Time and state of one evaluation."""


def recorded(trial: Trial) -> tuple[list[Call], int]:
    """Return the evaluations of a settled trial's forward pass, and how many need a pull-back."""
    calls: list[Call] = []

    def record(module: nn.Module, args: Call) -> None:
        calls.append(tree_map(lambda part: part.detach().clone(), args))

    handle = trial.workload.field.register_forward_pre_hook(record)
    trial.flow.totals.reset()
    try:
        trial.forward()
    finally:
        handle.remove()
    return calls, STAGES * trial.flow.totals.accepted


class Bound:
    """The evaluations and pull-backs of one iteration in one loop.

    Args:
        field: the field.
        calls: all evaluations.
        pulled: the number of those through which a cotangent is pulled back.
        compiled: 0 for an eager loop; otherwise, how many evaluations with their pull-backs are
            compiled into one call.
    """

    def __init__(
        self, field: nn.Module, calls: Sequence[Call], pulled: int, compiled: int = 0
    ) -> None:
        each = compiled or 1
        self.pulled = [calls[i : i + each] for i in range(0, pulled, each)]
        self.rest = calls[pulled:]
        self.params = dict(field.named_parameters())
        self.cotangent = tree_map(torch.ones_like, calls[0][1])
        self.pull = traceable_pull(field) if compiled else eager_pull(field)
        self.evaluate = evaluation(field)
        if compiled:
            self.pull, self.evaluate = _compiled(self.pull), _compiled(self.evaluate)

    @torch.no_grad()
    def run(self) -> None:
        """Run the loop."""
        for calls in self.pulled:
            self.pull(self.params, calls, self.cotangent)
        for t, x in self.rest:
            self.evaluate(t, x)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as the engine does, for one shape, apart from the functions of other bounds."""
    return torch.compile(apart(function, object()), options=compiler_options(), dynamic=False)


def evaluation(field: nn.Module) -> Callable[..., Any]:
    """Return an evaluation as a function."""

    def evaluate(t: Tensor, x: Any) -> Any:
        return field(t, x)

    return evaluate


def eager_pull(field: nn.Module) -> Callable[..., Any]:
    """Return evaluations and their pull-backs on autograd's tape."""

    def pull(params: dict[str, Tensor], calls: Sequence[Call], cotangent: Any) -> None:
        for t, x in calls:
            parts, structure = tree_flatten(x)
            leaves = [part.detach().requires_grad_() for part in parts]
            with torch.enable_grad():
                value = field(t, tree_unflatten(leaves, structure))
            inputs = (*leaves, *params.values())
            torch.autograd.grad(
                tree_leaves(value), inputs, tree_leaves(cotangent), allow_unused=True
            )

    return pull


def traceable_pull(field: nn.Module) -> Callable[..., Any]:
    """Return evaluations and their pull-backs as a pure function."""

    def one(params: dict[str, Tensor], t: Tensor, x: Any, cotangent: Any) -> Any:
        def evaluate(params: dict[str, Tensor], x: Any) -> Any:
            return torch.func.functional_call(field, params, (t, x))

        return torch.func.vjp(evaluate, params, x)[1](cotangent)

    def pull(params: dict[str, Tensor], calls: Sequence[Call], cotangent: Any) -> list[Any]:
        return [one(params, t, x, cotangent) for t, x in calls]

    return pull
