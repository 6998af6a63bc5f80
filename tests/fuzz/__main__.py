"""New random problems until the time is up: ``python -m tests.fuzz --minutes 10``.

Every case has a number, from which it is drawn, so that a run can be repeated (``--seed``). What
is wrong is made simpler as long as it stays wrong, and saved to ``out/fuzz``: as JSON, which
``--replay`` runs again, and as a few lines of Python.
"""

from __future__ import annotations

import argparse
import math
import secrets
import sys
from pathlib import Path

import torch

from tests.fuzz.campaign import fuzz, replay
from tests.fuzz.compiled import FAMILIES
from tests.fuzz.draw import MAKERS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, help="how long to go on")
    parser.add_argument("--cases", type=int, help="how many cases to judge")
    parser.add_argument("--workers", type=int, default=1, help="processes of one thread each")
    parser.add_argument("--seed", type=int, help="number of the first case; default: a new one")
    parser.add_argument("--compiled", action="store_true", help="compiled blocks as well")
    parser.add_argument("--check", choices=MAKERS, help="only cases of one kind; default: all")
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"), help="where failures go")
    parser.add_argument("--replay", type=Path, nargs="+", help="run saved failures again")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.replay:
        return int(replay(arguments.replay))
    seconds = 60.0 * arguments.minutes if arguments.minutes else math.inf
    if arguments.minutes is None and arguments.cases is None:
        seconds = 600.0
    tally = fuzz(
        seed=secrets.randbelow(10**12) if arguments.seed is None else arguments.seed,
        cases=arguments.cases or 10**9,
        seconds=seconds,
        workers=arguments.workers,
        families=len(FAMILIES) if arguments.compiled else 0,
        out=arguments.out,
        check=arguments.check,
    )
    return int(tally.wrong.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
