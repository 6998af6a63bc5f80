"""Recipes, and functions to run, compare and tune them."""

from snopt.lab.config import Experiment
from snopt.lab.optimizers import grid
from snopt.lab.recipes.build import build
from snopt.lab.recipes.catalogue import RECIPES, recipe
from snopt.lab.recipes.run import Loaded, compare, experiment_of, load, run, schedule
from snopt.lab.recipes.settings import with_settings
from snopt.lab.recipes.sweep import SweepConfig, open_study, work

__all__ = [
    "RECIPES", "recipe", "Experiment", "with_settings",
    "build", "run", "experiment_of", "load", "Loaded",
    "schedule", "compare", "SweepConfig", "open_study", "work", "grid",
]  # fmt: skip
