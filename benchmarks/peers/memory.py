"""Peak memory of one iteration of each engine, in fresh processes of one thread.

Memory does not depend on speed, so as many processes run at once as there are cores.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

from benchmarks.peers.engines import OURS, PEERS, left_out, trial
from snopt.lab.paper.peak import in_fresh_process, rise


def measure(case: str, budget: float) -> dict[str, Any]:
    """Measure all libraries on one workload; the budget is not used."""
    unable = {name: why for name in (*OURS, *PEERS) if (why := too_long(case, name))}
    able = [name for name in (*OURS, *PEERS) if name not in unable]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(able, pool.map(partial(megabytes, case), able), strict=True))
    unable.update({name: value for name, value in found.items() if isinstance(value, str)})
    for name, value in {**found, **unable}.items():
        print(f"{case:14} {name:20} {value}", flush=True)
    return {
        "megabytes": {name: value for name, value in found.items() if name not in unable},
        "cannot_run": unable,
    }


def too_long(case: str, name: str) -> str | None:
    """Return why a pair is not measured; None if it is."""
    if case == "image" and name.startswith("diffrax"):
        return "not measured: an iteration takes many seconds"
    return left_out(case, name)


def megabytes(case: str, name: str) -> float | str:
    """Return the megabytes of one contender, or why there are none."""
    try:
        return in_fresh_process(peak, case, name)
    except BrokenProcessPool:
        return "its process died"


def peak(case: str, name: str) -> float:
    """Measure, in this process, the peak megabytes of one iteration."""
    return rise(trial(name, case).run)
