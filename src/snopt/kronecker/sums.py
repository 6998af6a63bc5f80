"""Sums over the backward passes of one iteration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from snopt.kronecker.factors import FactorSums, LayerFactors, finished
from snopt.kronecker.options import KroneckerOptions
from snopt.kronecker.view import LayerView

__all__ = ["IterationSums", "Slot"]


@dataclass(frozen=True)
class Slot:
    """One set of weights whose curvature is recorded.

    Attributes:
        view: the layer in the canonical layout.
        in_field: whether the layer belongs to a vector field.
        users: the layers that use these weights (several if weights are tied), each with the name
            of the matrix.
    """

    view: LayerView
    in_field: bool
    users: tuple[tuple[str, str], ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the layers that use these weights."""
        return tuple(dict.fromkeys(name for name, _ in self.users))


@dataclass
class IterationSums:
    """Sums over the batches whose gradients are in ``.grad``.

    Attributes:
        layers: sums of each layer, by the name of its slot.
        calls: calls of the model that were differentiated.
        examples: examples in these calls; 0 if unknown.
        rows: for each backward pass, the largest number of rows of a layer or of a solve's state.
        ranks: number of processes over which the sums were averaged.
    """

    layers: dict[str, FactorSums]
    calls: float = 0
    examples: int = 0
    rows: list[int] = field(default_factory=list)
    ranks: int = 1

    @classmethod
    def of(cls, names: Iterable[str]) -> IterationSums:
        """Return empty sums for the layers with these names."""
        return cls({name: FactorSums() for name in names})

    @property
    def batches(self) -> float:
        """Number of batches: calls of the model if known, else backward passes."""
        return self.calls or max(1, len(self.rows))

    def batch_size(self, options: KroneckerOptions) -> int:
        """Return N, the number of examples in all batches on all processes.

        Args:
            options: may set the number of examples per batch.
        """
        if options.batch_size is not None:
            return round(options.batch_size * self.batches * self.ranks)
        return max(1, self.examples or sum(self.rows))

    def saw(self, rows: int) -> None:
        """Store the number of rows of a layer or a state in the latest backward pass."""
        self.rows[-1] = max(self.rows[-1], rows)

    def add(self, other: IterationSums) -> None:
        """Add the sums of a batch whose factors were formed separately."""
        self.saw(max(other.rows))
        for name, sums in other.layers.items():
            if sums.modes is not None:
                self.layers[name].add(sums.modes, weight=1.0)
                self.layers[name].duration += sums.duration

    def factors(
        self, slots: Mapping[str, Slot], options: KroneckerOptions
    ) -> dict[str, LayerFactors]:
        """Turn the sums into factors; the factors reuse the tensors of the sums.

        Args:
            slots: all slots.
            options: how factors are formed.
        """
        found, N = {}, self.batch_size(options) / self.ranks
        for name, slot in slots.items():
            sums = self.layers[name]
            scale = 1.0 if options.reduction == "mean" else 1.0 / N**2
            if slot.in_field and sums.duration > 0:
                scale /= sums.duration / self.batches
            factors = finished(sums, calls=self.batches, b_scale=scale, sharing=options.sharing)
            if factors is not None:
                found[name] = factors
        return found
