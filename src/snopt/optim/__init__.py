"""The optimizer."""

from snopt.optim.snopt import SNOpt

__all__ = ["SNOpt"]
