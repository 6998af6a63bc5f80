"""Differentiable solves: adjoints, ``odeint`` and the NeuralODE block."""

from snopt.adjoint.adjoints import Backsolve, Checkpoint, Direct, Reversible
from snopt.adjoint.block import NeuralODE
from snopt.adjoint.observer import NodeObserver
from snopt.adjoint.odeint import odeint, odeint_adjoint, odeint_event
from snopt.adjoint.quadrature import PerStep, Quadrature, UniformGrid
from snopt.adjoint.request import Adjoint
from snopt.adjoint.trajectory import Trajectory, solve

__all__ = [
    "Adjoint",
    "Backsolve",
    "Checkpoint",
    "Direct",
    "NeuralODE",
    "NodeObserver",
    "PerStep",
    "Quadrature",
    "Reversible",
    "Trajectory",
    "UniformGrid",
    "odeint",
    "odeint_adjoint",
    "odeint_event",
    "solve",
]
