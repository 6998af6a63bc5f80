"""SNOpt on one and on two processes: what an iteration and the parts of a refresh take.

Measures, then writes docs/scaling.md and its picture; ``--page`` only the latter, from what is
stored.

Processes have one thread each and talk by gloo over the loopback interface. Solves have fixed
steps, so that all processes do the same work, and learning rates are zero. Seconds are those that
passed, of the slowest process, all beginning together; every figure is the least of its repeats.
The machine has to be quiet.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.files import DOCS, RESULTS, put, read, save, save_figure
from benchmarks.measuring import Iteration
from benchmarks.optimizer.scaling_fit import CASES, Case, draw, tables
from snopt.adjoint import NeuralODE
from snopt.models import ImageClassifier
from snopt.models.fields import TanhField
from snopt.optim import SNOpt, parallel

STEPS = {"method": "rk4", "options": {"step_size": 0.25}}
#: Floats in the messages that are timed by themselves.
MESSAGES = (1, 1_000, 10_000, 100_000, 1_000_000)


def problem(case: Case) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a model of the case's size, and a batch for all workers together."""
    torch.manual_seed(0)
    y = torch.randint(10, (case.batch,))
    if case.kind == "image":
        return ImageClassifier(1, 10, case.width, **STEPS), torch.randn(case.batch, 1, 28, 28), y
    block = NeuralODE(TanhField(64, case.width, depth=3), **STEPS)
    return nn.Sequential(block, nn.Linear(64, 10)), torch.randn(case.batch, 64), y


def trained(case: Case, share: slice) -> dict[str, Iteration]:
    """Return a plain iteration and a refresh of one model, on this process's share of a batch."""
    model, x, y = problem(case)
    wrapped = DistributedDataParallel(model)
    optimizer = SNOpt(wrapped, lr=0.0)

    def loss() -> Tensor:
        return cross_entropy(wrapped(x[share]), y[share])

    kinds = {"plain": False, "refresh": True}
    return {kind: Iteration(loss, optimizer, refresh) for kind, refresh in kinds.items()}


def sizes(optimizer: SNOpt) -> dict[str, Any]:
    """Return how much the processes exchange."""
    layers = [
        [(block.shape[0], block.shape[-1]) for mode in factors.modes for block in mode]
        for factors in optimizer.factors.values()
    ]
    count = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    return {"parameters": count, "layers": layers}


# ------------------------------------------------------------------------------------ timing


def slowest(seconds: float) -> float:
    """Return the seconds of the slowest process."""
    value = torch.tensor(seconds, dtype=torch.float64)
    distributed.all_reduce(value, distributed.ReduceOp.MAX)
    return float(value)


def timed(run: Callable[[], object], repeats: int) -> float:
    """Return the seconds of the slowest process, in the best of several repeats."""
    times = []
    for _ in range(repeats):
        distributed.barrier()
        start = time.perf_counter()
        run()
        times.append(slowest(time.perf_counter() - start))
    return min(times)


def watched(owner: Any, name: str, log: list[float], *, message: bool) -> Any:
    """Log the seconds of every call of a function meanwhile; processes start a message together."""
    original = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if message:
            distributed.barrier()
        start = time.perf_counter()
        result = original(*args, **kwargs)
        log.append(time.perf_counter() - start)
        return result

    return patch.object(owner, name, call)


def parts(refresh: Iteration, repeats: int) -> dict[str, float]:
    """Return the least seconds of the exchanges and decompositions of a refresh."""
    found: dict[str, list[list[float]]] = {"all_reduce": [], "eigh": [], "broadcast": []}
    for _ in range(repeats):
        logs: dict[str, list[float]] = {name: [] for name in found}
        with (
            watched(parallel.distributed, "all_reduce", logs["all_reduce"], message=True),
            watched(parallel, "each_eigh", logs["eigh"], message=False),
            watched(parallel.distributed, "broadcast", logs["broadcast"], message=True),
        ):
            refresh.run()
        for name, log in logs.items():
            found[name].append(log)
    # The same calls in every repeat: the best of each.
    sums = {
        name: sum(min(times) for times in zip(*logs, strict=True)) for name, logs in found.items()
    }
    return {name: slowest(seconds) for name, seconds in sums.items()}


def messages(repeats: int) -> dict[str, dict[str, float]]:
    """Time an all-reduce and a broadcast of each size."""
    found: dict[str, dict[str, float]] = {"all_reduce": {}, "broadcast": {}}
    for count in MESSAGES:
        data = torch.ones(count)
        runs: dict[str, Callable[[], object]] = {
            "all_reduce": lambda data=data: distributed.all_reduce(data),
            "broadcast": lambda data=data: distributed.broadcast(data, src=0),
        }
        for name, run in runs.items():
            found[name][str(4 * count)] = timed(run, repeats)
            data.fill_(1.0)
    return found


def decompositions(repeats: int) -> dict[str, float]:
    """Time one decomposition of each size."""
    found = {}
    for size in (8, 32, 64, 128, 256):
        rows = torch.randn(2 * size, size, generator=torch.Generator().manual_seed(0))
        gram = (rows.mT @ rows)[None]
        found[str(size)] = timed(lambda gram=gram: parallel.each_eigh([gram]), repeats)
    return found


# ----------------------------------------------------------------------------- the processes


def work(rank: int, workers: int, meeting: str, repeats: int) -> dict[str, Any]:
    """Measure as one of several processes, which find each other by the file ``meeting``."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=workers
    )
    try:
        found: dict[str, Any] = {}
        for case in CASES:
            shares = [case.batch // 2] if workers == 2 else [case.batch // 2, case.batch]
            for count in shares:
                made = trained(case, slice(rank * count, (rank + 1) * count))
                row = {
                    "plain": timed(made["plain"].run, 2 * repeats),
                    "refresh": timed(made["refresh"].run, repeats),
                    "parts": parts(made["refresh"], repeats),
                }
                exchanged = sizes(made["plain"].optimizer)
                found.setdefault(case.name, {"sizes": exchanged, "examples": {}})
                found[case.name]["examples"][str(count)] = row
        if workers == 2:
            found["messages"] = messages(50 * repeats)
        else:
            found["decompositions"] = decompositions(2 * repeats)
        return found
    finally:
        distributed.destroy_process_group()


def started(workers: int, repeats: int) -> dict[str, Any]:
    """Measure with several processes, and return what the first one found."""
    with TemporaryDirectory() as folder, ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        shared = workers, f"{folder}/meeting", repeats
        first, *_ = [pool.submit(work, rank, *shared) for rank in range(workers)]
        return first.result()


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS / "scaling.json")
    parser.add_argument("--page", action="store_true", help="only the page and the picture")


def main(chosen: argparse.Namespace) -> None:
    """Measure with one process and with two; write the page if it is of the stored results."""
    if not chosen.page:
        os.environ["OMP_NUM_THREADS"] = "1"
        save(chosen.out, {str(workers): started(workers, chosen.repeats) for workers in (1, 2)})
    if chosen.out == RESULTS / "scaling.json":
        found = read(chosen.out)
        put(DOCS / "scaling.md", tables(found))
        save_figure(DOCS / "scaling.png", partial(draw, found=found), dpi=120)
