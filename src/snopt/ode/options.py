"""Which options a method understands, and checks of their values.

Names and meanings are torchdiffeq's. An option that a method has no use for is refused: what is
accepted has an effect.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection
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
#: What torchdiffeq takes without using it; SciPy's LSODA does not keep to ``min_step``.
_IDLE = {
    "explicit_adams": frozenset({"implicit", "max_iters"}),
    "scipy_solver": frozenset({"min_step"}),
}


def check_names(method: str, options: Collection[str]) -> None:
    """Refuse options that the method does not understand.

    Args:
        method: A native method, or any of torchdiffeq's.
        options: The names of the user's options.

    Raises:
        UnknownName: No method has an option of that name.
        InvalidOption: Other methods do, but not this one.

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
            f"option {name!r} has no effect on method {method!r}, which {kind}; leave it out, or "
            f"choose another method. Options of {method!r}: {', '.join(sorted(valid))}."
        )


def options_of(method: str) -> frozenset[str]:
    """The options that a method understands.

    Args:
        method: A native method, or any of torchdiffeq's.

    Returns:
        Their names.

    Raises:
        UnknownName: There is no such method.

    Example:
        >>> sorted(options_of("euler") - options_of("dopri5"))
        ['grid_constructor', 'interp', 'perturb', 'step_size']
    """
    if method == LEAPFROG:
        # It lands on requested times only: a restart behind a jump could not be undone.
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


def check_tolerance(name: str, value: Any) -> None:
    """Refuse what cannot be a tolerance.

    Args:
        name: ``"rtol"`` or ``"atol"``.
        value: A number, a tensor, or a nested sequence of them.

    Raises:
        InvalidOption: It is negative, infinite or NaN somewhere, or no number.

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
        fine = isinstance(value, (int, float)) and 0 <= value < math.inf
    if not fine:
        raise InvalidOption(f"{name} = {value!r} is not a tolerance; use a number such as 1e-3.")
    if isinstance(value, Tensor) and value.requires_grad:
        raise InvalidOption(
            f"{name} requires a gradient, but a tolerance has none; pass `{name}.detach()`."
        )


def positive(name: str, value: Any) -> float | None:
    """An optional positive number.

    Args:
        name: The option's name.
        value: Its value.

    Returns:
        The number, or None.

    Raises:
        InvalidOption: It is not a finite positive number.
    """
    if value is None:
        return None
    number = as_number(name, value)
    if not 0.0 < number < math.inf:
        raise InvalidOption(f"option {name} = {value!r} must be a positive number.")
    return number


def as_number(name: str, value: Any) -> float:
    """An option's value as a number.

    Args:
        name: The option's name.
        value: Its value.

    Returns:
        The number.

    Raises:
        InvalidOption: It is none.
    """
    try:
        return float(value)
    except (TypeError, ValueError) as failure:
        raise InvalidOption(f"option {name} = {value!r} must be one number.") from failure


def as_times(name: str, value: Any) -> tuple[float, ...]:
    """Times given as a tensor, a list, or not at all.

    Args:
        name: The option's name.
        value: Its value.

    Returns:
        The times.

    Raises:
        InvalidOption: They are no numbers.
    """
    if value is None:
        return ()
    values = value.reshape(-1).tolist() if isinstance(value, Tensor) else value
    try:
        return tuple(float(t) for t in values)
    except (TypeError, ValueError) as failure:
        raise InvalidOption(
            f"option {name} = {value!r} must be a one-dimensional tensor of times."
        ) from failure


def choice(name: str, value: Any, valid: tuple[Any, ...], reason: str) -> Any:
    """A value that must be among a few.

    Args:
        name: The option's name.
        value: Its value.
        valid: What is allowed.
        reason: Why nothing else is.

    Returns:
        The value.

    Raises:
        InvalidOption: It is something else.

    Example:
        >>> choice("interp", "linear", ("linear", "cubic"), "no other interpolation is there")
        'linear'
    """
    if value not in valid:
        names = " or ".join(map(repr, valid))
        raise InvalidOption(f"option {name} = {value!r} must be {names}: {reason}.")
    return value
