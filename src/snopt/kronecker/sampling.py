"""Selection of the solves, nodes and examples for a factor; see ``KroneckerOptions.sample``.

A path may have many more rows than factors need: an ODE-RNN has one solve per observation, each
with two nodes per step and a batch of rows at every node. Based on the counts of the previous
refresh, evenly spaced solves are recorded, or evenly spaced nodes if there are few solves. For
layers with several positions per example, evenly spaced examples are used. The sample is weighted
accordingly, and each refresh uses another one, so the mean over refreshes is the factor of all
rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field

import torch

from snopt.kronecker.sums import Slot

__all__ = ["PathSample", "Seen", "Share", "path_sample"]

#: Smallest numbers of recorded solves and nodes of a field. Gradients of early and late solves
#: differ in scale, so a few are not enough even if they have enough rows.
FEWEST_SOLVES = 8
FEWEST_NODES = 16


@dataclass(frozen=True)
class Share:
    """An evenly spaced part of numbered items, a different one in each turn.

    Attributes:
        taken: number of items that are taken.
        of: number of all items; all are taken if ``of <= taken``.

    Example:
        >>> [[i for i in range(7) if Share(3, 7).takes(i, turn)] for turn in (0, 1)]
        [[0, 3, 5], [1, 4, 6]]
    """

    taken: int = 1
    of: int = 1

    def takes(self, index: int, turn: int) -> bool:
        """Return whether an item is taken. In ``of`` turns, each item is taken ``taken`` times."""
        if self.of <= self.taken:
            return True
        # Neighbours are similar, so each turn moves by the golden section of the spacing.
        jump = round(0.618 * self.of / self.taken)
        while math.gcd(jump, self.of) > 1:
            jump += 1
        return (index - turn * jump) * self.taken % self.of < self.taken

    @property
    def weight(self) -> float:
        """Weight of an item that is taken."""
        return max(1.0, self.of / self.taken)


@dataclass
class Seen:
    """Counts of a recording, extrapolated to all solves, nodes and rows.

    Attributes:
        solves: calls of the blocks of a field, by the name of the field's first layer.
        nodes: nodes of one backward pass, by the same name.
        rows: rows of a slot (examples times positions), by its name.
    """

    solves: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, float] = field(default_factory=dict)
    rows: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Return the counts as plain numbers, for a ``state_dict``."""
        return asdict(self)


class PathSample:
    """The solves and nodes of one field that one recording uses.

    Attributes:
        members: the slots of the field's layers.
        solves: which solves are observed.
        nodes: which of their nodes are used.
        seen_solves: number of solves so far.
        seen_nodes: number of nodes in the latest backward pass, extrapolated to all solves.
    """

    def __init__(self, members: Collection[str], solves: Share, nodes: Share, turn: int) -> None:
        self.members, self.solves, self.nodes, self._turn = members, solves, nodes, turn
        self.seen_solves, self.seen_nodes = 0, 0.0
        self._task, self._index = -1, 0

    @property
    def weight(self) -> float:
        """Number of nodes that one used node represents."""
        return self.solves.weight * self.nodes.weight

    def takes_solve(self) -> bool:
        """Count a solve; return whether to observe it."""
        self.seen_solves += 1
        return self.solves.takes(self.seen_solves - 1, self._turn)

    def takes_node(self, solve_weight: float) -> bool:
        """Count a node; return whether to use it.

        Args:
            solve_weight: weight of the node's solve.
        """
        task = torch._C._current_graph_task_id()
        if task != self._task:  # every backward pass uses the same nodes of its path
            self._task, self._index, self.seen_nodes = task, 0, 0.0
        self._index += 1
        self.seen_nodes += solve_weight
        return self.nodes.takes(self._index - 1, self._turn)


def path_sample(
    name: str,
    members: Collection[str],
    slots: Mapping[str, Slot],
    seen: Seen,
    sample: int,
    turn: int,
) -> PathSample:
    """Choose the solves and nodes of a field.

    Args:
        name: the field's first layer.
        members: the slots of its layers.
        slots: all slots.
        seen: counts of the previous recording; a field without counts is used in full.
        sample: smallest number of rows per feature to use.
        turn: which of the evenly spaced sets to use.

    Example:
        >>> path_sample("layer", [], {}, Seen({"layer": 92}, {"layer": 184.0}), 8, 0).solves
        Share(taken=8, of=92)
    """
    total, count = seen.nodes.get(name, 0.0), seen.solves.get(name, 0)
    solves, nodes = Share(), Share()
    if total:
        needs = [
            sample * max(slots[key].view.mode_sizes) * total / seen.rows[key]
            for key in members
            if seen.rows.get(key)
        ]
        wanted = max(FEWEST_NODES, math.ceil(max(needs, default=0.0)))
        if count > FEWEST_SOLVES:
            solves = Share(max(FEWEST_SOLVES, math.ceil(count * wanted / total)), count)
        nodes = Share(wanted, round(total / solves.weight))
    return PathSample(members, solves, nodes, turn)
