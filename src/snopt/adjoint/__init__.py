"""Turning a solve into something that autograd can differentiate."""

from snopt.adjoint.block import NeuralODE
from snopt.adjoint.observer import NodeObserver
from snopt.adjoint.odeint import odeint, odeint_adjoint
from snopt.adjoint.quadrature import PerStep, Quadrature, UniformGrid

__all__ = [
    "NeuralODE",
    "NodeObserver",
    "PerStep",
    "Quadrature",
    "UniformGrid",
    "odeint",
    "odeint_adjoint",
]
