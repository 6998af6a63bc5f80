"""A task's examples may be torch's data sets and loaders."""

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from snopt.lab.train import train
from tests.lab.train.problems import CONFIG, Batch, Moons, assert_same_records, make_parts


def collate(pairs):
    return Batch(*map(torch.stack, zip(*pairs, strict=True)))


class Tuples(Moons):
    """The same task with batches as torch collates them."""

    def loss(self, model, batch):
        return super().loss(model, Batch(*batch))

    def metrics(self, model, batch):
        return super().metrics(model, Batch(*batch))


def pairs(points):
    return TensorDataset(points.x, points.y)


WRAPPED = {
    "data set": (Tuples, pairs),
    "subset": (Tuples, lambda points: Subset(pairs(points), range(len(points)))),
    "loader": (Tuples, lambda points: DataLoader(pairs(points), batch_size=20, shuffle=True)),
    "collate": (Moons, lambda points: DataLoader(pairs(points), 20, collate_fn=collate)),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_torch_data_train_the_same_model(tmp_path, name):
    kind, wrap = WRAPPED[name]
    task = kind()
    task.train, task.valid, task.test = map(wrap, (task.train, task.valid, task.test))
    train(Moons(), make_parts("adam"), CONFIG, tmp_path / "plain")
    train(task, make_parts("adam"), CONFIG, tmp_path / "torch")
    assert_same_records(tmp_path / "plain", tmp_path / "torch")


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


DATA = TensorDataset(torch.ones(60, 2))
WEIGHTED = WeightedRandomSampler([1.0] * 60, 60)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ([1, 2], TypeError, "task.train is a list; give a torch Dataset or DataLoader"),
        (None, TypeError, "task.train is a NoneType"),
        (Stream(), TypeError, "no length"),
        (DataLoader(Stream(), batch_size=20), TypeError, "no length"),
        (DataLoader(DATA, batch_size=7), ValueError, "batch_size 7, but TrainConfig has 20"),
        (DataLoader(DATA, batch_size=20, sampler=WEIGHTED), ValueError, "WeightedRandomSampler"),
    ],
)
def test_other_things_are_refused_with_what_to_give(tmp_path, given, error, says):
    task = Moons()
    task.train = given
    with pytest.raises(error, match=says):
        train(task, make_parts("adam"), CONFIG, tmp_path / "run")
    assert not (tmp_path / "run").exists()
