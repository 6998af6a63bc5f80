"""Which parameters are trained how, and what it costs."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from torch import nn

from snopt.kronecker import KroneckerRecorder, Slot
from snopt.optim.config import Config

__all__ = ["Row", "Summary", "summarise", "warn_of_cut_factors"]


@dataclass(frozen=True)
class Row:
    """One layer, or one parameter that no factor covers.

    Attributes:
        name: its name in the model.
        kind: its class.
        trained_by: ``"kronecker (ode)"``, ``"kronecker"``, ``"adam"``, ``"adam (not recorded)"``
            for a layer of which a refresh recorded nothing, or ``"nothing"`` for a frozen one.
        parameters: how many numbers it has.
        factors: block sizes of each factor: one, or several where ``max_size`` cut it.
        memory: bytes of factors, bases, moments and copies to go back to.
    """

    name: str
    kind: str
    trained_by: str
    parameters: int
    factors: tuple[tuple[int, ...], ...]
    memory: int


@dataclass(frozen=True)
class Summary:
    """All rows; prints as a table.

    Attributes:
        rows: one for each layer or uncovered parameter.
    """

    rows: tuple[Row, ...]

    @property
    def memory(self) -> int:
        """Bytes of all factors, bases and moments."""
        return sum(row.memory for row in self.rows)

    def __str__(self) -> str:
        head = ("name", "kind", "trained by", "parameters", "factors", "MiB")
        cells = [
            (
                row.name,
                row.kind,
                row.trained_by,
                f"{row.parameters:,}",
                " × ".join(_factor(blocks) for blocks in row.factors),
                f"{row.memory / 2**20:.2f}",
            )
            for row in self.rows
        ]
        widths = [max(len(line[i]) for line in [head, *cells]) for i in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in [head, *cells]
        ]
        return "\n".join([*lines, f"optimizer state: {self.memory / 2**20:.2f} MiB"])


def _factor(blocks: tuple[int, ...]) -> str:
    return str(blocks[0]) if len(blocks) == 1 else f"({len(blocks)} blocks of {blocks[0]})"


def _slot_row(name: str, slot: Slot, sizes: list[list[int]], kept: int) -> Row:
    view = slot.view
    count = sum(p.numel() for p in view.parameters)
    item = max(4, view.parameters[0].element_size())
    # Factor and basis of every block, eigenvalues of every mode, two moments.
    squares = sum(b * b for mode in sizes for b in mode) * view.groups
    memory = (2 * squares + sum(view.mode_sizes) * view.groups + 2 * count) * item
    memory += kept * count * view.parameters[0].element_size()
    where = "kronecker (ode)" if slot.in_field else "kronecker"
    factors = tuple(tuple(mode) for mode in sizes)
    return Row(name, type(view.module).__name__, where, count, factors, memory)


def summarise(
    model: nn.Module,
    recorder: KroneckerRecorder,
    group_of: Mapping[int, int],
    config: Config,
    recorded: Collection[str] | None = None,
) -> Summary:
    """Make the summary of an optimizer.

    Args:
        model: the model.
        recorder: knows the covered layers.
        group_of: parameters that are trained, by ``id``.
        config: what the optimizer is.
        recorded: the layers of which factors are known, after the first step.
    """
    kept = int(config.on_divergence == "rollback")  # a copy of the parameters to go back to
    rows = []
    for name, slot in recorder.slots.items():
        row = _slot_row(name, slot, recorder.sizes[name], kept)
        if not any(p.requires_grad for p in slot.view.parameters):
            row = replace(row, trained_by="nothing", factors=(), memory=0)
        elif recorded is not None and name not in recorded:
            row = replace(row, trained_by="adam (not recorded)", factors=())
        rows.append(row)
    covered = {id(p) for slot in recorder.slots.values() for p in slot.view.parameters}
    for name, param in model.named_parameters():
        if id(param) in covered:
            continue
        owner = model.get_submodule(name.rpartition(".")[0])
        trained = id(param) in group_of
        memory = (2 + kept) * param.numel() * param.element_size() if trained else 0
        by = "adam" if trained else "nothing"
        rows.append(Row(name, type(owner).__name__, by, param.numel(), (), memory))
    return Summary(tuple(rows))


def warn_of_cut_factors(recorder: KroneckerRecorder) -> None:
    """Say which layers have a factor that is larger than ``max_size``.

    Args:
        recorder: knows the covered layers.
    """
    cut = [
        f"{name} ({sum(mode):,})"
        for name, sizes in recorder.sizes.items()
        for mode in sizes
        if len(mode) > 1
    ]
    if cut:
        warnings.warn(
            f"factors larger than max_size={recorder.options.max_size} are cut into blocks, and "
            f"what lies between the blocks is lost: {', '.join(cut)}. Raise "
            "KroneckerOptions(max_size=...) if memory and time allow; see optimizer.summary()",
            RuntimeWarning,
            stacklevel=3,
        )
