"""SNOpt with default settings trains the kinds of models that users bring."""

import warnings

import pytest
import torch

from snopt import SNOpt
from tests.models.gallery import FAMILIES, train

#: How far the measure falls in 60 updates at least, as a fraction of its start.
FALL = {
    "latent_ode": 0.6,
    "conditioned_cnf": 0.3,
    "hamiltonian": 0.4,
    "attention_field": 0.02,
    "graph_field": 0.1,
    "augmented_ode": 0.02,
    "batch_norm_field": 0.02,
    "dropout_field": 0.05,
    "gan_pair": 0.2,
}
#: Layers without curvature, and why.
UNRECORDED = {
    # Its output is differentiated only inside the field, where its gradient is always one.
    "hamiltonian": ["field.energy.2"],
}


def test_every_family_is_tested():
    assert FALL.keys() == FAMILIES.keys()


@pytest.mark.parametrize("name", FALL)
def test_snopt_trains(name):
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        before, after, optimizers = train(FAMILIES[name](), SNOpt, updates=60)
    assert after < FALL[name] * before
    unrecorded = UNRECORDED.get(name, [])
    messages = [str(w.message) for w in raised if w.category is RuntimeWarning]
    assert len(messages) == len(unrecorded)
    assert all(layer in text for layer, text in zip(unrecorded, messages, strict=True))
    rows = [row for optimizer in optimizers for row in optimizer.summary().rows]
    assert any(row.trained_by.startswith("kronecker") for row in rows)
    assert [row.name for row in rows if "not recorded" in row.trained_by] == unrecorded
