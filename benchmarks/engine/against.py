"""Two source trees of this package in one interleaved run: this one's time over the other's.

Each tree has its own process, which runs one iteration of a workload per request
(:mod:`benchmarks.engine.worker`), on one thread, and answers with the CPU seconds. The trees take
turns, so that drifts of the machine affect both, and ratios are taken within a round.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import snopt
from benchmarks.engine.worker import WORKLOADS, described, package, seconds
from benchmarks.files import spread
from snopt.lab.paper.timing import ratios, summary

OURS, THEIRS = "here", "there"


@contextmanager
def process_of(source: Path) -> Iterator[Executor]:
    """Give a process that has loaded the package ``snopt`` of the folder ``source``."""
    if not (source / "snopt" / "__init__.py").exists():
        raise SystemExit(f"{source} holds no package snopt; name a tree's src folder")
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as process:
        sys.path.insert(0, str(source))  # the new process starts with a copy of it
        try:
            found = Path(process.submit(package).result())
        finally:
            sys.path.remove(str(source))
        if source not in found.resolve().parents:
            raise RuntimeError(f"the process of {source} has loaded {found} instead")
        yield process


def compare(source: Path, cases: Iterable[str], repeats: int) -> dict[str, Any]:
    """Time this tree over another one on the workloads whose names begin with those of the cases.

    Returns:
        For each workload the loss and the evaluations of both trees, the CPU seconds of both and
        their ratio as medians with quartiles; ``{"cannot_run": ...}`` if one of them failed.
    """
    ours, theirs = Path(snopt.__file__).resolve().parents[1], source.expanduser().resolve()
    with process_of(ours) as here, process_of(theirs) as there:
        trees = {OURS: here, THEIRS: there}
        chosen = [name for name in WORKLOADS if name.startswith(tuple(cases))]
        found = {workload: _compare(trees, workload, repeats) for workload in chosen}
    return {"trees": {OURS: str(ours), THEIRS: str(theirs)}, "workloads": found}


def _compare(trees: dict[str, Executor], workload: str, repeats: int) -> dict[str, Any]:
    first = {name: tree.submit(described, workload).result() for name, tree in trees.items()}
    refused = {name: answer["error"] for name, answer in first.items() if "error" in answer}
    if refused:
        print(f"{workload:20} cannot run: {refused}", flush=True)
        return {"cannot_run": refused}
    times: dict[str, list[float]] = {name: [] for name in trees}
    for turn in range(repeats):
        for name in list(trees)[:: 1 if turn % 2 else -1]:
            times[name].append(trees[name].submit(seconds, workload).result())
    ratio = summary(ratios(times, OURS, THEIRS))
    print(
        f"{workload:20} {spread(ratio, 3)}   "
        + "   ".join(
            f"{name} {summary(times[name])['median']:.4f} s, evaluations "
            f"{first[name]['evaluations']}, loss {first[name]['loss']:.6f}"
            for name in trees
        ),
        flush=True,
    )
    return {
        "rounds": repeats,
        "first": first,
        "seconds": {name: summary(values) for name, values in times.items()},
        "ratio": ratio,
    }
