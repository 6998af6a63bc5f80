"""What one random problem is made of.

A case is made of plain numbers and words, so that its ``repr`` typed into Python gives the same
problem again. Defaults are the simplest values: a ``repr`` names only the rest.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

FIXED = ("euler", "midpoint", "heun", "rk4")
ADAPTIVE = ("dopri5", "bosh3", "tsit5", "dopri8")
#: The finest tolerance that a method reaches in a few hundred steps.
FINEST = {"bosh3": 1e-4, "dopri5": 1e-7, "tsit5": 1e-7, "dopri8": 1e-9}
#: More tapes than any solve here has steps.
ALL = 10**6


@dataclass(frozen=True)
class Case:
    """One problem, the way it is solved, and the gradient that is asked for."""

    check: str = "exact"
    seed: int = 0
    # The field.
    kind: str = "tanh"  # tanh, linear, free (no parameters), time (ignores x), constant
    hidden: int = 2
    gain: float = 1.0
    drive: float = 0.0  # of sin(6 t)
    stiff: float = 0.0  # rate of a pull towards cos(t)
    jump: str = "none"  # none, told (as jump_t), untold
    jump_at: float = 0.41  # part of the span; 0 puts it on the first output
    noise: str = "none"  # none, dropout, norm (batch normalization)
    training: bool = True
    uses_time: bool = True
    shared: bool = False
    unused: bool = False
    frozen: bool = False
    turned: bool = False  # states and slopes that are not contiguous
    context: bool = False  # the field is given a computed tensor besides time and state
    # The state.
    state: str = "matrix"  # matrix, vector, scalar, single, pair, nested
    batch: int = 1
    width: int = 1
    dtype: str = "float64"
    # The solve.
    method: str = "dopri5"
    rtol: float = 1e-3
    atol: float = 1e-3
    first_step: float | None = None  # parts of the span
    step_size: float | None = None  # parts of the span, fixed steps only
    grid: bool = False  # a grid_constructor, fixed steps only
    times: tuple[float, ...] = (0.0, 1.0)
    # The gradient.
    adjoint: str = "checkpoint"
    keep: int | None = 0
    entry: str = "odeint"  # odeint, closure, block, horizon, odeint_adjoint
    calls: int = 1  # of a block, the second with the first one's step
    loss: str = "squares"  # squares, sum
    outputs: tuple[int, ...] = (1,)  # those in the loss
    x_grad: bool = True
    t_grad: bool = False
    through: str = "grad"  # grad, backward, or grad of the state or the parameters alone
    again: bool = False  # a second backward pass over the same graph
    nodes: int = 2  # of the observer
    stages: bool = True  # whether fixed steps tell their stages
    eta: float = 1.0
    family: int = 0  # which of the compiled blocks

    def __repr__(self) -> str:
        changed = (
            f"{item.name}={getattr(self, item.name)!r}"
            for item in dataclasses.fields(self)
            if getattr(self, item.name) != item.default
        )
        return f"Case({', '.join(changed)})"

    @property
    def span(self) -> float:
        """Signed length of the solve."""
        return self.times[-1] - self.times[0]

    @property
    def jump_time(self) -> float:
        """Where the field jumps."""
        return self.times[1] if self.jump_at == 0.0 else self.times[0] + self.jump_at * self.span

    @property
    def adaptive(self) -> bool:
        """Whether steps are chosen by an error estimate."""
        return self.method not in FIXED

    def but(self, **changes: Any) -> Case:
        """A copy with some values changed."""
        return dataclasses.replace(self, **changes)
