"""What the experiments are at scale ``cpu``."""

from dataclasses import asdict

import pytest
import torch

from snopt.lab.optimizers import OPTIMIZERS
from snopt.lab.paper.names import TASKS
from snopt.lab.paper.scales import CUTS, REST_LR, configuration
from snopt.lab.recipes.build import build_parts
from snopt.lab.recipes.catalogue import recipe
from snopt.optim import SNOpt
from tests.lab.recipes.test_fidelity import SPECS

SERIES = ("spoken_arabic_digits", "articulary_word_recognition", "character_trajectories")
INSTALLED = [name for name, entry in OPTIMIZERS.items() if entry.installed]


def settings(optimizer: SNOpt) -> dict:
    """Everything that was chosen for an optimizer, and what it trains how."""
    names = {id(p): name for name, p in optimizer.model.named_parameters()}
    groups = [
        {**group, "params": [names[id(p)] for p in group["params"]]}
        for group in optimizer.param_groups
    ]
    return {
        "groups": groups,
        "defaults": optimizer.defaults,
        "config": asdict(optimizer.config),
        "fields": len(optimizer.fields),
        "covered": list(optimizer.recorder.slots),
    }


@pytest.mark.parametrize("scale", ["cpu", "full"])
@pytest.mark.parametrize("task", TASKS)
def test_snopt_default_is_given_the_model_and_nothing_else(task, scale):
    parts = build_parts(configuration(task, "snopt", scale), SPECS[task])
    (optimizer,) = parts.optimizers
    assert settings(optimizer) == settings(SNOpt(parts.model))
    assert parts.schedulers == []


@pytest.mark.parametrize("task", SERIES)
def test_only_the_papers_sgd_and_algorithm_2_leave_the_rest_to_adam(task):
    rest = {name: configuration(task, name, "cpu").optimizer.rest_lr for name in OPTIMIZERS}
    assert {name for name, lr in rest.items() if lr is not None} == {
        "sgd", "snopt_amortized", "recursive",
    }  # fmt: skip
    assert set(rest.values()) == {None, REST_LR}


@pytest.mark.parametrize("name", [n for n in INSTALLED if n not in ("snopt", "snopt_amortized")])
def test_a_modern_method_trains_cell_and_readout_itself(name):
    parts = build_parts(configuration(SERIES[0], name, "cpu"), SPECS[SERIES[0]])
    kinds = {type(optimizer) for optimizer in parts.optimizers}
    # Muon and SINGD are for matrices only: Adam trains biases at a rate of theirs.
    by_adam = name in ("adam", "sgd", "muon", "singd", "recursive")
    assert (torch.optim.Adam in kinds) == by_adam
    if name not in ("sgd", "recursive"):
        cell = {id(p) for n, p in parts.model.named_parameters() if "cell.weight" in n}
        first = parts.optimizers[0].param_groups
        assert cell
        assert cell <= {id(p) for group in first for p in group["params"]}


@pytest.mark.parametrize("task", TASKS)
def test_a_cut_changes_what_it_names(task):
    cut, config = CUTS[task], configuration(task, "adam", "cpu")
    full = recipe(task, "adam", "full")
    assert config.train.iterations == cut.iterations
    assert config.train.batch_size == (cut.batch_size or full.train.batch_size)
    assert config.solver.compile == (task in SERIES)
    if cut.width:
        assert config.model.width == cut.width < full.model.width


@pytest.mark.parametrize("task", TASKS)
def test_a_run_ends_after_about_four_times_the_time_of_adam(task):
    cut = CUTS[task]
    limit = configuration(task, "muon", "cpu").train.max_cpu_seconds
    expected = 1.5 * cut.seconds * cut.iterations
    assert limit == pytest.approx(max(4 * expected, 60))
    # A tuning run is as much shorter, but not too short for a cold start.
    tuning = configuration(
        task, "muon", "cpu", iterations=cut.iterations // 2
    ).train.max_cpu_seconds
    assert tuning == pytest.approx(max(2 * expected, 60))


def test_data_sets_are_listed_from_cheap_to_dear():
    assert list(CUTS) == [
        "svhn", "mnist", "spoken_arabic_digits", "cifar10", "circle",
        "articulary_word_recognition", "gas", "character_trajectories", "miniboone",
    ]  # fmt: skip
