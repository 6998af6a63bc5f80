"""Configured runs: recipes, comparisons and sweeps."""

from snopt.lab.config import Experiment
from snopt.lab.optimizers import grid
from snopt.lab.recipes.build import build
from snopt.lab.recipes.catalogue import RECIPES, recipe
from snopt.lab.recipes.compare import compare, schedule, table
from snopt.lab.recipes.run import Loaded, experiment_of, load, run
from snopt.lab.recipes.settings import with_settings
from snopt.lab.recipes.sweep import SweepConfig, open_study, work

__all__ = [
    "RECIPES",
    "Experiment",
    "Loaded",
    "SweepConfig",
    "build",
    "compare",
    "experiment_of",
    "grid",
    "load",
    "open_study",
    "recipe",
    "run",
    "schedule",
    "table",
    "with_settings",
    "work",
]
