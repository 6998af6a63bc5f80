import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from torch import nn

import snopt
from snopt.base.errors import FieldOutputError, InvalidTimes
from tests.problems import Count, TanhField

ADJOINTS = ["checkpoint", "backsolve", "reversible", "direct"]


def block(**kwargs):
    torch.manual_seed(0)
    return snopt.NeuralODE(TanhField(), **{"rtol": 1e-4, "atol": 1e-4, **kwargs})


def batch(n=5):
    return torch.randn(n, 3, dtype=torch.float64)


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_a_block_is_its_fields_solve(adjoint):
    ode, x = block(adjoint=adjoint, t0=0.2, horizon=1.1), batch()
    expected = snopt.odeint(ode.field, x, [0.2, ode.horizon], rtol=1e-4, atol=1e-4, adjoint=adjoint)
    assert torch.allclose(ode(x), expected[-1], atol=1e-9)
    times = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    assert ode(x, times).shape == (3, 5, 3)


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_counts_arrive_forward_and_backward(adjoint):
    ode = block(adjoint=snopt.Checkpoint(keep=0) if adjoint == "checkpoint" else adjoint)
    ode(batch())  # the first call also looks at the tape, which does not count
    calls = [0]
    ode.field.register_forward_hook(lambda *_: calls.__setitem__(0, calls[0] + 1))
    out = ode(batch())
    assert ode.stats.nfe_forward == calls[0] > 0
    calls[0] = 0
    out.sum().backward()
    assert ode.stats.nfe_backward == calls[0]
    assert (adjoint == "direct") == (calls[0] == 0)


def test_totals_add_up_until_they_are_reset():
    ode = block()
    counts = []
    for _ in range(3):
        ode(batch()).sum().backward()
        counts.append((ode.stats.nfe_forward, ode.stats.nfe_backward))
    assert ode.totals.nfe_forward == sum(forward for forward, _ in counts)
    assert ode.totals.nfe_backward == sum(backward for _, backward in counts)
    assert ode.totals.solves == 3
    ode.totals.reset()
    assert ode.totals.nfe_forward == 0


def test_the_step_is_carried_over_in_training_only():
    keep = {"adjoint": snopt.Checkpoint(keep=1)}
    ode, x = block(**keep), batch()
    ode(x)
    first = ode.stats.nfe_forward
    ode(x)
    assert ode.stats.nfe_forward < first
    carried = ode.carried_buffer.clone()
    ode.eval()
    ode(1e3 * x)
    assert torch.equal(ode.carried_buffer, carried)
    fresh = block(carry_step=False, **keep)
    fresh(x)
    fresh(x)
    assert fresh.stats.nfe_forward == first


def test_a_first_step_of_the_user_opens_every_call():
    ode, times = block(options={"first_step": 0.01}), []
    ode.field.register_forward_pre_hook(lambda _, inputs: times.append(inputs[0].item()))
    for _ in range(2):
        with torch.no_grad():
            times.clear()
            ode(batch())
        assert times[1] == pytest.approx(0.01 / 5)  # the second stage of dopri5


def test_a_restored_block_goes_on_exactly_as_the_living_one():
    ode, x = block(), batch()
    ode(x)
    ode.horizon = 0.75
    other = block()
    saved = io.BytesIO()
    torch.save(ode.state_dict(), saved)
    saved.seek(0)
    other.load_state_dict(torch.load(saved, weights_only=True))
    assert other.horizon == ode.horizon == 0.75
    assert torch.equal(other(x), ode(x))
    assert other.stats.last_step == ode.stats.last_step


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_blocks_can_be_copied_and_pickled(duplicate):
    ode, x = block(), batch()
    other = duplicate(ode)
    assert torch.equal(other(x), ode(x))


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_a_horizon_without_length_is_refused_and_the_old_one_kept(value):
    ode = block(horizon=2.0)
    with pytest.raises(InvalidTimes, match="horizon"):
        ode.horizon = value
    assert ode.horizon == 2.0


def test_the_horizon_may_lie_before_the_start():
    ode = block(horizon=-1.0)
    x = batch()
    ode(x).sum().backward()
    there = snopt.odeint(ode.field, x, [0.0, -1.0], rtol=1e-9, atol=1e-9)[-1]
    assert torch.allclose(ode(x), there, atol=1e-3)


def test_observers_are_told_in_training_and_not_in_evaluation():
    ode = block()
    ode.observer = Count()
    ode(batch()).sum().backward()
    told = ode.observer.told
    assert told > 0
    ode.eval()
    ode(batch()).sum().backward()
    with torch.no_grad():
        ode(batch())
    assert ode.observer.told == told


class Wrong(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, t, x):
        return self.change(x)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:, :1], "shape"),
        (lambda x: x.float(), "float32"),
        (lambda x: (x, x), "tuple"),
    ],
)
def test_a_field_that_returns_no_derivative_is_named(change, words):
    with pytest.raises(FieldOutputError, match=words):
        snopt.NeuralODE(Wrong(change))(batch())


def test_a_field_that_takes_no_time_is_told_how_fields_are_called():
    with pytest.raises(TypeError, match=r"Linear cannot be called as field\(t, x\).*time first"):
        snopt.NeuralODE(nn.Linear(3, 3))(torch.randn(2, 3))


def test_a_mistake_inside_the_field_is_not_taken_for_its_signature():
    class Broken(nn.Module):
        def forward(self, t, x):
            return x + "1"

    with pytest.raises(TypeError, match="unsupported operand"):
        snopt.NeuralODE(Broken())(torch.randn(2, 3))


def test_a_field_that_is_no_module_is_refused():
    with pytest.raises(TypeError, match=r"nn\.Module"):
        snopt.NeuralODE(lambda t, x: -x)


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_the_state_keeps_its_precision_under_autocast(adjoint):
    ode = snopt.NeuralODE(TanhField().float(), adjoint=adjoint)
    x = torch.randn(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = ode(x)
    assert out.dtype == torch.float32
    out.sum().backward()
    plain = ode(x)
    assert torch.allclose(out, plain, atol=0.05)
    assert all(torch.isfinite(p.grad).all() for p in ode.parameters())


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_nothing_is_left_behind_after_a_training_step(adjoint):
    """No reference cycle keeps a solve's tensors alive until the collector runs."""
    gc.disable()
    try:
        ode, x = block(adjoint=adjoint), batch()
        out = ode(x)
        out.sum().backward()
        alive = weakref.ref(out)
        del out
        assert alive() is None
    finally:
        gc.enable()


def test_stacked_blocks_and_several_solves_in_one_loss():
    first, second = block(), block(horizon=0.5)
    x = batch().requires_grad_()
    loss = second(first(x)).sum() + first(2 * x).sum()
    loss.backward()
    numeric = 0.0
    eps, direction = 1e-6, torch.randn_like(x)
    with torch.no_grad():
        for sign in (1.0, -1.0):
            y = x + sign * eps * direction
            numeric += sign * (second(first(y)).sum() + first(2 * y).sum()).item() / (2 * eps)
    assert (x.grad * direction).sum().item() == pytest.approx(numeric, rel=1e-3)


def test_evaluation_without_gradients_keeps_nothing():
    """Same states as in training, and no state is held for a backward pass."""
    ode, x = block(carry_step=False), batch()
    held = []

    class Watching(TanhField):
        def forward(self, t, x):
            held.append(weakref.ref(x))
            return super().forward(t, x)

    ode.field.__class__ = Watching
    with torch.no_grad():
        quiet = ode(x)
    assert sum(ref() is not None for ref in held) <= 2  # the initial state and the last
    assert not quiet.requires_grad
    assert torch.allclose(quiet, ode(x).detach(), rtol=1e-12)


def test_measuring_the_tape_leaves_the_random_numbers_alone():
    class Noisy(TanhField):
        def forward(self, t, x):
            return super().forward(t, x) + 0.0 * torch.randn_like(x)

    draws = []
    for keep in (None, 1):
        torch.manual_seed(3)
        ode = snopt.NeuralODE(
            Noisy(), method="rk4", options={"step_size": 0.5}, adjoint=snopt.Checkpoint(keep)
        )
        torch.manual_seed(4)
        ode(batch())
        draws.append(torch.rand(1))
    assert torch.equal(*draws)


@pytest.mark.parametrize("adjoint", ADJOINTS)
def test_what_follows_a_block_may_work_in_place(adjoint):
    gradients = []
    for inplace in (False, True):
        ode = block(adjoint=adjoint)
        x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
        nn.Sequential(ode, nn.ReLU(inplace=inplace))(x).sum().backward()
        gradients.append([p.grad for p in ode.parameters()])
    assert all(map(torch.equal, *gradients))


def test_one_number_for_times_is_answered_with_two():
    with pytest.raises(InvalidTimes, match=r"torch\.tensor\(\[0\.0, 1\.0\]\)"):
        snopt.NeuralODE(nn.Identity())(torch.ones(2), 1.0)


@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve", "reversible", "direct"])
def test_an_empty_batch_gives_an_empty_result(adjoint):
    field = TanhField()
    block = snopt.NeuralODE(field, adjoint=adjoint)
    block(torch.randn(2, 3, dtype=torch.float64))
    carried = block.number("carried")
    x = torch.empty(0, 3, dtype=torch.float64, requires_grad=True)
    out = block(x)
    assert out.shape == (0, 3)
    assert block(x, [0.0, 0.5, 1.0]).shape == (3, 0, 3)
    out.sum().backward()
    assert x.grad.shape == (0, 3)
    assert all(not p.grad.any() for p in field.parameters()), "zero, as of torch's layers"
    assert block.number("carried") == carried
    assert snopt.odeint(field, x, [0.0, 1.0]).shape == (2, 0, 3)


def test_times_may_be_integers():
    block, x = snopt.NeuralODE(TanhField(), horizon=2), torch.randn(2, 3, dtype=torch.float64)
    wanted = block(x, torch.tensor([0.0, 1.0, 2.0]))
    for t in (torch.arange(3), [0, 1, 2], range(3)):
        torch.testing.assert_close(block(x, t), wanted, rtol=1e-2, atol=1e-2)
        assert snopt.odeint(block.field, x, t).shape == (3, 2, 3)


@pytest.mark.usefixtures("traced")
def test_a_compiled_block_is_picklable_after_use():
    block, x = snopt.NeuralODE(TanhField(), compile=True), torch.randn(2, 3, dtype=torch.float64)
    out = block(x)
    out.sum().backward()
    block.set_number("carried", 0.0)
    for twin in (pickle.loads(pickle.dumps(block)), copy.deepcopy(block)):
        torch.testing.assert_close(twin(x), out)
