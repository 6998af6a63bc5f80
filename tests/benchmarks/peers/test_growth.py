"""How cost grows: what an iteration holds."""

import pytest
import torch

from benchmarks.peers.growth import CONTENDERS, Model, Size, megabytes


def test_both_solvers_compute_the_same_loss():
    size = Size(batch=4, width=3, steps=2, layers=1)
    torch.testing.assert_close(Model(size, ours=True)(), Model(size, ours=False)())


@pytest.mark.parametrize("name", CONTENDERS)
def test_an_iteration_holds_at_least_weights_and_gradients(name):
    size = Size(batch=2, width=8, steps=2, layers=2)
    weights = 4 * size.layers * (size.width**2 + size.width) / 2**20
    made = CONTENDERS[name](size)
    made.run()
    assert megabytes(made) > 2 * weights


def test_a_refresh_holds_more_than_a_plain_iteration():
    size = Size(batch=2, width=8, steps=2, layers=2)
    plain, refresh = (CONTENDERS[name](size) for name in ("snopt", "snopt_refresh"))
    assert megabytes(refresh) > megabytes(plain)
