"""The solver for dx/dt = F(t, x); independent of losses, layers and optimizers."""

from snopt.ode.controller import Controller
from snopt.ode.norms import Seminorm, rms
from snopt.ode.solution import Solution, SolveStats
from snopt.ode.solve import solve
from snopt.ode.tableau import TABLEAUS, Tableau, register_method, tableau_named

__all__ = [
    "TABLEAUS",
    "Controller",
    "Seminorm",
    "Solution",
    "SolveStats",
    "Tableau",
    "register_method",
    "rms",
    "solve",
    "tableau_named",
]
