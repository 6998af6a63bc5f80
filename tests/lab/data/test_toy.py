import sys

import pytest
import torch

from snopt.lab.data import load
from snopt.lab.data.toy import sample_circle, sample_moons, sample_spirals


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_circle_is_two_circles_with_noise():
    points = sample_circle(20_000, generator())
    radius = points.norm(dim=1)
    outer = radius > 0.75
    assert outer.float().mean() == pytest.approx(0.5, abs=0.02)
    assert radius[outer].mean() == pytest.approx(1.0, abs=0.01)
    assert radius[~outer].mean() == pytest.approx(0.5, abs=0.01)
    assert radius[outer].std() == pytest.approx(0.06, abs=0.005)
    assert points.mean(0).abs().max() < 0.02


def test_moons_are_mirror_images_of_each_other():
    points, y = sample_moons(20_000, generator())
    assert y.float().mean() == pytest.approx(0.5, abs=0.02)
    centre = torch.tensor([-0.5, -0.25])
    for label, sign in ((0, 1), (1, -1)):
        moon = sign * points[y == label] - centre
        assert moon.norm(dim=1).mean() == pytest.approx(1.0, abs=0.02)
        assert moon[:, 1].mean() == pytest.approx(2 / torch.pi, abs=0.02)


def test_spirals_turn_and_grow_as_their_class_says():
    series = sample_spirals(400, generator())
    x, y, lengths = series.x, series.y, series.lengths
    assert (lengths.min(), lengths.max()) == (30, 50)
    radius = x.norm(dim=2)
    grows = radius[:, 20:30].mean(1) > radius[:, :10].mean(1)
    assert grows.equal(y < 2)
    a, b = x[:, :29], x[:, 1:30]
    area = (a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]).sum(1)
    assert (area > 0).equal(y % 2 == 0)


@pytest.mark.parametrize("draw", [sample_circle, sample_moons, sample_spirals])
def test_draws_are_those_of_the_generator(draw):
    def tensors(seed):
        drawn = draw(50, generator(seed))
        drawn = vars(drawn).values() if hasattr(drawn, "lengths") else drawn
        return torch.cat([t.flatten() for t in drawn if t is not None])

    assert tensors(1).equal(tensors(1))
    assert not tensors(1).equal(tensors(2))


@pytest.mark.parametrize("name", ["circle", "two_moons", "spirals"])
def test_what_is_generated_needs_no_folder_and_is_always_the_same(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.delenv("SNOPT_DATA", raising=False)
    one, two = load(name), load(name)
    assert one.spec.completeness == "generated"
    assert one.valid.tensors.x.equal(two.valid.tensors.x)


def test_digits_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"scikit-learn.*pip install 'snopt\[lab\]'"):
        load("digits")
