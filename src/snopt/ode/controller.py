r"""Step-size control.

After a step with error ratio :math:`r` (accepted if at most one) the next step is

.. math::
    h' = h \cdot \operatorname{clip}\bigl(\mathrm{safety} \cdot r^{-\alpha} r_{-}^{\beta},\;
    \mathrm{dfactor},\; \mathrm{ifactor}\bigr), \qquad \alpha = 1/q - 0.75\,\beta,

with :math:`r_-` the ratio of the accepted step before and :math:`q` the order of the error
estimate plus one: a proportional-integral controller with the gains of DOPRI5's reference code
(:math:`\beta = 0.04`).

References:
    Hairer, Wanner: Solving Ordinary Differential Equations II (1996), Section IV.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from snopt.base.errors import InvalidOption
from snopt.ode.options import as_number

#: Fixed-step methods have no step limit, except in a search for an event.
UNBOUNDED = 2**62
_TINY = 2.0**-1074
#: Smallest and largest value of each option, and how messages describe the range.
_RANGES = {
    "safety": (_TINY, 1.0, "above 0 and at most 1"),
    "ifactor": (1.0, math.inf, "at least 1"),
    "dfactor": (_TINY, 1.0, "above 0 and at most 1"),
    "beta": (0.0, 1.0, "from 0 to 1"),
    "min_step": (0.0, math.inf, "at least 0"),
    "max_step": (_TINY, math.inf, "above 0"),
    "max_num_steps": (1.0, math.inf, "at least 1"),
}


@dataclass(frozen=True)
class Controller:
    """The step-size controller.

    Attributes:
        safety: factor below one that makes it likely that the next step is accepted.
        ifactor: largest factor by which a step grows.
        dfactor: smallest factor by which a step shrinks.
        beta: gain of the previous error ratio; 0 is plain integral control.
        min_step: smallest step; steps of this size are always accepted.
        max_step: largest step.
        max_steps: attempted steps after which a solve fails.
    """

    safety: float = 0.9
    ifactor: float = 10.0
    dfactor: float = 0.2
    beta: float = 0.04
    min_step: float = 0.0
    max_step: float = math.inf
    max_steps: int = 20_000

    @staticmethod
    def from_options(options: dict[str, object]) -> Controller:
        """Return the controller for a user's options, and remove its options from the dictionary.

        Raises:
            InvalidOption: a value is out of its range.

        Example:
            >>> Controller.from_options({"safety": 0.8}).safety
            0.8
        """
        values: dict[str, float] = {}
        for name, (low, high, words) in _RANGES.items():
            if name in options:
                given = options.pop(name)
                values[name] = as_number(name, given)
                if not low <= values[name] <= high:
                    raise InvalidOption(f"option {name} = {given!r} must be {words}.")
        if "max_num_steps" in values:
            values["max_steps"] = int(min(values.pop("max_num_steps"), UNBOUNDED))
        controller = Controller(**values)  # type: ignore[arg-type]
        if controller.min_step > controller.max_step:
            raise InvalidOption(
                f"option min_step = {controller.min_step} is larger than max_step = "
                f"{controller.max_step}; swap them or remove one."
            )
        return controller

    def factor(self, ratio: float, previous: float, order: int) -> float:
        """Return the factor for the next step, ``dfactor`` if the ratio is not finite.

        Args:
            ratio: error ratio of this step.
            previous: error ratio of the last accepted step.
            order: order of the error estimate plus one.

        Example:
            >>> Controller(beta=0.0).factor(1.0, 1.0, 5)
            0.9
        """
        if not math.isfinite(ratio):
            return self.dfactor
        if ratio == 0.0:
            return self.ifactor
        alpha = 1.0 / order - 0.75 * self.beta
        raw: float = self.safety * ratio**-alpha * max(previous, 1e-4) ** self.beta
        upper = self.ifactor if ratio <= 1.0 else 1.0
        return min(upper, max(self.dfactor, raw))
