"""Configured runs: recipes, comparisons and sweeps."""

from snopt.experiments.build import build
from snopt.experiments.compare import compare, schedule, table
from snopt.experiments.config import Experiment
from snopt.experiments.grid import grid
from snopt.experiments.recipes import RECIPES, recipe
from snopt.experiments.run import experiment_of, run
from snopt.experiments.settings import with_settings
from snopt.experiments.sweep import SweepConfig, open_study, work

__all__ = [
    "RECIPES",
    "Experiment",
    "SweepConfig",
    "build",
    "compare",
    "experiment_of",
    "grid",
    "open_study",
    "recipe",
    "run",
    "schedule",
    "table",
    "with_settings",
    "work",
]
