"""Options of the methods, and checks of their values.

Names and meanings are torchdiffeq's. An option that has no effect on the method is an error.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection
from numbers import Real
from typing import Any

from torch import Tensor

from snopt.base.errors import InvalidOption, unknown
from snopt.ode.tableau import TABLEAUS

#: The asynchronous leapfrog, the method of the reversible adjoint.
LEAPFROG = "alf"
_CONTROL = frozenset(
    {"first_step", "safety", "ifactor", "dfactor", "beta", "min_step", "max_step", "norm", "dtype"}
)
_STOPS = frozenset({"step_t", "jump_t"})
_GRID = frozenset({"step_size", "grid_constructor", "perturb", "interp"})
_BOUND = frozenset({"max_num_steps"})
_ADAMS = frozenset({"implicit", "max_iters", "max_order"})
#: Options that torchdiffeq accepts and ignores; SciPy's LSODA does not respect ``min_step``.
_IDLE = {
    "explicit_adams": frozenset({"implicit", "max_iters"}),
    "scipy_solver": frozenset({"min_step"}),
}


def check_names(method: str, options: Collection[str]) -> None:
    """Check that the method has these options.

    Raises:
        UnknownName: no method has an option of this name.
        InvalidOption: other methods have it, but not this one.

    Example:
        >>> check_names("rk4", {"safety"})
        Traceback (most recent call last):
        ...
        snopt.base.errors.InvalidOption: option 'safety' has no effect on method 'rk4', which ...
    """
    valid = options_of(method)
    for name in options:
        if name in valid:
            continue
        if name not in _CONTROL | _STOPS | _GRID | _BOUND | _ADAMS:
            raise unknown("option", name, valid)
        kind = "takes fixed steps" if "step_size" in valid else "does not have it"
        if method == LEAPFROG or ("safety" in valid and name in _GRID):
            kind = "chooses its own steps"
        raise InvalidOption(
            f"option {name!r} has no effect on method {method!r}, which {kind}; remove it or "
            f"choose another method. Options of {method!r}: {', '.join(sorted(valid))}."
        )


def options_of(method: str) -> frozenset[str]:
    """Return the names of a method's options.

    Example:
        >>> sorted(options_of("euler") - options_of("dopri5"))
        ['grid_constructor', 'interp', 'perturb', 'step_size']
    """
    if method == LEAPFROG:
        # Its steps end at requested times only, because a restart after a jump could not be undone.
        return _CONTROL | _BOUND
    if method in TABLEAUS:
        return (_CONTROL if TABLEAUS[method].adaptive else _GRID) | _STOPS | _BOUND
    from torchdiffeq._impl.odeint import SOLVERS

    if method not in SOLVERS:
        raise unknown("method", method, {*TABLEAUS, LEAPFROG, *SOLVERS})
    names = {
        name
        for base in SOLVERS[method].__mro__
        if "__init__" in vars(base) and base is not object
        for name, parameter in inspect.signature(base.__init__).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    taken = {"self", "func", "y0", "rtol", "atol"}
    own = _BOUND if method == "scipy_solver" else frozenset()
    return frozenset(names - taken - _IDLE.get(method, frozenset())) | own


def controls_error(method: str | None) -> bool:
    """Return whether a native method, or the default, chooses its steps by a norm of its error.

    Example:
        >>> controls_error(None), controls_error("bosh3"), controls_error("rk4")
        (True, True, False)
    """
    native = method is None or method == LEAPFROG or method in TABLEAUS
    return native and (method is None or "norm" in options_of(method))


def check_tolerance(name: str, value: Any) -> None:
    """Raise InvalidOption unless all numbers of a tolerance are finite and not negative.

    Example:
        >>> check_tolerance("rtol", -1.0)
        Traceback (most recent call last):
        ...
        snopt.base.errors.InvalidOption: rtol = -1.0 is not a tolerance; use a number such as 1e-3.
    """
    if isinstance(value, (tuple, list)):
        for part in value:
            check_tolerance(name, part)
        return
    if isinstance(value, Tensor):
        fine = bool(((value >= 0) & (value < math.inf)).all())
    else:
        fine = isinstance(value, Real) and 0.0 <= float(value) < math.inf
    if not fine:
        raise InvalidOption(f"{name} = {value!r} is not a tolerance; use a number such as 1e-3.")
    if isinstance(value, Tensor) and value.requires_grad:
        raise InvalidOption(
            f"{name} requires a gradient, but tolerances have none; pass `{name}.detach()`."
        )


def positive(name: str, value: Any) -> float | None:
    """Return an optional positive number, or raise InvalidOption."""
    if value is None:
        return None
    number = as_number(name, value)
    if not 0.0 < number < math.inf:
        raise InvalidOption(f"option {name} = {value!r} must be a finite positive number.")
    return number


def as_number(name: str, value: Any) -> float:
    """Return an option's value as a float, or raise InvalidOption."""
    try:
        return float(value)
    except (TypeError, ValueError) as failure:
        raise InvalidOption(f"option {name} = {value!r} must be a number.") from failure


def as_times(name: str, value: Any) -> tuple[float, ...]:
    """Return the times of an option that is a tensor, a sequence or None."""
    if value is None:
        return ()
    values = value.reshape(-1).tolist() if isinstance(value, Tensor) else value
    try:
        times = tuple(float(t) for t in values)
    except (TypeError, ValueError) as failure:
        raise InvalidOption(
            f"option {name} = {value!r} must be a one-dimensional tensor of times."
        ) from failure
    if any(map(math.isnan, times)):
        raise InvalidOption(f"option {name} = {value!r} has a NaN; pass the times of the stops.")
    return times


def choice(name: str, value: Any, valid: tuple[Any, ...], reason: str) -> Any:
    """Return an option's value if it is one of ``valid``, or raise InvalidOption."""
    if value not in valid:
        names = " or ".join(map(repr, valid))
        raise InvalidOption(f"option {name} = {value!r} must be {names}: {reason}.")
    return value
