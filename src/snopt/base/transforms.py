"""Detection of ``torch.func`` transforms (grad, vjp, jvp, vmap, ...)."""

from __future__ import annotations

import torch


def transforming() -> bool:
    """Return whether a ``torch.func`` transform is active.

    Example:
        >>> torch.func.vmap(lambda x: x if transforming() else -x)(torch.ones(2))
        tensor([1., 1.])
        >>> transforming()
        False
    """
    return torch._C._functorch.peek_interpreter_stack() is not None
