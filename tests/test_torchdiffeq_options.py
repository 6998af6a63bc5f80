"""No option is accepted and then ignored: each has an effect, or is refused."""

import warnings

import pytest
import torch

import snopt
from snopt.base.errors import InvalidOption, MaxStepsExceeded, SolveError

#: Values unlike every default, for each option that any method of torchdiffeq or of ours has.
VALUES = {
    "first_step": 0.011,
    "safety": 0.5,
    "ifactor": 1.2,
    "dfactor": 0.9,
    "beta": 0.0,
    "min_step": 0.21,
    "max_step": 0.013,
    "max_num_steps": 2,
    "norm": lambda x: 30 * x.abs().max(),
    "dtype": torch.float32,
    "step_t": torch.tensor([0.123, 0.456], dtype=torch.float64),
    "jump_t": torch.tensor([0.123, 0.456], dtype=torch.float64),
    "step_size": 0.17,
    "grid_constructor": lambda f, y, t: torch.cat([t[:1], t[:1] + 0.11, t[1:]]),
    "perturb": True,
    "interp": "cubic",
    "max_iters": 1,
    "max_order": 5,
    "implicit": False,
    "solver": "RK45",
    "eps": 1e-3,
    "grid_points": torch.tensor([0.5]),
}
#: What an option needs beside it in order to matter.
BESIDE = {
    "interp": {"step_size": 0.3},
    "perturb": {"step_size": 0.3},
    "max_num_steps": {"step_size": 0.1},
    "max_iters": {"step_size": 0.05},
    "max_order": {"step_size": 0.05},
    "implicit": {"step_size": 0.05},
    "dfactor": {"first_step": 0.9},
    "dtype": {"dtype": torch.float64},
}
METHODS = [
    "euler", "midpoint", "heun", "rk4", "bosh3", "dopri5", "tsit5", "dopri8", "alf",
    "fehlberg2", "adaptive_heun", "heun2", "heun3", "explicit_adams", "implicit_adams",
    "fixed_adams", "scipy_solver",
]  # fmt: skip


def solve(method, options):
    """Where the field was evaluated, and what came out; or the error that ended the solve."""
    times = []

    def field(t, x):
        times.append(t.item())
        return -x * (1 + torch.cos(12 * t)) + torch.sin(x * 7)

    adjoint = "reversible" if method == "alf" else "checkpoint"
    # torchdiffeq's times are at least as precise as the state.
    dtype = torch.float32 if "dtype" in options else torch.float64
    x0 = torch.tensor([1.0, -2.0], dtype=dtype)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = snopt.odeint(field, x0, [0.0, 0.35, 1.0], rtol=1e-5, atol=1e-5, method=method,
                             options=options, adjoint=adjoint, adjoint_params=())  # fmt: skip
    except SolveError as failure:
        return type(failure).__name__, str(failure)
    except ValueError as refusal:
        return "refused", str(refusal)
    return times, x.tolist()


def beside(method, name):
    given = BESIDE.get(name, {})
    fixed = method in ("euler", "midpoint", "heun", "rk4", "heun2", "heun3") or "adams" in method
    if method == "scipy_solver" or fixed != ("step_size" in given):
        return {}
    return given


@pytest.mark.parametrize("method", METHODS)
def test_every_option_has_an_effect_or_is_refused(method):
    refused, plain = set(), {}
    for name, value in VALUES.items():
        other = beside(method, name)
        key = tuple(other.items())
        if key not in plain:
            plain[key] = solve(method, dict(other))
        found = solve(method, {**other, name: value})
        assert found != plain[key], f"{name} is ignored"
        if found[0] == "refused":
            assert repr(name) in found[1] or f"option {name}" in found[1]
            refused.add(name)
    assert {"eps", "grid_points"} <= refused
    assert refused < VALUES.keys()


def test_what_was_ignored_before_is_refused_with_a_reason():
    for method, name in (("rk4", "safety"), ("rk4", "norm"), ("dopri5", "step_size"),
                         ("dopri5", "interp"), ("alf", "jump_t"), ("heun3", "first_step"),
                         ("scipy_solver", "norm")):  # fmt: skip
        with pytest.raises(InvalidOption, match=f"option '{name}' has no effect on .*{method}"):
            snopt.odeint(
                lambda t, x: -x, torch.ones(1), [0.0, 1.0], method=method,
                options={name: VALUES[name]},
                adjoint="reversible" if method == "alf" else "checkpoint",
            )  # fmt: skip


def test_max_num_steps_bounds_fixed_steps_too():
    options = {"step_size": 0.01, "max_num_steps": 20}
    with pytest.raises(MaxStepsExceeded, match="max_num_steps"):
        snopt.odeint(lambda t, x: -x, torch.ones(1), [0.0, 1.0], method="rk4", options=options)
