"""Adjoints as objects, and what is said when they make no sense."""

import dataclasses
import math
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import snopt
from snopt.adjoint.adjoints import ADJOINTS, adjoint_named
from snopt.adjoint.quadrature import gauss
from snopt.base.errors import GradientError, InvalidOption, UnknownName
from tests.problems import TanhField


@pytest.mark.parametrize("name", ADJOINTS)
def test_a_name_stands_for_the_default_object(name):
    field, x0 = TanhField(), torch.randn(4, 3, dtype=torch.float64)
    found = []
    for adjoint in (name, ADJOINTS[name]):
        x = snopt.odeint(field, x0, [0.0, 1.0], rtol=1e-4, atol=1e-4, adjoint=adjoint)
        found.append(torch.autograd.grad(x[-1].sum(), list(field.parameters())))
    assert all(map(torch.equal, *found))
    assert adjoint_named(name) is ADJOINTS[name]
    assert snopt.NeuralODE(field, adjoint=name).adjoint is ADJOINTS[name]


def test_adjoints_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        snopt.Checkpoint().keep = 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: snopt.Checkpoint(keep=-1), "keep = -1"),
        (lambda: snopt.Checkpoint(keep=1.5), r"keep = 1\.5"),
        (lambda: snopt.Reversible(eta=0.5), "eta = 0.5"),
        (lambda: snopt.Backsolve(nodes=0), "nodes = 0"),
        (lambda: solve(adjoint="reversible", method="rk4"), "does not support method"),
        (lambda: solve(method="alf"), "does not support method"),
        (lambda: solve(adjoint=snopt.Checkpoint(keep=2), method="adaptive_heun"), "not supported"),
        (lambda: snopt.NeuralODE(nn.Identity(), compile=True, adjoint="direct"), "compile=True"),
    ],
)
def test_values_that_make_no_sense_are_refused(make, words):
    with pytest.raises(InvalidOption, match=words):
        make()


def solve(**kwargs):
    return snopt.odeint(lambda t, x: -x, torch.ones(1), [0.0, 1.0], **kwargs)


@pytest.mark.parametrize(
    ("adjoint", "words"),
    [
        ("chekpoint", "did you mean 'checkpoint'"),
        (snopt.Backsolve(method="dorpi5"), "did you mean 'dopri5'"),
        (snopt.Backsolve(options={"max_steppes": 3}), "unknown option 'max_steppes'"),
    ],
)
def test_unknown_names_are_found_when_a_block_is_made(adjoint, words):
    with pytest.raises(UnknownName, match=words):
        snopt.NeuralODE(nn.Identity(), adjoint=adjoint)


def test_what_is_no_adjoint_is_told_what_is():
    with pytest.raises(TypeError, match=r"adjoint is a int.*snopt\.Checkpoint"):
        solve(adjoint=3)


@pytest.mark.parametrize(
    "call", [lambda **k: snopt.NeuralODE(nn.Identity(), **k), lambda **k: solve(**k)]
)
def test_adjoint_options_are_answered_with_the_new_form(call):
    with pytest.raises(TypeError, match=r"adjoint=snopt\.Checkpoint\(keep=0\)"):
        call(adjoint_options={"keep": 0})
    with pytest.raises(TypeError, match="'metod'"):
        call(metod="dopri5")


def test_the_reversible_adjoint_asks_for_the_parameters_of_a_closure():
    with pytest.raises(GradientError, match="adjoint_params"):
        solve(adjoint="reversible")


def test_backsolve_has_a_solver_of_its_own():
    field, x0 = TanhField(), torch.randn(4, 3, dtype=torch.float64)
    counts = []
    for adjoint in (
        snopt.Backsolve(),
        snopt.Backsolve(rtol=1e-9, atol=1e-9),
        snopt.Backsolve(method="rk4", options={"step_size": 0.1}, nodes=1),
    ):
        stats = snopt.SolveStats()
        x = snopt.odeint(field, x0, [0.0, 1.0], rtol=1e-4, atol=1e-4, adjoint=adjoint, stats=stats)
        x[-1].sum().backward()
        counts.append(stats.nfe_backward)
    assert counts[1] > counts[0]
    assert counts[2] == 10 * (4 + 1) + 1  # stages, a node, and the slope at the very end


def test_odeint_adjoint_takes_torchdiffeqs_arguments():
    field, x0 = TanhField(), torch.randn(4, 3, dtype=torch.float64)
    stats = snopt.SolveStats()
    x = snopt.odeint_adjoint(
        field, x0, torch.tensor([0.0, 1.0]), rtol=1e-4, atol=1e-4, adjoint_method="rk4",
        adjoint_options={"step_size": 0.1, "nodes": 1}, stats=stats,
    )  # fmt: skip
    x[-1].sum().backward()
    assert stats.nfe_backward == 10 * (4 + 1) + 1  # stages, a node, and the slope at the very end


@pytest.mark.parametrize("method", ["euler", "midpoint", "heun", "rk4"])
def test_one_step_over_the_whole_horizon_is_warned_of(method):
    with pytest.warns(UserWarning, match=rf"'{method}'.*one step.*options=\{{'step_size'"):
        snopt.NeuralODE(nn.Identity(), method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({"step_size": 0.1}, {"step_t": [0.5]}):
            snopt.NeuralODE(nn.Identity(), method=method, options=options)
        snopt.NeuralODE(nn.Identity(), method="dopri5")
        solve(method=method)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 20])
def test_gauss_nodes_are_numpys(n):
    nodes, weights = np.polynomial.legendre.leggauss(n)
    found = np.array(gauss(n))
    assert np.abs(found[:, 0] - 0.5 * (nodes + 1)).max() < 1e-15
    assert np.abs(found[:, 1] - 0.5 * weights).max() < 1e-15
    assert math.isclose(found[:, 1].sum(), 1.0, rel_tol=1e-15)


def test_the_library_needs_torch_only():
    code = """
import sys
OTHERS = (
    "numpy", "scipy", "torchdiffeq", "matplotlib", "sklearn", "pandas", "optuna", "h5py", "pooch",
    "tyro", "rich", "tensorboard",
)
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in OTHERS:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
import torch, snopt
class Field(torch.nn.Module):
    def forward(self, t, x):
        return -x
x = torch.ones(2, requires_grad=True)
for adjoint in ("checkpoint", "backsolve", "reversible", "direct"):
    snopt.NeuralODE(Field(), adjoint=adjoint)(x).sum().backward()
"""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("adjoint", ["checkpoint", "direct"])
def test_ten_million_kept_steps_are_refused(adjoint):
    field, x0 = TanhField(), torch.randn(4, 3, dtype=torch.float64)
    options = {"step_size": 1e-7}
    with pytest.raises(InvalidOption, match=r"10,000,000 steps.*max_num_steps"):
        snopt.odeint(field, x0, [0.0, 1.0], method="euler", options=options, adjoint=adjoint)


def test_many_steps_that_keep_nothing_are_allowed(monkeypatch):
    monkeypatch.setattr("snopt.adjoint.request.MOST_KEPT_STEPS", 10)
    x0, options = torch.ones(1, dtype=torch.float64), {"step_size": 0.01}
    x = snopt.odeint(lambda t, x: -x, x0, [0.0, 1.0], method="euler", options=options)
    assert x[-1].item() == pytest.approx(0.99**100)
    field, bounded = TanhField(), {**options, "max_num_steps": 100}
    y0 = torch.randn(4, 3, dtype=torch.float64)
    asked = snopt.odeint(field, y0, [0.0, 1.0], method="euler", options=bounded)
    with torch.no_grad():
        assert torch.equal(
            asked, snopt.odeint(field, y0, [0.0, 1.0], method="euler", options=options)
        )
