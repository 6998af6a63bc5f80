"""The ODE-RNN: regular and irregular times, masks, lengths."""

import pytest
import torch
from torch.nn import functional

import snopt
from snopt.adjoint.chain import RUN, Joined
from snopt.base.errors import InvalidTimes
from snopt.models import ODERNN
from tests.problems import descend

TIGHT = {"rtol": 1e-9, "atol": 1e-9}


def tight_model(**options) -> ODERNN:
    """A model whose field moves its state, solved accurately."""
    model = ODERNN(3, 4, hidden=5, **TIGHT, **options).double()
    with torch.no_grad():
        for parameter in model.block.field.parameters():
            parameter.mul_(2.0)
    return model


def series(batch: int = 4, length: int = 6) -> torch.Tensor:
    return torch.randn(batch, length, 3, dtype=torch.float64)


def by_hand(model: ODERNN, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
    """One series of (length, channels), solved on its own with times as they are."""
    state = torch.zeros(1, 5, dtype=torch.float64)
    for k, reading in enumerate(x):
        if k:
            state = snopt.odeint(model.block.field, state, times[k - 1 : k + 1], **TIGHT)[-1]
        state = model.cell(reading[None], state)
    return model.head(state)[0]


def test_default_times_are_one_unit_apart_and_make_one_solve_an_interval():
    model, x = tight_model(), series()
    found = model(x)
    assert model.block.totals.solves == 5
    assert torch.allclose(found, model(x, times=torch.arange(6.0)))
    expected = by_hand(model, x[0], torch.arange(6.0, dtype=torch.float64))
    assert torch.allclose(found[0], expected, atol=1e-7)


def test_irregular_times_equal_a_solve_of_each_series_on_its_own():
    model, x = tight_model(), series()
    times = torch.rand(4, 6, dtype=torch.float64).cumsum(1) * 2.0
    found = model(x, times=times)
    for i in range(4):
        assert torch.allclose(found[i], by_hand(model, x[i], times[i]), atol=1e-7)


def test_shared_times_are_the_same_times_for_each():
    model, x = tight_model(), series()
    times = torch.tensor([0.0, 0.3, 0.3, 1.7, 2.0, 5.0], dtype=torch.float64)
    expected = model(x, times=times.expand(4, 6))
    assert torch.allclose(model(x, times=times), expected, atol=1e-7)


def test_gradients_of_irregular_times_equal_those_of_each_series_on_its_own():
    model, x = tight_model(), series(3, 4)
    times = torch.rand(3, 4, dtype=torch.float64).cumsum(1)
    params = list(model.parameters())
    found = torch.autograd.grad(model(x, times=times).square().sum(), params)
    alone = sum(by_hand(model, x[i], times[i]).square().sum() for i in range(3))
    expected = torch.autograd.grad(alone, params)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("timed", [False, True])
def test_padding_never_changes_an_answer(timed):
    model, x = tight_model().eval(), series()
    lengths = torch.tensor([6, 1, 3, 5])
    times = torch.rand(4, 6, dtype=torch.float64).cumsum(1) if timed else None
    found = model(x, times=times, lengths=lengths)
    spoiled, late = x.clone(), None if times is None else times.clone()
    for i, n in enumerate(lengths):
        spoiled[i, n:] = float("nan")
        if late is not None:
            late[i, n:] = float("nan")
    assert torch.equal(model(spoiled, times=late, lengths=lengths), found)
    longer = torch.cat([spoiled, spoiled[:, :1]], dim=1)
    if late is not None:
        late = torch.cat([late, late[:, :1]], dim=1)
    assert torch.equal(model(longer, times=late, lengths=lengths), found)
    for i, n in enumerate(lengths):
        alone = model(x[i : i + 1, :n], times=None if times is None else times[i : i + 1, :n])
        assert torch.allclose(found[i], alone[0], atol=1e-7)


def test_what_is_not_there_spoils_no_gradient():
    model, x = tight_model(carry_step=False), series()
    mask = torch.rand(4, 6, 3) < 0.5
    spoiled = torch.where(mask, x, float("nan"))
    lengths = torch.tensor([6, 1, 3, 5])
    params = list(model.parameters())
    found = torch.autograd.grad(model(spoiled, lengths=lengths, mask=mask).sum(), params)
    zeros = torch.where(mask, x, 0.0)
    expected = torch.autograd.grad(model(zeros, lengths=lengths, mask=mask).sum(), params)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert all(gradient.isfinite().all() for gradient in found)


def test_where_nothing_is_observed_time_passes_and_no_more():
    model, x = tight_model(), series()
    mask = torch.ones(4, 6, 3, dtype=torch.bool)
    mask[:, 2] = False
    kept = [0, 1, 3, 4, 5]
    expected = model(x[:, kept], times=torch.tensor([0.0, 1.0, 3.0, 4.0, 5.0]))
    assert torch.allclose(model(x, mask=mask), expected, atol=1e-7)


def test_a_missing_value_is_a_zero_unless_the_cell_sees_the_mask():
    x = series()
    mask = torch.ones(4, 6, 3, dtype=torch.bool)
    mask[:, 2, 0] = False
    zeros = torch.where(mask, x, 0.0)
    blind, seeing = tight_model(), tight_model(see_mask=True).eval()
    assert torch.allclose(blind(x, mask=mask), blind(zeros))
    assert seeing.cell.input_size == 6
    assert not torch.allclose(seeing(x, mask=mask), seeing(zeros))
    everything = torch.ones_like(mask)
    assert torch.equal(seeing(x, mask=everything), seeing(x))


def test_lengths_and_masks_go_together():
    model, x = tight_model().eval(), series()
    lengths, mask = torch.tensor([6, 2, 3, 5]), torch.rand(4, 6, 3) < 0.6
    found = model(x, lengths=lengths, mask=mask)
    for i, n in enumerate(lengths):
        alone = model(x[i : i + 1, :n], mask=mask[i : i + 1, :n])
        assert torch.allclose(found[i], alone[0], atol=1e-7)


@pytest.mark.parametrize("irregular", [False, True])
def test_snopt_trains_it(irregular):
    model = ODERNN(3, 4, hidden=8)
    x, y = torch.randn(16, 6, 3), torch.randint(4, (16,))
    more = {"lengths": torch.randint(1, 7, (16,)), "mask": torch.rand(16, 6, 3) < 0.8}
    if irregular:
        more["times"] = torch.rand(16, 6).cumsum(1)
    optimizer = snopt.SNOpt(model)
    losses = descend(optimizer, lambda: functional.cross_entropy(model(x, **more), y), 15)
    assert losses[-1] < 0.9 * losses[0]
    assert {f"block.field.field.layers.{i}" for i in range(4)} <= optimizer.factors.keys()


@pytest.mark.slow
@pytest.mark.parametrize("irregular", [False, True])
def test_compiled_steps_give_the_same_logits_and_gradients(irregular):
    x, lengths = series(), torch.tensor([6, 1, 3, 5])
    times = torch.rand(4, 6, dtype=torch.float64).cumsum(1) if irregular else None
    eager, compiled = tight_model(), tight_model(compile=True)
    compiled.load_state_dict(eager.state_dict())
    gradients = []
    for model in (eager, compiled):
        logits = model(x, times=times, lengths=lengths)
        gradients.append([logits, *torch.autograd.grad(logits.sum(), list(model.parameters()))])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("times", ["unit", "shared", "own"])
def test_runs_of_compiled_steps_give_the_logits_and_gradients_of_direct_solves(times, monkeypatch):
    """Series of random lengths with missing values; each has intervals of one step and of more."""
    draw = torch.Generator().manual_seed(1)
    batch, length = 6, 3 * RUN + 3
    x = torch.randn(batch, length, 3, dtype=torch.float64, generator=draw)
    gaps = 0.1 + torch.rand(batch, length, dtype=torch.float64, generator=draw)
    gaps[:, 5] = gaps[0, 5] = 6.0
    gaps[0, RUN + 4] = 0.0
    given = {
        "times": {"unit": None, "shared": gaps[0].cumsum(0), "own": gaps.cumsum(1)}[times],
        "lengths": torch.tensor([length, 1, 5, length, 9, 2]),
        "mask": torch.rand(batch, length, 3, generator=draw) < 0.4,
    }
    runs = []
    attempt = Joined.attempt

    def noted(self, count, *args):
        runs.append((count, attempt(self, count, *args)))
        return runs[-1][1]

    monkeypatch.setattr(Joined, "attempt", noted)
    loose = {"rtol": 2e-2, "atol": 2e-2, "method": "bosh3"}
    models = [
        ODERNN(3, 4, hidden=5, see_mask=True, **loose, **more).double()
        for more in ({"compile": True}, {"adjoint": snopt.Direct()})
    ]
    models[1].load_state_dict(models[0].state_dict())
    for _ in range(2):  # the second one starts with a carried step
        found = []
        for model in models:
            model.block.totals.reset()
            logits = model(x, **given)
            gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
            found.append([logits, *gradients])
        assert all(torch.allclose(a, b, atol=1e-9) for a, b in zip(*found, strict=True))
        first, second = (model.block.totals for model in models)
        assert (first.solves, first.accepted) == (second.solves, second.accepted)
    assert (RUN, True) in runs


def test_what_does_not_belong_together_is_refused():
    model, x = ODERNN(3, 4, hidden=5), torch.randn(2, 6, 3)
    with pytest.raises(ValueError, match=r"must be \(batch, length, 3\)"):
        model(torch.randn(2, 6, 4))
    with pytest.raises(ValueError, match=r"times has shape \(5,\)"):
        model(x, times=torch.arange(5.0))
    with pytest.raises(ValueError, match=r"mask is torch\.float32"):
        model(x, mask=torch.ones(2, 6, 3))
    with pytest.raises(ValueError, match="one number"):
        model(x, lengths=torch.tensor([6]))
    with pytest.raises(ValueError, match="lengths go from 0 to 7"):
        model(x, lengths=torch.tensor([0, 7]))
    with pytest.raises(InvalidTimes, match="the smallest interval is -5"):
        model(x, times=torch.tensor([0.0, 1.0, 2.0, 3.0, 5.0, 0.0]))
