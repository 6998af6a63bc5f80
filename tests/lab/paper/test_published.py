"""The paper's values: all of them, and those at the corners of the tables."""

import pytest

from snopt.base.errors import UnknownName
from snopt.lab.optimizers import OPTIMIZERS
from snopt.lab.optimizers.registry import WEIGHT_DECAYS
from snopt.lab.paper.names import TASKS
from snopt.lab.paper.published import published

#: Number, rows and columns of every table.
SHAPES = {
    "table:adj2-error": (1, 2, 3),
    "table:memory-comp": (2, 4, 5),
    "table:accu": (4, 3, 9),
    "table:adap-t1": (5, 2, 2),
    "table:reg": (6, 2, 2),
    "table:accu-bar": (7, 3, 9),
    "table:hyper": (9, 3, 14),
    "table:runtime": (10, 4, 9),
    "table:memory": (11, 4, 9),
    "table:mali-accu": (12, 5, 2),
    "table:mali-runtime": (13, 5, 2),
    "table:lbfgs": (14, 2, 4),
    "table:iadams": (15, 3, 9),
    "table:resnet": (16, 1, 3),
    "table:batch": (17, 3, 3),
}


@pytest.mark.parametrize("label", SHAPES)
def test_a_table_is_complete(label):
    table = published(label)
    number, rows, columns = SHAPES[label]
    assert table.number == number
    assert [len(set(names)) for names in zip(*table.values, strict=True)] == [rows, columns]
    assert len(table.values) == rows * columns


@pytest.mark.parametrize(
    ("label", "row", "column", "value", "spread"),
    [
        ("table:adj2-error", "first", "rk4", 7.63e-5, None),
        ("table:adj2-error", "second", "dopri5", 41.1, None),
        ("table:memory-comp", "theorem1", "storage in m", 2, None),
        ("table:memory-comp", "snopt", "storage in R", 1, None),
        ("table:memory-comp", "adjoint", "update in n", 1, None),
        ("table:accu", "adam", "mnist", 98.83, None),
        ("table:accu", "snopt", "miniboone", 12.5, None),
        ("table:accu-bar", "sgd", "articulary_word_recognition", 85.82, 3.83),
        ("table:accu-bar", "snopt", "gas", -7.55, 0.46),
        ("table:adap-t1", "asm", "train_time", 96, None),
        ("table:adap-t1", "snopt", "accuracy", 77.82, None),
        ("table:reg", "adam", "regularization", 323.88, None),
        ("table:reg", "snopt", "nfe", 32.6, None),
        ("table:runtime", "adam", "mnist", 0.15, None),
        ("table:runtime", "snopt", "miniboone", 1.04, None),
        ("table:memory", "snopt", "svhn", 1.81, None),
        ("table:memory", "sgd", "circle", 1.13, None),
        ("table:mali-accu", "sgd_mali", "cifar10", 76.41, None),
        ("table:mali-runtime", "adam_mali", "svhn", 2.31, None),
        ("table:lbfgs", "lbfgs", "seconds_to_90", 177, None),
        ("table:lbfgs", "snopt", "iterations_to_90", 105, None),
        ("table:iadams", "adam", "character_trajectories", 88.83, None),
        ("table:resnet", "resnet_adam", "svhn", 97.28, 0.37),
        ("table:batch", "snopt", "cifar10", 80.03, 0.10),
    ],
)
def test_a_value_is_the_papers(label, row, column, value, spread):
    assert published(label).values[row, column] == (value, spread)


def test_tables_of_data_sets_have_them_in_the_papers_order():
    for label in ("table:accu", "table:accu-bar", "table:runtime", "table:memory", "table:iadams"):
        columns = [column for row, column in published(label).values if row == "adam"]
        assert columns == list(TASKS)


@pytest.mark.parametrize("label", ["table:runtime", "table:memory"])
def test_printed_ratios_are_those_of_the_printed_values(label):
    table = published(label)
    for task in TASKS:
        ours, adam, ratio = (table.value(row, task) for row in ("snopt", "adam", "ratio"))
        # Values are rounded to 0.01, and what was divided was not.
        slack = 0.005 * (1 + ours / adam) / adam + 0.005
        assert ratio == pytest.approx(ours / adam, abs=slack + 1e-9)


@pytest.mark.parametrize("label", ["table:accu", "table:mali-accu", "table:mali-runtime"])
def test_values_that_the_paper_prints_twice_agree(label):
    twin = {"table:mali-runtime": "table:runtime"}.get(label, "table:accu-bar")
    for place, (value, _) in published(label).values.items():
        assert published(twin).value(*place) in (None, value)


def test_the_grids_of_the_search_are_the_papers():
    values = published("table:hyper").values
    for row, name in (("adam", "adam"), ("sgd", "sgd"), ("snopt", "snopt_amortized")):
        found = {column: value for (method, column), (value, _) in values.items() if method == row}
        rates = [value for column, value in found.items() if column.startswith("lr ")]
        decays = [value for column, value in found.items() if column.startswith("weight_decay ")]
        assert rates == list(OPTIMIZERS[name].rates)
        assert decays == list(WEIGHT_DECAYS)


def test_what_is_not_there_is_none_or_refused():
    assert published("table:reg").value("sgd", "nfe") is None
    assert published("table:reg").text("sgd", "nfe") == "-"
    with pytest.raises(UnknownName, match="table:reg"):
        published("table:rag")
