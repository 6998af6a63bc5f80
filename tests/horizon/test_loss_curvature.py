"""FᵀΦ_xxF by second differences against the product through the loss."""

import pytest
import torch
from torch import nn

import snopt
from snopt.horizon.loss_curvature import loss_curvature
from tests.problems import PairField, TanhField


def model(dtype=torch.float64):
    torch.manual_seed(0)
    block = snopt.NeuralODE(TanhField(), 0.7, rtol=1e-3, atol=1e-3)
    head = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4))
    return nn.Sequential(nn.Linear(3, 3), block, head).to(dtype)


def batch(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(9, 3, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(4, (9,), generator=generator)


def true_product(net, x, y):
    first, block, head = net
    with torch.no_grad():
        x1 = block(first(x))
        F = block.field(torch.tensor(block.horizon, dtype=x.dtype), x1)

    def cost(state):
        return nn.functional.cross_entropy(head(state), y)

    _, product = torch.autograd.functional.hvp(cost, x1, F)
    return float((product * F).sum())


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-6), (torch.float32, 5e-4)])
def test_second_differences_are_the_product_through_the_loss(dtype, atol):
    net, (x, y) = model(dtype), batch(dtype)
    found = loss_curvature([net[1]], lambda: nn.functional.cross_entropy(net(x), y), [net])
    assert found[0] == pytest.approx(true_product(net, x, y), abs=atol)


def test_each_block_is_moved_by_itself():
    torch.manual_seed(0)
    one, two = (snopt.NeuralODE(TanhField(), T).double() for T in (0.5, 0.9))
    x, _ = batch()

    def together():
        return one(x).square().mean() + two(x).pow(4).mean()

    found = loss_curvature([one, two], together, [one, two])
    alone = [
        *loss_curvature([one], lambda: one(x).square().mean(), [one]),
        *loss_curvature([two], lambda: two(x).pow(4).mean(), [two]),
    ]
    assert found == pytest.approx(alone, rel=1e-6)


def test_steps_carried_from_call_to_call_do_not_spoil_the_difference():
    """Around the block there is another, which nobody named, solved coarsely."""
    net, (x, y) = model(), batch()
    torch.manual_seed(1)
    other = snopt.NeuralODE(TanhField(), 2.0, rtol=1e-2, atol=1e-2)
    whole = nn.Sequential(other, net)

    def cost():
        return nn.functional.cross_entropy(whole(x), y)

    other.carried_buffer.fill_(0.3)  # as another batch might have left it
    carried = other.carried_buffer.clone()
    found = loss_curvature([net[1]], cost, [net])
    other.carry_step = False
    with torch.no_grad():
        inner = other(x)
    assert found[0] == pytest.approx(true_product(net, inner, y), rel=1e-3)
    assert torch.equal(other.carried_buffer, carried)
    assert net[1].carry_step


def test_nested_states_are_moved_in_all_their_parts():
    torch.manual_seed(0)
    block = snopt.NeuralODE(PairField(), 0.5).double()
    x = torch.randn(4, 5, dtype=torch.float64)
    state = (x[:, :2], (x[:, 2:4], x[:, 4]))

    def cost(end):
        a, (b, c) = end
        return (a.square().sum(1) + b.sum(1) * c).mean()

    with torch.no_grad():
        end = block(state)
        F = block.field(torch.tensor(block.horizon, dtype=torch.float64), end)
    flat_F = (F[0], *F[1])
    _, products = torch.autograd.functional.hvp(
        lambda a, b, c: cost((a, (b, c))), (end[0], *end[1]), flat_F
    )
    true = sum(float((p * f).sum()) for p, f in zip(products, flat_F, strict=True))
    found = loss_curvature([block], lambda: cost(block(state)), [block])
    assert found[0] == pytest.approx(true, rel=1e-5)


def test_random_layers_draw_the_same_numbers_and_buffers_stay():
    net, (x, y) = model(), batch()
    norm = nn.BatchNorm1d(4).double()
    whole = nn.Sequential(net, nn.Dropout(0.5), norm)
    before = {name: value.clone() for name, value in whole.state_dict().items()}

    def cost():
        return nn.functional.cross_entropy(whole(x), y)

    torch.manual_seed(3)
    first = loss_curvature([net[1]], cost, [whole])
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(1))
    assert abs(first[0]) < 1e3  # different masks would differ by order 1 / h²
    assert all(torch.equal(value, before[name]) for name, value in whole.state_dict().items())


def test_a_closure_that_differentiates_or_returns_nothing_is_explained():
    net, (x, y) = model(), batch()

    def usual():
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match="without backward"):
        loss_curvature([net[1]], usual, [net])
    with pytest.raises(TypeError, match="returned a NoneType"):
        loss_curvature([net[1]], lambda: None, [net])
    assert not net[1]._forward_hooks


def test_other_errors_of_the_closure_pass_unchanged():
    net, _ = model(), batch()

    def broken():
        raise RuntimeError("out of cheese")

    with pytest.raises(RuntimeError, match="out of cheese"):
        loss_curvature([net[1]], broken, [net])
