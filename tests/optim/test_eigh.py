"""The decomposition survives what LAPACK does not."""

import pytest
import torch

from snopt.optim import eigh as module
from snopt.optim.eigh import each_eigh, robust_eigh


def test_an_asymmetric_matrix_is_symmetrised():
    matrix = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    values, _ = robust_eigh(matrix)
    torch.testing.assert_close(values, torch.tensor([0.0, 2.0]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_matrix_that_is_not_finite_is_refused(bad):
    matrix = torch.eye(3)
    matrix[0, 1] = bad
    assert robust_eigh(matrix) is None


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_failures_are_tried_again_in_double_precision_with_jitter(monkeypatch, failures):
    real, tried = torch.linalg.eigh, []

    def flaky(matrix):
        tried.append((matrix.dtype, float(matrix[0, 0])))
        if len(tried) <= failures:
            raise torch.linalg.LinAlgError("did not converge")
        return real(matrix)

    monkeypatch.setattr(module.torch.linalg, "eigh", flaky)
    values, vectors = robust_eigh(torch.eye(3))
    assert values.dtype == vectors.dtype == torch.float32
    assert tried[-1][0] == torch.float64
    torch.testing.assert_close(values, torch.ones(3), rtol=0, atol=2e-3)


def test_when_every_attempt_fails_there_is_no_basis(monkeypatch):
    def fails(matrix):
        raise torch.linalg.LinAlgError("did not converge")

    monkeypatch.setattr(module.torch.linalg, "eigh", fails)
    assert robust_eigh(torch.eye(3)) is None


def spd(*sizes):
    roots = [torch.randn(1, d, d + 2, dtype=torch.float64) for d in sizes]
    return [root @ root.mT for root in roots]


def test_matrices_of_one_size_share_a_call(monkeypatch):
    matrices = spd(5, 3, 5, 5, 3, 4)
    real, shapes = torch.linalg.eigh, []

    def counted(matrix):
        shapes.append(tuple(matrix.shape))
        return real(matrix)

    monkeypatch.setattr(module.torch.linalg, "eigh", counted)
    for matrix, pair in zip(matrices, each_eigh(matrices), strict=True):
        values, vectors = pair
        torch.testing.assert_close(vectors * values[:, None] @ vectors.mT, matrix)
    assert shapes == [(3, 1, 5, 5), (2, 1, 3, 3), (1, 4, 4)]


def test_a_matrix_that_cannot_be_decomposed_does_not_affect_others_of_its_size(monkeypatch):
    matrices = spd(4, 4, 4, 4)
    matrices[1][0, 0, 0] = float("nan")
    matrices[2][0, 0, 0] = 1e3  # what the solver below does not converge on
    real = torch.linalg.eigh

    def flaky(matrix):
        if matrix.abs().max() > 500:
            raise torch.linalg.LinAlgError("did not converge")
        return real(matrix)

    monkeypatch.setattr(module.torch.linalg, "eigh", flaky)
    found = each_eigh(matrices)
    assert [pair is None for pair in found] == [False, True, True, False]
    for i in (0, 3):
        torch.testing.assert_close(found[i][0], robust_eigh(matrices[i])[0])
