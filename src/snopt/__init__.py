"""Train Neural ODEs in PyTorch: a fast engine for solving and differentiating them.

>>> import torch, snopt
>>> field = torch.nn.Linear(2, 2)
>>> x = snopt.odeint(lambda t, x: field(x), torch.ones(2), torch.tensor([0.0, 1.0]))
>>> x.shape
torch.Size([2, 2])
"""

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
from snopt.ode import Seminorm, SolveStats

__version__ = "0.1.0"

__all__ = [
    "NeuralODE",
    "NodeObserver",
    "PerStep",
    "Seminorm",
    "SolveError",
    "SolveStats",
    "Stages",
    "UniformGrid",
    "odeint",
    "odeint_adjoint",
]
