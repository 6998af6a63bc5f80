"""Rules against torch's own optimizers and hand-written recurrences; lengths of steps."""

import torch

from snopt.optim.rules import adam, amortized
from snopt.optim.scaling import graft, kl_scale


def test_adam_in_the_trivial_basis_is_torch_adam():
    p = torch.nn.Parameter(torch.randn(4, dtype=torch.float64))
    mine = p.detach().clone()
    reference = torch.optim.Adam([p], lr=0.1, betas=(0.8, 0.95), eps=1e-6)
    m = v = torch.zeros(4, dtype=torch.float64)
    for step in range(1, 8):
        p.grad = torch.randn(4, dtype=torch.float64)
        reference.step()
        X, m, v = adam(p.grad, m, v, step=step, momentum=0.8, decay=0.95, damping=1e-6)
        mine -= 0.1 * X
        torch.testing.assert_close(mine, p.detach())


def test_amortized_follows_the_two_lines_of_algorithm_2():
    S = torch.zeros(3)
    second = [0.0] * 3
    for _ in range(4):
        X = torch.randn(3)
        direction, S = amortized(X, S, decay=0.75, damping=0.05, batch_size=8, weight_decay=0.1)
        for i in range(3):
            second[i] = 0.75 * second[i] + 0.25 * 8 * float(X[i]) ** 2
            expected = float(X[i]) / (second[i] + 0.15)
            assert abs(float(direction[i]) - expected) < 1e-4 * abs(expected)


def test_kl_clip_bounds_the_movement_and_never_lengthens():
    d, g = [torch.full((3,), 5.0)], [torch.full((3,), 2.0)]
    scale = kl_scale(d, g, lr=0.1, clip=1e-3)
    assert abs(0.1**2 * scale**2 * 30.0 - 1e-3) < 1e-9
    assert kl_scale(d, g, lr=1e-6, clip=1e-3) == 1.0
    assert kl_scale([torch.zeros(2)], [torch.zeros(2)], lr=1.0, clip=1.0) == 1.0
    assert kl_scale([], [], lr=1.0, clip=1.0) == 1.0


def test_a_grafted_direction_has_the_other_norm():
    d = torch.randn(4, 3)
    grafted = graft(d, torch.full((5,), 2.0))
    torch.testing.assert_close(grafted.norm(), torch.tensor(20.0).sqrt())
    torch.testing.assert_close(grafted / grafted.norm(), d / d.norm())
    assert torch.equal(graft(torch.zeros(3), torch.ones(3)), torch.zeros(3))
