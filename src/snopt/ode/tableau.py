r"""Explicit Runge-Kutta methods as data.

One step of size :math:`h` from :math:`(t, x)` with :math:`s` stages is

.. math::
    k_i = F\bigl(t + c_i h,\; x + h \sum_{j<i} a_{ij} k_j\bigr), \qquad
    x_1 = x + h \sum_{i \le s} b_i k_i .

Every tableau has one additional row, the *end slope* :math:`k_{s+1} = F(t + h, x_1)`, whose
coefficients are :math:`b`. Methods whose error estimate uses it ("first same as last") evaluate
it in every step, the others only when dense output needs it. It is then :math:`k_1` of the next
step.

Dense output is a polynomial in :math:`\theta \in [0, 1]`, linear in the stages:

.. math::
    x(t + \theta h) = x + h \sum_i P_i(\theta) k_i, \qquad
    P_i(\theta) = \sum_d p_{id}\, \theta^{d} \quad (d \ge 1).

References:
    Hairer, Norsett, Wanner: Solving Ordinary Differential Equations I (1993).
    Dormand, Prince: A family of embedded Runge-Kutta formulae (1980).
    Bogacki, Shampine: A 3(2) pair of Runge-Kutta formulas (1989).
    Tsitouras: Runge-Kutta pairs of order 5(4) satisfying only the first column
    simplifying assumption (2011), also for its dense output.
    Shampine: Some practical Runge-Kutta formulas (1986), dense output of dopri5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from snopt.base.errors import unknown
from snopt.base.types import real_dtype
from snopt.ode import dop853
from snopt.ode.interpolation import Row, cubic, polynomials


@dataclass(frozen=True)
class Tableau:
    """The coefficients of one method.

    Attributes:
        name: the value of ``method=`` that selects it.
        order: order of convergence of ``x1``.
        c: stage times, including the end slope and extra stages of the dense output.
        a: one row of coefficients per stage; row ``i`` has ``i`` entries.
        stages: the number ``s`` of stages that ``x1`` depends on.
        errors: rows of error weights; empty for fixed-step methods.
        dense: ``p[i][d-1]``, the dense output's polynomial of stage ``i``.
        dense_order: order of the dense output.
        fsal: whether the error estimate uses the end slope.
        outputs: like ``dense``, for requested outputs if they are interpolated differently.
    """

    name: str
    order: int
    c: Row
    a: tuple[Row, ...]
    stages: int
    errors: tuple[Row, ...] = ()
    dense: tuple[Row, ...] = field(default=(), repr=False)
    dense_order: int = 1
    fsal: bool = False
    outputs: tuple[Row, ...] = field(default=(), repr=False)

    @staticmethod
    def explicit(name: str, order: int, a: Iterable[Iterable[float]], b: Sequence[float],
                 embedded: Sequence[float] = ()) -> Tableau:  # fmt: skip
        """Return a tableau for coefficients in the usual textbook form.

        Stage times are the sums of the rows of ``a``. Dense output is the cubic through the states
        and slopes at both ends, of order three at most.

        Args:
            name: the value of ``method=`` that selects it.
            order: order of convergence.
            a: the strictly lower triangle, row by row; the first row is empty.
            b: weights of the stages.
            embedded: weights of a second solution, one order lower; the difference of both is the
                error estimate. An additional weight belongs to the slope at the end of the step.
                Without ``embedded`` the method has fixed steps.

        Returns:
            the tableau, ready for :func:`register_method`.

        Raises:
            ValueError: ``a`` and ``b`` have different lengths.

        Example:
            >>> ralston = Tableau.explicit("ralston", 2, [[], [2 / 3]], [1 / 4, 3 / 4])
            >>> ralston.c, ralston.adaptive
            ((0.0, 0.6666666666666666, 1.0), False)
        """
        rows = tuple(tuple(float(value) for value in row) for row in a)
        weights = tuple(float(value) for value in b)
        if len(rows) != len(weights):
            raise ValueError(
                f"method {name!r}: {len(rows)} rows of a and {len(weights)} weights b; a method "
                "with s stages has s of both"
            )
        fsal = len(embedded) > len(weights)
        padded = (*weights, 0.0) if fsal else weights
        errors = tuple(mine - theirs for mine, theirs in zip(padded, embedded, strict=False))
        return _explicit(
            name, order, tuple(map(math.fsum, rows)), rows, weights,
            errors=(errors,) if errors else (), fsal=fsal,
        )  # fmt: skip

    @property
    def adaptive(self) -> bool:
        """Whether the method estimates its own error."""
        return bool(self.errors)

    @property
    def error_order(self) -> int:
        """Order of the error estimate plus one; two estimates combine to one of order seven."""
        return 8 if len(self.errors) == 2 else self.order

    @property
    def b(self) -> Row:
        """Weights of the stages in ``x1``: the row of the end slope."""
        return self.a[self.stages]

    @property
    def evaluated(self) -> int:
        """Number of stages that one attempt evaluates, including ``k_1``."""
        return self.stages + 1 if self.fsal else self.stages

    def dense_weights(self, theta: float) -> Row:
        """Return the weights ``P_i(theta)`` of all stages in the dense output.

        Example:
            >>> DOPRI5.dense_weights(0.0) == (0.0,) * 7
            True
        """
        return polynomials(self.dense, theta)

    def output_weights(self, theta: float) -> Row:
        """Return the weights for a requested output, of the stages that it needs.

        Example:
            >>> from dataclasses import replace
            >>> from snopt.ode.interpolation import linear
            >>> replace(MIDPOINT, outputs=linear(MIDPOINT.b)).output_weights(0.25)
            (0.0, 0.25)
        """
        return polynomials(self.outputs or self.dense, theta)


class Weights(NamedTuple):
    """Weights of stages, as a vector on the state's device and as numbers of the same precision.

    Having both avoids reading numbers back from the device.
    """

    tensor: Tensor
    row: Row

    @staticmethod
    def of(values: Row, like: Tensor) -> Weights:
        """Return the weights for states such as ``like``."""
        return Weights(torch.tensor(values, dtype=like.dtype, device=like.device), values)


@dataclass(frozen=True)
class TableauTensors:
    """A tableau on one device.

    Attributes:
        c: all stage times.
        a: coefficients of every stage.
        errors: error weights.
        tails: ``tails[n][i]`` is ``(a[i+1][i], ..., a[n-1][i], b[i])`` for a step that uses ``n``
            stages: the factors of later cotangents in the pull-back.
    """

    c: Tensor
    a: tuple[Weights, ...]
    errors: tuple[Weights, ...]
    tails: dict[int, tuple[Weights, ...]]


@lru_cache(maxsize=64)
def tensors(tableau: Tableau, dtype: torch.dtype, device: torch.device) -> TableauTensors:
    """Return a tableau in the dtype and on the device of a state."""

    def row(values: Row) -> Weights:
        rounded = torch.tensor(values, dtype=dtype)
        return Weights(rounded.to(device), tuple(rounded.tolist()))

    def tail(n: int, i: int) -> Weights:
        later = tuple(tableau.a[j][i] for j in range(i + 1, n))
        return row((*later, tableau.b[i] if i < tableau.stages else 0.0))

    total = len(tableau.c)
    return TableauTensors(
        c=torch.tensor(tableau.c, dtype=real_dtype(dtype), device=device),
        a=tuple(row(values) for values in tableau.a),
        errors=tuple(row(values) for values in tableau.errors),
        tails={n: tuple(tail(n, i) for i in range(n)) for n in (tableau.stages, total)},
    )


def _explicit(name: str, order: int, c: Row, a: tuple[Row, ...], b: Row, **more: object) -> Tableau:
    """Append the end slope to the stages of an explicit method."""
    extra: dict[str, object] = {"dense": cubic(b), "dense_order": min(order, 3), **more}
    return Tableau(name, order, (*c, 1.0), (*a, b), len(b), **extra)  # type: ignore[arg-type]


EULER = _explicit("euler", 1, (0.0,), ((),), (1.0,), dense=((1.0,), (0.0,)), dense_order=1)
MIDPOINT = _explicit("midpoint", 2, (0.0, 0.5), ((), (0.5,)), (0.0, 1.0))
HEUN = _explicit("heun", 2, (0.0, 1.0), ((), (1.0,)), (0.5, 0.5))
# The 3/8 rule, like torchdiffeq's "rk4", so the same call returns the same numbers.
RK4 = _explicit(
    "rk4",
    4,
    (0.0, 1 / 3, 2 / 3, 1.0),
    ((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
    (1 / 8, 3 / 8, 3 / 8, 1 / 8),
)
BOSH3 = _explicit(
    "bosh3",
    3,
    (0.0, 1 / 2, 3 / 4),
    ((), (1 / 2,), (0.0, 3 / 4)),
    (2 / 9, 1 / 3, 4 / 9),
    errors=((2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),),
    fsal=True,
)
DOPRI5 = _explicit(
    "dopri5",
    5,
    (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0),
    (
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    ),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    errors=((71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),),
    dense=(
        (1.0, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432),
        (0.0, 0.0, 0.0, 0.0),
        (0.0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799),
        (0.0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
        (0.0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632),
        (0.0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
        (0.0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
    ),
    dense_order=4,
    fsal=True,
)
TSIT5 = _explicit(
    "tsit5",
    5,
    (0.0, 0.161, 0.327, 0.9, 0.9800255409045097, 1.0),
    (
        (),
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (5.86145544294642, -12.92096931784711, 8.159367898576159, -0.071584973281401,
         -0.028269050394068383),
    ),
    (0.09646076681806523, 0.01, 0.4798896504144996, 1.379008574103742, -3.290069515436081,
     2.324710524099774),
    errors=(
        (-0.00178001105222577714, -0.0008164344596567469, 0.007880878010261995,
         -0.1447110071732629, 0.5823571654525552, -0.45808210592918697, 1 / 66),
    ),
    dense=(
        (1.0, -2.763706197274826, 2.9132554618219126, -1.0530884977290216),
        (0.0, 0.13169999999999998, -0.2234, 0.1017),
        (0.0, 3.9302962368947516, -5.941033872131505, 2.490627285651253),
        (0.0, -12.411077166933676, 30.33818863028232, -16.548102889244902),
        (0.0, 37.50931341651104, -88.1789048947664, 47.37952196281928),
        (0.0, -27.896526289197286, 65.09189467479366, -34.87065786149661),
        (0.0, 1.5, -4.0, 2.5),
    ),
    dense_order=4,
    fsal=True,
)  # fmt: skip
DOPRI8 = Tableau(
    "dopri8", 8, dop853.C, dop853.A, 12, dop853.ERRORS, dense=dop853.DENSE, dense_order=7
)

TABLEAUS: dict[str, Tableau] = {
    tableau.name: tableau for tableau in (EULER, MIDPOINT, HEUN, RK4, BOSH3, DOPRI5, TSIT5, DOPRI8)
}


def register_method(tableau: Tableau) -> None:
    """Make a method available as ``method=`` of every solve.

    Args:
        tableau: the method, from :meth:`Tableau.explicit` or with all its rows.

    Raises:
        ValueError: the name is taken, or the coefficients are inconsistent.

    Example:
        >>> register_method(Tableau.explicit("ralston", 2, [[], [2 / 3]], [1 / 4, 3 / 4]))
        >>> tableau_named("ralston").order
        2
        >>> del TABLEAUS["ralston"]
        >>> register_method(Tableau.explicit("ralston", 2, [[], [2 / 3]], [1 / 4, 1 / 4]))
        Traceback (most recent call last):
        ...
        ValueError: method 'ralston': its weights b sum to 0.5, not to 1
    """
    if TABLEAUS.get(tableau.name, tableau) != tableau:
        raise ValueError(
            f"method {tableau.name!r} exists already with other coefficients; choose another name"
        )
    fault = next(_faults(tableau), None)
    if fault is not None:
        raise ValueError(f"method {tableau.name!r}: {fault}")
    TABLEAUS[tableau.name] = tableau


def _faults(tableau: Tableau) -> Iterator[str]:
    """Yield one message per error in the coefficients of a method."""

    def equal(x: float, y: float) -> bool:
        return math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9)

    total = len(tableau.c)
    if len(tableau.a) != total or not 0 < tableau.stages < total:
        yield (
            f"{len(tableau.a)} rows of a, {total} times and {tableau.stages} stages are "
            "inconsistent"
        )
    if not equal(math.fsum(tableau.b), 1.0):
        yield f"its weights b sum to {math.fsum(tableau.b):.12g}, not to 1"
    for i, (row, c) in enumerate(zip(tableau.a, tableau.c, strict=False)):
        if len(row) != i:
            yield f"row {i} of a has {len(row)} entries; an explicit method has {i} there"
        if not equal(math.fsum(row), c):
            yield f"row {i} of a sums to {math.fsum(row):.12g}, but its time is {c}"
    for row in tableau.errors:
        if len(row) > tableau.evaluated or not equal(math.fsum(row), 0.0):
            yield f"the error weights {row} must sum to 0 over the {tableau.evaluated} stages"
    end = tableau.dense_weights(1.0)
    wanted = (*tableau.b, *[0.0] * (total - tableau.stages))
    if len(end) != total or not all(map(equal, end, wanted)):
        yield "its dense output does not match the new state at theta = 1"


def tableau_named(name: str) -> Tableau:
    """Return the native method of this name.

    Example:
        >>> tableau_named("rk4").order
        4
    """
    if name not in TABLEAUS:
        raise unknown("method", name, TABLEAUS)
    return TABLEAUS[name]
