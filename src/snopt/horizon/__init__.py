"""The horizon of a NeuralODE as a variable that is learned with its parameters."""

from snopt.horizon.counts import Counts
from snopt.horizon.optimizer import HorizonOptimizer, Record
from snopt.horizon.terms import HorizonTerms, horizon_terms

__all__ = ["Counts", "HorizonOptimizer", "HorizonTerms", "Record", "horizon_terms"]
