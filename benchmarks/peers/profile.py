"""Where the time of an iteration of the eager engine goes, by kind of work.

``python -m benchmarks.peers --parts profile`` measures it.
"""

from __future__ import annotations

from typing import Any

from benchmarks.engine.contenders import Trial
from benchmarks.engine.profile import by_kind
from benchmarks.peers.engines import form_of

UNITS = {"ode_rnn": ("interval", 92), "cnf_gas": ("accepted step", None)}
"""What an iteration is divided into, and into how many; None: as many as the solver accepts."""


def measure(case: str, budget: float) -> dict[str, Any]:
    """Profile one workload; the budget is not used."""
    trial = Trial("snopt_checkpoint", case, form_of(case))
    trial.settle()
    unit, count = UNITS[case]
    return {
        "unit": unit,
        "units": count or trial.flow.stats.accepted,
        "operators": by_kind(trial.run),
    }
