"""Solutions as objects."""

import pytest
import torch

import snopt
from snopt.base.errors import GradientError, InvalidTimes
from tests.problems import TanhField

DOUBLE = {"dtype": torch.float64}
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), **DOUBLE)


@pytest.mark.parametrize("times", [[0.0, 0.4, 1.0], [1.0, 0.4, 0.0]])
@pytest.mark.parametrize("adjoint", ["checkpoint", "backsolve"])
def test_evaluate_is_the_solution_between_the_times(adjoint, times):
    field, x0 = TanhField(), X.clone().requires_grad_()
    solution = snopt.solve(field, x0, times, adjoint=adjoint)
    assert solution.ts.tolist() == pytest.approx(times)
    assert solution.stats.nfe_forward > 0
    wanted = torch.tensor([0.7, 0.4, 0.1, 0.7], **DOUBLE, requires_grad=True)
    found = solution.evaluate(wanted)
    order = sorted({*wanted.tolist(), times[0]}, reverse=times[0] > times[-1])
    exact = snopt.odeint(field, x0, order, adjoint="direct")
    exact = exact[[order.index(value) for value in wanted.tolist()]]
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)
    leaves = [x0, *field.parameters()]
    gradient = torch.autograd.grad((found**2).sum(), [*leaves, wanted])
    expected = torch.autograd.grad((exact**2).sum(), leaves)
    torch.testing.assert_close(gradient[:-1], expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        slopes = torch.stack([field(t, x) for t, x in zip(wanted, exact, strict=True)])
        along = (2 * exact * slopes).sum((1, 2))
    torch.testing.assert_close(gradient[-1], along, rtol=1e-4, atol=1e-5)


def test_evaluate_keeps_shapes_and_structures():
    solution = snopt.solve(lambda t, x: (-x[0], x[1] * t), (X, X[:, 0]), [0.0, 1.0])
    parts = solution.evaluate(0.5)
    assert [part.shape for part in parts] == [(4, 3), (4,)]
    parts = solution.evaluate(torch.tensor([[0.5, 1.0, 0.0]]))
    assert [part.shape for part in parts] == [(1, 3, 4, 3), (1, 3, 4)]
    torch.testing.assert_close(parts[0][0, 2], X)
    with pytest.raises(InvalidTimes, match=r"t = 1\.5 is outside"):
        solution.evaluate(1.5)


def test_a_solution_until_an_event():
    x0 = torch.tensor([2.0], **DOUBLE, requires_grad=True)
    solution = snopt.solve(lambda t, x: -x, x0, [0.0, 1.0], event_fn=lambda t, x: x - 1.0)
    assert solution.ts[-1].item() == pytest.approx(0.6931472, abs=1e-5)
    (slope,) = torch.autograd.grad(solution.ts[-1], x0, retain_graph=True)
    assert slope.item() == pytest.approx(0.5, abs=1e-5)
    assert solution.evaluate(0.5).item() == pytest.approx(2.0 * 0.6065307, abs=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_each_sample_has_its_own_times(sign):
    field, x0 = TanhField(), X.clone().requires_grad_()
    t = sign * torch.tensor([[0.0, 0.2, 1.0], [0.0, 0.5, 0.7], [0.0, 0.2, 0.3], [0.0, 0.9, 1.1]])
    solution = snopt.solve(field, x0, t)
    assert solution.ys.shape == (3, 4, 3)
    for i, row in enumerate(t):
        alone = snopt.odeint(field, x0[i : i + 1], row.tolist())[:, 0]
        torch.testing.assert_close(solution.ys[:, i], alone, rtol=1e-5, atol=1e-6)
    assert torch.autograd.grad(solution.ys.sum(), x0)[0].shape == x0.shape
    with pytest.raises(InvalidTimes, match="start all rows with the same time"):
        snopt.solve(field, x0, t + torch.arange(4.0)[:, None])
    with pytest.raises(GradientError, match="one-dimensional"):
        snopt.solve(field, x0, t.clone().requires_grad_())
