"""Two source trees of this package in one interleaved run: this one's time over the other's.

Each tree has its own process (:mod:`benchmarks.engine.worker`), which runs one iteration of a
workload per request, on one thread, and answers with the CPU seconds. The trees take turns, so that
drifts of the machine affect both, and ratios are taken within a round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import snopt
from benchmarks.engine.worker import WORKLOADS
from benchmarks.files import ROOT, spread
from snopt.lab.paper.timing import ratios, summary

OURS, THEIRS = "here", "there"


class Tree:
    """A source tree in its own process.

    Args:
        source: the folder that holds the package ``snopt``.
    """

    def __init__(self, source: Path) -> None:
        self.source = source.expanduser().resolve()
        if not (self.source / "snopt" / "__init__.py").exists():
            raise SystemExit(f"{source} holds no package snopt; name a tree's src folder")
        path = os.pathsep.join(map(str, (self.source, ROOT.parent)))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.engine.worker"],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = Path(self.answer()["package"])
        if self.source not in found.resolve().parents:
            self.close()
            raise RuntimeError(f"the process of {self.source} has loaded {found} instead")

    def answer(self) -> dict[str, Any]:
        """Return the next answer."""
        line = self.process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"the process of {self.source} ended; its error is above")
        return json.loads(line)

    def ask(self, workload: str) -> dict[str, Any]:
        """Request one iteration; the first request of a workload runs several to settle."""
        self.process.stdin.write(json.dumps(workload) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def compare(source: Path, cases: Iterable[str], repeats: int) -> dict[str, Any]:
    """Time this tree over another one on the workloads whose names begin with those of the cases.

    Returns:
        For each workload the first answers of both trees, the CPU seconds of both and their ratio
        as medians with quartiles; ``{"cannot_run": ...}`` if one of them failed.
    """
    trees = {OURS: Tree(Path(snopt.__file__).parents[1])}
    try:
        trees[THEIRS] = Tree(source)
        chosen = [name for name in WORKLOADS if name.startswith(tuple(cases))]
        found = {workload: _compare(trees, workload, repeats) for workload in chosen}
    finally:
        for tree in trees.values():
            tree.close()
    return {"trees": {name: str(tree.source) for name, tree in trees.items()}, "workloads": found}


def _compare(trees: dict[str, Tree], workload: str, repeats: int) -> dict[str, Any]:
    first = {name: tree.ask(workload) for name, tree in trees.items()}
    refused = {name: answer["error"] for name, answer in first.items() if "error" in answer}
    if refused:
        print(f"{workload:20} cannot run: {refused}", flush=True)
        return {"cannot_run": refused}
    times: dict[str, list[float]] = {name: [] for name in trees}
    for turn in range(repeats):
        for name in list(trees)[:: 1 if turn % 2 else -1]:
            times[name].append(trees[name].ask(workload)["seconds"])
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
