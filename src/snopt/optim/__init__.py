"""The second-order optimizer SNOpt."""

from snopt.optim.agreement import all_ranks_ok
from snopt.optim.snopt import SNOpt

__all__ = ["SNOpt", "all_ranks_ok"]
