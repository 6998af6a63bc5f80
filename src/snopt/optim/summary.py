"""A summary of how each parameter is trained, and of the memory used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from snopt.kronecker import KroneckerRecorder, Slot
from snopt.optim.config import Config
from snopt.optim.guard import warn

__all__ = ["Row", "Summary", "summarise", "warn_of_cut_factors"]


@dataclass(frozen=True)
class Row:
    """One layer (or one matrix of it), or one parameter that no factor covers.

    Attributes:
        name: its name in the model.
        kind: its class.
        trained_by: ``"kronecker (ode)"``, ``"kronecker"``, ``"adam"``, ``"adam (not recorded)"``
            for a layer without a basis after training has started, or ``"nothing"`` for a frozen
            one.
        parameters: number of entries.
        factors: block sizes of each factor: one, or several where ``max_size`` cut it.
        memory: bytes of factors, bases, moments and copies for rollbacks.
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


def _bytes(params: Sequence[Tensor], kept: int) -> int:
    """Return the bytes of two moments, and of the copies for rollbacks."""
    return sum((2 * max(4, p.element_size()) + kept * p.element_size()) * p.numel() for p in params)


def _slot_row(
    name: str, slot: Slot, params: Sequence[Tensor], sizes: list[list[int]], kept: int
) -> Row:
    view = slot.view
    item = max(4, view.parameters[0].element_size())
    # Factor and basis of every block, eigenvalues of every mode.
    squares = sum(b * b for mode in sizes for b in mode) * view.groups
    memory = (2 * squares + sum(view.mode_sizes) * view.groups) * item
    where = "kronecker (ode)" if slot.in_field else "kronecker"
    count = sum(p.numel() for p in params)
    factors = tuple(tuple(mode) for mode in sizes)
    kind = type(view.module).__name__
    return Row(name, kind, where, count, factors, memory + _bytes(params, kept))


def summarise(
    model: nn.Module,
    recorder: KroneckerRecorder,
    group_of: Mapping[int, int],
    config: Config,
    unrecorded: Collection[str],
) -> Summary:
    """Return the summary of an optimizer.

    Args:
        model: the model.
        recorder: holds the covered layers.
        group_of: parameters that are trained, by ``id``.
        config: configuration of the optimizer.
        unrecorded: covered layers without a basis after training has started.
    """
    kept = int(config.on_divergence == "rollback")  # a copy of the parameters for rollbacks
    rows: list[Row] = []
    listed: set[int] = set()
    for name, slot in recorder.slots.items():
        params = slot.view.parameters
        trained = [p for p in params if p.requires_grad]
        if trained and not params[0].requires_grad:
            continue  # for a bias alone, weight and bias have separate rows
        row = _slot_row(name, slot, trained or params, recorder.sizes[name], kept)
        if not trained:
            row = replace(row, trained_by="nothing", factors=(), memory=0)
        elif name in unrecorded:
            memory = _bytes(trained, kept)
            row = replace(row, trained_by="adam (not recorded)", factors=(), memory=memory)
        rows.append(row)
        listed.update(id(p) for p in trained or params)
    for name, param in model.named_parameters():
        if id(param) not in listed:
            kind = type(model.get_submodule(name.rpartition(".")[0])).__name__
            trains = id(param) in group_of and param.requires_grad
            by, memory = ("adam", _bytes([param], kept)) if trains else ("nothing", 0)
            rows.append(Row(name, kind, by, param.numel(), (), memory))
    return Summary(tuple(rows))


def warn_of_cut_factors(recorder: KroneckerRecorder) -> None:
    """Warn about layers with a factor larger than ``max_size``.

    Args:
        recorder: holds the covered layers.
    """
    cut = [
        f"{name!r} ({sum(mode):,})"
        for name, sizes in recorder.sizes.items()
        for mode in sizes
        if len(mode) > 1
    ]
    if cut:
        warn(
            f"factors larger than max_size={recorder.options.max_size} are split into blocks, and "
            f"the entries between blocks are ignored: {', '.join(cut)}. Raise "
            "KroneckerOptions(max_size=...) if memory and time allow; see optimizer.summary()"
        )
