"""One step size per sample: as if every sample were solved alone."""

import pytest
import torch
from torch import nn

import snopt
from snopt.base.errors import GradientError, InvalidOption, InvalidState, MaxStepsExceeded

METHODS = ["bosh3", "dopri5", "tsit5", "dopri8"]
TIMES = torch.tensor([0.0, 0.3, 0.35, 1.0], dtype=torch.float64)
RATES = (1.0, 2.0, 40.0, 300.0)


class Relaxing(nn.Module):
    """Samples relax at their own rates, the last entry of their states, to a moving target."""

    def __init__(self):
        super().__init__()
        self.target = nn.Parameter(torch.tensor([1.0, -0.5], dtype=torch.float64))

    def forward(self, t, z):
        x, rate = z[:, :-1], z[:, -1:]
        pull = rate * (self.target * torch.cos(3.0 * t) - x)
        return torch.cat([pull, torch.zeros_like(rate)], dim=1)


def start(rates=RATES):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 2, dtype=torch.float64, generator=generator)[: len(rates)]
    return torch.cat([x, torch.tensor(rates, dtype=torch.float64)[:, None]], dim=1)


def gradients(solution, *tensors):
    weights = torch.linspace(0.5, 1.5, solution.ys.numel(), dtype=torch.float64)
    loss = (solution.ys.reshape(-1).sin() * weights).sum()
    return torch.autograd.grad(loss, tensors)


@pytest.mark.parametrize("times", [TIMES, 1.0 - TIMES], ids=["forward", "backward"])
@pytest.mark.parametrize("method", METHODS)
def test_every_sample_is_solved_as_if_it_were_alone(method, times):
    field, z0 = Relaxing(), start((0.2, 0.5, 1.0, 4.0) if times[0] > 0 else RATES)
    more = {"method": method, "rtol": 1e-5, "atol": 1e-6, "adjoint": "direct"}
    together = snopt.solve(field, z0, times, per_sample=True, **more)
    for i, stats in enumerate(together.sample_stats):
        alone = snopt.solve(field, z0[i : i + 1], times, **more)
        torch.testing.assert_close(together.ys[:, i : i + 1], alone.ys, rtol=1e-10, atol=1e-12)
        assert (stats.accepted, stats.rejected) == (alone.stats.accepted, alone.stats.rejected)
        assert stats.last_step == pytest.approx(alone.stats.last_step)
    assert together.stats.accepted == sum(stats.accepted for stats in together.sample_stats)
    assert together.stats.solves == len(z0)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_those_of_separate_solves(method):
    field = Relaxing()
    z0 = start((1.0, 3.0, 9.0, 27.0)).requires_grad_()
    more = {"method": method, "rtol": 1e-5, "atol": 1e-6, "adjoint": "direct"}
    together = snopt.solve(field, z0, TIMES, per_sample=True, **more)
    solves = [snopt.solve(field, row[None], TIMES, **more).ys for row in z0]
    apart = together.ys.detach() - torch.cat(solves, dim=1)
    torch.testing.assert_close(apart, torch.zeros_like(apart), rtol=0.0, atol=1e-12)
    found = gradients(together, z0, field.target)
    weights = torch.linspace(0.5, 1.5, together.ys.numel(), dtype=torch.float64)
    loss = (torch.cat(solves, dim=1).reshape(-1).sin() * weights).sum()
    for value, expected in zip(found, torch.autograd.grad(loss, (z0, field.target)), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)


def test_one_stiff_sample_does_not_change_the_steps_of_the_others():
    field, calm = Relaxing(), start((1.0, 1.5, 2.0, 2.5))
    stiff = calm.clone()
    stiff[3, -1] = 2000.0
    more = {"rtol": 1e-5, "atol": 1e-6, "per_sample": True}
    before = snopt.solve(field, calm, TIMES, **more)
    after = snopt.solve(field, stiff, TIMES, **more)
    assert after.sample_stats[:3] == before.sample_stats[:3]
    assert torch.equal(after.ys[:, :3], before.ys[:, :3])
    assert after.sample_stats[3].accepted > 30 * before.sample_stats[3].accepted
    shared = snopt.solve(field, stiff, TIMES, rtol=1e-5, atol=1e-6)
    assert shared.stats.accepted > 10 * after.sample_stats[0].accepted


def test_the_field_receives_unfinished_samples_only():
    seen = []

    def field(t, z):
        seen.append(len(z))
        assert t.shape == (len(z), 1)
        x, rate = z[:, :-1], z[:, -1:]
        return torch.cat([-rate * x, torch.zeros_like(rate)], dim=1)

    solution = snopt.solve(field, start(), TIMES, rtol=1e-4, atol=1e-6, per_sample=True)
    assert sum(seen) == solution.stats.nfe_forward
    assert (seen[0], seen[-1]) == (4, 1)


def test_states_with_more_axes_and_fields_of_the_library():
    torch.manual_seed(0)
    field = snopt.models.ConvField(2)
    x = torch.randn(3, 2, 4, 4)
    more = {"rtol": 1e-4, "atol": 1e-4}
    together = snopt.solve(field, x, [0.0, 1.0], per_sample=True, **more)
    alone = snopt.solve(field, x[1:2], [0.0, 1.0], **more)
    torch.testing.assert_close(together.ys[-1, 1:2], alone.ys[-1], rtol=1e-5, atol=1e-6)


def test_rows_of_times_and_evaluation_between_them():
    field, z0 = Relaxing(), start((1.0, 2.0))
    rows = torch.tensor([[0.0, 0.2, 1.0], [0.0, 0.6, 0.7]], dtype=torch.float64)
    more = {"rtol": 1e-9, "atol": 1e-10}
    found = snopt.solve(field, z0, rows, per_sample=True, **more)
    expected = snopt.solve(field, z0, rows, **more)
    torch.testing.assert_close(found.ys, expected.ys, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(found.evaluate(0.5), expected.evaluate(0.5), rtol=1e-7, atol=1e-8)


def test_no_samples_and_one_time():
    field, z0 = Relaxing(), start()
    empty = snopt.solve(field, z0[:0], TIMES, per_sample=True)
    assert empty.ys.shape == (4, 0, 3)
    assert torch.equal(snopt.solve(field, z0, TIMES[:1], per_sample=True).ys, z0[None])


def test_a_failed_solve_names_the_sample():
    more = {"rtol": 1e-4, "atol": 1e-4, "options": {"max_num_steps": 50}}
    with pytest.raises(MaxStepsExceeded, match=r"sample 3 at t = .*max_num_steps") as caught:
        snopt.solve(Relaxing(), start((1.0, 1.0, 1.0, 900.0)), TIMES, per_sample=True, **more)
    assert 0.0 < caught.value.t < 1.0


def test_a_first_step_of_the_user_is_used():
    options = {"first_step": 1e-3}
    more = {"options": options, "rtol": 1e-4, "atol": 1e-4}
    together = snopt.solve(Relaxing(), start(), TIMES, per_sample=True, **more)
    alone = snopt.solve(Relaxing(), start()[:1], TIMES, **more)
    assert together.sample_stats[0].accepted == alone.stats.accepted


class Calling(Relaxing):
    def callback_step(self, t, x, dt):
        pass


@pytest.mark.parametrize(
    ("error", "words", "changes"),
    [
        (InvalidOption, "use adjoint='direct'", {"adjoint": "checkpoint"}),
        (InvalidOption, "'rk4'", {"method": "rk4", "options": {"step_size": 0.1}}),
        (InvalidOption, "'implicit_adams'", {"method": "implicit_adams"}),
        (InvalidOption, "'jump_t'", {"options": {"jump_t": [0.5]}}),
        (InvalidOption, "'norm'", {"options": {"norm": torch.linalg.vector_norm}}),
        (InvalidOption, "context", {"context": torch.ones(1)}),
        (InvalidOption, "event_fn", {"event_fn": lambda t, x: x}),
        (InvalidOption, "numbers as tolerances", {"rtol": torch.full((3,), 1e-3)}),
        (InvalidOption, "callback_step", {"func": Calling()}),
        (InvalidState, "got a tuple", {"y0": (start(), start())}),
        (GradientError, "t.detach", {"t": TIMES.clone().requires_grad_()}),
    ],
)
def test_what_is_not_supported_is_refused(error, words, changes):
    arguments = {"func": Relaxing(), "y0": start(), "t": TIMES, **changes}
    with pytest.raises(error, match=words):
        snopt.solve(**arguments, per_sample=True)


def test_torch_func_is_refused():
    with pytest.raises(GradientError, match=r"torch\.func"):
        torch.func.grad(
            lambda z: snopt.solve(Relaxing(), z, TIMES, per_sample=True).ys.sum()
        )(start())  # fmt: skip
