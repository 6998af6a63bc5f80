"""How far one iteration of each engine raises the memory of a fresh process, on one thread.

Memory does not depend on how fast a process gets on: as many run at once as there are cores.
``python -m benchmarks.peers.memory CASE CONTENDER`` measures one of them and prints megabytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from benchmarks.peers.engines import OURS, PEERS, left_out, trial
from snopt.lab.paper.peak import in_fresh_process, rise


def measure(case: str, budget: float) -> dict[str, Any]:
    """Measure everyone on one workload; there are no rounds to fit into a budget."""
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
    """Say why a pair is not measured; None if it is."""
    if case == "image" and name.startswith("diffrax"):
        return "not measured: an iteration takes many seconds"
    return left_out(case, name)


def megabytes(case: str, name: str) -> float | str:
    """Megabytes of one contender, or what became of it."""
    try:
        return in_fresh_process("benchmarks.peers.memory", case, name)
    except subprocess.CalledProcessError as error:
        return f"its process ended with code {error.returncode}"


def main() -> None:
    """Measure, in this process, what the parent asks for."""
    case, name = sys.argv[1:]
    print(json.dumps(rise(trial(name, case).run)))


if __name__ == "__main__":
    main()
