"""A long run over new random problems, which counts what is wrong and saves it."""

from __future__ import annotations

import json
import multiprocessing
import time
import traceback
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.fuzz import draw
from tests.fuzz.cases import Case, simpler
from tests.fuzz.check import ROUNDING, Verdict, judge

#: Cases that a worker judges between two reports.
BATCH = 25
#: Failures of one kind that are made simpler; the others are saved as they are.
SIMPLIFIED = 2
#: The bound of gradients in double precision; some cases are judged by looser ones.
STRICT = ROUNDING["float64"]

SCRIPT = """\
from tests.fuzz.cases import Case
from tests.fuzz.check import judge

case = {case!r}
print(judge(case))
"""


@dataclass
class Tally:
    """What became of the cases so far."""

    cases: int = 0
    solved: int = 0
    rejected: int = 0
    strict: int = 0
    strict_rejected: int = 0
    checks: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case, verdict: Verdict) -> str:
        """Count one case; in which way it is wrong, if it is."""
        self.cases += 1
        self.solved += verdict.solved
        self.rejected += verdict.rejected > 0
        strict = case.check in ("exact", "compiled") and verdict.solved and verdict.bound == STRICT
        self.strict += strict
        self.strict_rejected += strict and verdict.rejected > 0
        name = case.check if case.noise == "none" else f"{case.check} with {case.noise}"
        self.checks[name] += 1
        kind = f"{name}: {verdict.what}"
        self.wrong[kind] += verdict.wrong
        return kind

    def report(self, seconds: float) -> str:
        """Everything in a few lines."""
        lines = [
            f"{self.cases} cases in {seconds:.0f} s, {self.solved} of them compared, "
            f"{self.rejected} with rejected steps, {sum(self.wrong.values())} wrong",
            f"  {self.strict:6} judged against backpropagation at {STRICT:g}, "
            f"{self.strict_rejected} of them with rejected steps",
            *(f"  {count:6} cases of {name}" for name, count in sorted(self.checks.items())),
            *(f"  {count:6} WRONG {kind}" for kind, count in self.wrong.most_common() if count),
        ]
        return "\n".join(lines)


def judged(case: Case) -> Verdict:
    """A verdict in every case: what raises is wrong as well."""
    try:
        return judge(case)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
        lines = traceback.format_exception_only(error)
        return Verdict(f"raised {lines[-1].strip()[:200]}", error=float("inf"))


def simplified(case: Case, verdict: Verdict) -> tuple[Case, Verdict]:
    """The simplest case that is wrong in the same way."""
    found = True
    while found:
        found = False
        for candidate in simpler(case):
            after = judged(candidate)
            if after.wrong and after.what == verdict.what:
                case, verdict, found = candidate, after, True
                break
    return case, verdict


def save(folder: Path, number: int, case: Case, verdict: Verdict, first: Case) -> None:
    """Keep a failure as JSON and as Python."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{case.check}-{number}"
    record = {
        "case": case.to_json(), "as_drawn": first.to_json(), "number": number,
        "what": verdict.what, "error": verdict.error, "bound": verdict.bound,
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1), "utf-8")
    (folder / f"{name}.py").write_text(SCRIPT.format(case=case), "utf-8")


def batch(numbers: range, families: int, check: str | None) -> list[tuple[int, Case, Verdict]]:
    """Judge the cases of some numbers."""
    torch.set_num_threads(1)
    if check is None:
        drawn = [(number, draw.anything(draw.Plain(number), families)) for number in numbers]
    else:
        drawn = [(number, draw.MAKERS[check](draw.Plain(number))) for number in numbers]
    return [(number, case, judged(case)) for number, case in drawn]


def fuzz(
    seed: int,
    cases: int,
    seconds: float,
    workers: int,
    families: int,
    out: Path,
    check: str | None = None,
) -> Tally:
    """Judge new cases until there are enough of them, or the time is up."""
    tally, begin = Tally(), time.perf_counter()
    print(f"cases from number {seed} on", flush=True)
    shown = begin
    # A new process for each worker: threads of torch do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        waiting: deque[Any] = deque()
        for start in range(seed, seed + cases, BATCH):
            numbers = range(start, min(start + BATCH, seed + cases))
            waiting.append(pool.apply_async(batch, (numbers, families, check)))
            if len(waiting) > workers:
                take(tally, waiting.popleft().get(), out)
            now = time.perf_counter()
            if now > begin + seconds:
                break
            if now > shown + 60.0:
                shown = now
                print("\n".join(tally.report(now - begin).splitlines()[:2]), flush=True)
        for result in waiting:
            take(tally, result.get(), out)
    print(tally.report(time.perf_counter() - begin), flush=True)
    return tally


def take(tally: Tally, results: list[tuple[int, Case, Verdict]], folder: Path) -> None:
    """Count a batch, and save what is wrong in it."""
    for number, case, verdict in results:
        kind, first = tally.add(case, verdict), case
        if not verdict.wrong:
            continue
        new = tally.wrong[kind] <= SIMPLIFIED
        if new and case.check != "compiled":
            case, verdict = simplified(case, verdict)
        save(folder, number, case, verdict, first)
        if new:
            print(f"WRONG {verdict}\n  {case!r}", flush=True)


def replay(paths: list[Path]) -> bool:
    """Run saved cases again; whether any is wrong."""
    wrong = False
    for path in paths:
        case = Case.from_json(json.loads(path.read_text("utf-8"))["case"])
        verdict = judged(case)
        wrong |= verdict.wrong
        print("WRONG" if verdict.wrong else "right", verdict, case, sep="\n  ")
    return wrong
