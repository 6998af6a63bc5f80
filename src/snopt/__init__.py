"""Train Neural ODEs in PyTorch with second-order optimization at first-order cost.

>>> import torch, snopt
>>> field = torch.nn.Linear(2, 2)
>>> x = snopt.odeint(lambda t, x: field(x), torch.ones(2), torch.tensor([0.0, 1.0]))
>>> x.shape
torch.Size([2, 2])
"""

from importlib import import_module
from types import ModuleType

from snopt import models
from snopt.adjoint import (
    Backsolve,
    Checkpoint,
    Direct,
    NeuralODE,
    NodeObserver,
    PerStep,
    Reversible,
    Trajectory,
    UniformGrid,
    odeint,
    odeint_adjoint,
    odeint_event,
    solve,
)
from snopt.base.errors import SolveError
from snopt.horizon import HorizonOptimizer
from snopt.kronecker import KroneckerOptions
from snopt.ode import Seminorm, SolveStats
from snopt.optim import SNOpt, all_ranks_ok
from snopt.second_order.cost_to_go import CostToGo
from snopt.second_order.low_rank import low_rank
from snopt.second_order.matrix_odes import differential_programming
from snopt.second_order.products import ggn_vector_product, hessian_vector_product

__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    """Import ``snopt.lab`` on first use; the library itself never needs it."""
    if name == "lab":
        return import_module("snopt.lab")
    raise AttributeError(f"module 'snopt' has no attribute {name!r}")


__all__ = [
    "Backsolve",
    "Checkpoint",
    "CostToGo",
    "Direct",
    "HorizonOptimizer",
    "KroneckerOptions",
    "NeuralODE",
    "NodeObserver",
    "PerStep",
    "Reversible",
    "SNOpt",
    "Seminorm",
    "SolveError",
    "SolveStats",
    "Trajectory",
    "UniformGrid",
    "all_ranks_ok",
    "differential_programming",
    "ggn_vector_product",
    "hessian_vector_product",
    "low_rank",
    "models",
    "odeint",
    "odeint_adjoint",
    "odeint_event",
    "solve",
]
