"""The tables and figures of the paper; related ones share a file."""

from snopt.lab.paper.item import Item
from snopt.lab.paper.items.complexity import CLOCKS, COMPLEXITY
from snopt.lab.paper.items.derivative_errors import DERIVATIVE_ERRORS
from snopt.lab.paper.items.horizon import FIXED, LEARNED
from snopt.lab.paper.items.methods import ACCURACY, CONVERGENCE, LBFGS, OTHERS, RECURSIVE
from snopt.lab.paper.items.regularity import REGULARITY
from snopt.lab.paper.items.sensitivity import HYPER, SENSITIVITY
from snopt.lab.paper.items.storage import STORAGE
from snopt.lab.paper.items.variants import BATCH, IMPLICIT_ADAMS, MALI, RESIDUAL, TERMINAL
from snopt.lab.paper.items.whitening import WHITENING

__all__ = ["ITEMS"]

ITEMS: dict[str, Item] = {
    item.id: item
    for item in (
        ACCURACY, CONVERGENCE, HYPER, SENSITIVITY, RESIDUAL, REGULARITY, FIXED, LEARNED, OTHERS,
        BATCH, TERMINAL, MALI, LBFGS, RECURSIVE, IMPLICIT_ADAMS, COMPLEXITY, CLOCKS,
        DERIVATIVE_ERRORS, STORAGE, WHITENING,
    )
}  # fmt: skip
"""Items by id, in the order of the queue: those that share the runs of the first come next."""
