"""Rules against torch's own optimizers and hand-written recurrences."""

import torch

from snopt.optim.rules import adam, amortized


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
