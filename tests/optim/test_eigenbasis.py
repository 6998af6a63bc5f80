"""Rotations are Kronecker products, and moments survive a change of basis."""

import pytest
import torch

from snopt.optim.eigenbasis import carry_second_moment, rotate, rotate_back, transitions
from snopt.optim.eigh import robust_eigh
from snopt.optim.rules import amortized, tikhonov


def orthogonal(*sizes, groups=1):
    return [torch.linalg.qr(torch.randn(groups, d, d, dtype=torch.float64))[0] for d in sizes]


def spd(d):
    root = torch.randn(d, d + 2, dtype=torch.float64)
    return root @ root.T


@pytest.mark.parametrize("sizes", [(3,), (3, 4), (17, 2), (3, 4, 2), (9, 1, 1), (2, 3, 2, 3)])
def test_rotation_is_multiplication_by_the_kronecker_product(sizes):
    groups = 2
    x = torch.randn(groups, *sizes, dtype=torch.float64)
    bases = [[U] for U in orthogonal(*sizes, groups=groups)]
    got = rotate(x, bases)
    for g in range(groups):
        big = torch.ones(1, 1, dtype=torch.float64)
        for (U,) in bases:
            big = torch.kron(big, U[g])
        torch.testing.assert_close(got[g].flatten(), big.T @ x[g].flatten())
    torch.testing.assert_close(rotate_back(got, bases), x)


def test_blocks_equal_one_block_diagonal_basis():
    x = torch.randn(1, 5, 7, dtype=torch.float64)
    blocks = orthogonal(4, 3)
    whole = torch.block_diag(*[b[0] for b in blocks])[None]
    torch.testing.assert_close(rotate(x, [[], blocks]), rotate(x, [[], [whole]]))
    torch.testing.assert_close(rotate_back(x, [[], blocks]), rotate_back(x, [[], [whole]]))


def test_a_wrong_number_of_bases_is_named():
    with pytest.raises(ValueError, match=r"1 mode bases for a tensor of shape \(1, 2, 3\)"):
        rotate(torch.zeros(1, 2, 3), [[]])


def test_transitions_carry_a_first_moment_exactly():
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    old = [[U] for U in orthogonal(3, 4)]
    new = [[U] for U in orthogonal(3, 4)]
    torch.testing.assert_close(rotate(rotate(x, old), transitions(old, new)), rotate(x, new))


def test_second_moment_of_uncorrelated_coordinates_is_carried_exactly():
    """v'_j = E[(Σ_i R_ij x_i)²] = Σ R_ij² v_i for independent x_i: by explicit expectation."""
    v = torch.rand(1, 3, 4, dtype=torch.float64)
    change = [[R] for R in orthogonal(3, 4)]
    dense = torch.kron(change[0][0][0], change[1][0][0])
    expected = (dense.T @ torch.diag(v.flatten()) @ dense).diagonal()
    torch.testing.assert_close(carry_second_moment(v, change).flatten(), expected)


@pytest.mark.parametrize(("damping", "weight_decay"), [(0.3, 0.2), (0.0, 0.0)])
def test_tikhonov_solves_the_damped_kronecker_system(damping, weight_decay):
    """Without damping it is line 10 of Algorithm 1."""
    A, B = spd(4), spd(3)
    W = torch.randn(3, 4, dtype=torch.float64)
    eigen = [robust_eigh(B[None]), robust_eigh(A[None])]
    bases = [[vectors] for _, vectors in eigen]
    values = [values for values, _ in eigen]
    X = tikhonov(rotate(W[None], bases), values, damping=damping, weight_decay=weight_decay)
    got = rotate_back(X, bases)[0]
    # vec stacks columns, so that vec(B W Aᵀ) = (A ⊗ B) vec(W), as in the paper.
    dense = torch.kron(A, B) + (damping + weight_decay) * torch.eye(12, dtype=torch.float64)
    expected = torch.linalg.solve(dense, W.T.flatten()).reshape(4, 3).T
    torch.testing.assert_close(got, expected)


def test_negative_eigenvalues_from_rounding_count_as_zero():
    values = [torch.tensor([[-0.5, 2.0]]), torch.tensor([[-0.5, 1.0]])]
    found = tikhonov(torch.ones(1, 2, 2), values, damping=0.5)
    torch.testing.assert_close(found, torch.tensor([[[2.0, 2.0], [2.0, 0.4]]]))


def test_amortized_does_not_write_to_its_state():
    S = torch.zeros(3)
    amortized(torch.ones(3), S, decay=0.5, damping=0.1)
    assert torch.equal(S, torch.zeros(3))
