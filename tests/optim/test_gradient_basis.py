"""Matrices that no factor covers get a basis from their gradients."""

import pytest
import torch
from torch import nn

import snopt
from snopt.optim.gradient_basis import AVERAGING, matrix_shape


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.head = nn.GRUCell(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 4)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.head(h)


def iterate(model, optimizer, count, seed=1):
    """Yield after every step; the gradients are still there."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(16, 5, 3, generator=generator).to(model.head.weight)
        optimizer.zero_grad()
        (model(x) - x[:, :, :1].prod(1)).square().mean().backward()
        optimizer.step()
        yield


def test_directions_are_those_of_dense_eigenvectors_of_averaged_products():
    model = Recurrent().double()
    optimizer = snopt.SNOpt(
        model, lr=0.01, momentum=0.0, decay=0.9, damping=1e-3, refresh_every=2, refresh_first=2
    )
    W = model.cell.weight_hh
    L, R, second, old, before = 0.0, 0.0, None, (), W.detach().clone()
    for k, _ in enumerate(iterate(model, optimizer, 6), start=1):
        G = W.grad
        L = AVERAGING * L + (1 - AVERAGING) * G @ G.T
        R = AVERAGING * R + (1 - AVERAGING) * G.T @ G
        (U,), (V,) = (mode for mode in optimizer.state[W]["own"]["bases"])
        U, V = U[0], V[0]
        if k % 2 == 1:
            for basis, factor in ((U, L), (V, R)):
                turned = basis.T @ factor @ basis
                assert (turned - turned.diag().diag()).abs().max() < 1e-12 * turned.abs().max()
            if old:
                second = (old[0].T @ U).square().T @ second @ (old[1].T @ V).square()
        X = U.T @ G @ V
        beta = min(0.9, 1 - k**-0.8)
        second = X**2 if second is None else beta * second + (1 - beta) * X**2
        X = X / (second.sqrt() + 1e-3)
        before = before - 0.01 * k / 20 * U @ (X / max(1.0, float(X.square().mean().sqrt()))) @ V.T
        torch.testing.assert_close(W.detach(), before, rtol=1e-9, atol=1e-12)
        old = (U, V)


def test_the_summary_says_so_and_knows_the_memory():
    model = Recurrent()
    optimizer = snopt.SNOpt(model)
    list(iterate(model, optimizer, 1))
    rows = {row.name: row for row in optimizer.summary().rows}
    assert rows["cell.weight_hh"].trained_by == "gradient basis"
    assert rows["cell.weight_hh"].factors == ((12,), (4,))
    assert rows["cell.bias_hh"].trained_by == "adam"
    held, stack = 0, [optimizer.state[model.cell.weight_hh]]
    while stack:
        item = stack.pop()
        if isinstance(item, torch.Tensor):
            held += item.numel() * item.element_size() if item.dim() else 0
        elif isinstance(item, dict | list):
            stack.extend(item.values() if isinstance(item, dict) else item)
    assert held == rows["cell.weight_hh"].memory


def test_a_restored_optimizer_goes_on_to_the_same_bits():
    one, other = Recurrent(), Recurrent()
    first, second = snopt.SNOpt(one), snopt.SNOpt(other)
    list(iterate(one, first, 7))
    other.load_state_dict(one.state_dict())
    second.load_state_dict(first.state_dict())
    list(iterate(one, first, 5, seed=2))
    list(iterate(other, second, 5, seed=2))
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("param", "shape"),
    [
        (torch.zeros(3), ()),
        (torch.zeros(3, 4), (3, 4)),
        (torch.zeros(3000, 4), ()),
        (torch.zeros(0, 4), ()),
        (torch.zeros(3, 4, dtype=torch.complex64), ()),
    ],
)
def test_vectors_and_large_matrices_have_no_basis(param, shape):
    assert matrix_shape(param, 2048) == shape
