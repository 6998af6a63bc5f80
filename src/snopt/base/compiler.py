"""Functions that ``torch.compile`` does not trace.

A time loop branches on numbers, so tracing it would break the graph at every step. In a compiled
model, solves run uncompiled and the rest of the model is compiled.
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
    """Exclude a function from tracing; it may itself call compiled functions.

    Like ``torch.compiler.disable``, but without importing the compiler, which takes seconds.

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
