"""Train Neural ODEs in PyTorch with second-order optimization, at a first-order price.

>>> import torch, snopt
>>> field = torch.nn.Linear(2, 2)
>>> x = snopt.odeint(lambda t, x: field(x), torch.ones(2), torch.tensor([0.0, 1.0]))
>>> x.shape
torch.Size([2, 2])
"""

from snopt import data, models
from snopt.adjoint import (
    NeuralODE,
    NodeObserver,
    PerStep,
    Stages,
    UniformGrid,
    odeint,
    odeint_adjoint,
)
from snopt.base.errors import SolveError
from snopt.curvature import KroneckerOptions
from snopt.curvature.cost_to_go import CostToGo
from snopt.curvature.low_rank import low_rank
from snopt.curvature.matrix_odes import differential_programming
from snopt.curvature.products import ggn_vector_product, hessian_vector_product
from snopt.horizon import HorizonOptimizer
from snopt.ode import Seminorm, SolveStats
from snopt.optim import SNOpt

__version__ = "0.1.0"

__all__ = [
    "CostToGo",
    "HorizonOptimizer",
    "KroneckerOptions",
    "NeuralODE",
    "NodeObserver",
    "PerStep",
    "SNOpt",
    "Seminorm",
    "SolveError",
    "SolveStats",
    "Stages",
    "UniformGrid",
    "data",
    "differential_programming",
    "ggn_vector_product",
    "hessian_vector_product",
    "low_rank",
    "models",
    "odeint",
    "odeint_adjoint",
]
