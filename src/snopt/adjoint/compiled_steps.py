"""The functions that are compiled: a whole step and its pull-back.

They depend only on parameters, time, step and state, so one compiled version is used for every step
of every solve.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from snopt.base.context import Context, with_context, with_moving
from snopt.base.packing import Packing
from snopt.ode.step import StageList, Tolerance
from snopt.ode.tableau import Tableau

#: ``(x, k1, (t, h), context) -> (x1, k_end, error ratio)``; ``k1`` is evaluated if it is None.
StepFunction = Callable[[Tensor, Tensor | None, Tensor, Context], tuple[Tensor, ...]]
#: ``(x, cotangent, (t, h), params, context) -> (cotangent of x, cotangents of params)``.
PullFunction = Callable[[Tensor, Tensor, Tensor, Sequence[Tensor], Context], Any]


def pure_field(field: nn.Module, packing: Packing,
               names: Sequence[str]) -> Callable[..., Tensor]:  # fmt: skip
    """Return the field as a pure function ``(params, context, t, x) -> dx/dt``.

    ``params`` are the parameters with these ``names``, then the context tensors that require a
    gradient.

    Example:
        >>> class Scale(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.a = nn.Parameter(torch.tensor(1.0))
        ...     def forward(self, t, x):
        ...         return self.a * x
        >>> x = torch.ones(2)
        >>> pure = pure_field(Scale(), Packing.of(x), ["a"])
        >>> pure([torch.tensor(3.0)], None, torch.tensor(0.0), x)
        tensor([3., 3.])
    """

    def evaluate(params: Sequence[Tensor], context: Context, t: Tensor, x: Tensor) -> Tensor:
        given = dict(zip(names, params, strict=False))
        more = () if context is None else (with_moving(context, params[len(names) :]),)
        return packing.pack(torch.func.functional_call(field, given, (t, packing.unpack(x), *more)))

    return evaluate


def step_function(field: nn.Module, tableau: Tableau, tolerance: Tolerance,
                  packing: Packing) -> StepFunction:  # fmt: skip
    """Return the attempt of a step as a function; parameters are those of the module."""

    def attempt(x: Tensor, k1: Tensor | None, th: Tensor, context: Context) -> tuple[Tensor, ...]:
        t, h = th[0], th[1]
        evaluate = packing.wrap(with_context(field, context))
        stages = StageList()
        stages.write(0, evaluate(t, x) if k1 is None else k1)
        x1 = x
        for i in range(1, tableau.stages + 1):
            x1 = stages.weighted(x, tableau.a[i], h)
            stages.write(i, evaluate(t + tableau.c[i] * h, x1))
        error = stages.weighted(None, tableau.errors[0], h).detach()
        ratio = tolerance.norm(error / tolerance.scale(x.detach(), x1.detach()))
        return x1, stages.read(tableau.stages).detach(), ratio

    return attempt


def pull_function(evaluate: Callable[..., Tensor], tableau: Tableau) -> PullFunction:
    """Return the pull-back of a step as a pure function."""

    def pull(x: Tensor, cotangent: Tensor, th: Tensor, params: Sequence[Tensor],
             context: Context) -> Any:  # fmt: skip
        t, h = th[0], th[1]

        def end(x: Tensor, params: Sequence[Tensor]) -> Tensor:
            stages = StageList()
            for i in range(tableau.stages):
                at = stages.weighted(x, tableau.a[i], h) if i else x
                stages.write(i, evaluate(params, context, t + tableau.c[i] * h, at))
            return stages.weighted(x, tableau.b, h)

        back = torch.func.vjp(end, x, list(params))[1]
        return back(cotangent)

    return pull


_codes: dict[Hashable, CodeType] = {}


def apart(function: Callable[..., Any], kind: Hashable) -> Callable[..., Any]:
    """Return the function with a code object that only functions of the same kind share.

    The compiler limits the number of compiled versions per code object. Models of one structure
    share compiled code; models of different structures must not use up each other's limit.

    Example:
        >>> def one(x):
        ...     return x + 1
        >>> first, second, other = apart(one, "a"), apart(one, "a"), apart(one, "b")
        >>> first.__code__ is second.__code__, first.__code__ is other.__code__, first(1)
        (True, False, 2)
    """
    assert isinstance(function, FunctionType)
    code = _codes.setdefault((function.__code__, kind), function.__code__.replace())
    return FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
