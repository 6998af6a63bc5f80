"""The tasks of the recipes: classification and density estimation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional

from snopt.lab.data import Batch, Dataset
from snopt.lab.recipes.pictures import density_pictures, flow_pictures
from snopt.models import CNF


@dataclass
class _Learned:
    """The splits of a data set; see :class:`snopt.lab.train.Task`."""

    name: str
    train: Dataset
    valid: Dataset
    test: Dataset | None
    metric: ClassVar[str]
    mode: ClassVar[Literal["max", "min"]]


class Classification(_Learned):
    """Classification of images, series or points, with cross-entropy and accuracy."""

    metric = "accuracy"
    mode = "max"

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean cross-entropy."""
        return functional.cross_entropy(logits(model, batch), labels(batch))

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Return the mean cross-entropy and the accuracy, between 0 and 1."""
        scores = logits(model, batch)
        right = scores.argmax(dim=1) == labels(batch)
        loss = functional.cross_entropy(scores, labels(batch))
        return {"loss": loss, "accuracy": right.float().mean()}

    def picture(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        """Return pictures of the flow, if the model is a flow of points or vectors."""
        shown = (self.test or self.valid).take(300).tensors
        return flow_pictures(model, shown.x, labels(shown))


class Density(_Learned):
    """Density estimation by negative log-likelihood, in nats."""

    metric = "nll"
    mode = "min"

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean negative log-likelihood plus the model's regularisers."""
        return _cnf(model).loss(batch.x)

    def metrics(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Return the mean negative log-likelihood as ``loss`` and ``nll``."""
        nll = -_cnf(model).log_prob(batch.x).mean()
        return {"loss": nll, "nll": nll}

    def picture(self, model: nn.Module) -> dict[str, dict[str, Any]]:
        """Return pictures of the density, if it is two-dimensional."""
        return density_pictures(_cnf(model), (self.test or self.valid).take(1000).tensors.x)


def logits(model: nn.Module, batch: Batch) -> Tensor:
    """Call a classifier; series also pass their times, lengths and mask."""
    if batch.lengths is None:
        scores: Tensor = model(batch.x)
    else:
        scores = model(batch.x, times=batch.times, lengths=batch.lengths, mask=batch.mask)
    return scores


def labels(batch: Batch) -> Tensor:
    """Return the labels of a batch, which must have them."""
    if batch.y is None:
        raise ValueError("these examples have no labels; estimate a density instead.")
    return batch.y


def _cnf(model: nn.Module) -> CNF:
    if not isinstance(model, CNF):
        raise TypeError(f"a {type(model).__name__} has no density; use a snopt.models.CNF.")
    return model
