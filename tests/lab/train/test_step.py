import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from snopt.adjoint import NeuralODE
from snopt.lab.train import Parts
from snopt.lab.train.step import Meter, Update, needs_closure
from snopt.optim import SNOpt
from tests.lab.train.problems import Moons, make_parts, small_model


def square_loss(model):
    return lambda batch: (model(batch) - 1.0).square().mean()


def linear():
    torch.manual_seed(0)
    return nn.Linear(2, 1).double()


X = torch.randn(8, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
BAD = torch.full_like(X, math.nan)


def test_closure_is_recognised_behind_a_schedule_too():
    optimizer = torch.optim.LBFGS(linear().parameters())
    torch.optim.lr_scheduler.ConstantLR(optimizer)
    assert needs_closure(optimizer)
    assert not needs_closure(SNOpt(linear(), lr=0.1))


def test_update_is_what_the_usual_lines_do():
    ours, theirs = linear(), linear()
    update = Update(square_loss(ours), Parts(ours, torch.optim.Adam(ours.parameters(), lr=0.1)))
    adam = torch.optim.Adam(theirs.parameters(), lr=0.1)
    for _ in range(3):
        value, skipped = update(X)
        adam.zero_grad()
        loss = square_loss(theirs)(X)
        loss.backward()
        adam.step()
        assert (value, skipped) == (loss.item(), None)
    assert torch.equal(ours.weight, theirs.weight)


def test_lbfgs_is_what_its_own_closure_does():
    ours, theirs = linear(), linear()
    update = Update(square_loss(ours), Parts(ours, torch.optim.LBFGS(ours.parameters())))
    lbfgs = torch.optim.LBFGS(theirs.parameters())

    def closure():
        lbfgs.zero_grad()
        loss = square_loss(theirs)(X)
        loss.backward()
        return loss.detach()

    for _ in range(2):
        assert update(X)[0] == pytest.approx(float(lbfgs.step(closure)), rel=1e-12)
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-12, atol=1e-14)


def test_several_optimizers_step_on_one_gradient():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)).double()
    halves = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
    calls = []

    def loss(batch):
        calls.append(1)
        return square_loss(model)(batch)

    before = [p.detach().clone() for p in model.parameters()]
    Update(loss, Parts(model, halves))(X)
    assert len(calls) == 1
    for old, param in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(param.detach(), old - 0.1 * param.grad)


def test_gradient_is_clipped():
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    Update(square_loss(model), Parts(model, optimizer), clip=1e-3)(X)
    after = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert float((after - before).norm()) == pytest.approx(1e-3, rel=1e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: torch.optim.Adam(m.parameters(), lr=0.1),
        lambda m: torch.optim.LBFGS(m.parameters()),
        lambda m: SNOpt(m, lr=0.1, refresh_first=1, refresh_every=1),
    ],
    ids=["adam", "lbfgs", "snopt"],
)
@pytest.mark.filterwarnings("ignore:a gradient or the loss")
def test_loss_that_is_not_finite_changes_no_parameter(make):
    model = linear()
    update = Update(square_loss(model), Parts(model, make(model)))
    update(X)
    before = [p.detach().clone() for p in model.parameters()]
    value, skipped = update(BAD)
    assert math.isnan(value)
    assert skipped == "the loss is nan"
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert update(X)[1] is None


def test_lbfgs_goes_back_if_the_loss_stops_being_finite_on_its_way():
    model, calls = linear(), []

    def loss(batch):
        calls.append(1)
        return square_loss(model)(batch) * (math.nan if len(calls) == 3 else 1.0)

    before = [p.detach().clone() for p in model.parameters()]
    value, skipped = Update(loss, Parts(model, torch.optim.LBFGS(model.parameters())))(X)
    assert math.isfinite(value)
    assert skipped == "the loss is nan"
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore:a gradient or the loss")
def test_snopt_is_told_and_goes_back_if_it_may():
    model = linear()
    optimizer = SNOpt(
        model, lr=0.1, refresh_first=1, refresh_every=1, on_divergence="rollback"
    )  # fmt: skip
    update = Update(square_loss(model), Parts(model, optimizer))
    update(X)
    before = model.weight.detach().clone()
    update(BAD)
    assert (optimizer.counts.skipped, optimizer.counts.rollbacks) == (1, 1)
    assert not torch.equal(model.weight, before)


@pytest.mark.filterwarnings("ignore:a gradient or the loss")
def test_gradient_that_is_not_finite_counts_as_skipped():
    model = linear()
    update = Update(lambda x: (model(x) * 0).sqrt().sum(), Parts(model, SNOpt(model, lr=0.1)))
    assert update(X) == (0.0, "a gradient is not finite")


class Explosion(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.ones(1))

    def forward(self, t, x):
        return self.rate * x * x


def test_failed_solve_skips_the_update():
    model = NeuralODE(Explosion(), horizon=2.0)
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    value, skipped = Update(lambda x: model(x).sum(), Parts(model, adam))(torch.ones(1))
    assert math.isnan(value)
    assert skipped.startswith("a solve failed: at t = ")
    assert model.field.rate.item() == 1.0


def test_horizon_learns_behind_the_optimizers():
    parts = make_parts("horizon")
    task, block = Moons(), parts.model[0]
    update = Update(lambda batch: task.loss(parts.model, batch), parts)
    horizons = []
    for _ in range(6):
        update(task.train.batch(torch.arange(20)))
        horizons.append(block.horizon)
    assert horizons[0] == horizons[1] == 1.0
    assert len(set(horizons)) == 3


CPU = torch.device("cpu")


def test_counts_are_of_all_blocks_since_the_reset():
    model = torch.nn.Sequential(small_model(), small_model())
    meter, x = Meter(model, CPU), torch.randn(4, 2, dtype=torch.float64)
    for _ in range(2):
        meter.reset()
        model(x).sum().backward()
        counts = meter.read()
        blocks = [model[0][0], model[1][0]]
        assert counts["nfe_forward"] == sum(b.stats.nfe_forward for b in blocks) > 0
        assert counts["horizon"] == [1.0, 1.0]


def test_model_without_blocks_has_no_horizon():
    assert "horizon" not in Meter(torch.nn.Linear(1, 1), CPU).read()


@pytest.mark.skipif(sys.platform != "linux", reason="the peak can be forgotten on Linux only")
def test_memory_is_the_peak_since_the_reset():
    # In a process of its own: one that has run for long has free memory and allocates none.
    body = """if True:
        import torch
        from snopt.lab.train.step import Meter
        meter = Meter(torch.nn.Linear(1, 1), torch.device("cpu"))
        meter.reset()
        quiet = meter.memory()
        torch.ones(30_000_000)  # 114 MiB, which are given back at once
        assert meter.memory() > quiet + 100
        meter.reset()
        assert meter.memory() < quiet + 50
    """
    subprocess.run([sys.executable, "-c", body], check=True)
