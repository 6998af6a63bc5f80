import math

import torch

import snopt
from snopt.ode.norms import rms
from snopt.ode.reversible import AsynchronousLeapfrog
from snopt.ode.solve import solve
from snopt.ode.step import Tolerance
from tests.problems import PROBLEMS


def test_the_leapfrog_is_of_second_order():
    case, errors = PROBLEMS["turning"], []
    for count in (64, 128):
        stepper = AsynchronousLeapfrog(case.field, Tolerance(1e9, 1e9, rms))
        grid = [case.t1 * i / count for i in range(1, count + 1)]
        end = solve(stepper, case.x0, [0.0, case.t1], stops=grid, first_step=9.0).states[-1]
        errors.append(torch.linalg.vector_norm(end - case.solution(case.t1)).item())
    assert 1.8 < math.log2(errors[0] / errors[1]) < 2.3


def test_the_leapfrog_meets_its_tolerance():
    case = PROBLEMS["turning"]
    x = snopt.odeint(
        case.field, case.x0, [0.0, 1.0, 2.0], rtol=1e-6, atol=1e-6,
        adjoint="reversible", adjoint_params=(),
    )  # fmt: skip
    assert torch.linalg.vector_norm(x[-1] - case.solution(2.0)) < 1e-5
