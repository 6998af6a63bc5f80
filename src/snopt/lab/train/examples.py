"""Examples of a task: those with ``batch(indices)``, and torch's data sets and loaders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from snopt.lab.train.task import Examples, Task

__all__ = ["splits_of"]


class Collated:
    """The examples of a torch data set, collated into batches.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> examples = Collated(TensorDataset(torch.arange(4), torch.arange(4) * 10))
        >>> examples.batch(torch.tensor([3, 1]))
        [tensor([3, 1]), tensor([30, 10])]
    """

    def __init__(self, data: Any, collate: Callable[[list[Any]], Any] = default_collate) -> None:
        self.data, self.collate = data, collate

    def __len__(self) -> int:
        return len(self.data)

    def batch(self, indices: Tensor) -> Any:
        """Return the examples at ``indices``."""
        places = indices.tolist()
        if hasattr(self.data, "__getitems__"):
            return self.collate(self.data.__getitems__(places))
        return self.collate([self.data[place] for place in places])


def splits_of(task: Task, batch_size: int) -> dict[str, Examples | None]:
    """Return the training, validation and test examples of a task.

    Args:
        task: The task.
        batch_size: Examples per update. A training loader with another batch size is refused.
    """
    splits = {name: _examples(name, getattr(task, name)) for name in ("train", "valid", "test")}
    loader = task.train
    if isinstance(loader, DataLoader) and loader.batch_size != batch_size:
        raise ValueError(
            f"task.train has batch_size {loader.batch_size} and TrainConfig has {batch_size}; give "
            "both the same, or let task.train be the data set."
        )
    return splits


def _examples(name: str, given: Any) -> Examples | None:
    if (given is None and name != "train") or (
        hasattr(given, "batch") and hasattr(given, "__len__")
    ):
        examples: Examples | None = given
        return examples
    if isinstance(given, DataLoader):
        if not isinstance(given.sampler, (RandomSampler, SequentialSampler)):
            raise ValueError(
                f"task.{name} has a sampler of its own ({type(given.sampler).__name__}); the order "
                "of the data follows from the seed, so that runs can be resumed. Leave it out."
            )
        return Collated(_sized(name, given.dataset), given.collate_fn)
    if isinstance(given, Dataset):
        return Collated(_sized(name, given))
    raise TypeError(
        f"task.{name} is a {type(given).__name__}; give a torch Dataset or DataLoader, or an "
        "object with a length and batch(indices)."
    )


def _sized(name: str, data: Any) -> Any:
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise TypeError(
            f"task.{name} is a {type(data).__name__}, which has no length; the loop needs examples "
            "by index. Give a data set with __len__ and __getitem__."
        )
    return data
