"""The tensors and hooks of a module.

``nn.Module.parameters`` also builds the name of every tensor, which takes longer than one layer of
a small field. A block reads its parameters on every call.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook


def parameters_of(module: nn.Module) -> list[Tensor]:
    """Return the distinct parameters of a module, in the order of ``module.parameters()``.

    Example:
        >>> layer = nn.Linear(2, 3)
        >>> [p.shape for p in parameters_of(nn.Sequential(layer, layer))]
        [torch.Size([3, 2]), torch.Size([3])]
    """
    parts = _parts(module, {})
    return list({id(p): p for m in parts for p in m._parameters.values() if p is not None}.values())


def buffers_of(module: nn.Module) -> list[Tensor]:
    """Return the distinct buffers of a module, in the order of ``module.buffers()``."""
    parts = _parts(module, {})
    return list({id(b): b for m in parts for b in m._buffers.values() if b is not None}.values())


def hooked(module: nn.Module) -> bool:
    """Return whether a call of the module runs hooks, apart from those of modules inside.

    Example:
        >>> hooked(nn.Identity())
        False
    """
    own = (
        module._forward_hooks or module._forward_pre_hooks
        or module._backward_hooks or module._backward_pre_hooks
    )  # fmt: skip
    return bool(own or _has_any_global_hook())


def _parts(module: nn.Module, found: dict[nn.Module, None]) -> dict[nn.Module, None]:
    """Add a module and those inside to ``found``, each one once."""
    found[module] = None
    for inner in module._modules.values():
        if inner is not None and inner not in found:
            _parts(inner, found)
    return found
