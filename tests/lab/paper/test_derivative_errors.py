"""Errors of derivatives: who is right about what."""

import pytest
import torch

from snopt.lab.paper.derivatives import fine_truth, measure_errors, truth
from snopt.lab.paper.item import Space
from snopt.lab.paper.items import derivative_errors
from snopt.lab.paper.items.derivative_errors import DERIVATIVE_ERRORS
from snopt.lab.paper.problems import CASES, TwoScales, conv, image, mlp
from snopt.lab.paper.queue import run_item


def small():
    return mlp(dim=2, width=3, batch=2)


def test_the_item_runs(tmp_path):
    space = Space(tmp_path, "smoke")
    found = run_item(DERIVATIVE_ERRORS, space, watch=lambda _: [], tell=lambda _: None)
    (table,) = found.tables
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert rows["paper, Table 1", "Hessian, recursive adjoint"] == ["0.0068", "0.25", "41"]
    assert len(rows) == 9 + 2
    (field,) = found.curves
    assert all(0 < float(e) < 1e-2 for e in rows[field, "Hessian, Theorem 1 exact"])
    assert rows[field, "Hessian, product by checkpoint"][1] is None
    assert (space.output("adj2-error") / "figure.png").exists()


def test_errors_fall_with_the_step():
    names = ("gradient, adjoint", "Hessian, recursive adjoint", "Gauss-Newton, Theorem 1")
    found = measure_errors(small, {"rk4": [1 / 2, 1 / 8]}, contenders=names)
    for points in found["methods"]["rk4"].values():
        coarse, fine = (p["error"] for p in points)
        assert fine < coarse / 20  # fourth order: 256
        assert points[1]["evaluations"] > points[0]["evaluations"]


def test_the_recursive_adjoint_breaks_where_directions_contract():
    hessian, product = "Hessian, recursive adjoint", "Hessian, product by checkpoint"
    names = ("gradient, adjoint", hessian, product)
    found = measure_errors(CASES["mlp_two_scales"], {"rk4": [1 / 16]}, contenders=names)
    error = {name: points[0]["error"] for name, points in found["methods"]["rk4"].items()}
    assert error[hessian] > 1
    assert error["gradient, adjoint"] < 0.1
    assert error[product] < 0.01


def test_both_kinds_of_truth_agree():
    problem = small()
    v = torch.randn(2, problem.n, dtype=torch.float64)
    fine, exact = fine_truth(problem, v, step=1 / 24), truth(problem, v)
    for name in ("gradient", "hessian", "ggn"):
        torch.testing.assert_close(fine[name], exact[name], rtol=1e-4, atol=1e-7)


def test_the_field_of_the_paper_can_be_asked_for_products():
    x, y = torch.randn(2, 3, 16, 16), torch.tensor([1, 2])
    found = measure_errors(
        lambda: image(x, y, width=2),
        {"rk4": [1 / 4]},
        contenders=derivative_errors.PRODUCTS,
        true=lambda problem, v: fine_truth(problem, v, step=1 / 16),
    )
    assert found["n"] == 2 * (3 * 2 * 9 + 2)
    assert found["methods"]["rk4"]["gradient, checkpoint"][0]["error"] < 0.1


@pytest.mark.parametrize("there", [True, False])
def test_small_images_are_of_cifar10_if_it_is_at_hand(monkeypatch, there):
    images = torch.randn(2, 3, 32, 32)
    found = (images, torch.tensor([0, 9])) if there else None
    monkeypatch.setattr(derivative_errors, "cifar10", lambda count: found)
    problem = derivative_errors.small_images()
    assert problem.x0.shape == (2, 3, 4, 4)
    pooled = images.reshape(2, 3, 4, 8, 4, 8).mean(dim=(3, 5)).double()
    assert torch.allclose(problem.x0, pooled, atol=1e-6) == there
    notes = " ".join(derivative_errors.notes(Space(None, "cpu")))
    assert ("of noise" in notes) != there


def test_a_read_out_sees_all_pixels():
    problem = conv(torch.randn(2, 3, 4, 4), torch.tensor([0, 1]), width=3, gain=1.0)
    x = problem.x0.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(problem.cost(x), x)
    assert (gradient != 0).all()


def test_what_a_solver_warns_of_is_kept():
    # So steep a field that the corrector of implicit_adams does not converge at this step.
    def steep():
        return mlp(dim=2, width=3, batch=2, kind=Steep)

    found = measure_errors(
        steep, {"implicit_adams": [1 / 8]}, contenders=["gradient, checkpoint"], true=fine
    )
    (point,) = found["methods"]["implicit_adams"]["gradient, checkpoint"]
    assert any("did not converge" in warning for warning in point["warnings"])


class Steep(TwoScales):
    rate = 60.0


def fine(problem, v):
    return fine_truth(problem, v, step=1 / 32)
