"""Functions that ``torch.compile`` calls without looking inside.

A time loop decides by numbers, so that tracing it breaks the graph at every step. A model that is
compiled as a whole runs its solves as they are; what surrounds them is compiled.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """``torch.compiler.disable`` without its import of the compiler, which takes seconds.

    Args:
        function: A function that may itself call compiled ones.

    Returns:
        The same function, at which ``torch.compile`` ends a graph and behind which it begins
        another.

    Example:
        >>> uncompiled(abs)(-1)
        1
    """
    disabled: Callable[P, R] | None = None

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal disabled
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if disabled is None:
            disabled = torch.compiler.disable(function)
        return disabled(*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call
