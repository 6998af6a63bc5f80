"""Experiments: data sets, training runs, recipes, reports and the paper's results.

The library does not import it. Install its dependencies with ``pip install 'snopt[lab]'``.

>>> import snopt
>>> snopt.lab.data.load("two_moons").spec.name
'two_moons'
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PACKAGES = ("data", "optimizers", "paper", "recipes", "report", "train")


def __getattr__(name: str) -> Any:
    """Import a subpackage on first use; ``import snopt.lab`` is then fast."""
    if name in _PACKAGES:
        return import_module(f"snopt.lab.{name}")
    if name == "load":
        return import_module("snopt.lab.recipes").load
    raise AttributeError(f"module 'snopt.lab' has no attribute {name!r}")
