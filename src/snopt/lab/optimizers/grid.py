"""The paper's grid of learning rates and weight decays (``table:hyper``)."""

from __future__ import annotations

from itertools import product

from snopt.base.errors import unknown

__all__ = ["DAMPING", "LEARNING_RATES", "WEIGHT_DECAYS", "grid"]

_LOW = (1e-4, 3e-4, 5e-4, 7e-4, 1e-3, 3e-3, 5e-3, 7e-3, 1e-2, 3e-2, 5e-2)
_HIGH = (1e-3, 3e-3, 5e-3, 7e-3, 1e-2, 3e-2, 5e-2, 7e-2, 1e-1, 3e-1, 5e-1)
# Parts of a Newton step, up to a whole one.
_NEWTON = (1e-2, 2e-2, 3e-2, 5e-2, 7e-2, 1e-1, 2e-1, 3e-1, 5e-1, 7e-1, 1.0)

LEARNING_RATES: dict[str, tuple[float, ...]] = {
    "adam": _LOW,
    "sgd": _HIGH,
    "snopt_amortized": _HIGH,
    # Not in the paper: rules that scale like Adam get Adam's rates, the others SGD's.
    "snopt": _LOW,
    "adamw": _LOW,
    "soap": _LOW,
    "muon": _HIGH,
    "lbfgs": _HIGH,
    "recursive": _NEWTON,
    "singd": _HIGH,
}
WEIGHT_DECAYS = (0.0, 1e-4, 1e-3)
DAMPING = (0.1, 0.05, 0.03)
"""Values of ε that the paper tried for SNOpt; 0.05 is the default."""


def grid(optimizer: str) -> list[dict[str, float]]:
    """List the points of an optimizer's grid: settings by name.

    Args:
        optimizer: its name.

    Example:
        >>> points = grid("adam")
        >>> len(points), points[1]
        (33, {'lr': 0.0001, 'weight_decay': 0.0001})
    """
    if optimizer not in LEARNING_RATES:
        raise unknown("optimizer", optimizer, LEARNING_RATES)
    decays = (0.0,) if optimizer == "lbfgs" else WEIGHT_DECAYS
    points = product(LEARNING_RATES[optimizer], decays)
    return [{"lr": lr, "weight_decay": decay} for lr, decay in points]
