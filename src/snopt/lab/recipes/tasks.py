"""What the experiments learn: to tell classes apart, or a density."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional

from snopt.lab.data import Batch, Dataset
from snopt.lab.recipes.pictures import density_pictures, flow_pictures
from snopt.models import CNF

__all__ = ["Classification", "Density"]


@dataclass
class _Learned:
    """Parts of a data set to learn from, to choose by and to report on.

    Attributes:
        name: what the task is called.
        train: examples to learn from.
        valid: examples to choose by.
        test: examples to report on; None if nothing is to be reported.
        metric: what it is judged by.
        mode: whether more or less of that is better.
    """

    name: str
    train: Dataset
    valid: Dataset
    test: Dataset | None
    metric: ClassVar[str]
    mode: ClassVar[Literal["max", "min"]]


class Classification(_Learned):
    """Classes of images, series or points: cross-entropy, and accuracy."""

    metric = "accuracy"
    mode = "max"

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(logits(model, batch), labels(batch))

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Return the mean cross-entropy and the accuracy, a share of 1."""
        scores = logits(model, batch)
        right = scores.argmax(dim=1) == labels(batch)
        loss = functional.cross_entropy(scores, labels(batch))
        return {"loss": loss, "accuracy": right.float().mean()}

    def picture(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        """Draw the flow, if the model is one of points or vectors."""
        shown = (self.test or self.valid).take(300).tensors
        return flow_pictures(model, shown.x, labels(shown))


class Density(_Learned):
    """The density of points: negative log-likelihood, in nats."""

    metric = "nll"
    mode = "min"

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean negative log-likelihood, and the regularisers that the model has."""
        return _cnf(model).loss(batch.x)

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Return the mean negative log-likelihood, as the loss and by its name."""
        nll = -_cnf(model).log_prob(batch.x).mean()
        return {"loss": nll, "nll": nll}

    def picture(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        """Draw the density, if it is one of the plane."""
        return density_pictures(_cnf(model), (self.test or self.valid).take(1000).tensors.x)


def logits(model: nn.Module, batch: Batch) -> Tensor:
    """Call a classifier: series come with their times, lengths and gaps."""
    if batch.lengths is None:
        scores: Tensor = model(batch.x)
    else:
        scores = model(batch.x, times=batch.times, lengths=batch.lengths, mask=batch.mask)
    return scores


def labels(batch: Batch) -> Tensor:
    """Return the classes of a batch, which must have some."""
    if batch.y is None:
        raise ValueError("these examples have no labels; use them for a density instead")
    return batch.y


def _cnf(model: nn.Module) -> CNF:
    if not isinstance(model, CNF):
        raise TypeError(f"a {type(model).__name__} has no density; use a snopt.models.CNF")
    return model
