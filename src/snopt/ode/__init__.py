"""Solving dx/dt = F(t, x). Knows of no loss, no layer and no optimizer."""

from snopt.ode.controller import Controller
from snopt.ode.norms import Seminorm, rms
from snopt.ode.solution import Solution, SolveStats, Status
from snopt.ode.solve import solve
from snopt.ode.tableau import TABLEAUS, Tableau, register_method, tableau_named

__all__ = [
    "TABLEAUS",
    "Controller",
    "Seminorm",
    "Solution",
    "SolveStats",
    "Status",
    "Tableau",
    "register_method",
    "rms",
    "solve",
    "tableau_named",
]
