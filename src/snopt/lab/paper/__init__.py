"""The tables and figures of the paper, reproduced, and its published values.

Liu, Chen, Theodorou: Second-Order Neural ODE Optimizer, NeurIPS 2021.
"""

from snopt.base.errors import unknown
from snopt.lab.paper.item import Item, Result, Space, Table
from snopt.lab.paper.items import ITEMS
from snopt.lab.paper.published import published
from snopt.lab.paper.queue import run_item, share, state

__all__ = [
    "ITEMS", "Item", "Result", "Space", "Table", "find", "published", "run_item", "share", "state",
]  # fmt: skip


def find(name: str) -> Item:
    """Return an item.

    Args:
        name: its id, or the label of one of its tables and figures in the paper's source.

    Example:
        >>> find("table:accu").id
        'accu'
    """
    names = {label: item for item in ITEMS.values() for label in (item.id, *item.labels)}
    if name not in names:
        raise unknown("item of the paper", name, names)
    return names[name]
